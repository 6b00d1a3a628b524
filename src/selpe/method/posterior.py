"""From noisy counts to distributions (ours): counts shrunk to the model's own distribution by how noisy they are.

Within a class the true count of a code is taken to be Poisson around n·θ, and θ to scatter around the model's share p
as a Dirichlet distribution of concentration A does: A says how many rows the prior is worth. What is seen is that count
with noise of a known law. A is not chosen but averaged over by its evidence, A = ∞ (the prior is right) among the
values. So where the noise hides every signal the prior comes back, and where counts speak clearly they win. It is all
computed from noisy counts: it costs no ε.

A model also says things of a class that are not so. So p is itself a mixture: of what the model writes for the class,
and of what it writes for all classes. How much of the first the counts bear out is averaged over in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

NoiseName = Literal["laplace", "gaussian"]
WORTH = (math.inf, 3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)  # A: rows that the prior is worth
BELIEVED = (1.0, 0.75, 0.5, 0.25, 0.125, 0.0)  # how much of what the model says of classes is taken for true
_OUTRIGHT = math.log(0.97)  # beforehand, that all of it is; the others have equal parts of the rest
_LEAST = 1e-6  # of a share: what the model has never written may still be there
_CELLS_AT_ONCE = 2_000_000

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """The noise on a count: discrete Laplace of this scale, or Gaussian. Scale 0 is none, ∞ hides everything."""

    law: NoiseName
    scale: float

    @property
    def variance(self) -> float:
        """Of one count's noise."""
        return self.scale**2 * (2.0 if self.law == "laplace" else 1.0)

    @property
    def half_width(self) -> float:
        """Half of the interval that holds 95 % of the noise on one count."""
        return self.scale * (math.log(20.0) if self.law == "laplace" else 1.959964)

    def log_chance(self, offsets: Matrix) -> Matrix:
        """The log-probability of noise of this size, up to a constant."""
        if self.scale == 0:
            return np.where(offsets == 0, 0.0, -np.inf)
        if self.law == "laplace":
            return np.asarray(-np.abs(offsets) / self.scale)
        return np.asarray(-0.5 * (offsets / self.scale) ** 2)


@dataclass(frozen=True, slots=True)
class Posterior:
    """Shares of each code, one row a class; how much of the belief is left with the prior, 0 to 1; and how much of what
    the model says of classes the counts bear out, 0 to 1."""

    shares: Matrix
    prior_kept: float
    believed: float = 1.0


def class_sizes(tables: list[Matrix], noise: NoiseLaw, units: int) -> Matrix:
    """How many rows each class has, estimated from the noisy tables of class and code; equal where they say little.

    They add up to the units, unless the tables say clearly that fewer have been counted: rows that do not fit count
    nowhere. Taken for a signal, their absence would draw all shares to what the model writes seldom.
    """
    classes = len(tables[0])
    equal = np.full(classes, units / classes)
    if math.isinf(noise.scale):
        return equal
    precision, total = np.full(classes, 1 / equal[0] ** 2), equal / equal[0] ** 2
    for table in tables:
        spread = max(table.shape[1] * noise.variance, 1e-9)
        precision, total = precision + 1 / spread, total + table.sum(axis=1) / spread
    sizes = np.maximum(total / precision, 0.02 * equal)
    counted = float(np.mean([table.sum() for table in tables]))
    clearly = 3 * math.sqrt(noise.variance * float(np.mean([table.size for table in tables])) / len(tables))
    whole = units if counted + clearly >= units else max(counted, 0.02 * units)
    return np.asarray(sizes * whole / sizes.sum())


def posterior(counts: Matrix, prior: Matrix, sizes: Matrix, noise: NoiseLaw) -> Posterior:
    """Shares of every code in every class, from noisy counts and the model's own shares; rows are classes."""
    prior = _normalised(np.maximum(prior, _LEAST))
    if math.isinf(noise.scale):
        return Posterior(prior, 1.0)
    beliefs = BELIEVED if len(prior) > 1 else BELIEVED[:1]
    of_all = prior.mean(axis=0)
    found = [_averaged(counts, part * prior + (1 - part) * of_all, sizes, noise) for part in beliefs]
    others = math.log(-math.expm1(_OUTRIGHT) / max(1, len(beliefs) - 1))
    evidence = np.array([logs + (others if i else _OUTRIGHT) for i, (logs, _, _) in enumerate(found)])
    weights = np.exp(evidence - logsumexp(evidence))
    shares = sum(weight * shares for weight, (_, shares, _) in zip(weights, found, strict=True))
    kept = float(weights @ [kept for _, _, kept in found])
    return Posterior(_normalised(np.asarray(shares)), kept, float(weights @ beliefs))


def _averaged(counts: Matrix, prior: Matrix, sizes: Matrix, noise: NoiseLaw) -> tuple[float, Matrix, float]:
    """The evidence for a prior, the expected shares under it, and the weight of A = ∞."""
    found = [_given(worth, counts, prior, sizes, noise) for worth in WORTH]
    evidence = np.array([logs for logs, _ in found])
    weights = np.exp(evidence - logsumexp(evidence))
    shares = sum(weight * shares for weight, (_, shares) in zip(weights, found, strict=True))
    return float(logsumexp(evidence)) - math.log(len(WORTH)), np.asarray(shares), float(weights[0])


def steadiness(seen: Matrix) -> float:
    """How much of what a pool says of classes it would say again, 0 to 1; `seen` are its counts by class and code.

    Each of its records is foretold from all others: by its class, and by all classes. What a few records say by chance
    is not said again, so rows need not bear it out either.
    """
    if len(seen) < 2:
        return 1.0
    every = seen.sum(axis=0)
    spread = (every + 0.5) / (every + 0.5).sum()
    worth = 0.125 * seen.shape[1]
    own = (np.maximum(seen - 1, 0.0) + worth * spread) / (np.maximum(seen.sum(axis=1, keepdims=True) - 1, 0.0) + worth)
    of_all = np.maximum(every - 1, 0.0) + 0.5
    of_all = of_all / (every.sum() + 0.5 * len(every))
    logs = np.array([(seen * np.log(part * own + (1 - part) * of_all)).sum() for part in BELIEVED])
    weights = np.exp(logs - logsumexp(logs))
    return float(weights @ BELIEVED)


def _given(worth: float, counts: Matrix, prior: Matrix, sizes: Matrix, noise: NoiseLaw) -> tuple[float, Matrix]:
    """The evidence for one A, and the expected shares under it."""
    evidence, shares = 0.0, np.empty_like(prior)
    for row, size in enumerate(sizes):
        logs, expected = _true_counts(worth, counts[row], prior[row], float(size), noise)
        evidence += logs
        shares[row] = prior[row] if math.isinf(worth) else (worth * prior[row] + expected) / (worth + size)
    return evidence, _normalised(shares)


def _true_counts(
    worth: float, seen: NDArray[np.float64], prior: NDArray[np.float64], size: float, noise: NoiseLaw
) -> tuple[float, NDArray[np.float64]]:
    """The log-evidence of one class's noisy counts, and the expected true ones."""
    most = math.ceil(max(size + 4 * math.sqrt(size) + 10, float(seen.max(initial=0.0)) + 1))
    possible = np.arange(most + 1, dtype=np.float64)
    logs, expected = 0.0, np.empty_like(seen)
    height = max(1, _CELLS_AT_ONCE // len(possible))
    for start in range(0, len(seen), height):
        part = slice(start, start + height)
        joint = _log_prior(worth, possible, prior[part, None], size) + noise.log_chance(seen[part, None] - possible)
        whole = logsumexp(joint, axis=1)
        there = np.isfinite(whole)  # without noise a count may be one that the prior calls impossible
        logs += float(whole[there].sum())
        chances = np.exp(joint - np.where(there, whole, 0.0)[:, None])
        expected[part] = np.where(there, chances @ possible, np.maximum(seen[part], 0.0))
    return logs, expected


def _log_prior(worth: float, counts: Matrix, shares: Matrix, size: float) -> Matrix:
    """The log-probability of a true count: Poisson, or negative binomial where θ scatters around the share."""
    mean = size * shares
    if math.isinf(worth):
        return np.asarray(counts * np.log(mean) - mean - gammaln(counts + 1))
    shape = worth * shares
    return np.asarray(
        gammaln(counts + shape) - gammaln(shape) - gammaln(counts + 1)
        + shape * math.log(worth / (worth + size)) + counts * math.log(size / (worth + size))
    )  # fmt: skip


def _normalised(rows: Matrix) -> Matrix:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))
