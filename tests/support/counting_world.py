"""A small world for tests of counts: coders that note when they are asked, and the exact law of the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.privacy.counts import CountTable
from selpe.schema import Record


@dataclass(slots=True)
class Cut:
    """A coder that says what it was made of, and counts how often it was asked about a row."""

    name: str
    size: int
    of: Callable[[Record], Any]
    remote: str | None = None
    looks: int = 0

    def code(self, row: Record) -> int:
        self.looks += 1
        return self.of(row)  # type: ignore[no-any-return]


def by_class() -> Cut:
    """The class of a row of the line: A or B."""
    return Cut("label", 2, lambda row: "AB".index(str(row["label"])))


def by_third(top: int = 100) -> Cut:
    """In which third of the line a row lies."""
    return Cut("x", 3, lambda row: min(2, 3 * int(row["x"]) // top))  # type: ignore[arg-type]


def class_and_third(top: int = 100) -> CountTable:
    """Class × third: six cells."""
    return CountTable((by_class(), by_third(top)))


def thirds(top: int = 100) -> CountTable:
    """The thirds alone: three cells."""
    return CountTable((by_third(top),))


def discrete_laplace(k: NDArray[Any], scale: float) -> NDArray[np.float64]:
    """The exact law P(k) = (1 − q)/(1 + q) · q^|k|, q = e^(−1/scale)."""
    q = np.exp(-1.0 / scale)
    return np.asarray((1 - q) / (1 + q) * q ** np.abs(k))
