"""One private choice among options, and noise on numbers. The only module that imports OpenDP or draws unseeded noise.

A mechanism carries its guarantee: `calibrate` gives a `Selector` whose `guarantee` can be asked before anything is
drawn. The numbers in it are what OpenDP's own privacy map says of the measurement that will run, not a formula of ours.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from opendp import domains, measurements, measures, metrics
from opendp.mod import enable_features

from selpe.config import Adjacency
from selpe.errors import ConfigError, PrivacyError

Law = Literal["permute-and-flip", "exponential"]

LAWS: tuple[Law, ...] = ("permute-and-flip", "exponential")
ADJACENCIES: tuple[Adjacency, ...] = ("add-remove", "replace-one")
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-9, 1e6
_DRAWS_AT_ONCE = 16_384

enable_features("contrib")


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What one selection costs: pure ε under each of the two neighbour relations."""

    add_remove: float
    replace_one: float

    def under(self, adjacency: Adjacency) -> float:
        """The ε that holds under one relation."""
        return self.add_remove if adjacency == "add-remove" else self.replace_one


@dataclass(frozen=True, slots=True)
class Influence:
    """How far one record can move the integer scores that a selection looks at.

    `step` bounds the move of a score. `monotone` says that adding a record moves no score down: true of sums of votes,
    false of a batch's prototype. `pools` is the number of pools in the round, because a replaced record can leave
    one pool and enter another.
    """

    step: int = 1
    monotone: bool = True
    pools: int = 1


class Selector(Protocol):
    """A mechanism fitted to an influence: it knows its cost, and draws."""

    @property
    def name(self) -> str:
        """The mechanism in words, with a stamp where it is not private."""

    @property
    def guarantee(self) -> Guarantee:
        """The cost of a whole round, asked for before anything is drawn."""

    @property
    def private(self) -> bool:
        """Whether the guarantee is real; controls and seeded draws say no."""

    @property
    def reads_rows(self) -> bool:
        """Whether the scores, and so the private rows, are looked at."""

    def draw(self, scores: NDArray[np.int64]) -> int:
        """The index of one option."""

    def below(self, count: int) -> int:
        """A random number from 0 to `count` − 1 that has seen no data: batches, and which record of a person."""


@dataclass(frozen=True, slots=True)
class NoisyMax:
    """Permute-and-flip (default) or the exponential mechanism, by OpenDP, with the operating system's randomness.

    `epsilon` is the price of the whole round under `adjacency`. Two controls stand beside: 0 chooses uniformly and
    reads no row; infinity takes the best and is stamped 'not private'. `printed` takes the paper's printed exponent
    ε·u instead of one that keeps to ε: the selector's guarantee then says what that really costs.
    """

    epsilon: float
    adjacency: Adjacency = "replace-one"
    law: Law = "permute-and-flip"
    printed: bool = False

    def __post_init__(self) -> None:
        _check_settings(self.epsilon, self.adjacency, self.law)

    def calibrate(self, influence: Influence, key: str = "") -> Selector:
        """The selector for this influence; `key` plays no part, since nothing here is seeded."""
        if self.epsilon == 0:
            return Uniform()
        if math.isinf(self.epsilon):
            return Argmax()
        return _fit(self.epsilon, self.adjacency, self.law, influence, self.printed)


@dataclass(frozen=True, slots=True)
class SeededMechanism:
    """The same laws from a seeded generator: repeatable, hence NOT PRIVATE. For tests of everything around it."""

    epsilon: float
    seed: int
    adjacency: Adjacency = "replace-one"
    law: Law = "permute-and-flip"
    test_only: bool = False

    def __post_init__(self) -> None:
        _check_settings(self.epsilon, self.adjacency, self.law)
        if not self.test_only:
            raise PrivacyError(
                "a seeded selection protects nobody: whoever knows the seed can undo the noise",
                hint="leave the selection unseeded; tests say test_only=True, and the run is stamped 'not private'",
            )

    def calibrate(self, influence: Influence, key: str = "") -> Selector:
        """A selector that repeats its draws for the same seed and key."""
        honest = NoisyMax(self.epsilon, self.adjacency, self.law).calibrate(influence)
        digest = hashlib.sha256(f"{self.seed}:{key}".encode()).digest()
        noise = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
        scale = honest.scale if isinstance(honest, OpenDPSelector) else 0.0
        return SeededSelector(honest, self.law, scale, noise)


# A closed list: a mechanism of unknown bounds would void the argument.
Mechanism: TypeAlias = NoisyMax | SeededMechanism


@dataclass(frozen=True, slots=True)
class OpenDPSelector:
    """A selection by one OpenDP measurement."""

    name: str
    guarantee: Guarantee
    scale: float
    measurement: Any
    private: bool = True
    reads_rows: bool = True

    def draw(self, scores: NDArray[np.int64]) -> int:
        """One draw of OpenDP's noisy max."""
        return int(self.measurement(scores.tolist()))

    def below(self, count: int) -> int:
        """From the operating system's generator."""
        return secrets.randbelow(count)


@dataclass(frozen=True, slots=True)
class Uniform:
    """The control ε = 0: every option is as likely as any other, and no private row is read."""

    name: str = "uniform (ε = 0)"
    guarantee: Guarantee = Guarantee(0.0, 0.0)
    private: bool = True
    reads_rows: bool = False

    def draw(self, scores: NDArray[np.int64]) -> int:
        """Any option; of the scores only their number is used."""
        return secrets.randbelow(len(scores))

    def below(self, count: int) -> int:
        """From the operating system's generator."""
        return secrets.randbelow(count)


@dataclass(frozen=True, slots=True)
class Argmax:
    """The control ε = ∞: the best option, the first of equals. NOT PRIVATE."""

    name: str = "argmax (ε = ∞), not private"
    guarantee: Guarantee = Guarantee(math.inf, math.inf)
    private: bool = False
    reads_rows: bool = True

    def draw(self, scores: NDArray[np.int64]) -> int:
        """The highest score's index."""
        return int(np.argmax(scores))

    def below(self, count: int) -> int:
        """From the operating system's generator."""
        return secrets.randbelow(count)


@dataclass(frozen=True, slots=True)
class SeededSelector:
    """A repeatable stand-in for another selector. NOT PRIVATE, whatever its nominal guarantee says."""

    model: Selector
    law: Law
    scale: float
    noise: np.random.Generator
    private: bool = False

    @property
    def name(self) -> str:
        """The name of what it stands in for, stamped."""
        return f"seeded {self.model.name}, not private, for tests only"

    @property
    def guarantee(self) -> Guarantee:
        """The nominal cost, so that budgets behave in tests as they do without a seed."""
        return self.model.guarantee

    @property
    def reads_rows(self) -> bool:
        """As the selector it stands in for."""
        return self.model.reads_rows

    def draw(self, scores: NDArray[np.int64]) -> int:
        """The same law as the model: the largest of scores plus seeded noise."""
        if not self.reads_rows:
            return self.below(len(scores))
        # The largest of scores plus exponential noise has the law of permute-and-flip; with Gumbel noise, softmax.
        sample = self.noise.standard_exponential if self.law == "permute-and-flip" else self.noise.gumbel
        return int(np.argmax(scores + self.scale * sample(size=len(scores))))

    def below(self, count: int) -> int:
        """From the seeded generator."""
        return int(self.noise.integers(count))


def gaussian(values: Sequence[float] | NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """The values with Gaussian noise of standard deviation `scale`, drawn by OpenDP."""
    if not (math.isfinite(scale) and scale > 0):
        raise ConfigError("the standard deviation of Gaussian noise must be a finite number above 0")
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise PrivacyError("values that noise is added to must be finite")
    if array.size == 0:
        return array
    space = domains.vector_domain(domains.atom_domain(T=float, nan=False)), metrics.l2_distance(T=float)
    noisy = measurements.make_gaussian(*space, scale=float(scale))(array.ravel().tolist())
    return np.asarray(noisy, dtype=np.float64).reshape(array.shape)


def gaussian_integers(values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """Whole numbers with discrete Gaussian noise of this scale, drawn by OpenDP: for long vectors on a fine grid.

    A draw takes about 12 µs, four times less than one on floating-point numbers, and runs on every core.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise ConfigError("the standard deviation of Gaussian noise must be a finite number above 0")
    if values.size == 0:
        return values.astype(np.int64)
    # OpenDP's sums stop at the ends of the 64-bit numbers. The noise exceeds 40 deviations with probability e^-800.
    if 40 * scale >= 2**62 or max(int(values.max()), -int(values.min())) >= 2**62:
        raise PrivacyError("values and noise must fit into 64-bit integers")
    draw = _gaussian_on_integers(float(scale))
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parts = np.array_split(values.ravel(), -(-values.size // _DRAWS_AT_ONCE))
    if len(parts) == 1:
        noisy = [draw(parts[0].tolist())]
    else:
        with ThreadPoolExecutor(min(workers, len(parts))) as pool:
            noisy = list(pool.map(lambda part: draw(part.tolist()), parts))
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in noisy]).reshape(values.shape)


@lru_cache(maxsize=256)
def _gaussian_on_integers(scale: float) -> Any:
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T=float)
    return measurements.make_gaussian(*space, scale=scale)


def laplace_integers(values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """Whole numbers with discrete Laplace noise, P(k) ∝ e^(−|k|/scale), drawn by OpenDP."""
    if values.size == 0:
        return values.astype(np.int64)
    # OpenDP's sums stop at the ends of the 64-bit numbers. The noise exceeds 800 scales with probability e^-800.
    if 800 * scale >= 2**62 or max(int(values.max()), -int(values.min())) >= 2**62:
        raise PrivacyError("values and noise must fit into 64-bit integers")
    noisy = _laplace_on_integers(float(scale))(values.ravel().tolist())
    return np.asarray(noisy, dtype=np.int64).reshape(values.shape)


def laplace_cost(scale: float, moved: int) -> float:
    """The pure ε of this noise, as OpenDP states it, on numbers that one unit moves by `moved` in L1 norm."""
    return float(_laplace_on_integers(scale).map(moved))


def laplace_scale(epsilon: float, moved: int) -> float:
    """The least scale at which that cost is at most ε."""
    scale = moved / epsilon
    # Division rounds: without this the map can end one unit in the last place above ε, and be refused for it.
    while laplace_cost(scale, moved) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return scale


@lru_cache(maxsize=256)
def _laplace_on_integers(scale: float) -> Any:
    if not (math.isfinite(scale) and scale > 0):
        raise ConfigError("the scale of Laplace noise must be a finite number above 0")
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    return measurements.make_laplace(*space, scale=scale)


def choice_scale(loss: float, step: int, *, pure: bool) -> float:
    """The least scale of a choice by scores that move by `step`, either way, that costs at most `loss`: ε, else ρ."""
    law: Law = "permute-and-flip" if pure else "exponential"
    once = float(_measurement(law, float(step), False).map(step))
    scale = step * (once / loss if pure else math.sqrt(once / loss))
    while float(_measurement(law, scale, False).map(step)) > loss:
        scale = math.nextafter(scale, math.inf)
    return scale


def choice(scores: NDArray[np.int64], scale: float, *, pure: bool) -> int:
    """The index of the largest score, as OpenDP's noisy maximum draws it."""
    return int(_measurement("permute-and-flip" if pure else "exponential", scale, False)(scores.tolist()))


def gaussian_scale(loss: float, moved: float) -> float:
    """The least σ of discrete Gaussian noise that costs at most ρ = `loss` on numbers that move so far in L2 norm."""
    scale = moved / math.sqrt(2 * loss)
    while float(_gaussian_on_integers(scale).map(moved)) > loss:
        scale = math.nextafter(scale, math.inf)
    return scale


def check_price(epsilon: float, adjacency: str) -> None:
    """Raises unless this is an ε that can be asked for, under one of the two relations."""
    if math.isnan(epsilon) or epsilon < 0 or (0 < epsilon < SMALLEST_EPSILON):
        raise ConfigError("epsilon must be 0 or a positive number", hint=f"the smallest is {SMALLEST_EPSILON:g}")
    if LARGEST_EPSILON < epsilon < math.inf:
        raise ConfigError(f"epsilon must be at most {LARGEST_EPSILON:g}", hint="infinity asks for no privacy at all")
    if adjacency not in ADJACENCIES:
        raise ConfigError(f"adjacency must be one of {', '.join(ADJACENCIES)}")


def _check_settings(epsilon: float, adjacency: str, law: str) -> None:
    check_price(epsilon, adjacency)
    if law not in LAWS:
        raise ConfigError(f"mechanism must be one of {', '.join(LAWS)}")


@lru_cache(maxsize=256)
def _fit(epsilon: float, adjacency: Adjacency, law: Law, influence: Influence, printed: bool) -> OpenDPSelector:
    """The selector with the least noise whose guarantee, as OpenDP states it, is at most ε."""
    scale = influence.step / epsilon
    if not printed:
        scale *= _guarantee(law, float(influence.step), influence).under(adjacency)
        # Division rounds: without this the map can end one unit in the last place above ε, and be refused for it.
        while _guarantee(law, scale, influence).under(adjacency) > epsilon:
            scale = math.nextafter(scale, math.inf)
    guarantee = _guarantee(law, scale, influence)
    return OpenDPSelector(law, guarantee, scale, _measurement(law, scale, influence.monotone))


def _guarantee(law: Law, scale: float, influence: Influence) -> Guarantee:
    """The cost of one round (PROOF.md, steps 4 to 6), from the maps of the measurements themselves."""
    either_way = _cost(law, scale, False, influence.step)
    if not influence.monotone:
        # Sensitivity is the full range: each pool whose members change can turn completely.
        return Guarantee(either_way, either_way * min(2, influence.pools))
    one_way = _cost(law, scale, True, influence.step)
    return Guarantee(one_way, max(either_way, one_way + one_way))


def _cost(law: Law, scale: float, monotone: bool, step: int) -> float:
    """The pure ε of one measurement for scores that move by at most `step`."""
    pure = float(_measurement("permute-and-flip", scale, monotone).map(step))
    if law == "permute-and-flip":
        return pure
    # OpenDP states the exponential mechanism's cost as ρ = ε²/8 (bounded range). It is ε-DP for that same ε.
    rho = float(_measurement("exponential", scale, monotone).map(step))
    return max(pure, math.sqrt(8 * rho))


def _measurement(law: Law, scale: float, monotone: bool) -> Any:
    """OpenDP's noisy max. Which noise it adds follows from the measure: exponential, or Gumbel for zCDP."""
    # i64 and not i32, OpenDP's default for Python integers: sums of fine-grained votes can be large.
    domain, metric = (
        domains.vector_domain(domains.atom_domain(T="i64")),
        metrics.linf_distance(T="i64", monotonic=monotone),
    )
    measure = measures.max_divergence() if law == "permute-and-flip" else measures.zero_concentrated_divergence()
    return measurements.make_noisy_max(domain, metric, measure, scale=scale)
