"""Text fields: how long texts are, and which words they use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.fidelity.distances import wasserstein
from selpe.evaluation.fidelity.marginals import bin_edges, histogram
from selpe.evaluation.words import text_fields, words
from selpe.schema import Record, Schema


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many words texts have: the middle of the distribution and its 5th and 95th percentile."""

    mean: float
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Words:
    """Lengths in words on both sides, with histograms over the same bars."""

    real: Lengths
    synthetic: Lengths
    wasserstein: float
    edges: tuple[float, ...]
    real_shares: tuple[float, ...]
    synthetic_shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WordOverlap:
    """Distinct words on both sides, and how much of what is written they share.

    `coverage` is the share of the words written in real texts that the synthetic table uses too, `novelty` the share
    of the words written in synthetic texts that no real text has. Both count every occurrence: the number of distinct
    words grows with the table, and says little by itself.
    """

    real: int
    synthetic: int
    shared: int
    jaccard: float
    coverage: float
    novelty: float


@dataclass(frozen=True, slots=True)
class FieldTexts:
    """One text field of both tables."""

    words: Words
    vocabulary: WordOverlap


def compare_texts(schema: Schema, synthetic: Sequence[Record], real: Sequence[Record]) -> dict[str, FieldTexts]:
    """Every text field, compared. Without real rows the synthetic side stands alone."""
    found = {}
    for field in text_fields(schema):
        sides = []
        for rows in (real, synthetic):
            texts = (record.get(field.name) for record in rows)
            sides.append([words(each) for each in texts if isinstance(each, str)])
        found[field.name] = FieldTexts(_words(*sides), _vocabulary(*sides))
    return found


def _words(real: Sequence[Sequence[str]], synthetic: Sequence[Sequence[str]]) -> Words:
    here, there = (np.array([len(each) for each in side], dtype=np.float64) for side in (real, synthetic))
    edges = bin_edges(np.concatenate([here, there]), 1.0)
    return Words(
        _lengths(here),
        _lengths(there),
        wasserstein(here, there),
        tuple(edges.tolist()),
        histogram(here, edges),
        histogram(there, edges),
    )


def _lengths(counts: NDArray[np.float64]) -> Lengths:
    if not len(counts):
        return Lengths(math.nan, math.nan, math.nan, math.nan)
    low, middle, high = (float(q) for q in np.quantile(counts, (0.05, 0.5, 0.95)))
    return Lengths(float(counts.mean()), middle, low, high)


def _vocabulary(real: Sequence[Sequence[str]], synthetic: Sequence[Sequence[str]]) -> WordOverlap:
    here, there = (Counter(word for each in side for word in each) for side in (real, synthetic))
    shared = here.keys() & there.keys()
    either = len(here.keys() | there.keys())
    return WordOverlap(
        len(here),
        len(there),
        len(shared),
        len(shared) / either if either and here and there else math.nan,
        sum(here[word] for word in shared) / here.total() if here else math.nan,
        1 - sum(there[word] for word in shared) / there.total() if here and there else math.nan,
    )
