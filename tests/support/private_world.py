"""A small world for tests of the private step: points on a line, an account in memory, and the exact laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.schema import Record, Schema

MARKER = "QX7-Zebra-4711"  # stands in every private cell of the boundary tests


def line_schema(*labels: str, top: int = 100) -> Schema:
    """Records with a point `x` on a line and, where labels are given, a class."""
    fields: dict[str, Any] = {"x": {"kind": "integer", "min": 0, "max": top}}
    if labels:
        fields["label"] = {"kind": "category", "values": list(labels)}
    return Schema.from_dict({"name": "line", "label": "label" if labels else None, "fields": fields})


@dataclass(frozen=True, slots=True)
class Points:
    """The representation of records by their point."""

    x: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: NDArray[np.intp]) -> Points:
        return Points(self.x[rows])


@dataclass(slots=True)
class LineKernel:
    """Distance |x − c| / span, clipped; counts how often private rows were looked at."""

    span: float = 100.0
    remote: str | None = None
    looks: int = 0

    def represent(self, records: Sequence[Record]) -> Points:
        self.looks += 1
        return Points(np.array([float(r["x"]) for r in records]))  # type: ignore[arg-type]

    def over(self, pool: Points) -> LinePool:
        return LinePool(pool, self.span)

    def pool(self, *candidates: float) -> LinePool:
        return LinePool(Points(np.array(candidates, dtype=np.float64)), self.span)


@dataclass(frozen=True, slots=True)
class LinePool:
    """The kernel over candidates at given points."""

    candidates: Points
    span: float

    def __len__(self) -> int:
        return len(self.candidates)

    def distances(self, rows: Points) -> NDArray[np.float32]:
        gap = np.abs(rows.x[:, None] - self.candidates.x[None, :]) / self.span
        return np.minimum(gap, 1.0).astype(np.float32)

    def prototype(self, rows: Points) -> NDArray[np.float32]:
        return np.asarray(self.distances(Points(np.array([rows.x.mean()])))[0])

    def among(self, i: Sequence[int]) -> NDArray[np.float32]:
        return self.distances(self.candidates[np.asarray(i, dtype=np.intp)])


@dataclass(slots=True)
class MemoryAccount:
    """An account that lives in memory and notes the order of events."""

    run: str = "test"
    charges: list[Charge] = field(default_factory=list)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    remember: bool = True

    def charge(self, charge: Charge) -> Receipt:
        if self.remember:
            self.charges.append(charge)
        return Receipt("line", len(self.charges), "", charge)

    def stored(self, selection: str) -> dict[str, Any] | None:
        return self.results.get(selection)

    def store(self, receipt: Receipt, result: Mapping[str, Any]) -> None:
        if self.remember:
            self.results[receipt.charge.selection] = dict(result)


def permute_and_flip(scores: Sequence[float] | NDArray[Any], scale: float) -> NDArray[np.float64]:
    """The exact law P(i) = w_i Σ_{S ⊆ others} (−1)^|S| Π w_j / (|S| + 1), as the integral of a polynomial."""
    w = np.exp((np.asarray(scores, dtype=np.float64) - np.max(scores)) / scale)
    law = np.empty(len(w))
    for i in range(len(w)):
        product = np.ones(1)  # Π_{j≠i} (1 − w_j t), lowest power first
        for j in range(len(w)):
            if j != i:
                product = np.convolve(product, [1.0, -w[j]])
        law[i] = w[i] * float(np.sum(product / np.arange(1, len(product) + 1)))
    return law


def exponential(scores: Sequence[float] | NDArray[Any], scale: float) -> NDArray[np.float64]:
    """The exact law P(i) ∝ exp(u_i / scale)."""
    w = np.exp((np.asarray(scores, dtype=np.float64) - np.max(scores)) / scale)
    return np.asarray(w / w.sum())


LAWS = {"permute-and-flip": permute_and_flip, "exponential": exponential}
