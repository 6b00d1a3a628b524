"""The embedded structured view `boosted`: one or more columns per field, and gradient boosting of decision trees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.views.base import Chances, Records, Tick, View, within
from selpe.evaluation.views.embedding import Embeddings, leading_axes
from selpe.evaluation.views.values import day_of, number_of
from selpe.schema import CategoryField, DateField, Field, Record, Schema, TextField, Value

AXES = 16  # columns of a text field
MANY = 20_000  # rows from which on threads help
MOST_CODES = 255  # categories that the trees can tell apart as such; longer lists are read as numbers
# Chosen on real triage records with 100 and 800 training rows: small leaves, because private tables are small, and a
# third of the columns at each split, because the columns of a text are many.
ROUNDS, RATE, LEAF, LEAVES, SHRINKAGE, SHARE = 100, 0.05, 5, 15, 1.0, 0.3

Matrix = NDArray[np.float64]


class BoostedView(View):
    """Numbers as they are, days as numbers, categories as codes, texts by the directions in which they differ most.

    Whatever is missing, unknown or unreadable is missing to the trees, which learn where missing values go.
    """

    name, kind = "boosted", "structured"
    seeded = True  # every split looks at a share of the columns, drawn at random

    def __init__(self, schema: Schema, embeddings: Embeddings) -> None:
        super().__init__(schema)
        self._embeddings = embeddings
        encoder, texts = embeddings.encoder, any(isinstance(field, TextField) for field in self._fields)
        self.remote = encoder.remote if texts else None
        self.note = f"view '{self.name}' reads text fields by the encoder {encoder.name}" if texts else ""

    def chances(
        self, train: Records, labels: Sequence[str], test: Records, *, seeds: Sequence[int], tick: Tick
    ) -> Iterator[Chances]:
        """p̂ of every test record for each seed."""
        known, asked, coded = self._table(train, test, lambda part: tick(part * 2 / 3))
        for number, seed in enumerate(seeds):
            yield _boost(known, labels, asked, coded, seed)
            tick(2 / 3 + (number + 1) / len(seeds) / 3)

    def _table(self, train: Sequence[Record], test: Sequence[Record], tick: Tick) -> tuple[Matrix, Matrix, list[bool]]:
        """The columns of both sets that can tell training records apart, and which of them are category codes."""
        known, asked = [np.zeros((len(train), 0))], [np.zeros((len(test), 0))]
        coded: list[bool] = []
        for number, field in enumerate(self._fields):
            if isinstance(field, TextField):
                here, there = self._text(field, train, test, partial(within, tick, number, len(self._fields)))
            else:
                here, there = _plain(field, train), _plain(field, test)
            useful = [k for k in range(here.shape[1]) if len(np.unique(here[:, k])) > 1]
            known.append(here[:, useful])
            asked.append(there[:, useful])
            coded += [isinstance(field, CategoryField) and len(field.values) <= MOST_CODES] * len(useful)
            tick((number + 1) / len(self._fields))
        return np.hstack(known), np.hstack(asked), coded

    def _text(
        self, field: TextField, train: Sequence[Record], test: Sequence[Record], tick: Tick
    ) -> tuple[Matrix, Matrix]:
        """Whether there is a text, and its embedding along the directions in which the training set's differ most."""
        sides = [[_text_of(record.get(field.name)) for record in records] for records in (train, test)]
        known, asked = ([text for text in texts if text is not None] for texts in sides)
        there = self._embeddings.of(asked, keep=True, tick=lambda part: tick(part / 3))
        vectors = [self._embeddings.of(known, tick=lambda part: tick(1 / 3 + part * 2 / 3)), there]
        centre, axes = leading_axes(vectors[0], AXES)
        columns = []
        for texts, found in zip(sides, vectors, strict=True):
            given = np.array([text is not None for text in texts])
            rows = np.full((len(texts), 1 + axes.shape[1]), np.nan)
            rows[:, 0] = given
            rows[given, 1:] = (found - centre) @ axes
            columns.append(rows)
        return columns[0], columns[1]


def _text_of(value: Value) -> str | None:
    return None if value is None else str(value)


def _plain(field: Field, records: Sequence[Record]) -> Matrix:
    """The columns of a field that is not a text; they do not depend on the training set."""
    values = [record.get(field.name) for record in records]
    if isinstance(field, CategoryField):
        codes = {value: float(number) for number, value in enumerate(field.values)}
        return np.array([[codes.get(str(value), math.nan)] for value in values]).reshape(-1, 1)
    if isinstance(field, DateField):
        return np.array([day_of(value) for value in values]).reshape(-1, 3)
    return np.array([[number_of(value)] for value in values]).reshape(-1, 1)


def _boost(known: Matrix, labels: Sequence[str], asked: Matrix, coded: Sequence[bool], seed: int) -> Chances:
    """Class probabilities by gradient boosting; the shares of the classes where no column tells records apart."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    if not coded:
        shares = np.unique(list(labels), return_counts=True)[1] / len(labels)
        return np.tile(shares, (len(asked), 1))
    model = HistGradientBoostingClassifier(
        max_iter=ROUNDS,
        learning_rate=RATE,
        min_samples_leaf=LEAF,
        max_leaf_nodes=LEAVES,
        l2_regularization=SHRINKAGE,
        max_features=SHARE,
        categorical_features=list(coded),
        early_stopping=False,
        random_state=seed,
    )
    # Threads that share out a few thousand rows wait for each other most of the time.
    with threadpool_limits(1 if len(known) < MANY else None):
        return np.asarray(model.fit(known, list(labels)).predict_proba(asked))
