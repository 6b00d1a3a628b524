"""Utility of a synthetic table: train on it, test on real records, and compare with other training sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ConfigError, PrivacyError
from selpe.evaluation.roc import areas, interval, resampled
from selpe.evaluation.trial import Predictions, TrainingSet, Trial
from selpe.evaluation.views import open_view
from selpe.evaluation.views.base import Tick, View, ViewKind
from selpe.evaluation.views.embedding import Embeddings
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from selpe.models.encoders.base import Encoder

SYNTHETIC, CHANCE = "synthetic", "chance"
DEFAULT_VIEWS = ("minilm", "boosted")


@dataclass(frozen=True, slots=True)
class Score:
    """How well one view, trained on one set of records, tells the classes of real records apart."""

    view: str
    kind: ViewKind
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
        return {**asdict(self), "missing": list(self.missing)}


@dataclass(frozen=True, slots=True)
class Utility:
    """The scores of every view on every training set, and what a reader must know about them."""

    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()

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
    allow_remote: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> Utility:
    """The utility of `synthetic` in every view, beside chance and the training sets that `references` names.

    Every view is trained on every set and asked about the real records of `test`. Where utility is not defined (no
    label, or test records of a single class) there are no scores, and a note says why. Raises ConfigError for an
    unknown view, ModelError for one that cannot run here, and PrivacyError where real records would leave the
    machine without `allow_remote`.
    """
    sets = _named_sets(synthetic, references or {})
    _check_counts(seeds, bootstrap)
    if schema.label is None:
        return Utility((), ("no label: utility is not defined",))
    trial = Trial.of(schema, test)
    if len(trial.classes) < 2:
        return Utility((), (*trial.notes, "utility is not defined: it takes test records of at least two classes"))
    embeddings = Embeddings(encoder)
    opened = [open_view(name, schema, embeddings) for name in dict.fromkeys(views)]
    for view in opened:
        _check_remote(view, allow_remote)
        view.require()
    trainings = [TrainingSet.of(schema, name, records, trial) for name, records in sets.items()]
    steps = _Steps(len(opened) * len(trainings), progress)
    scores: list[Score] = []
    for view in opened:
        for training in trainings:
            tick = steps.begin(f"{view.name}, {training.name}")
            if not training.records:
                scores.append(_chance(view, training.name, trial))
                continue
            answers = training.answers(view, trial, range(seeds if view.seeded else 1), tick)
            scores.append(_score(view, training, trial, answers, bootstrap))
        scores.append(_chance(view, CHANCE, trial))
    steps.end()
    notes = [*trial.notes, *(note for one in trainings for note in one.notes), *(view.note for view in opened)]
    return Utility(tuple(scores), tuple(note for note in dict.fromkeys(notes) if note))


def _score(view: View, training: TrainingSet, trial: Trial, answers: Sequence[Predictions], bootstrap: int) -> Score:
    """What one view reached with one training set, averaged over its trainings."""
    by_class = np.array([areas(trial.truth, one.chances) for one in answers])
    by_seed = by_class.mean(axis=1)
    auc = float(by_seed.mean())
    samples = resampled(trial.truth, [one.chances for one in answers], times=bootstrap)
    low, high = interval(samples) if bootstrap else (auc, auc)
    return Score(
        view=view.name,
        kind=view.kind,
        trained_on=training.name,
        auc=100 * auc,
        low=100 * low,
        high=100 * high,
        accuracy=100 * float(np.mean([one.guesses == trial.truth for one in answers])),
        macro_f1=100 * float(np.mean([_f1(one.guesses, trial) for one in answers])),
        per_class={name: 100 * float(mean) for name, mean in zip(trial.classes, by_class.mean(axis=0), strict=True)},
        missing=training.missing,
        rows=len(training.records),
        seeds=len(answers),
        error=100 * float(by_seed.std(ddof=1)) / math.sqrt(len(answers)) if len(answers) > 1 else 0.0,
    )


def _f1(guesses: NDArray[np.intp], trial: Trial) -> float:
    """Macro-F1 over the classes of the test records."""
    found = []
    for k in range(len(trial.classes)):
        right = np.sum((guesses == k) & (trial.truth == k))
        found.append(2 * right / (np.sum(guesses == k) + np.sum(trial.truth == k)))
    return float(np.mean(found))


def _chance(view: View, name: str, trial: Trial) -> Score:
    """What is reached without any training record: one of the classes, drawn evenly."""
    classes = len(trial.classes)
    shares = np.bincount(trial.truth, minlength=classes) / len(trial.truth)
    return Score(
        view=view.name,
        kind=view.kind,
        trained_on=name,
        auc=50.0,
        low=50.0,
        high=50.0,
        accuracy=100 / classes,
        macro_f1=100 * float(np.mean(2 * shares / (1 + classes * shares))),
        per_class=dict.fromkeys(trial.classes, 50.0),
        missing=trial.classes,
        rows=0,
        seeds=1,
        error=0.0,
    )


class _Steps:
    """Progress over views and training sets, as a stage and a share of the whole."""

    def __init__(self, count: int, progress: Callable[[str, float], None] | None) -> None:
        self._count = max(1, count)
        self._tell = progress or (lambda stage, share: None)
        self._begun = 0

    def begin(self, stage: str) -> Tick:
        """The next step; what is returned is told the share of it that is done."""
        before = self._begun
        self._begun += 1
        self._tell(stage, before / self._count)
        return lambda part: self._tell(stage, (before + min(1.0, part)) / self._count)

    def end(self) -> None:
        """Everything is done."""
        self._tell("done", 1.0)


def _named_sets(synthetic: Sequence[Record], references: Mapping[str, Sequence[Record]]) -> dict[str, Sequence[Record]]:
    if taken := {SYNTHETIC, CHANCE} & references.keys():
        raise ConfigError(f"a reference must not be called '{min(taken)}'", hint="that name is ours; choose another")
    return {SYNTHETIC: synthetic, **references}


def _check_counts(seeds: int, bootstrap: int) -> None:
    if seeds < 1 or bootstrap < 0:
        raise ConfigError("seeds must be at least 1, and bootstrap at least 0")


def _check_remote(view: View, allowed: bool) -> None:
    if view.remote is not None and not allowed:
        raise PrivacyError(
            f"view '{view.name}' would send real records to {view.remote}",
            hint="use an encoder in this process, or allow it with allow_remote=True",
        )
