"""A plan of Gaussian looks: which private steps a method takes, and how much noise each of them gets.

All looks of a run are one Gaussian mechanism: with μ² the sum of count·(Δ/σ)² over the looks, the run is (ε, δ)-DP for
δ(ε; μ) of accounting.py, exactly. So the plan solves for μ once and shares μ² out over the looks. The *price* of a look
is its part of μ² under the neighbour relation that ε is meant under; prices add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from selpe.config import Adjacency
from selpe.errors import ConfigError
from selpe.privacy.accounting import gaussian_epsilon, gaussian_sigma
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.noise import GaussianNoise, Noise, SeededNoise, Sensitivity, gaussian_charge
from selpe.privacy.plan_view import plan_view, plan_words

__all__ = ["GaussianPlan", "Look", "Sensitivity", "gaussian_plan"]


@dataclass(frozen=True, slots=True)
class Look:
    """One private step: a query of bounded L2 sensitivity, answered `count` times with the same noise."""

    name: str
    sensitivity: Sensitivity
    count: int = 1
    price: float = 0.0

    def sigma(self, adjacency: Adjacency) -> float:
        """The noise that this price buys: 0 for an endless one, infinite for none."""
        if self.price == 0:
            return math.inf
        return self.sensitivity.under(adjacency) * math.sqrt(self.count / self.price)


@dataclass(frozen=True, slots=True, repr=False)
class GaussianPlan:
    """What a method will do with its (ε, δ). All of it public; `candidates` is how many texts the model will write."""

    method: str
    units: int
    records: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    looks: tuple[Look, ...]
    candidates: int = 0
    verdict: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def mechanism(self) -> str:
        """The mechanism in words."""
        return "gaussian"

    @property
    def guarantee(self) -> Guarantee:
        """ε of the whole run at δ, under both relations."""
        return Guarantee(self._epsilon("add-remove"), self._epsilon("replace-one"))

    def noise(self, name: str, *, test_seed: int | None = None) -> Noise:
        """The noise of one look; seeded, and stamped 'not private', in tests only."""
        sigma = self.look(name).sigma(self.adjacency)
        if test_seed is not None:
            return SeededNoise(sigma, self.delta, test_seed, test_only=True)
        return GaussianNoise(sigma, self.delta)

    def look(self, name: str) -> Look:
        """The look of this name."""
        found = next((look for look in self.looks if look.name == name), None)
        if found is None:
            raise ConfigError(f"there is no look '{name}' in this plan")
        return found

    def prices(self) -> dict[str, float]:
        """The price of every look by its name in the ledger."""
        return {look.name: look.price for look in self.looks}

    def at(self, prices: Mapping[str, float]) -> GaussianPlan:
        """The same plan at other prices."""
        return replace(self, looks=tuple(replace(look, price=prices[look.name]) for look in self.looks))

    def charges(self, run: str, unit: str = "record") -> list[Charge]:
        """What the looks will be charged."""
        return [
            gaussian_charge(
                self.noise(look.name), look.sensitivity, run=run, selection=look.name, unit=unit, count=look.count
            )
            for look in self.looks
        ]

    def steps(self) -> list[str]:
        """The looks in words, for an outlook."""
        kinds: dict[str, list[Look]] = {}
        for look in self.looks:
            kinds.setdefault(look.name.rstrip("0123456789").rstrip("-"), []).append(look)
        return [f"{_said(kind, looks)} (σ {looks[0].sigma(self.adjacency):.4g})" for kind, looks in kinds.items()]

    def __repr__(self) -> str:
        return plan_words(self)

    def _repr_html_(self) -> str:
        return plan_view(self)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data; infinity is the word `inf`, since JSON has no number for it."""
        data = asdict(self) | {"guarantee": asdict(self.guarantee), "mechanism": self.mechanism}
        for look, known in zip(data["looks"], self.looks, strict=True):
            look["sigma"] = known.sigma(self.adjacency)
        return {name: _plain(value) for name, value in data.items()}

    def _epsilon(self, adjacency: Adjacency) -> float:
        if any(math.isinf(look.price) for look in self.looks):
            return math.inf
        square = math.fsum(
            look.price * (look.sensitivity.under(adjacency) / look.sensitivity.under(self.adjacency)) ** 2
            for look in self.looks
        )
        return gaussian_epsilon(1 / math.sqrt(square), self.delta) if square else 0.0


def gaussian_plan(
    method: str,
    looks: Sequence[Look],
    *,
    units: int,
    records: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    shares: Sequence[float] | None = None,
    candidates: int = 0,
    warnings: Sequence[str] = (),
) -> GaussianPlan:
    """The plan in which these looks together are exactly (ε, δ)-DP; `shares` of μ², equal ones without them."""
    parts = [1.0] * len(looks) if shares is None else list(shares)
    if not looks or len(parts) != len(looks) or not all(0 < part < math.inf for part in parts):
        raise ConfigError("a plan needs at least one look, and a share above 0 for each")
    total = math.fsum(parts)
    whole = square_of(epsilon, delta)
    priced = tuple(
        replace(look, price=whole * part / total if math.isfinite(whole) else whole)
        for look, part in zip(looks, parts, strict=True)
    )
    return GaussianPlan(
        method, units, records, epsilon, delta, adjacency, priced, candidates, warnings=tuple(warnings)
    )  # fmt: skip


def square_of(epsilon: float, delta: float) -> float:
    """The largest μ² that is (ε, δ)-DP: what a run has to share out."""
    if epsilon == 0 or math.isinf(epsilon):
        return epsilon
    return 1 / gaussian_sigma(epsilon, delta) ** 2


def _said(kind: str, looks: Sequence[Look]) -> str:
    if any(look.count > 1 for look in looks):
        return f"{kind}, {sum(look.count for look in looks)} steps"
    return f"{len(looks)} looks ({kind})" if len(looks) > 1 else kind


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value
