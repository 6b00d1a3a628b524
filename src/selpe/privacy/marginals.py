"""Marginals that AIM or MST chooses and measures: what is asked of a table, at which price, and what comes out of it.

A row has one code in each of a few public columns, and counts in one cell of every marginal: one row more or less
moves each by 1 in one cell, and a replaced row by 1 in two. What to measure is chosen in the light of what was measured
before (marginal_algorithms.py); each step costs what OpenDP's map says of it, and all of them together what is charged.
A row without a code in some column counts nowhere, instead of raising.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.config import Adjacency
from selpe.errors import ConfigError, PrivacyError
from selpe.privacy.accounting import Concentrated, Event, concentrated_epsilon, concentrated_rho
from selpe.privacy.counts import MOST_CELLS, Coder, code_within
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.marginal_algorithms import (
    ALONE,
    CHOICE,
    Counter,
    Draws,
    Fit,
    NoisyMarginal,
    measure_aim,
    measure_mst,
    workload,
)
from selpe.privacy.mechanisms import (
    LARGEST_EPSILON,
    Guarantee,
    check_price,
    choice,
    choice_scale,
    gaussian_integers,
    gaussian_scale,
    laplace_integers,
    laplace_scale,
)
from selpe.privacy.noise import CountingFit, priced
from selpe.schema import Record

MarginalAlgorithm = Literal["aim", "mst"]

# How much more a replaced row costs than an added one, in ρ: Gaussian noise on counts twice as much, because √2 is to 1
# what the norms are to each other, and choices among marginals four times as much (PROOF.md, step 33).
COUNTS_REPLACED, CHOICES_REPLACED = 2.0, 4.0
CHOOSING = CHOICE * (1 - ALONE)  # of ρ, at most
_SAFE = 1 - 1e-9  # parts of a price are added up in floating point


@dataclass(frozen=True, slots=True)
class MarginalQuery:
    """The columns whose marginals are chosen from, of up to `degree` columns each.

    With a `target` AIM is asked for the marginals of the first column, the class, with others.
    """

    algorithm: MarginalAlgorithm
    axes: tuple[Coder, ...]
    degree: int = 2
    target: bool = False

    def __post_init__(self) -> None:
        if len({axis.name for axis in self.axes}) < len(self.axes) or len(self.axes) < 2:
            raise ConfigError("marginals need at least two columns, each with a name of its own")
        if any(axis.size < 1 for axis in self.axes) or self.degree < 1:
            raise ConfigError("every column of a marginal needs at least one code")
        largest = sorted(self.shape)[-2:]
        if math.prod(largest) > MOST_CELLS:
            raise ConfigError(
                f"a pair of columns has {math.prod(largest):,} cells, and {MOST_CELLS:,} are the most",
                hint="make a field with so many values a text, or take fewer bins",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(axis.name for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many codes each column has."""
        return tuple(axis.size for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Marginals:
    """What a measurement releases, and what it cost; as `Counts` (privacy/counts.py) otherwise."""

    tables: tuple[NoisyMarginal, ...]
    guarantee: Guarantee
    mechanism: str
    private: bool
    replayed: bool = False

    @classmethod
    def released(
        cls, kept: Sequence[Mapping[str, Any]], algorithm: MarginalAlgorithm, noise: MarginalNoise, replayed: bool
    ) -> Marginals:
        """The marginals as the ledger has kept them, measured with this noise."""
        tables = (
            NoisyMarginal(tuple(one["axes"]), np.array(one["counts"], dtype=np.float64), float(one["deviation"]))
            for one in kept
        )
        return cls(tuple(tables), cost_of(noise).guarantee, noise.name(algorithm), noise.private, replayed)


def codes_of(axes: Sequence[Coder], rows: Iterable[Record]) -> NDArray[np.int64]:
    """The codes of rows, one line a row, without the rows that lack one."""
    coded = ([code_within(axis.code(row), axis.size) for axis in axes] for row in rows)
    whole = [codes for codes in coded if None not in codes]
    return np.array(whole, dtype=np.int64).reshape(-1, len(axes))


# -- noise ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PricedMarginalNoise:
    """Noise by OpenDP, so that choices and counts together cost `epsilon`: Laplace at δ = 0, and Gaussian above it.

    Two controls stand beside: ε = 0 reads no row and measures nothing; ε = ∞ has next to no noise and is stamped 'not
    private'.
    """

    epsilon: float
    adjacency: Adjacency = "replace-one"
    delta: float = 0.0

    def __post_init__(self) -> None:
        _check(self.epsilon, self.adjacency, self.delta)

    @property
    def private(self) -> bool:
        """False where there is no noise to speak of."""
        return math.isfinite(self.epsilon)

    @property
    def reads_rows(self) -> bool:
        """Whether private rows are looked at."""
        return self.epsilon > 0

    def name(self, algorithm: MarginalAlgorithm) -> str:
        """The mechanism in words, with a stamp where it is not private."""
        if self.epsilon == 0:
            return "nothing measured (ε = 0)"
        if not self.private:
            return f"{algorithm}, next to no noise (ε = ∞), not private"
        return f"{algorithm}, discrete {'laplace' if self.delta == 0 else 'gaussian'}"

    def draws(self, key: str) -> Draws:
        """OpenDP's; `key` plays no part, since nothing here is seeded."""
        return OpenDPDraws(cost_of(self).pure)

    def below(self, count: int) -> int:
        """From the operating system's generator."""
        return secrets.randbelow(count)


@dataclass(frozen=True, slots=True)
class SeededMarginalNoise:
    """The same laws from a seeded generator: repeatable, hence NOT PRIVATE. For tests of everything around it."""

    epsilon: float
    seed: int
    adjacency: Adjacency = "replace-one"
    delta: float = 0.0
    test_only: bool = False

    def __post_init__(self) -> None:
        _check(self.epsilon, self.adjacency, self.delta)
        if not self.test_only:
            raise PrivacyError(
                "seeded noise protects nobody: whoever knows the seed can take it off",
                hint="leave the noise unseeded; tests say test_only=True, and the run is stamped 'not private'",
            )

    @property
    def private(self) -> bool:
        """Never."""
        return False

    @property
    def reads_rows(self) -> bool:
        """As the noise it stands in for."""
        return self.epsilon > 0

    def name(self, algorithm: MarginalAlgorithm) -> str:
        """The name of what it stands in for, stamped."""
        honest = PricedMarginalNoise(self.epsilon, self.adjacency, self.delta).name(algorithm)
        return f"seeded {honest}, not private, for tests only"

    def draws(self, key: str) -> Draws:
        """The same laws from a generator that this key starts."""
        return SeededDraws(cost_of(self).pure, _generator(self.seed, f"noise:{key}"))

    def below(self, count: int) -> int:
        """Seeded by the number of choices alone."""
        return int(_generator(self.seed, f"below:{count}").integers(count))


# A closed list: noise of unknown size would void the argument.
MarginalNoise: TypeAlias = PricedMarginalNoise | SeededMarginalNoise


@dataclass(frozen=True, slots=True)
class MarginalCost:
    """What a measurement may lose where a row is added or removed (ε if `pure`, else ρ), and what that is in ε."""

    loss: float
    pure: bool
    guarantee: Guarantee
    events: tuple[Event | None, Event | None] = (None, None)


def cost_of(noise: MarginalNoise) -> MarginalCost:
    """The largest loss that keeps to the ε and δ of this noise."""
    if noise.epsilon == 0:
        return MarginalCost(0.0, True, Guarantee(0.0, 0.0))
    if math.isinf(noise.epsilon):
        return MarginalCost(LARGEST_EPSILON, True, Guarantee(math.inf, math.inf))
    replaced = noise.adjacency == "replace-one"
    if noise.delta == 0:
        loss = noise.epsilon / 2 if replaced else noise.epsilon
        return MarginalCost(loss, True, Guarantee(loss, 2 * loss))
    more = (1 - CHOOSING) * COUNTS_REPLACED + CHOOSING * CHOICES_REPLACED
    rho = concentrated_rho(noise.epsilon, noise.delta) / (more if replaced else 1.0)
    events = Concentrated(rho), Concentrated(more * rho)
    one, other = (concentrated_epsilon(event.rho, noise.delta) for event in events)
    return MarginalCost(rho, False, Guarantee(one, other), events)


@dataclass(frozen=True, slots=True)
class OpenDPDraws:
    """Draws by OpenDP, at the least scale that costs no more than asked by the maps of its measurements."""

    pure: bool

    def counts(self, exact: NDArray[np.int64], loss: float) -> tuple[NDArray[np.int64], float]:
        """Counts with discrete Laplace or Gaussian noise, and its deviation."""
        scale = self.scale(loss)
        noisy = laplace_integers(exact, scale) if self.pure else gaussian_integers(exact, scale)
        return noisy, self.deviation(loss)

    def choose(self, scores: NDArray[np.int64], step: int, loss: float) -> int:
        """OpenDP's noisy maximum: permute-and-flip, or the exponential mechanism."""
        return choice(scores, choice_scale(loss, step, pure=self.pure), pure=self.pure)

    def scale(self, loss: float) -> float:
        """Of the noise on counts at a price."""
        return laplace_scale(loss, 1) if self.pure else gaussian_scale(loss, 1.0)

    def deviation(self, loss: float) -> float:
        """The standard deviation of that noise."""
        scale = self.scale(loss)
        return CountingFit("laplace", scale, Guarantee(0.0, 0.0)).deviation if self.pure else scale

    def spread(self, loss: float) -> float:
        """The mean of the absolute noise on a count at this price."""
        return self.scale(loss) * (1.0 if self.pure else math.sqrt(2 / math.pi))


@dataclass(frozen=True, slots=True)
class SeededDraws:
    """The same laws from a seeded generator. NOT PRIVATE."""

    pure: bool
    chance: np.random.Generator

    def counts(self, exact: NDArray[np.int64], loss: float) -> tuple[NDArray[np.int64], float]:
        """Counts with noise of the honest scale, rounded."""
        honest = OpenDPDraws(self.pure)
        draw = self.chance.laplace if self.pure else self.chance.normal
        noise = np.rint(draw(0.0, honest.scale(loss), size=exact.shape)).astype(np.int64)
        return exact + noise, honest.deviation(loss)

    def choose(self, scores: NDArray[np.int64], step: int, loss: float) -> int:
        """The largest of scores plus exponential or Gumbel noise, as in `SeededSelector`."""
        sample = self.chance.standard_exponential if self.pure else self.chance.gumbel
        return int(np.argmax(scores + choice_scale(loss, step, pure=self.pure) * sample(size=len(scores))))

    def spread(self, loss: float) -> float:
        """As the honest draws."""
        return OpenDPDraws(self.pure).spread(loss)


def measure(
    query: MarginalQuery, rows: Iterable[Record], noise: MarginalNoise, fit: Fit, *, key: str
) -> list[NoisyMarginal]:  # fmt: skip
    """The noisy marginals that AIM or MST chooses among those of these rows; none at ε = 0."""
    if not noise.reads_rows:
        return []
    counter = Counter(codes_of(query.axes, rows), query.shape, noise.draws(key))
    loss = cost_of(noise).loss * _SAFE
    if query.algorithm == "mst":
        return measure_mst(counter, loss, fit)
    steps = None if math.isfinite(noise.epsilon) else 2 * len(query.axes)
    asked = workload(len(query.axes), query.degree, target=query.target)
    return measure_aim(counter, loss, fit, asked=asked, steps=steps)


def marginal_charge(
    algorithm: MarginalAlgorithm, noise: MarginalNoise, *, run: str, selection: str, unit: str
) -> Charge:
    """What a measurement with this noise is charged, with the events by which a ledger composes it."""
    cost = cost_of(noise)
    return priced(
        noise.name(algorithm),
        cost.guarantee,
        private=noise.private,
        run=run,
        selection=selection,
        unit=unit,
        delta=0.0 if cost.pure else noise.delta,
        events=cost.events,
    )


def exact_counts(codes: NDArray[np.int64], axes: Sequence[int], shape: Sequence[int]) -> NDArray[np.float64]:
    """How many lines of codes fall into each cell of a marginal, without noise, in one line."""
    sizes = [shape[axis] for axis in axes]
    places = np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), sizes) if len(codes) else np.array([], int)
    return np.bincount(places, minlength=math.prod(sizes)).astype(np.float64)


def _check(epsilon: float, adjacency: str, delta: float) -> None:
    check_price(epsilon, adjacency)
    if not 0 <= delta < 1:
        raise ConfigError("delta must be at least 0 and below 1")


def _generator(seed: int, key: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
