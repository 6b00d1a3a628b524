"""Histogram queries: how a table's rows spread their votes over public samples, to be answered with Gaussian noise.

A row votes on the samples of its own class alone. Its votes are fixed fractions of one by rank, so that what it can add
to an answer is known before a row is seen: the query's `sensitivity`. Votes are counted in whole numbers (parts of
`parts`), hence exactly, whatever the order of the rows. Every query is total: a distance that is NaN earns no
vote instead of an error, because an error that depends on a private row would itself be a release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ConfigError
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.noise import Sensitivity
from selpe.privacy.votes import CELLS_AT_ONCE, Kernel, PoolKernel, Representation

MOST_VOTES = 32  # 2⁻³¹ of a vote is far below any noise, and sums stay exact


@dataclass(frozen=True, slots=True)
class NearestVotes:
    """A row gives one vote to the nearest sample of its class; of equally near ones, to the first.

    A row more or less changes one count by 1. A replaced row takes its vote from one count and gives it to another,
    perhaps of another class: √2 in L2 norm.
    """

    kernel: Kernel = field(repr=False)
    pools: Mapping[str, PoolKernel] = field(repr=False)
    sensitivity: ClassVar[Sensitivity] = Sensitivity(1.0, math.nextafter(math.sqrt(2.0), math.inf))
    kinds: ClassVar[tuple[str, ...]] = ("near",)
    parts: ClassVar[int] = 1

    def tally(self, pool: PoolKernel, rows: Representation) -> NDArray[np.int64]:
        """The votes for each sample; shape (1, samples)."""
        counts = np.zeros((1, len(pool)), dtype=np.int64)
        for distances in _distances(pool, rows):
            counts[0] += _by_rank(distances, (1,))
        return counts


@dataclass(frozen=True, slots=True)
class NearFarVotes:
    """A row gives 2⁻⁽q⁻¹⁾ of a vote to its q-th nearest sample, and apart from that to its q-th furthest, q = 1 … Q.

    What a row adds to both histograms together has the L2 norm √(2·Σ 4⁻⁽q⁻¹⁾), 1.633 for Q = 8. All votes are positive,
    so that two rows differ most where they vote for different samples: √2 times as much.
    """

    kernel: Kernel = field(repr=False)
    pools: Mapping[str, PoolKernel] = field(repr=False)
    votes: int = 8
    kinds: ClassVar[tuple[str, ...]] = ("near", "far")

    def __post_init__(self) -> None:
        if not 1 <= self.votes <= MOST_VOTES:
            raise ConfigError(f"votes must be between 1 and {MOST_VOTES}")

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one row can move both histograms together."""
        return near_far_sensitivity(self.votes)

    @property
    def parts(self) -> int:
        """How many parts one vote has: the smallest is one of them."""
        return int(2 ** (self.votes - 1))

    def tally(self, pool: PoolKernel, rows: Representation) -> NDArray[np.int64]:
        """The votes for each sample in parts, near and far; shape (2, samples)."""
        weights = tuple(self.parts >> rank for rank in range(self.votes))
        counts = np.zeros((2, len(pool)), dtype=np.int64)
        for distances in _distances(pool, rows):
            counts[0] += _by_rank(distances, weights)
            counts[1] += _by_rank(-distances, weights)
        return counts


# A closed list: a query of unknown sensitivity would void the argument.
HistogramQuery: TypeAlias = NearestVotes | NearFarVotes


@dataclass(frozen=True, slots=True)
class Histogram:
    """What a look releases: noisy votes per class, one row per kind of vote, and what they cost.

    `private` is False for controls and seeded noise. `replayed` says that the result was stored earlier and nothing was
    drawn or charged now.
    """

    counts: Mapping[str, NDArray[np.float64]]
    guarantee: Guarantee
    mechanism: str
    private: bool
    replayed: bool = False


def near_far_sensitivity(votes: int) -> Sensitivity:
    """The L2 sensitivity of near and far votes together, rounded up."""
    square = 2.0 * math.fsum(4.0**-rank for rank in range(votes))
    return Sensitivity(
        math.nextafter(math.sqrt(square), math.inf), math.nextafter(math.sqrt(2.0 * square), math.inf)
    )  # fmt: skip


def sizes_of(query: HistogramQuery) -> dict[str, tuple[int, int]]:
    """The shape of each class's answer: kinds of votes, and samples."""
    return {label: (len(query.kinds), len(pool)) for label, pool in query.pools.items()}


def _distances(pool: PoolKernel, rows: Representation) -> Iterator[NDArray[np.float64]]:
    """The rows' distances in parts of bounded size."""
    height = max(1, CELLS_AT_ONCE // max(1, len(pool)))
    for start in range(0, len(rows), height):
        which = np.arange(start, min(start + height, len(rows)))
        distances: NDArray[Any] = pool.distances(rows[which])
        if distances.shape != (len(which), len(pool)):
            raise ValueError("a kernel must give one distance per row and sample")
        yield distances.astype(np.float64)


def _by_rank(costs: NDArray[np.float64], weights: tuple[int, ...]) -> NDArray[np.int64]:
    """The sum over rows of weights given by rank, the lowest cost first; of equal costs the first comes first."""
    left = np.where(np.isfinite(costs), costs, np.inf)
    counts = np.zeros(costs.shape[1], dtype=np.int64)
    every = np.arange(len(left))
    for weight in weights:
        best = np.argmin(left, axis=1)
        known = np.isfinite(left[every, best])
        counts += weight * np.bincount(best[known], minlength=len(counts))
        left[every, best] = np.inf
    return counts
