"""What utility is measured on: the real test records with their classes, and the sets that views are trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.views.base import Chances, Tick, View
from selpe.schema import Record, Schema

FEW = 10  # test records of a class below which its figure is called unsure
SHARED = 0.01  # share of test records in a training set from which on a note says so


@dataclass(frozen=True, slots=True)
class Trial:
    """Real records whose classes are predicted, the same for every view and training set."""

    records: tuple[Record, ...]
    classes: tuple[str, ...]  # those that occur, in the schema's order
    truth: NDArray[np.intp]  # each record's place in `classes`
    notes: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema, test: Sequence[Record]) -> Trial:
        """The test records that have a class of the schema."""
        records, labels = _labelled(schema, test)
        counts = Counter(labels)
        classes = tuple(label for label in schema.labels if counts[label])
        notes = _left_out("test records", len(test) - len(records))
        if few := [f"{label} ({counts[label]})" for label in classes if counts[label] < FEW]:
            notes += (f"few test records of class {', '.join(few)}: their figures are unsure",)
        truth = np.array([classes.index(label) for label in labels], dtype=np.intp)
        return cls(tuple(records), classes, truth, notes)


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a trained view says about the test records."""

    chances: Chances  # p̂, one column per class of the trial; a class that was never seen has a constant one
    guesses: NDArray[np.intp]  # the likeliest class's place among the trial's classes, -1 for a class not among them


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A set of labelled records to train on."""

    name: str
    records: tuple[Record, ...]
    labels: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema, name: str, given: Sequence[Record], trial: Trial) -> TrainingSet:
        """The records of a set that have a class of the schema."""
        records, labels = _labelled(schema, given)
        missing = tuple(label for label in trial.classes if label not in set(labels))
        notes = _left_out(f"records of '{name}'", len(given) - len(records))
        if not records:
            notes += (f"'{name}' has no labelled record: nothing can be learned from it",)
        elif len(set(labels)) == 1:
            notes += (f"'{name}' has records of one class only: nothing can be learned from it",)
        elif missing:
            notes += (f"'{name}' has no record of class {', '.join(missing)}: AUC 50 by construction",)
        held = {schema.linearise(record) for record in records}
        shared = sum(schema.linearise(record) in held for record in trial.records)
        if shared >= max(1.0, SHARED * len(trial.records)):
            notes += (
                f"{shared} of {len(trial.records)} test records stand in '{name}' too: its figures are flattered",
            )
        return cls(name, tuple(records), tuple(labels), missing, notes)

    def answers(self, view: View, trial: Trial, seeds: Sequence[int], tick: Tick) -> list[Predictions]:
        """What the view says about the test records after each training; the set has at least one record."""
        columns = sorted(set(self.labels))
        if len(columns) == 1:
            return [_arranged(np.ones((len(trial.records), 1)), columns, trial)]
        found = view.chances(self.records, self.labels, trial.records, seeds=seeds, tick=tick)
        return [_arranged(chances, columns, trial) for chances in found]


def _labelled(schema: Schema, given: Sequence[Record]) -> tuple[list[Record], list[str]]:
    known = frozenset(schema.labels)
    records, labels = [], []
    for record in given:
        label = schema.label_of(record)
        if label in known:
            records.append(record)
            labels.append(str(label))
    return records, labels


def _left_out(what: str, count: int) -> tuple[str, ...]:
    return (f"{count} {what} have no class of the schema and are left out",) if count else ()


def _arranged(chances: Chances, columns: Sequence[str], trial: Trial) -> Predictions:
    """A view's columns, one per class of its training set, as the trial's columns."""
    arranged = np.zeros((len(trial.records), len(trial.classes)))
    place = {label: number for number, label in enumerate(trial.classes)}
    for number, label in enumerate(columns):
        if label in place:
            arranged[:, place[label]] = chances[:, number]
    places = np.array([place.get(label, -1) for label in columns], dtype=np.intp)
    return Predictions(arranged, places[np.argmax(chances, axis=1)])
