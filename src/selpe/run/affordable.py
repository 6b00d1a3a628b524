"""What a run can still afford, where a kill cost it draws that were paid for.

A draw is paid before rows take part; if its result was lost with the process, it is not drawn again for free. The run
continues with less for what is left to draw, instead of stopping or spending more than the table's budget holds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.privacy.ledger import Ledger
from selpe.run.methods import SpendingPlan

log = logging.getLogger(__name__)

SMALLEST_EPSILON = 1e-6  # of a choice in a run that lost some: below this a draw is as good as chance
_HALVINGS = 50


def affordable(plan: SpendingPlan, prices: Mapping[str, float], ledger: Ledger, run: str) -> dict[str, float]:
    """The prices, with what is still to be drawn scaled to what is left."""
    mine = [entry for entry in ledger.entries() if entry.data.get("run") == run]
    drawn = {str(entry.data["selection"]) for entry in mine if entry.kind == "result"}
    lost = sum(entry.kind == "charge" for entry in mine) - len(drawn)
    due = math.fsum(price for name, price in prices.items() if name not in drawn)
    if not lost or ledger.budget is None or not 0 < due < math.inf:
        return dict(prices)
    if isinstance(plan, GaussianPlan):
        share = _gaussian_share(plan, prices, drawn, ledger, run)
    else:
        share = _pure_share(due, len(prices), ledger, run)
    if share == 1.0:
        return dict(prices)
    rest = "has less ε now" if share else "is left to chance: all of the ε is spent"
    log.warning("a killed process lost %d paid choice(s); what is left to choose %s", lost, rest)
    return _scaled(prices, drawn, share)


def _pure_share(due: float, steps: int, ledger: Ledger, run: str) -> float:
    """The share of pure ε prices that the budget still holds beside what other runs have reserved."""
    cap = ledger.budget
    reserved = 0.0 if cap is None else math.fsum(c.epsilon(cap.adjacency) for c in ledger.reserved(but=run))
    left = 0.0 if cap is None else max(0.0, cap.epsilon - reserved - ledger.spent().epsilon(cap.adjacency))
    if left < SMALLEST_EPSILON * steps:
        return 0.0  # nothing worth drawing with: what is left is chosen at random, which costs nothing
    return min(1.0, left / due * (1 - 1e-9))


def _gaussian_share(
    plan: GaussianPlan, prices: Mapping[str, float], drawn: set[str], ledger: Ledger, run: str
) -> float:  # fmt: skip
    """The largest share of μ² prices with which all further looks fit the cap, as the cap counts; found by halving."""
    cap, before = ledger.budget, [*ledger.charges(), *ledger.reserved(but=run)]

    def fits(share: float) -> bool:
        rest = [c for c in plan.at(_scaled(prices, drawn, share)).charges(run) if c.selection not in drawn]
        if cap is None:
            return True
        epsilon, delta = cap.used([*before, *rest])
        return epsilon <= cap.epsilon and delta <= cap.delta

    if fits(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    left = plan.at(_scaled(prices, drawn, low)).guarantee.under(plan.adjacency)
    return low if left >= SMALLEST_EPSILON * len(prices) else 0.0


def _scaled(prices: Mapping[str, float], drawn: set[str], share: float) -> dict[str, float]:
    return {name: price if name in drawn else price * share for name, price in prices.items()}
