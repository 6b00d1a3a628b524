"""A plan of at most one private step: marginals of a few columns, or nothing at all where only the model writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from selpe.config import Adjacency
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.marginals import (
    MarginalAlgorithm,
    MarginalNoise,
    PricedMarginalNoise,
    SeededMarginalNoise,
    cost_of,
    marginal_charge,
)
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.plan_view import plan_view, plan_words

STEP = "marginals"


@dataclass(frozen=True, slots=True, repr=False)
class MarginalPlan:
    """What will be measured, and for how much; all of it public. Without an `algorithm` nothing is.

    `price` is the ε of the measurement at `delta`. `columns` are measured, and `candidates` texts are written.
    """

    algorithm: MarginalAlgorithm | None
    units: int
    records: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    price: float
    columns: tuple[str, ...] = ()
    candidates: int = 0
    verdict: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """ε of the whole run at δ, under both relations."""
        return Guarantee(0.0, 0.0) if self.algorithm is None else cost_of(self.noise()).guarantee

    def noise(self, *, test_seed: int | None = None) -> MarginalNoise:
        """The noise that the price buys; seeded, and stamped 'not private', in tests only."""
        if test_seed is not None:
            return SeededMarginalNoise(self.price, test_seed, self.adjacency, self.delta, test_only=True)
        return PricedMarginalNoise(self.price, self.adjacency, self.delta)

    def prices(self) -> dict[str, float]:
        """The price of the step by its name in the ledger."""
        return {} if self.algorithm is None else {STEP: self.price}

    def at(self, prices: Mapping[str, float]) -> MarginalPlan:
        """The same plan at another price."""
        return self if self.algorithm is None else replace(self, price=prices[STEP])

    def charges(self, run: str, unit: str = "record") -> list[Charge]:
        """What the step will be charged."""
        if self.algorithm is None:
            return []
        return [marginal_charge(self.algorithm, self.noise(), run=run, selection=STEP, unit=unit)]

    def steps(self) -> list[str]:
        """The step in words, for an outlook."""
        if self.algorithm is None:
            return ["nothing is read"]
        return [f"marginals of {len(self.columns)} columns by {self.noise().name(self.algorithm)}"]

    def __repr__(self) -> str:
        return plan_words(self)

    def _repr_html_(self) -> str:
        return plan_view(self)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data; infinity is the word `inf`, since JSON has no number for it."""
        data = asdict(self) | {"guarantee": asdict(self.guarantee)}
        return {name: _plain(value) for name, value in data.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return "inf" if isinstance(value, float) and math.isinf(value) else value
