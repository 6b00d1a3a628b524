"""Gaussian noise on the answer of a query: what it costs, with the query's sensitivity, and the draw itself.

The counterpart of select.py's mechanisms for queries that release numbers instead of a winner. The cost follows from
σ and the query's L2 sensitivity alone, exactly (accounting.py); the draw is OpenDP's.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.config import Adjacency
from selpe.errors import ConfigError, PrivacyError
from selpe.privacy.accounting import Gaussian, gaussian_epsilon
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.mechanisms import Guarantee, gaussian


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
        if not self.test_only:
            raise PrivacyError(
                "seeded noise protects nobody: whoever knows the seed can take it off",
                hint="leave the noise unseeded; tests say test_only=True, and the run is stamped 'not private'",
            )

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


def gaussian_charge(
    noise: Noise, sensitivity: Sensitivity, *, run: str, selection: str, unit: str, count: int = 1
) -> Charge:
    """What `count` answers with this noise are charged, with the events by which a ledger composes them exactly."""
    cost = guarantee_of(noise.sigma, sensitivity, noise.delta, count)
    looked = noise.sigma > 0 and noise.reads_rows
    events = [Gaussian(noise.sigma / sensitivity.under(a), count) if looked else None
              for a in ("add-remove", "replace-one")]  # fmt: skip
    return Charge(
        run=run,
        selection=selection,
        mechanism=noise.name,
        epsilon_add_remove=cost.add_remove,
        epsilon_replace_one=cost.replace_one,
        delta=noise.delta if looked else 0.0,
        unit=unit,
        note="" if noise.private else "not private",
        event_add_remove=events[0],
        event_replace_one=events[1],
    )


def _check(sigma: float, delta: float) -> None:
    if not sigma >= 0:  # also refuses nan
        raise ConfigError("the standard deviation of noise must be 0 or more")
    if not 0 < delta < 1:
        raise ConfigError("delta must be above 0 and below 1", hint="Gaussian noise cannot promise a δ of 0")


def _generator(seed: int, key: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
