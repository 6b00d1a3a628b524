"""ROC-AUC, one-vs-rest with a macro average, and its bootstrap over the records it was measured on.

Eq. (roc_auc) of the paper: the mean over classes k of AUC(𝕀(y = k), p̂_k). The area is the chance that a record of the
class is given a higher p̂_k than a record of another class, ties counting half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

COVERAGE = 0.95
_DIGITS = 12  # predictions that differ by less are ties: rounding in a matrix product must not rank records
_CELLS = 2_000_000  # resampled counts held at once


def areas(truth: NDArray[np.intp], chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """AUC(𝕀(y = k), p̂_k) of every class; column k of `chances` is p̂_k, and every class has a record."""
    found: NDArray[np.float64] = weighted_areas(truth, chances, np.ones((1, len(truth))))[0]
    return found


def resampled(
    truth: NDArray[np.intp], chances: Sequence[NDArray[np.float64]], *, times: int, seed: int = 0
) -> NDArray[np.float64]:
    """The macro average under `times` resamples of the records, and of the trainings where there are several.

    Records are drawn within their class, so that every resample has every class. The same seed gives the same
    resamples: figures of different training sets go up and down together.
    """
    if times < 1:
        return np.zeros(0)
    rng = np.random.default_rng(seed)
    parts = []
    for counts in _counts(truth, times, rng):
        each = [weighted_areas(truth, one, counts).mean(axis=1) for one in chances]
        parts.append(np.stack(each, axis=1))
    found = np.concatenate(parts)
    drawn = rng.integers(len(chances), size=found.shape)
    return np.asarray(np.take_along_axis(found, drawn, axis=1).mean(axis=1))


def interval(samples: NDArray[np.float64]) -> tuple[float, float]:
    """The middle 95 % of bootstrap samples."""
    low, high = np.quantile(samples, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def weighted_areas(
    truth: NDArray[np.intp], chances: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Areas of shape (resamples, classes), each record counted as often as a resample drew it."""
    found = np.empty((len(counts), chances.shape[1]))
    for k in range(chances.shape[1]):
        scores = np.round(chances[:, k], _DIGITS)
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        ties = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
        mine = truth[order] == k
        weights = counts[:, order]
        positive = np.add.reduceat(weights * mine, ties, axis=1)
        negative = np.add.reduceat(weights * ~mine, ties, axis=1)
        beaten = np.cumsum(negative, axis=1) - negative / 2
        pairs = positive.sum(axis=1) * negative.sum(axis=1)
        found[:, k] = (positive * beaten).sum(axis=1) / pairs
    return found


def _counts(truth: NDArray[np.intp], times: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """How often each resample draws each record, a block of resamples at a time."""
    block = max(1, _CELLS // len(truth))
    members = [np.flatnonzero(truth == k) for k in np.unique(truth)]
    for start in range(0, times, block):
        rows = min(block, times - start)
        counts = np.zeros((rows, len(truth)))
        for mine in members:
            drawn = rng.integers(len(mine), size=(rows, len(mine))) + np.arange(rows)[:, np.newaxis] * len(mine)
            counts[:, mine] = np.bincount(drawn.ravel(), minlength=rows * len(mine)).reshape(rows, len(mine))
        yield counts
