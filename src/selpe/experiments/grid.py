"""Cells: one run with one setting on one split, or one control. A cell is known by the hash of what went into it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from selpe.experiments.arms import Kind

VERSION = 2  # of what is measured: a cell of another version is done again
ALL_ROWS = 10**6  # more a class than any table has
Factor: TypeAlias = str | int | float


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a grid. `factors` are for tables and charts alone: what varies between cells of one row.

    `draw` numbers cells that differ by the noise of their private choices alone.
    """

    data: str
    seed: int
    row: str
    kind: Kind = "run"
    method: str = "selpe"
    epsilon: float = 0.0
    llm: str = ""
    per_class: int = 20
    private: int = 20
    settings: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, Factor] = field(default_factory=dict)
    draw: int = 0

    @property
    def title(self) -> str:
        """The cell in a few words, for progress."""
        told = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in
                self.factors.items()]  # fmt: skip
        spent = [f"ε {self.epsilon:g}"] if self.kind == "run" and not self.row.startswith("control") else []
        again = [f"draw {self.draw + 1}"] if self.draw else []
        return ", ".join([self.data, self.row, *spent, *told, f"seed {self.seed}", *again])

    def as_dict(self) -> dict[str, Any]:
        """The cell as plain data; an infinite ε is the word 'inf'."""
        return {
            "data": self.data, "seed": self.seed, "row": self.row, "kind": self.kind, "method": self.method,
            "epsilon": str(self.epsilon), "llm": self.llm, "per_class": self.per_class, "private": self.private,
            "settings": dict(self.settings), "factors": dict(self.factors),
            **({"draw": self.draw} if self.draw else {}),
        }  # fmt: skip

    def key(self, *, split: str, judged: Mapping[str, Any]) -> str:
        """A hash of everything that the cell's result depends on; `split` and `judged` stand for data and yardstick."""
        known = self.as_dict()
        for told in ("row", "factors", "data"):
            del known[told]
        if self.kind != "run":
            for unused in ("method", "epsilon", "llm", "settings"):
                del known[unused]
        text = json.dumps([VERSION, split, known, dict(judged)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def merged(*settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, later ones over earlier ones; groups are completed, not replaced."""
    found: dict[str, Any] = {}
    for each in settings:
        for name, value in each.items():
            both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
            found[name] = {**found[name], **value} if both else value
    return found
