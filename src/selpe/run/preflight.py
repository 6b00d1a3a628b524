"""What a run would do, seen before it starts: plan, estimate, and whether the budget allows it. Spends nothing.

Of the private table only the number of units is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.config import RunConfig
from selpe.config.methods import is_gaussian
from selpe.errors import BudgetError
from selpe.run.estimate import Estimate
from selpe.schema import Schema

if TYPE_CHECKING:
    from selpe.intake import Table
    from selpe.models.base import ChatModel
    from selpe.privacy.ledger import Ledger
    from selpe.privacy.ledger.charges import Budget, Composition
    from selpe.run.methods import SpendingPlan

LARGE_EPSILON = 10.0  # above it a promise of differential privacy says next to nothing
SMALLEST_ROOM = 1e-3  # less than this is what rounding leaves of a budget


@dataclass(frozen=True, slots=True)
class Preflight:
    """The outlook of a run. `left` is what the budget holds, None where the first run will set it.

    `left_after` is what later runs may spend once this one is done; None where nothing is spent, or too much would be.

    `table` and `plan` are for the run that follows, so that it neither reads nor plans again.
    """

    config: RunConfig
    schema: Schema
    plan: SpendingPlan
    table: Table = field(repr=False)
    estimate: Estimate
    left: float | None
    refusal: BudgetError | None
    notes: tuple[str, ...] = ()
    left_after: float | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before spending, of the table's size and of the plan."""
        return (*self.notes, *self.plan.warnings)

    def require_budget(self) -> None:
        """Raises BudgetError where the whole run does not fit: better now than after half of it."""
        if self.refusal is not None:
            raise self.refusal

    def measured(self, model: ChatModel) -> Preflight:
        """The outlook with the time that this model will take, after a second or two of trying it."""
        from selpe.models.speed import measure_pace

        return replace(self, estimate=self.estimate.at(measure_pace(model, context=self.estimate.context)))

    def as_dict(self) -> dict[str, Any]:
        """The outlook as plain data."""
        return {
            "dataset": self.config.dataset,
            "plan": self.plan.to_dict(),
            "estimate": self.estimate.as_dict(),
            "budget_left": self.left,
            "budget_left_after": self.left_after,
            "allowed": self.refusal is None,
            "notes": list(self.notes),
        }


def preflight(config: RunConfig, ledger: Ledger, *, source: Any = None, schema: Schema | None = None) -> Preflight:
    """The outlook of a run on this ledger; `source` and `schema` stand in for the files of the settings."""
    from selpe.privacy.load import read_raw
    from selpe.privacy.units import units_in
    from selpe.run.lifecycle import list_runs
    from selpe.run.methods import recipe_of

    schema = schema or Schema.load(config.data_schema)
    schema.require_confirmed()
    recipe = recipe_of(config.method)
    table = read_raw(config, source)
    counted = units_in(table, config.unit)
    plan = recipe.plan(config, schema, config.rows or counted)
    expected = recipe.estimate(config, schema, plan, list_runs(Path(config.out)))
    left, after, refusal = _room(config, plan, ledger)
    notes = (*setting_notes(config, schema), *size_notes(config, counted))
    return Preflight(config, schema, plan, table, expected, left, refusal, notes, after)


def setting_notes(config: RunConfig, schema: Schema) -> tuple[str, ...]:
    """What to tell the owner about settings that work and hardly help."""
    found = []
    if LARGE_EPSILON < config.epsilon < math.inf:
        found.append(
            f"ε = {config.epsilon:g} protects very little: what one record says may change the odds of a result by a "
            f"factor of {_factor(config.epsilon)}. Values from 0.5 to 4 are usual."
        )
    if len(schema.labels) == 1:
        found.append(
            f"The label '{schema.label}' has one class only, so that nothing can be told apart by it. Name another "
            "field as the label, or none."
        )
    return tuple(found)


def _factor(epsilon: float) -> str:
    """e to the power of ε, in words that can be read."""
    return f"{math.exp(epsilon):,.0f}" if epsilon <= 16 else f"10 to the power of {epsilon / math.log(10):.0f}"


def size_notes(config: RunConfig, counted: int) -> tuple[str, ...]:
    """What to tell the owner about the number of units: whether the release gives it away, or a stated one is far off.

    For the owner alone: the second is told from the table.
    """
    from selpe.privacy.units import public_figure

    if config.rows is None:
        if config.adjacency == "replace-one":
            return ()
        return (
            f"Under add-remove the number of {_units(config)} is not covered: the plan is made from it, so that the "
            "release may reveal it. State a public figure in the settings instead, such as "
            f"'rows: {public_figure(counted)}'.",
        )
    if _far_off(config.rows, counted):
        return (
            f"The settings state {config.rows:,} {_units(config)}, which is far from what the table has. The plan is "
            "made from the stated number; correct 'rows' if another figure is public.",
        )
    return ()


def _units(config: RunConfig) -> str:
    return "records" if config.unit is None else f"different values of '{config.unit}'"


def _far_off(stated: int, counted: int) -> bool:
    """More than a factor of 2, where that is more than rounding."""
    return abs(stated - counted) > 10 and not counted / 2 <= stated <= 2 * counted


def composition_of(method: str, delta: float) -> Composition:
    """How a cap that a run of this method sets adds up."""
    if is_gaussian(method):
        return "gaussian"
    return "joint" if delta > 0 else "basic"


def cap_of(config: RunConfig) -> Budget:
    """The cap that a data set gets from its first run."""
    from selpe.privacy.ledger.charges import Budget

    composition = composition_of(config.method, config.delta)
    return Budget(config.budget or config.epsilon, config.adjacency, config.delta, composition)


def spends(config: RunConfig) -> bool:
    """Whether a run of these settings is paid for: controls (ε = 0 and ε = ∞) are not."""
    return 0 < config.epsilon < math.inf


def _room(
    config: RunConfig, plan: SpendingPlan, ledger: Ledger
) -> tuple[float | None, float | None, BudgetError | None]:
    """What is left beside all that runs have reserved, what will be after this run, and why it would not fit."""
    if not spends(config):
        return None, None, None
    known, charges, reserved = ledger.budget, ledger.charges(), ledger.reserved()
    left = max(0.0, known.epsilon - known.used([*charges, *reserved])[0]) if known else None
    cap, mine = known or cap_of(config), plan.charges("next run")
    try:
        cap.require_room(charges, mine, dataset=config.dataset, reserved=reserved)
    except BudgetError as error:
        return left, None, error
    after = cap.epsilon - cap.used([*charges, *reserved, *mine])[0]
    return left, after if after > SMALLEST_ROOM else 0.0, None
