"""Noise on the answer of a query: what it costs, with the query's sensitivity, and the draw itself.

The counterpart of the mechanisms for queries that release numbers instead of a winner. Gaussian noise costs what σ and
the query's L2 sensitivity say, exactly (accounting.py); discrete Laplace noise on counts what OpenDP's map says of the
L1 sensitivity. The draws are OpenDP's.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.config import Adjacency
from selpe.errors import ConfigError, PrivacyError
from selpe.privacy.accounting import Event, Gaussian, gaussian_epsilon, gaussian_sigma
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.mechanisms import (
    ADJACENCIES,
    Guarantee,
    check_price,
    gaussian,
    laplace_cost,
    laplace_integers,
    laplace_scale,
)

CountingLaw = Literal["laplace", "gaussian"]
_NORMAL_95 = 1.959964  # standard deviations to either side that hold 95 % of Gaussian noise


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far one unit can move an answer in L2 norm, under each of the two neighbour relations."""

    add_remove: float
    replace_one: float

    def __post_init__(self) -> None:
        if not (0 < self.add_remove < math.inf and 0 < self.replace_one < math.inf):
            raise ConfigError("a sensitivity must be a finite number above 0")

    def under(self, adjacency: Adjacency) -> float:
        """The bound that holds under one relation."""
        return self.add_remove if adjacency == "add-remove" else self.replace_one


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Noise of standard deviation σ on every number of an answer, by OpenDP; ε is stated at `delta`.

    Two controls stand beside: σ = ∞ reads no row and answers with noise alone (ε = 0); σ = 0 adds nothing and is
    stamped 'not private' (ε = ∞).
    """

    sigma: float
    delta: float

    def __post_init__(self) -> None:
        _check(self.sigma, self.delta)

    @property
    def name(self) -> str:
        """The mechanism in words, with a stamp where it is not private."""
        if self.sigma == 0:
            return "no noise (ε = ∞), not private"
        return "gaussian" if math.isfinite(self.sigma) else "noise alone (ε = 0)"

    @property
    def private(self) -> bool:
        """False where nothing is added."""
        return self.sigma > 0

    @property
    def reads_rows(self) -> bool:
        """Whether private rows are looked at."""
        return math.isfinite(self.sigma)

    def add(self, values: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        """The values with noise; `key` plays no part, since nothing here is seeded."""
        if self.sigma == 0:
            return np.asarray(values, dtype=np.float64)
        if not self.reads_rows:
            return gaussian(np.zeros(np.shape(values)), 1.0)
        return gaussian(values, self.sigma)

    def below(self, count: int) -> int:
        """From the operating system's generator."""
        return secrets.randbelow(count)


@dataclass(frozen=True, slots=True)
class SeededNoise:
    """The same law from a seeded generator: repeatable, hence NOT PRIVATE. For tests of everything around it."""

    sigma: float
    delta: float
    seed: int
    test_only: bool = False

    def __post_init__(self) -> None:
        _check(self.sigma, self.delta)
        _require_test(self.test_only)

    @property
    def name(self) -> str:
        """The name of what it stands in for, stamped."""
        return f"seeded {GaussianNoise(self.sigma, self.delta).name}, not private, for tests only"

    @property
    def private(self) -> bool:
        """Never."""
        return False

    @property
    def reads_rows(self) -> bool:
        """As the noise it stands in for."""
        return math.isfinite(self.sigma)

    def add(self, values: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        """The values with noise that repeats for the same seed and key."""
        shape, scale = np.shape(values), self.sigma if self.reads_rows else 1.0
        drawn = _generator(self.seed, f"noise:{key}").normal(0.0, scale or 1.0, size=shape)
        start = np.asarray(values, dtype=np.float64) if self.reads_rows else np.zeros(shape)
        return start + (drawn if scale else 0.0)

    def below(self, count: int) -> int:
        """Seeded by the number of choices alone: tests of people with several rows draw unseeded."""
        return int(_generator(self.seed, f"below:{count}").integers(count))


# A closed list: noise of unknown size would void the argument.
Noise: TypeAlias = GaussianNoise | SeededNoise


@lru_cache(maxsize=1024)
def guarantee_of(sigma: float, sensitivity: Sensitivity, delta: float, count: int = 1) -> Guarantee:
    """ε at `delta` of `count` answers with noise σ, under both relations."""
    if sigma == 0:
        return Guarantee(math.inf, math.inf)
    if math.isinf(sigma):
        return Guarantee(0.0, 0.0)
    return Guarantee(
        gaussian_epsilon(sigma, delta, sensitivity.add_remove, count),
        gaussian_epsilon(sigma, delta, sensitivity.replace_one, count),
    )


def priced(
    mechanism: str,
    cost: Guarantee,
    *,
    private: bool,
    run: str,
    selection: str,
    unit: str,
    delta: float = 0.0,
    events: Sequence[Event | None] = (None, None),
) -> Charge:
    """The charge of a look that costs this much; `events` are what happened under add-remove and under replace-one."""
    return Charge(
        run=run,
        selection=selection,
        mechanism=mechanism,
        epsilon_add_remove=cost.add_remove,
        epsilon_replace_one=cost.replace_one,
        delta=delta,
        unit=unit,
        note="" if private else "not private",
        event_add_remove=events[0],
        event_replace_one=events[1],
    )


def gaussian_charge(
    noise: Noise, sensitivity: Sensitivity, *, run: str, selection: str, unit: str, count: int = 1
) -> Charge:
    """What `count` answers with this noise are charged, with the events by which a ledger composes them exactly."""
    cost = guarantee_of(noise.sigma, sensitivity, noise.delta, count)
    looked = noise.sigma > 0 and noise.reads_rows
    return priced(
        noise.name,
        cost,
        private=noise.private,
        run=run,
        selection=selection,
        unit=unit,
        delta=noise.delta if looked else 0.0,
        events=_gaussian_events(noise.sigma, sensitivity, count) if looked else (None, None),
    )


# -- noise on counts --------------------------------------------------------------------------------------------------


class CountingFit(NamedTuple):
    """The noise that counts get: its law, its size, and what all tables of a measurement cost together.

    `scale` is b of the discrete Laplace law, P(k) ∝ e^(−|k|/b), or σ of a Gaussian that is rounded. It is 0 where
    nothing is added (ε = ∞), and infinite where nothing is counted (ε = 0).
    """

    law: CountingLaw
    scale: float
    guarantee: Guarantee

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on one count."""
        if not 0 < self.scale < math.inf:
            return self.scale
        if self.law == "gaussian":
            return math.hypot(self.scale, math.sqrt(1 / 12))  # rounding adds a twelfth to the variance
        return math.sqrt(2.0) * math.exp(-0.5 / self.scale) / -math.expm1(-1 / self.scale)

    @property
    def half_width(self) -> float:
        """The smallest whole number that the noise on one count exceeds, up or down, in at most 5 % of cases."""
        if not 0 < self.scale < math.inf:
            return self.scale
        if self.law == "gaussian":
            return max(0.0, math.ceil(_NORMAL_95 * self.scale - 0.5))
        # P(|k| > h) = 2 q^(h + 1) / (1 + q) with q = e^(−1 / scale)
        return max(0.0, math.ceil(self.scale * math.log(40.0 / (1.0 + math.exp(-1.0 / self.scale)))) - 1.0)

    @property
    def name(self) -> str:
        """The mechanism in words, with a stamp where it is not private."""
        if self.scale == 0:
            return "no noise (ε = ∞), not private"
        if math.isinf(self.scale):
            return "nothing counted (ε = 0)"
        return "discrete laplace" if self.law == "laplace" else "rounded gaussian"


@dataclass(frozen=True, slots=True)
class CountingNoise:
    """Noise on tables of counts, by OpenDP, sized so that all tables of a measurement together cost `epsilon`.

    The noise is discrete Laplace; with a `delta` above 0 it is Gaussian where that has the smaller deviation. Two
    controls stand beside: ε = 0 reads no row and counts nothing; ε = ∞ adds nothing and is stamped 'not private'.
    """

    epsilon: float
    adjacency: Adjacency = "replace-one"
    delta: float = 0.0

    def __post_init__(self) -> None:
        _check_counting(self.epsilon, self.adjacency, self.delta)

    @property
    def private(self) -> bool:
        """False where nothing is added."""
        return math.isfinite(self.epsilon)

    @property
    def reads_rows(self) -> bool:
        """Whether private rows are looked at."""
        return self.epsilon > 0

    def name(self, tables: int) -> str:
        """The mechanism in words, with a stamp where it is not private."""
        return count_noise_of(self, tables).name

    def add(self, values: NDArray[np.int64], tables: int, key: str) -> NDArray[np.int64]:
        """The counts of so many tables with noise; `key` plays no part, since nothing here is seeded."""
        fit = count_noise_of(self, tables)
        if not 0 < fit.scale < math.inf:
            return values
        if fit.law == "laplace":
            return laplace_integers(values, fit.scale)
        # Rounded after the noise, hence free: noise on whole numbers from the start would lack the exact formula.
        return _whole(gaussian(values.astype(np.float64), fit.scale))

    def below(self, count: int) -> int:
        """From the operating system's generator."""
        return secrets.randbelow(count)


@dataclass(frozen=True, slots=True)
class SeededCountingNoise:
    """The same laws from a seeded generator: repeatable, hence NOT PRIVATE. For tests of everything around it."""

    epsilon: float
    seed: int
    adjacency: Adjacency = "replace-one"
    delta: float = 0.0
    test_only: bool = False

    def __post_init__(self) -> None:
        _check_counting(self.epsilon, self.adjacency, self.delta)
        _require_test(self.test_only)

    @property
    def private(self) -> bool:
        """Never."""
        return False

    @property
    def reads_rows(self) -> bool:
        """As the noise it stands in for."""
        return self.epsilon > 0

    def name(self, tables: int) -> str:
        """The name of what it stands in for, stamped."""
        return f"seeded {count_noise_of(self, tables).name}, not private, for tests only"

    def add(self, values: NDArray[np.int64], tables: int, key: str) -> NDArray[np.int64]:
        """The counts with noise that repeats for the same seed and key."""
        fit, chance = count_noise_of(self, tables), _generator(self.seed, f"noise:{key}")
        if not 0 < fit.scale < math.inf:
            return values
        if fit.law == "gaussian":
            return values + _whole(chance.normal(0.0, fit.scale, size=values.shape))
        # The difference of two geometric numbers has the discrete Laplace law.
        up, down = chance.geometric(-math.expm1(-1 / fit.scale), size=(2, *values.shape))
        return np.asarray(values + up - down, dtype=np.int64)

    def below(self, count: int) -> int:
        """Seeded by the number of choices alone: tests of people with several rows draw unseeded."""
        return int(_generator(self.seed, f"below:{count}").integers(count))


# A closed list, as above.
CountNoise: TypeAlias = CountingNoise | SeededCountingNoise


def counting_sensitivity(tables: int) -> Sensitivity:
    """How far one unit can move so many tables of counts in L2 norm, where it counts in one cell of each."""
    return Sensitivity(_root(tables), _root(2 * tables))


@lru_cache(maxsize=1024)
def count_noise_of(noise: CountNoise, tables: int) -> CountingFit:
    """The law, the scale and the cost of this noise on so many tables of counts, before anything is drawn."""
    if tables < 1:
        raise ConfigError("a measurement needs at least one table of counts")
    if noise.epsilon == 0:
        return CountingFit("laplace", math.inf, Guarantee(0.0, 0.0))
    if math.isinf(noise.epsilon):
        return CountingFit("laplace", 0.0, Guarantee(math.inf, math.inf))
    laplace = _fit_laplace(noise.epsilon, noise.adjacency, tables)
    if noise.delta == 0:
        return laplace
    gauss = _fit_gaussian(noise.epsilon, noise.adjacency, noise.delta, tables)
    return gauss if gauss.deviation < laplace.deviation else laplace


def counting_charge(noise: CountNoise, tables: int, *, run: str, selection: str, unit: str) -> Charge:
    """What so many tables of counts are charged together: pure for Laplace noise, and else the Gaussian that it was."""
    fit = count_noise_of(noise, tables)
    gauss = fit.law == "gaussian"
    return priced(
        noise.name(tables),
        fit.guarantee,
        private=noise.private,
        run=run,
        selection=selection,
        unit=unit,
        delta=noise.delta if gauss else 0.0,
        events=_gaussian_events(fit.scale, counting_sensitivity(tables)) if gauss else (None, None),
    )


def _fit_laplace(epsilon: float, adjacency: Adjacency, tables: int) -> CountingFit:
    """A replaced unit leaves one cell and enters another, in each table: 2 in L1 norm, where one added moves 1."""
    scale = laplace_scale(epsilon, tables if adjacency == "add-remove" else 2 * tables)
    return CountingFit("laplace", scale, Guarantee(laplace_cost(scale, tables), laplace_cost(scale, 2 * tables)))


def _fit_gaussian(epsilon: float, adjacency: Adjacency, delta: float, tables: int) -> CountingFit:
    sensitivity = counting_sensitivity(tables)
    sigma = gaussian_sigma(epsilon, delta, sensitivity.under(adjacency))
    while guarantee_of(sigma, sensitivity, delta).under(adjacency) > epsilon:
        sigma *= 1 + 1e-9  # both searches end on the safe side, and so can miss each other
    return CountingFit("gaussian", sigma, guarantee_of(sigma, sensitivity, delta))


def _gaussian_events(sigma: float, sensitivity: Sensitivity, count: int = 1) -> tuple[Gaussian, Gaussian]:
    add_remove, replace_one = (Gaussian(sigma / sensitivity.under(adjacency), count) for adjacency in ADJACENCIES)
    return add_remove, replace_one


def _root(square: int) -> float:
    """√ of a whole number, rounded up where it is none itself."""
    whole = math.isqrt(square)
    return float(whole) if whole * whole == square else math.nextafter(math.sqrt(square), math.inf)


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.asarray(np.rint(values), dtype=np.int64)


def _check_counting(epsilon: float, adjacency: str, delta: float) -> None:
    check_price(epsilon, adjacency)
    if not 0 <= delta < 1:
        raise ConfigError("delta must be at least 0 and below 1")


def _require_test(test_only: bool) -> None:
    if not test_only:
        raise PrivacyError(
            "seeded noise protects nobody: whoever knows the seed can take it off",
            hint="leave the noise unseeded; tests say test_only=True, and the run is stamped 'not private'",
        )


def _check(sigma: float, delta: float) -> None:
    if not sigma >= 0:  # also refuses nan
        raise ConfigError("the standard deviation of noise must be 0 or more")
    if not 0 < delta < 1:
        raise ConfigError("delta must be above 0 and below 1", hint="Gaussian noise cannot promise a δ of 0")


def _generator(seed: int, key: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
