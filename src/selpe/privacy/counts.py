"""Tables of counts: how many rows fall into each cell of a small public grid, to be answered with noise.

A row adds 1 to at most one cell of each table, whatever its coders say: what they give is taken as a place and never as
an amount. So F tables move by at most F in L1 norm when a unit comes or goes, and by 2F when one is replaced. Every
count is total: a row that has no code counts nowhere instead of raising, because an error that depends on a private
row would itself be a release.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ConfigError, PrivacyError
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.noise import CountingFit, CountingLaw
from selpe.schema import Record

MOST_CELLS = 1 << 20  # of all tables of a measurement: they are stored in the ledger, and noise would drown more


class Coder(Protocol):
    """A public discretisation of one thing about a row: its class, or one of its fields.

    `code` sees private rows. It must depend on the one row and on public things alone, and neither keep the row nor
    write anything that was computed from it to disk.
    """

    @property
    def name(self) -> str:
        """What is discretised."""

    @property
    def size(self) -> int:
        """The number of codes."""

    @property
    def remote(self) -> str | None:
        """The host that private text would be sent to, or None when it stays in this process."""

    def code(self, row: Record) -> int:
        """The row's code, from 0 to `size` − 1; anything else counts nowhere."""


@dataclass(frozen=True, slots=True)
class CountTable:
    """One table to count: a code alone has one axis; class × code, or a pair of codes, has two."""

    axes: tuple[Coder, ...]

    def __post_init__(self) -> None:
        if not self.axes or any(axis.size < 1 for axis in self.axes):
            raise ConfigError("a table of counts needs at least one axis, and every axis at least one code")

    @property
    def name(self) -> str:
        """The names of its axes."""
        return " × ".join(axis.name for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return tuple(axis.size for axis in self.axes)

    @property
    def cells(self) -> int:
        """How many counts it has."""
        return math.prod(self.shape)

    def cell(self, row: Record) -> int | None:
        """The place of the row's cell when the table is laid out in one line; None where an axis has no code for it."""
        place = 0
        for axis in self.axes:
            code = code_within(axis.code(row), axis.size)
            if code is None:
                return None
            place = place * axis.size + code
        return place


@dataclass(frozen=True, slots=True)
class Counts:
    """What a measurement releases: noisy counts per table, in the table's shape, and what they cost.

    `scale` is b of the discrete Laplace law or σ of a Gaussian that is rounded; 0 without noise (ε = ∞), and infinite
    where nothing was counted (ε = 0) and all counts are 0. `private` is False for controls and seeded noise. `replayed`
    says that the result was stored earlier and nothing was drawn or charged now.
    """

    tables: Mapping[str, NDArray[np.int64]]
    scale: float
    law: CountingLaw
    guarantee: Guarantee
    mechanism: str
    private: bool
    replayed: bool = False

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on one count."""
        return self._fit.deviation

    @property
    def half_width(self) -> float:
        """Half of the narrowest interval of whole numbers that holds at least 95 % of the noise on one count."""
        return self._fit.half_width

    @property
    def _fit(self) -> CountingFit:
        return CountingFit(self.law, self.scale, self.guarantee)


def check_tables(tables: Sequence[CountTable]) -> None:
    """Raises unless these are tables that can be counted together and told apart by name."""
    if any(type(table) is not CountTable for table in tables):
        raise PrivacyError("what is counted must be a CountTable")
    if not tables or len({table.name for table in tables}) < len(tables):
        raise ConfigError("a measurement needs at least one table of counts, each with a name of its own")
    if sum(table.cells for table in tables) > MOST_CELLS:
        raise ConfigError(
            f"the tables of a measurement may have at most {MOST_CELLS:,} cells together",
            hint="measure fewer fields, or give them fewer codes",
        )


def tally(tables: Sequence[CountTable], rows: Iterable[Record]) -> NDArray[np.int64]:
    """The counts of all tables as one vector, table by table."""
    starts = np.cumsum([0, *(table.cells for table in tables)])
    counts = np.zeros(starts[-1], dtype=np.int64)
    for row in rows:
        for table, start in zip(tables, starts, strict=False):
            place = table.cell(row)
            if place is not None:
                counts[start + place] += 1
    return counts


def apart(counts: NDArray[np.int64], tables: Sequence[CountTable]) -> dict[str, NDArray[np.int64]]:
    """The tables of such a vector, each in its shape."""
    ends = np.cumsum([table.cells for table in tables])[:-1]
    return {
        table.name: part.reshape(table.shape) for table, part in zip(tables, np.split(counts, ends), strict=True)
    }  # fmt: skip


def code_within(given: object, size: int) -> int | None:
    """What a coder gave, as a plain number within its size."""
    if not isinstance(given, int | np.integer):
        return None
    number = int(given)
    return number if 0 <= number < size else None
