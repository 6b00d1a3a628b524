"""What every predictor of utility has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.schema import Record, Schema

ViewKind: TypeAlias = Literal["text", "structured"]
Records: TypeAlias = Sequence[Record]
Chances: TypeAlias = NDArray[np.float64]
Tick: TypeAlias = Callable[[float], None]  # told how much of a training set's work is done, from 0 to 1


def within(tick: Tick, before: int, count: int, part: float) -> None:
    """Tells the share of the whole when `before` of `count` equal pieces are done, and `part` of the next."""
    tick((before + part) / count)


class View(ABC):
    """A way to look at records and to learn their classes: trained on one set, asked about another."""

    name: str  # under which the registry knows it
    kind: ViewKind  # whether it reads a record as one text or as fields
    remote: str | None  # the host that records are sent to, or None when they stay on this machine
    seeded: bool  # whether training leaves anything to chance, so that seeds make a difference
    note: str = ""  # what a reader of its figures must know, or nothing

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields = [field for field in schema.fields if field.name != schema.label]

    def require(self) -> None:  # noqa: B027 (most need nothing)
        """Raises ModelError, with what to install, where the view cannot run."""

    @abstractmethod
    def chances(
        self, train: Records, labels: Sequence[str], test: Records, *, seeds: Sequence[int], tick: Tick
    ) -> Iterator[Chances]:
        """For each seed, p̂ of every test record: one row a record, one column per class of `sorted(set(labels))`.

        There are at least two classes in `labels`. The label field of a record is never looked at.
        """
