"""What a private choice can be expected to find, on simulated public data. No private row is ever seen here.

The model has three parts. How near candidate s is to row x, up to a constant of the row, is

    c(x, s) = √ρ · q(s) + √(1 − ρ) · a(x)·b(s) / √d,        q, a, b standard normal, a and b of length d

- ρ, the *common share*: how much of the differences between candidates all rows of a class agree on;
- d, the *effective dimension* of what they do not agree on: few dimensions mean that similar rows vote alike.

Both were fitted once to what real choices found on real records (`benchmarks/selection_signal.py`).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from selpe.privacy.votes import sets_approved

Law = Literal["permute-and-flip", "exponential"]

SEED = 20_240_229
MOST_ROWS = 1000  # rows that are simulated; where there are more, the vote of each counts for several
MOST_CANDIDATES = 256  # candidates that are simulated; where there are more, each stands for several
CELLS = 240_000  # rows × candidates over all repetitions: the size of one simulation
SHARES = (0.25, 0.4, 0.5)  # the approval shares that a plan chooses from
LEAST_REPETITIONS, MOST_REPETITIONS = 6, 256
NODES = 64
TOP = 0.1


@dataclass(frozen=True, slots=True)
class Signal:
    """How alike the votes of rows are: the common share ρ and the effective dimension d of the rest."""

    common: float
    dimension: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What to expect of a winner: percentile by true closeness (0.5 is chance), and chance to be in the top tenth."""

    percentile: float
    top_tenth: float

    def towards(self, other: Outlook, share: float) -> Outlook:
        """A mixture of two outlooks."""
        mix = (a + share * (b - a) for a, b in zip(astuple(self), astuple(other), strict=True))
        return Outlook(*mix)


CHANCE = Outlook(0.5, TOP)
# Fitted by benchmarks/selection_signal.py on real records (water reviews, triage, loans; 20 private rows a class;
# MiniLM): of a grid of pairs, the one whose percentiles stray least from the measured ones. The tables differ by up
# to 0.08 at the same ε and α, so no constants come much nearer than 0.05. By variance the common share is larger,
# but much of that is agreement on far outliers, which does not help to find the nearest.
RECORDS = Signal(0.12, 2)
# Votes on sets of records (guides, candidate releases). A choice among six guides by 93 rows got 79, 92 and 96 % of
# the noise-free gain at ε = 0.5, 1 and 2; this share gives 78, 92 and 98 %. It also gives the rank correlation of
# about one half that was seen between noise-free votes on 32 sets and their quality. Sets differ in many ways at once.
SETS = Signal(0.01, 16)
PAPER_SPREAD = 0.05  # standard deviation of the paper's utility over the candidates of a class's pool


def winner_law(
    scores: NDArray[np.float64], rate: float, law: Law = "permute-and-flip", counts: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The chance of each option to win, options along the last axis. `counts` says how often each option stands there.

    Permute-and-flip takes the largest of `rate`·score plus exponential noise. With w = exp(rate·(score − best)),
    P(i) = w_i ∫ Π_{j≠i} (1 − w_j t) dt over [0, 1]. Taken over y = −ln t the integrand is one smooth bump near ln Σw,
    which a fixed quadrature meets to many digits, for any number of options.
    """
    n = np.ones_like(scores) if counts is None else counts
    there = n > 0
    best = np.where(there, scores, -np.inf).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        heights = np.where(scores < best, rate * (scores - best), 0.0)
    w = np.where(there, np.exp(heights), 0.0)
    chances = n * w
    if law == "permute-and-flip" and math.isfinite(rate):
        chances = chances * _integral(w, n)
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


def _integral(w: NDArray[np.float64], n: NDArray[np.float64]) -> NDArray[np.float64]:
    nodes, weights = _quadrature()
    middle = np.log((n * w).sum(axis=-1, keepdims=True))
    low = np.maximum(middle - 4.0, 0.0)  # further left the integrand is below exp(−e⁴)
    high = middle + 30.0
    total = np.zeros_like(w)
    for node, weight in zip(nodes, weights, strict=True):
        t = np.exp(-(low + (high - low) * node))
        logs = np.log1p(-w * t)
        total += weight * t * np.exp((n * logs).sum(axis=-1, keepdims=True) - logs)
    return total


@lru_cache(maxsize=1)
def _quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss–Legendre nodes on [0, 1], squared: denser on the left, where the bump is."""
    x, weights = np.polynomial.legendre.leggauss(NODES)
    half = (x + 1) / 2
    return np.asarray(half**2), np.asarray(weights * half)


@dataclass(frozen=True, slots=True)
class _World:
    """Simulated classes: how near candidates are to rows, each row's order of them, and the truth about them.

    Arrays are (repetitions, rows, candidates), and (repetitions, candidates) for the percentile by mean closeness to
    these rows, or (`unseen`) to rows in general.
    """

    closeness: NDArray[np.float32]
    order: NDArray[np.int16]
    truth: NDArray[np.float64]


@lru_cache(maxsize=64)
def _world(rows: int, candidates: int, signal: Signal, unseen: bool = False) -> _World:
    some = int(np.clip(CELLS // (rows * candidates), LEAST_REPETITIONS, MOST_REPETITIONS))
    # A generator per source, the growing axis first: more rows or candidates extend a world and do not replace it.
    common, left, right = (np.random.default_rng((SEED, part)) for part in range(3))
    width = max(1, round(signal.dimension))
    q = common.standard_normal((candidates, MOST_REPETITIONS))[:, :some].T
    a = left.standard_normal((rows, MOST_REPETITIONS, width))[:, :some].transpose(1, 0, 2)
    b = right.standard_normal((candidates, MOST_REPETITIONS, width))[:, :some].transpose(1, 2, 0)
    closeness = math.sqrt(signal.common) * q[:, None] + math.sqrt((1 - signal.common) / width) * (a @ b)
    order = _ranks(-closeness).astype(np.int16)
    truth = _ranks(q if unseen else closeness.mean(axis=1)) / max(1, candidates - 1)
    return _World(closeness.astype(np.float32), order, truth)


def _seen(rows: float, candidates: int) -> int:
    """How many of the rows are simulated."""
    return max(1, min(int(rows), MOST_ROWS, CELLS // (LEAST_REPETITIONS * min(candidates, MOST_CANDIDATES))))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(np.argsort(values, axis=-1), axis=-1)


@lru_cache(maxsize=4096)
def record_outlook(
    *,
    rows: float,
    candidates: int,
    rate: float,
    alpha: float | None = 0.25,
    batches: int = 1,
    law: Law = "permute-and-flip",
    signal: Signal = RECORDS,
) -> Outlook:
    """What to expect of one batch's winner among a class's candidates.

    `rows` are those of the class, shared out over the batches; `rate` is λ, the exponent per vote. Votes are approvals
    with share `alpha`, or closeness where it is None.
    """
    voters = rows / batches
    if rate == 0 or candidates < 2:
        return CHANCE
    if voters < 1:  # so many batches are empty, and an empty one chooses by chance
        lucky = _outlook(_world(1, min(candidates, MOST_CANDIDATES), signal), _Vote(1.0, candidates, rate, alpha, law))
        return CHANCE.towards(lucky, voters)
    seen = _seen(rows, candidates)
    world = _world(seen, min(candidates, MOST_CANDIDATES), signal)
    return _outlook(world, _Vote(voters, candidates, rate, alpha, law, seen / rows))


@lru_cache(maxsize=1024)
def set_outlook(*, rows: int, options: int, rate: float, law: Law = "permute-and-flip") -> Outlook:
    """What to expect of the one chosen among several sets, all rows voting; judged by records that nobody has seen."""
    if rate == 0 or options < 2:
        return CHANCE
    seen = _seen(rows, options)
    world = _world(seen, min(options, MOST_CANDIDATES), SETS, unseen=True)
    return _outlook(world, _Vote(rows, options, rate, sets_approved(options) / options, law, seen / rows))


@lru_cache(maxsize=1024)
def paper_outlook(*, rows: float, candidates: int, epsilon: float) -> Outlook:
    """What the paper's rule would find: exponent ε·u/2 for the distance u to a batch's centre, by the exponential law.

    Generous to it: with several classes a replaced record can move two of them, and the exponent would have to halve.
    """
    if epsilon == 0 or candidates < 2:
        return CHANCE
    world = _world(_seen(rows, candidates), min(candidates, MOST_CANDIDATES), RECORDS)
    centre = world.closeness.mean(axis=1, dtype=np.float64)
    utility = PAPER_SPREAD * (centre - centre.mean(axis=1, keepdims=True)) / centre.std(axis=1, keepdims=True)
    chances = winner_law(utility, epsilon / 2, "exponential")
    return _expected(chances, world.truth, (world.truth >= 1 - TOP).astype(np.float64))


@dataclass(frozen=True, slots=True)
class _Vote:
    """Who votes on how many candidates and how; `thinning` is the share of the rows that is simulated."""

    voters: float
    candidates: int
    rate: float
    alpha: float | None
    law: Law
    thinning: float = 1.0


def _outlook(world: _World, vote: _Vote) -> Outlook:
    """The outlook in a simulated world, in which a row may vote for several and a candidate stand for several."""
    _, seen, pool = world.closeness.shape
    voting = max(1, min(seen, int(vote.voters * vote.thinning)))
    rate = vote.rate * vote.voters / voting
    copies = vote.candidates / pool
    top = (world.truth >= 1 - TOP).astype(np.float64)
    if vote.alpha is None:
        # A vote rises from 0 to 1 between the 5th and the 95th percentile of distances.
        votes = np.clip(0.5 + world.closeness[:, :voting] / (2 * 1.645), 0.0, 1.0).sum(axis=1, dtype=np.float64)
        chances = winner_law(votes, rate, vote.law, np.full(votes.shape, copies))
        return _expected(chances, world.truth, top)
    approvals = (world.order[:, :voting] < math.ceil(vote.alpha * pool)).sum(axis=1)
    # Candidates with equal scores are equally likely to win, so the law is needed once per score.
    counts, truths, tops = (_sums(approvals, values, voting) for values in (np.ones(top.shape), world.truth, top))
    scores = np.broadcast_to(np.arange(voting + 1, dtype=np.float64), counts.shape)
    chances = winner_law(scores, rate, vote.law, copies * counts)
    some = np.maximum(counts, 1.0)
    return _expected(chances, truths / some, tops / some)


def _expected(chances: NDArray[np.float64], truth: NDArray[np.float64], top: NDArray[np.float64]) -> Outlook:
    return Outlook(*(float((chances * worth).sum(axis=-1).mean()) for worth in (truth, top)))


def _sums(scores: NDArray[np.intp], values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """The sum of values over the candidates of each score, per repetition."""
    repetitions = len(scores)
    cells = scores + np.arange(repetitions)[:, None] * (most + 1)
    sums = np.bincount(cells.ravel(), values.ravel(), repetitions * (most + 1))
    return np.asarray(sums, dtype=np.float64).reshape(repetitions, most + 1)
