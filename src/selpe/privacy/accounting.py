"""What several private looks at one table cost together, under one neighbour relation at a time.

An event describes one mechanism *under one relation*: the same noise has another sensitivity when a record is
replaced than when it is added or removed, so the caller says which by giving the right numbers.

What is used, and why it holds:

- *Gaussian noise* is accounted exactly. T looks with noise σ and sensitivity Δ are one look with
  μ = √T·Δ/σ, and δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) (Balle and Wang 2018; Dong, Roth and Su 2022).
- *Any ε-DP mechanism* is dominated by randomised response with that ε (Kairouz, Oh and Viswanath 2015), which
  gives its Rényi curve.
- *A ρ-zCDP mechanism* has a Rényi divergence of at most αρ at every order α (Bun and Steinke 2016).
- *The exponential mechanism* is bounded-range: its log-ratios lie in an interval of length ε, hence ε²/8-zCDP
  (Dong, Durfee and Rogers 2020; Cesar and Rogers 2021). **Permute-and-flip is not**: two candidates with
  equal scores, one of which gains a vote, give log-ratios −λ and ln(2 − e^−λ), further apart than λ. It is
  accounted as `Pure`.

Every result is an upper bound: searches end on the safe side, and so does the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from selpe.errors import ConfigError

_SAFE = 1 + 1e-9  # floating-point noise of the searches, by which results are rounded up
_ORDERS: tuple[float, ...] = (
    *(1 + x / 10 for x in range(1, 100)),
    *range(11, 64),
    *range(64, 512, 8),
    *range(512, 4097, 256),
)


@dataclass(frozen=True, slots=True)
class Pure:
    """Any ε-DP mechanism, `count` times; permute-and-flip among them."""

    epsilon: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """An ε-bounded-range mechanism, `count` times: the exponential mechanism, and not permute-and-flip."""

    epsilon: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Gaussian noise, `count` times; the noise is given in units of the L2 sensitivity."""

    sigma_over_sensitivity: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Concentrated:
    """A ρ-zCDP mechanism, `count` times: Gaussian noise and exponential mechanisms that follow from each other."""

    rho: float
    count: int = 1


Event: TypeAlias = Pure | BoundedRange | Gaussian | Concentrated
_KINDS: dict[str, type[Event]] = {
    "pure": Pure, "bounded-range": BoundedRange, "gaussian": Gaussian, "concentrated": Concentrated,
}  # fmt: skip


# -- Gaussian noise, exactly ------------------------------------------------------------------------------------


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) of Gaussian noise whose standard deviation is 1/μ sensitivities."""
    from scipy.special import erfcx

    if mu <= 0:
        return 0.0
    a, b = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    first = 0.5 * math.erfc(-a / math.sqrt(2))
    # e^ε Φ(b) = φ(a)·Φ(b)/φ(b), written with the scaled erfc: neither factor overflows for a large ε.
    second = 0.5 * math.exp(-a * a / 2) * float(erfcx(-b / math.sqrt(2)))
    # The difference of two close numbers is uncertain by a few units in the last place of the larger.
    return max(0.0, first - second) + 4 * math.ulp(first)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0, rounds: int = 1) -> float:
    """The least σ for which `rounds` looks of this L2 sensitivity are (ε, δ)-DP together, rounded up."""
    _require(epsilon > 0, "epsilon", "above 0")
    _require(0 < delta < 1, "delta", "between 0 and 1")
    _require(sensitivity > 0, "sensitivity", "above 0")
    _require(rounds >= 1, "rounds", "at least 1")
    mu, _ = _crossing(lambda x: gaussian_delta(epsilon, x) <= delta)
    return math.sqrt(rounds) * sensitivity / mu * _SAFE


def gaussian_epsilon(sigma: float, delta: float, sensitivity: float = 1.0, rounds: int = 1) -> float:
    """The least ε for which `rounds` looks with noise σ are (ε, δ)-DP together, rounded up."""
    _require(sigma > 0, "sigma", "above 0")
    _require(0 < delta < 1, "delta", "between 0 and 1")
    mu = math.sqrt(rounds) * sensitivity / sigma
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    _, epsilon = _crossing(lambda x: gaussian_delta(x, mu) > delta)
    return epsilon * _SAFE


def _crossing(below: Callable[[float], bool]) -> tuple[float, float]:
    """The last x > 0 for which `below` holds and the first for which it does not, next to each other."""
    low, high = 0.0, 1.0
    while below(high):
        low, high = high, 2 * high
        _require(high < 1e9, "the privacy parameters", "in a range that can be computed with")
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


# -- composition ------------------------------------------------------------------------------------------------


def pure_and_gaussian(events: Sequence[Event], delta: float) -> float:
    """Σ ε of what is pure, and all Gaussian looks as one at δ.

    It holds for events chosen in the light of earlier results, too (PROOF.md, step 18), so that it can be a filter.
    What is known by its ρ alone is neither: with it the sum is endless.
    """
    if any(isinstance(e, Concentrated) for e in events):
        return math.inf
    pure = math.fsum(e.epsilon * e.count for e in events if isinstance(e, Pure | BoundedRange))
    square = math.fsum(e.count / e.sigma_over_sensitivity**2 for e in events if isinstance(e, Gaussian))
    if square and not delta:
        return math.inf
    return pure + (gaussian_epsilon(1 / math.sqrt(square), delta) if square else 0.0)


def rdp(event: Event, order: float) -> float:
    """The event's Rényi divergence of this order, at most."""
    match event:
        case Pure(epsilon, count):
            return count * _response_rdp(epsilon, order)
        case BoundedRange(epsilon, count):
            return count * min(order * epsilon**2 / 8, _response_rdp(epsilon, order))
        case Gaussian(sigma, count):
            return count * order / (2 * sigma**2)
        case Concentrated(rho, count):
            return count * order * rho


def rdp_epsilon(events: Sequence[Event], order: float, delta: float) -> float:
    """ε at this δ by one Rényi order (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    total = math.fsum(rdp(event, order) for event in events)
    if total == 0:
        return 0.0
    epsilon = total + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    return max(0.0, epsilon) * _SAFE


def filter_order(epsilon: float, delta: float) -> float:
    """The Rényi order that leaves most room under a cap, for Gaussian-like events.

    A ledger whose later charges may depend on earlier results needs a *filter*. With one order, fixed when the
    cap is set, summing Rényi divergences is one (Feldman and Zrnic 2021); with the best order in hindsight it
    need not be, and for privacy loss distributions no such proof is known to us.
    """
    return max(_ORDERS, key=lambda order: _room(epsilon, delta, order))


def concentrated_rho(epsilon: float, delta: float) -> float:
    """The largest ρ that is (ε, δ)-DP, rounded down; it just fits under a cap of the same ε and δ (`filter_order`)."""
    rho = _room(epsilon, delta, filter_order(epsilon, delta)) * (1 - 1e-8)
    _require(rho > 0, "epsilon", "larger for noise at so small a delta")
    return rho


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The least ε at which a ρ-zCDP mechanism is (ε, δ)-DP, rounded up."""
    return min(rdp_epsilon([Concentrated(rho)], order, delta) for order in _ORDERS)


def _room(epsilon: float, delta: float, order: float) -> float:
    """The largest ρ whose Rényi divergence at one order gives (ε, δ)."""
    return (epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)) / order


def _response_rdp(epsilon: float, order: float) -> float:
    """Rényi divergence of randomised response, the worst ε-DP mechanism at every order."""
    if epsilon == 0 or math.isinf(epsilon):
        return epsilon
    log_p, log_q = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    terms = (order * log_p + (1 - order) * log_q, order * log_q + (1 - order) * log_p)
    # For a tiny ε the two terms nearly cancel; α ε²/2 is an upper bound as well (Bun and Steinke 2016).
    return min(epsilon, order * epsilon**2 / 2, max(0.0, _log_sum(terms) / (order - 1)) + 1e-14)


def _log_sum(terms: Sequence[float]) -> float:
    top = max(terms)
    return top + math.log(math.fsum(math.exp(t - top) for t in terms))


# -- events as data ---------------------------------------------------------------------------------------------


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as plain data, for a ledger line."""
    kind = next(name for name, kind in _KINDS.items() if isinstance(event, kind))
    return {"kind": kind, **{name: getattr(event, name) for name in type(event).__dataclass_fields__}}


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """The event that a ledger line describes."""
    return _KINDS[data["kind"]](**{name: value for name, value in data.items() if name != "kind"})


def _require(holds: bool, name: str, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {wanted}")
