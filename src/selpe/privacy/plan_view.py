"""A plan as a notebook shows it: what will be spent on what, and what to expect of it. All of it is public."""

from __future__ import annotations

from typing import Protocol

from selpe.config import Adjacency
from selpe.markup import paragraph, table, view
from selpe.privacy.ledger.charges import Charge


class ViewedPlan(Protocol):
    """What a plan must tell to be shown."""

    @property
    def units(self) -> int:
        """The number of protected units."""

    @property
    def records(self) -> int:
        """The number of records to write."""

    @property
    def epsilon(self) -> float:
        """ε as asked for."""

    @property
    def adjacency(self) -> Adjacency:
        """The neighbour relation that ε is meant under."""

    @property
    def verdict(self) -> str:
        """What to expect, in a sentence."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the owner should know before spending."""

    def charges(self, run: str, unit: str = "record") -> list[Charge]:
        """What the steps will be charged, in order."""


def plan_words(plan: ViewedPlan) -> str:
    """A plan in a line, for `repr`."""
    steps = len(plan.charges("plan"))
    return (
        f"<{type(plan).__name__}: ε {plan.epsilon:g} ({plan.adjacency}) on {plan.units:,} units, "
        f"{steps} private step{'' if steps == 1 else 's'}, {plan.records:,} records>"
    )


def plan_view(plan: ViewedPlan) -> str:
    """The plan as a piece of HTML."""
    charges = plan.charges("plan")
    rows = [(one.selection, one.mechanism, f"{_epsilon(one, plan):.3g}", f"{one.delta:g}") for one in charges]
    return view(
        f"Plan for ε = {plan.epsilon:g}, {plan.adjacency}",
        paragraph(f"{plan.records:,} synthetic records from {plan.units:,} protected units. Nothing is spent yet."),
        table(("private step", "mechanism", "ε", "δ"), rows, caption="private steps"),
        *([paragraph(plan.verdict)] if plan.verdict else []),
        *(paragraph(warning, warn=True) for warning in plan.warnings),
    )


def _epsilon(charge: Charge, plan: ViewedPlan) -> float:
    return charge.epsilon_replace_one if plan.adjacency == "replace-one" else charge.epsilon_add_remove
