"""Copies of whole records: the paper's NRS and DCR, beside the same figures for held-out real records.

NRS is 1 − n_dup / n_syn: the share of synthetic records that equal no private record after key-wise normalisation.
DCR is the L1 distance of a synthetic record to the closest private one, both as TF–IDF vectors of their full text; the
figure is the mean. The paper leaves the vectoriser open. Ours has unit vectors (the usual choice, and its figures fit
no other), keeps words of one letter (a rating is one), and learns its weights from all tables: a word that only
held-out records have must not be invisible.

A distance says nothing by itself. It stands beside two others: what held-out records have in the synthetic table's
place, and what the synthetic table has to held-out records. The closest real record of a synthetic one should be
private as often as chance has it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from selpe.evaluation.attack.lineup import Lineup, LineupResult
from selpe.evaluation.normalise import normalised
from selpe.schema import Record, Schema

CHUNK = 128
BARS = 24
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class NRS:
    """The share of records that equal no private record."""

    value: float
    duplicates: int  # synthetic records that equal a private one
    holdout_records: float  # the same figure for held-out records in the synthetic table's place
    to_holdout: float  # the same figure for the synthetic table against held-out records
    p_value: float


@dataclass(frozen=True, slots=True)
class Distances:
    """A distribution of distances: mean (the paper's figure), median, 5th percentile."""

    value: float
    median: float
    low: float


@dataclass(frozen=True, slots=True)
class DCR:
    """Distances to the closest private record, and what to compare them with."""

    value: float
    median: float
    low: float
    holdout_records: Distances  # of held-out records to the closest private record
    to_holdout: Distances  # of synthetic records to the closest held-out record
    private_records: Distances  # of private records to the closest other private record
    closer_than_private: float  # the share of synthetic records closer than 95 % of private records are to each other
    closer_to_private: float  # the share of synthetic records whose closest real record is private
    expected: float  # what chance makes of that share
    p_value: float
    edges: tuple[float, ...]
    synthetic: tuple[float, ...]  # histograms of distances to the closest private record
    holdout: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """One pass over all distances between synthetic and real records."""

    to_private: NDArray[np.float64]  # of each synthetic record, to the closest private one
    to_holdout: NDArray[np.float64]
    to_synthetic: NDArray[np.float64]  # of each real record of the line-up, to the closest synthetic one
    closest: NDArray[np.float64]  # the share of synthetic records whose closest real record this one is


def copies_of(schema: Schema, synthetic: Sequence[Record], lineup: Lineup) -> NDArray[np.float64]:
    """The share of synthetic records that equal each real record; equal real records divide theirs."""
    written = Counter(normalised(schema, record) for record in synthetic)
    keys = [normalised(schema, record) for record in lineup.rows]
    alike = Counter(keys)
    return np.array([written[key] / alike[key] for key in keys], dtype=np.float64) / max(1, len(synthetic))


def nearest_record_similarity(
    schema: Schema, synthetic: Sequence[Record], lineup: Lineup, verdict: LineupResult | None
) -> NRS:
    """NRS, with its companions."""
    private, others, made = (
        [normalised(schema, record) for record in rows] for rows in (lineup.private, lineup.holdout, synthetic)
    )
    duplicates = _equal(made, private)
    return NRS(
        1 - duplicates / len(made) if made else math.nan,
        duplicates,
        1 - _equal(others, private) / len(others) if others else math.nan,
        1 - _equal(made, others) / len(made) if made and others else math.nan,
        verdict.p_value if verdict else math.nan,
    )


def _equal(rows: Sequence[object], targets: Sequence[object]) -> int:
    known = set(targets)
    return sum(1 for row in rows if row in known)


def vectorised(schema: Schema, *tables: Sequence[Record]) -> list[csr_matrix]:
    """The TF–IDF vectors of every table's records, over the words of all of them."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [[schema.linearise(record) for record in table] for table in tables]
    everything = [text for table in texts for text in table]
    if not any(re.search(r"\w", text) for text in everything):
        return [csr_matrix((len(table), 1)) for table in texts]
    vectoriser = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b").fit(everything)
    return [vectoriser.transform(table) if table else csr_matrix((0, len(vectoriser.vocabulary_))) for table in texts]


def scan(synthetic: csr_matrix, rows: csr_matrix, private: int, tick: Callable[[float], None]) -> Scan:
    """Every closest distance between synthetic records and real rows, of which the first are private."""
    found = Scan(
        np.full(synthetic.shape[0], np.inf),
        np.full(synthetic.shape[0], np.inf),
        np.full(rows.shape[0], np.inf),
        np.zeros(rows.shape[0]),
    )
    for start in range(0, synthetic.shape[0] if rows.shape[0] else 0, CHUNK):
        here = slice(start, start + CHUNK)
        distances = _manhattan(synthetic[here], rows)
        if private:
            found.to_private[here] = distances[:, :private].min(axis=1)
        if private < rows.shape[0]:
            found.to_holdout[here] = distances[:, private:].min(axis=1)
        np.minimum(found.to_synthetic, distances.min(axis=0), out=found.to_synthetic)
        tied = distances <= distances.min(axis=1, keepdims=True) + TIE
        found.closest[:] += (tied / tied.sum(axis=1, keepdims=True)).sum(axis=0)
        tick(min(1.0, (start + CHUNK) / synthetic.shape[0]))
    found.closest[:] /= max(1, synthetic.shape[0])
    return found


def closest(rows: csr_matrix, targets: csr_matrix, *, same: bool = False) -> NDArray[np.float64]:
    """The distance of each row to the closest target; with `same`, to the closest but itself."""
    found = np.full(rows.shape[0], np.inf)
    if targets.shape[0] > same:
        for start in range(0, rows.shape[0], CHUNK):
            distances = _manhattan(rows[start : start + CHUNK], targets)
            if same:
                own = np.arange(len(distances))
                distances[own, own + start] = np.inf
            found[start : start + CHUNK] = distances.min(axis=1)
    return found


def _manhattan(left: csr_matrix, right: csr_matrix) -> NDArray[np.float64]:
    from sklearn.metrics.pairwise import manhattan_distances

    return np.asarray(manhattan_distances(left, right), dtype=np.float64)


def distance_to_closest_record(
    found: Scan, of_holdout: NDArray[np.float64], of_private: NDArray[np.float64], verdict: LineupResult | None
) -> DCR:
    """DCR, with its companions."""
    to_private, others, own = (_finite(each) for each in (found.to_private, of_holdout, of_private))
    main = _distances(to_private)
    usual = float(np.quantile(own, 0.05)) if len(own) else math.nan
    most = max((float(each.max()) for each in (to_private, others) if len(each)), default=0.0)
    edges = np.linspace(0.0, most or 1.0, BARS + 1)
    return DCR(
        main.value,
        main.median,
        main.low,
        _distances(others),
        _distances(_finite(found.to_holdout)),
        _distances(own),
        float((to_private < usual).mean()) if len(own) and len(to_private) else math.nan,
        verdict.observed if verdict else math.nan,
        verdict.expected if verdict else math.nan,
        verdict.p_value if verdict else math.nan,
        tuple(edges.tolist()),
        _histogram(to_private, edges),
        _histogram(others, edges),
    )


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]


def _distances(values: NDArray[np.float64]) -> Distances:
    if not len(values):
        return Distances(math.nan, math.nan, math.nan)
    low, middle = (float(q) for q in np.quantile(values, (0.05, 0.5)))
    return Distances(float(values.mean()), middle, low)


def _histogram(values: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[float, ...]:
    counts = np.histogram(values, edges)[0]
    return tuple((counts / max(1, len(values))).tolist())
