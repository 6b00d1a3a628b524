"""What ε would buy, as plain data for the page: the real planner, without a private row. Nothing is spent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import BudgetError
from selpe.run.estimate import Estimate
from selpe.run.preflight import cap_of, size_notes, spends
from selpe.run.progress import duration

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.privacy.ledger import Ledger
    from selpe.run.methods import SpendingPlan
    from selpe.schema import Schema


def planned(settings: RunConfig, schema: Schema) -> dict[str, Any]:
    """The plan of a run with these settings. The table is opened, and only counted, where they state no `rows`."""
    from selpe.privacy.ledger import Ledger
    from selpe.privacy.load import count_units
    from selpe.run.lifecycle import list_runs
    from selpe.run.methods import recipe_of
    from selpe.run.writer import settle_writer

    settings, choice = settle_writer(settings, schema)  # else 'auto' has the speed of no model
    recipe = recipe_of(settings.method)
    counted = None if settings.rows else count_units(settings)
    plan = recipe.plan(settings, schema, settings.rows or counted or 1)
    expected = recipe.estimate(settings, schema, plan, list_runs(Path(settings.out)))
    notes = () if counted is None else size_notes(settings, counted)
    return {
        "dataset": settings.dataset,
        "units": plan.units,
        "unit": settings.unit,
        "records": plan.records,
        "classes": len(schema.labels),
        "epsilon": settings.epsilon,
        "adjacency": plan.adjacency,
        "steps": list(plan.steps()),
        "measured": _measured(plan),
        "verdict": plan.verdict,
        "warnings": [*notes, *plan.warnings],
        "budget": _budget(settings, plan, Ledger.open(settings.dataset)),
        "time": _time(expected),
        "candidates": expected.candidates,
        "model": settings.llm,
        "writer": None if choice is None else {"why": choice.why, "advice": choice.advice},
    }


def _measured(plan: SpendingPlan) -> list[dict[str, str]]:
    from selpe.privacy.measure_words import measuring_steps
    from selpe.privacy.plan import Plan

    steps = measuring_steps(plan) if isinstance(plan, Plan) else []
    return [
        {
            "step": one.step,
            "what": one.what,
            "epsilon": f"{one.epsilon:.3g}",
            "noise": one.noise,
            "expected": one.expected,
        }
        for one in steps
    ]


def _time(expected: Estimate) -> dict[str, str]:
    return {"words": duration(expected.seconds), "basis": expected.basis}


def _budget(settings: RunConfig, plan: SpendingPlan, ledger: Ledger) -> dict[str, Any]:
    """What the table's budget holds, and what will be left of it after this run."""
    known, charges, reserved = ledger.budget, ledger.charges(), ledger.reserved()
    cap = known or cap_of(settings)
    left = max(0.0, cap.epsilon - cap.used([*charges, *reserved])[0])
    refusal = ""
    if spends(settings):
        try:
            cap.require_room(charges, plan.charges("next run"), dataset=settings.dataset, reserved=reserved)
        except BudgetError as error:
            refusal = f"{error.message}. {error.hint}".strip()
    finite = math.isfinite(settings.epsilon)
    return {
        "cap": cap.epsilon,
        "set": known is not None,  # else this run sets it
        "left": left,
        "after": max(0.0, left - settings.epsilon) if finite else 0.0,
        "refusal": refusal,
    }
