"""Diversity: how much a table repeats itself. Needs no real rows, and says most beside the same figures for them.

All figures but the shares of duplicates grow or shrink with the number of records: compare tables of equal size only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from selpe.evaluation.grades import BOUNDS, Bounds
from selpe.evaluation.normalise import Normalised, normalised
from selpe.evaluation.words import grams, passages, text_fields, words
from selpe.method.echoes import is_long
from selpe.schema import Record, Schema, TextField

NEAR = 0.8  # the share of words and values that two near duplicates have in common (Jaccard)
CHUNK = 256


@dataclass(frozen=True, slots=True)
class Diversity:
    """How much one table repeats itself; NaN where there is nothing to count."""

    records: int
    distinct_records: int
    exact_duplicates: float  # the share of records that an earlier record equals
    repeated_texts: float  # the share that an earlier record equals, or shares a long text with, word for word
    near_duplicates: float  # the share of records with another one that shares most words and values
    distinct_1: float  # distinct words per word, then pairs and triples of words
    distinct_2: float
    distinct_3: float
    self_similarity: float  # the mean cosine of two records
    nearest_similarity: float  # the mean cosine of a record and its nearest other
    effective_records: float  # the Vendi score: as many records with nothing in common would be as diverse


def measure_diversity(schema: Schema, records: Sequence[Record], vectors: NDArray[np.float64]) -> Diversity:
    """The diversity of records with these embeddings."""
    exact = Counter(normalised(schema, record) for record in records)
    mean, nearest = _similarity(vectors)
    return Diversity(
        len(records),
        len(exact),
        1 - len(exact) / len(records) if records else math.nan,
        _repeated(schema, records),
        _near_duplicates(schema, records),
        _distinct(schema, records, 1),
        _distinct(schema, records, 2),
        _distinct(schema, records, 3),
        mean,
        nearest,
        _effective(vectors),
    )


Figures = Mapping[str, Any]  # a Diversity as plain data


def judged(synthetic: Figures, real: Figures | None = None) -> dict[str, tuple[float | None, Bounds]]:
    """What of a table's diversity is graded, with its bounds: repetition beyond that of real records, and variety."""
    found: dict[str, tuple[float | None, Bounds]] = {}
    for name, figure in (("repeated", "repeated_texts"), ("near", "near_duplicates")):
        share = _known(synthetic.get(figure))
        if real is not None and share is not None:
            share = max(0.0, share - (_known(real.get(figure)) or 0.0))
        found[name] = share, BOUNDS[name if real is not None else f"{name}_alone"]
    if real is not None:
        ours, theirs = _known(synthetic.get("effective_records")), _known(real.get("effective_records"))
        found["effective"] = ours / theirs if ours is not None and theirs else None, BOUNDS["effective"]
    return found


def alarms(synthetic: Diversity, real: Diversity | None = None) -> tuple[str, ...]:
    """What is wrong with a table's diversity, in plain words: whatever is graded as poor."""
    ours, theirs = asdict(synthetic), None if real is None else asdict(real)
    poor = [name for name, (figure, bounds) in judged(ours, theirs).items() if bounds.grade(figure) == "poor"]
    found = []
    if "repeated" in poor:
        found.append(f"The table repeats itself: {_repetition(synthetic)}{_beside(theirs, 'repeated_texts')}.")
    elif "near" in poor:
        share, beside = _percent(synthetic.near_duplicates), _beside(theirs, "near_duplicates")
        found.append(f"The table repeats itself with few words changed: {share} have a near duplicate{beside}.")
    if real is not None and "effective" in poor:
        found.append(
            f"The table is narrow: it is as diverse as {synthetic.effective_records:.1f} unlike records; as many real "
            f"records are worth {real.effective_records:.1f}."
        )
    return tuple(found)


def _repetition(synthetic: Diversity) -> str:
    share = _percent(synthetic.repeated_texts)
    if synthetic.exact_duplicates == synthetic.repeated_texts:
        return f"{share} of its records equal another one"
    return f"{share} of its records have a text of another one, word for word, or equal it"


def _beside(real: Figures | None, figure: str) -> str:
    return "" if real is None else f"; among as many real records it is {_percent(real[figure])}"


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _repeated(schema: Schema, records: Sequence[Record]) -> float:
    """The share of records that an earlier one equals, or whose long text an earlier one has in the same field.

    Other fields may differ: one note under forty patients is one note. Short texts may coincide.
    """
    seen: set[tuple[str, ...] | Normalised] = set()
    again = 0
    for record in records:
        own = {normalised(schema, record), *_long_texts(schema, record)}
        again += not seen.isdisjoint(own)
        seen |= own
    return again / len(records) if records else math.nan


def _long_texts(schema: Schema, record: Record) -> Iterator[tuple[str, ...]]:
    for field in text_fields(schema):
        value = record.get(field.name)
        if isinstance(value, str) and is_long(value):
            yield field.name, *words(value)


def _distinct(schema: Schema, records: Sequence[Record], n: int) -> float:
    """Distinct runs of n words over all runs, within text fields; NaN without a run."""
    seen: set[tuple[str, ...]] = set()
    total = 0
    for record in records:
        for passage in passages(schema, record):
            found = list(grams(passage, n))
            seen.update(found)
            total += len(found)
    return len(seen) / total if total else math.nan


def _similarity(vectors: NDArray[np.float64]) -> tuple[float, float]:
    """The mean cosine over all pairs, and the mean cosine of each record's nearest other."""
    n = len(vectors)
    if n < 2:
        return math.nan, math.nan
    total = vectors.sum(axis=0)
    own = float((vectors * vectors).sum())
    best = np.empty(n)
    for start in range(0, n, CHUNK):
        rows = np.arange(start, min(start + CHUNK, n))
        cosines = vectors[rows] @ vectors.T
        cosines[np.arange(len(rows)), rows] = -np.inf
        best[rows] = cosines.max(axis=1)
    return (float(total @ total) - own) / (n * (n - 1)), float(best.mean())


def _effective(vectors: NDArray[np.float64]) -> float:
    """exp of the entropy of the eigenvalues of the cosine matrix over n, from the smaller matrix that has them."""
    n = len(vectors)
    if not n:
        return math.nan
    small = vectors @ vectors.T if n < vectors.shape[1] else vectors.T @ vectors
    values = np.linalg.eigvalsh(small / n)
    values = values[values > 1e-12]
    values = values / values.sum()
    return float(np.exp(-(values * np.log(values)).sum()))


def _near_duplicates(schema: Schema, records: Sequence[Record]) -> float:
    """The share of records that have `NEAR` of their words and values in common with another record."""
    if len(records) < 2:
        return 0.0 if records else math.nan
    place: dict[str, int] = {}
    columns, ends = [], [0]
    for record in records:
        columns += [place.setdefault(token, len(place)) for token in sorted(set(_tokens(schema, record)))]
        ends.append(len(columns))
    ones = np.ones(len(columns), dtype=np.float32)
    table = csr_matrix((ones, np.array(columns), np.array(ends)), shape=(len(records), max(1, len(place))))
    sizes = np.diff(ends).astype(np.float32)
    near = 0
    for start in range(0, len(records), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(records)))
        shared = (table[rows] @ table.T).toarray()
        either = sizes[rows][:, None] + sizes[None, :] - shared
        # Two records without a single value are the same record.
        alike = np.divide(shared, either, out=np.ones_like(shared), where=either > 0)
        alike[np.arange(len(rows)), rows] = 0.0
        near += int((alike.max(axis=1) >= NEAR).sum())
    return near / len(records)


def _tokens(schema: Schema, record: Record) -> Iterator[str]:
    """Each word of a text field, and each other value as one token, with the field they stand in."""
    for field in schema.fields:
        value = record.get(field.name)
        if value is None:
            continue
        if isinstance(field, TextField):
            yield from (f"{field.name}:{word}" for word in words(str(value)))
        else:
            yield f"{field.name}={value}"
