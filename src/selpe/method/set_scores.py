"""How private rows score sets of records (ours): samples of guides, and candidate releases.

Where there is a label, public models judge the sets: how well would a model trained on this set serve one more record?

In two views a small classifier is trained on every set alone. Its score for a row is a percentile: how highly it ranks
the row's own class for the row, among public records of other classes. The first view reads the record's texts (an
embedding of the whole, and one of each text field), the second these together with its other fields (binned values).
Both are linear, so that dozens of sets are judged in seconds. The third view trains nothing: it says how near a set's
records of the row's class come to the row. What tells classes apart need not look like the real records, and a choice
by prediction alone drifts towards plain cases. A row is scored by itself, whatever other rows exist. Without a label a
row votes for the sets that come nearest to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from threadpoolctl import threadpool_limits

from selpe.method.kernel import Encode, MultiChannelKernel, PoolDistances
from selpe.models.encoders.alone import encode_alone
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.privacy.votes import Coverage, Predictive, SetVote
from selpe.schema import BooleanField, CategoryField, Field, Record, Schema, TextField

BINS = 6
AXES = 96  # directions in which public records differ most; the rest costs time and tells little
# Beside embeddings of length 1: on real triage and review records votes followed the test scores best with both views
# reading texts, and worst (against the test scores, even) with one view on the whole text and one on fields alone.
FIELD_WEIGHT = 0.3
NEAREST = 3  # records of a set that a row's nearness looks at
REFERENCES = 400  # public records per class against which a row is ranked


def set_vote(
    schema: Schema,
    encoder: Encoder,
    kernel: MultiChannelKernel,
    sets: Sequence[Sequence[Record]],
    *,
    public_encoder: PublicEncoder | None = None,
) -> tuple[SetVote, str]:
    """The vote of private rows on these sets, by prediction where there is a label, else by coverage; and their hash.

    By the hash a stored choice is known to be of these sets and no others.
    """
    shared = {id(record): record for one in sets for record in one}  # most sets share their records
    texts = {key: schema.dumps(record) for key, record in shared.items()}
    everything = list({texts[id(record)]: record for one in sets for record in one}.values())
    vote: SetVote
    if schema.label is not None:
        vote = Predictive(SetJudge(schema, encoder, kernel, sets, everything, public_encoder=public_encoder))
    else:
        place = {texts[id(record)]: i for i, record in enumerate(everything)}
        members = tuple(tuple(place[texts[id(record)]] for record in one) for one in sets)
        vote = Coverage(kernel, kernel.over(kernel.represent_pool(everything)), members)
    return vote, hashlib.sha256("\n".join(texts[id(r)] for one in sets for r in one).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Model:
    """A linear classifier of one set in one view, with the public reference scores of each class."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    rank: dict[str, int]
    references: dict[str, NDArray[np.float64]]

    def chances(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Class probabilities, one row per feature row; an unseen class has none."""
        logits = features @ self.weights.T + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        exponentials = np.exp(logits)
        return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))

    def percentile(self, features: NDArray[np.float64], label: str) -> float:
        """The share of public records of other classes whose chance of `label` is below this row's."""
        column = self.rank.get(label)
        if column is None:
            return 0.0  # a set without a class serves no row of it
        chance = float(self.chances(features)[0, column])
        below, upto = np.searchsorted(self.references[label], [chance, np.nextafter(chance, 2.0)])
        return float(below + upto) / (2 * max(1, len(self.references[label])))


class SetJudge:
    """A Judge (privacy/votes.py) over sets of labelled records: two views that predict, and one of nearness.

    `public_encoder` may encode sets and public records in the encoder's place; private rows go through the encoder.
    """

    def __init__(
        self,
        schema: Schema,
        encoder: Encoder,
        kernel: MultiChannelKernel,
        sets: Sequence[Sequence[Record]],
        public: Sequence[Record],
        *,
        public_encoder: PublicEncoder | None = None,
    ) -> None:
        self._schema = schema
        self._text = _TextView(schema, encoder, public, public_encoder)
        self._fields = _FieldView(schema, public)
        self._models = self._trained(sets, public)
        self._nearness = _Nearness(schema, kernel, sets)

    @property
    def remote(self) -> str | None:
        """Where a view sends texts."""
        return self._text.encoder.remote or self._nearness.remote

    @property
    def views(self) -> int:
        """Texts, the whole record, and nearness."""
        return 3

    @property
    def options(self) -> int:
        """The number of sets."""
        return len(self._models[0])

    def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
        """Two percentiles and a nearness: shape (3, len(rows), options)."""
        scores = np.full((self.views, len(rows), self.options), np.nan)
        for number, row in enumerate(rows):
            label = self._schema.label_of(row)
            if label is None:
                continue
            for view, features in enumerate(self._views([row], self._text.private([row]))):
                scores[view, number] = [model.percentile(features, label) for model in self._models[view]]
            scores[-1, number] = self._nearness.of(row, label)
        return scores

    def _views(
        self, records: Sequence[Record], texts: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return texts, np.hstack([texts, FIELD_WEIGHT * self._fields.many(records)])

    def _trained(self, sets: Sequence[Sequence[Record]], public: Sequence[Record]) -> list[list[_Model]]:
        labels = [self._schema.label_of(record) for record in public]
        # Sets share most of their records: each is embedded once, and held once.
        distinct = {self._schema.dumps(record): record for one in (public, *sets) for record in one}
        place = {text: number for number, text in enumerate(distinct)}
        known, *members = ([place[self._schema.dumps(record)] for record in one] for one in (public, *sets))
        classes = [[str(self._schema.label_of(record)) for record in one] for one in sets]
        everything, views = list(distinct.values()), []
        for features in self._views(everything, self._text.public(everything)):
            reference = features[known]
            with _one_thread():
                views.append(
                    [
                        _train(features[rows], names, reference, labels)
                        for rows, names in zip(members, classes, strict=True)
                    ]
                )
        return views


def agreement(
    schema: Schema, encoder: Encoder, records: Sequence[Record], *, public_encoder: PublicEncoder | None = None
) -> NDArray[np.float64]:
    """How surely each public record is told to be of its own class by a model of the others: its rank there, 0 to 1.

    A small language model often writes a record that belongs to another class than it was asked for.
    """
    labels = np.array([str(schema.label_of(record)) for record in records])
    ranks = np.full(len(records), 0.5)
    classes, counts = np.unique(labels, return_counts=True)
    folds = min(5, int(counts.min()))
    if schema.label is None or len(classes) < 2 or folds < 2:
        return ranks
    texts = _TextView(schema, encoder, records, public_encoder).public(records)
    features = np.hstack([texts, FIELD_WEIGHT * _FieldView(schema, records).many(records)])
    model = LogisticRegression(C=2.0, max_iter=200)
    with _one_thread():
        chances = cross_val_predict(model, features, labels, cv=StratifiedKFold(folds), method="predict_proba")
    own = chances[np.arange(len(labels)), np.searchsorted(classes, labels)]
    for name in classes:
        mine = np.flatnonzero(labels == name)
        ranks[mine[np.argsort(own[mine], kind="stable")]] = np.arange(len(mine)) / max(1, len(mine) - 1)
    return ranks


class _Nearness:
    """How near the sets come to a row: minus the mean kernel distance to their few nearest records of its class."""

    def __init__(self, schema: Schema, kernel: MultiChannelKernel, sets: Sequence[Sequence[Record]]) -> None:
        self._kernel = kernel
        self._sets = len(sets)
        self._spaces: dict[str, PoolDistances] = {}
        self._members: dict[str, list[NDArray[np.intp]]] = {}
        for label in schema.labels:
            mine = [{schema.dumps(r): r for r in one if schema.label_of(r) == label} for one in sets]
            pool = {text: record for members in mine for text, record in members.items()}
            if not pool:
                continue
            place = {text: number for number, text in enumerate(pool)}
            self._spaces[label] = kernel.over(kernel.represent_pool(list(pool.values())))
            self._members[label] = [np.array([place[text] for text in members], dtype=np.intp) for members in mine]

    @property
    def remote(self) -> str | None:
        return self._kernel.remote

    def of(self, row: Record, label: str) -> NDArray[np.float64]:
        """One figure per set; a set without the class says nothing."""
        if label not in self._spaces:
            return np.full(self._sets, np.nan)
        distances = self._spaces[label].distances(self._kernel.represent([row]))[0].astype(np.float64)
        nearest = [np.sort(distances[members])[:NEAREST] for members in self._members[label]]
        return np.array([-float(few.mean()) if len(few) else np.nan for few in nearest])


class _TextView:
    """The record as one text and each text field by itself, embedded, along the axes in which public records differ.

    In the embedding of the whole a long field outweighs a short one, and the short one may be what tells classes apart.
    """

    def __init__(
        self, schema: Schema, encoder: Encoder, public: Sequence[Record], public_encoder: PublicEncoder | None
    ) -> None:
        self._schema = schema
        self.encoder = encoder
        self._encode_public = encoder.encode if public_encoder is None else public_encoder.encode_public
        self._label = () if schema.label is None else (schema.label,)
        self._texts = [f.name for f in schema.fields if isinstance(f, TextField) and f.name != schema.label]
        known = self._embedded(public, self._encode_public)
        self._centre = known.mean(axis=0)
        self._axes = principal(known - self._centre, AXES)

    def public(self, records: Sequence[Record]) -> NDArray[np.float64]:
        return self._along_axes(self._embedded(records, self._encode_public))

    def private(self, records: Sequence[Record]) -> NDArray[np.float64]:
        return self._along_axes(self._embedded(records, partial(encode_alone, self.encoder)))

    def _along_axes(self, embedded: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((embedded - self._centre) @ self._axes.T)

    def _embedded(self, records: Sequence[Record], encode: Encode) -> NDArray[np.float64]:
        columns = [[self._schema.linearise(record, without=self._label) for record in records]]
        columns += [[str(record.get(name) or "") for record in records] for name in self._texts]
        distinct = sorted({text for column in columns for text in column})
        place = {text: number for number, text in enumerate(distinct)}
        vectors = encode(distinct).astype(np.float64)
        return np.hstack([vectors[[place[text] for text in column]] for column in columns])


def principal(rows: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The unit axes along which centred rows spread most, at most `count`: right singular vectors by way of the small
    matrix of products, which takes a quarter of the time. Axes on which public records do not differ are left out."""
    products = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    last = len(products) - 1
    squares, vectors = scipy.linalg.eigh(products, subset_by_index=(max(0, last + 1 - count), last))
    there = squares > 1e-10 * squares[-1]
    there[-1] = True  # also where all rows are the same
    squares, vectors = np.maximum(squares[there], 1e-300)[::-1], vectors[:, there][:, ::-1]
    axes = (rows.T @ vectors) / np.sqrt(squares) if len(rows) <= rows.shape[1] else vectors
    return np.ascontiguousarray(axes.T)


def _one_thread() -> threadpool_limits:
    """Small matrices on one core: to share them among several takes ten times as long as the work itself."""
    return threadpool_limits(1, user_api="blas")


class _FieldView:
    """Fields as indicators: categories by value, numbers by bin, text by nothing, and a flag where a value is missing.

    Bin edges are quantiles of public records.
    """

    def __init__(self, schema: Schema, public: Sequence[Record]) -> None:
        self._fields = [f for f in schema.fields if f.name != schema.label and not isinstance(f, TextField)]
        self._edges = {field.name: _edges(field, public) for field in self._fields}
        self._width = sum(self._size(field) for field in self._fields) or 1

    def many(self, records: Sequence[Record]) -> NDArray[np.float64]:
        rows = np.zeros((len(records), self._width))
        for row, record in zip(rows, records, strict=True):
            start = 0
            for field in self._fields:
                row[start + self._slot(field, record.get(field.name))] = 1.0
                start += self._size(field)
        return rows

    def _size(self, field: Field) -> int:
        return (len(field.values) if isinstance(field, CategoryField) else len(self._edges[field.name]) + 1) + 1

    def _slot(self, field: Field, value: object) -> int:
        last = self._size(field) - 1
        if value is None:
            return last
        if isinstance(field, CategoryField):
            return field.values.index(str(value)) if str(value) in field.values else last
        return int(np.searchsorted(self._edges[field.name], _number(value), side="right"))


def _edges(field: Field, public: Sequence[Record]) -> NDArray[np.float64]:
    if isinstance(field, CategoryField):
        return np.zeros(0)
    if isinstance(field, BooleanField):
        return np.array([0.5])
    known = [_number(record[field.name]) for record in public if record.get(field.name) is not None]
    return np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1])) if known else np.zeros(0)


def _number(value: object) -> float:
    if isinstance(value, str):  # a day
        return float(value.replace("-", ""))
    return float(value)  # type: ignore[arg-type]


def _train(
    features: NDArray[np.float64], labels: Sequence[str], reference: NDArray[np.float64], public: Sequence[str | None]
) -> _Model:
    """A logistic regression as plain arrays; a set of one class predicts that class."""
    classes = sorted(set(labels))
    if len(classes) < 2:
        weights, bias = np.zeros((1, features.shape[1])), np.zeros(1)
    else:
        model = LogisticRegression(C=2.0, max_iter=300).fit(features, labels)
        weights, bias, classes = model.coef_, model.intercept_, [str(name) for name in model.classes_]
        if len(classes) == 2:  # scikit-learn keeps one row for two classes
            weights, bias = np.vstack([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
    rank = {name: number for number, name in enumerate(classes)}
    bare = _Model(np.asarray(weights, dtype=np.float64), np.asarray(bias, dtype=np.float64), rank, {})
    chances = bare.chances(reference)
    references = {}
    for name, column in rank.items():
        others = [i for i, label in enumerate(public) if label != name]
        step = max(1, len(others) // REFERENCES)
        references[name] = np.sort(chances[others[::step], column]) if others else np.zeros(0)
    return _Model(bare.weights, bare.bias, rank, references)
