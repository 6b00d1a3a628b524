"""A control of a run: the same settings, plan and seed with ε = 0, so that the private rows are all that differs.

Planned anew at ε = 0, a run would get other rounds and other tables than the one it is to be compared with.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from selpe.config import RunConfig
from selpe.errors import ConfigError
from selpe.privacy.ledger import Ledger
from selpe.privacy.measure_plan import MeasurePlan
from selpe.privacy.plan import Plan
from selpe.privacy.plan_words import verdict_of
from selpe.run.lifecycle import Run, list_runs
from selpe.run.methods import SpendingPlan, recipe_of
from selpe.run.preflight import Preflight, preflight


def control_settings(run: Run) -> RunConfig:
    """The settings of a run's control: its own, with ε = 0."""
    if run.config.epsilon == 0:
        raise ConfigError("this run is a control itself", where=run.name, hint="name the run that spent ε")
    if "plan" not in run.manifest:
        raise ConfigError("this run has not begun, so there is no plan to copy", where=run.name)
    return run.config.model_copy(update={"epsilon": 0.0})


def control_outlook(run: Run, ledger: Ledger) -> Preflight:
    """What the control of a run would do: the plan of that run, with nothing to pay and no row to take part."""
    config, schema = control_settings(run), run.schema
    found = preflight(config, ledger, schema=schema)
    plan = _copied(run)
    recipe = recipe_of(config.method)
    plan = recipe.plan(config, schema, _units(run)) if plan is None else plan
    return replace(found, plan=plan, estimate=recipe.estimate(config, schema, plan, list_runs(Path(config.out))))


def _copied(run: Run) -> SpendingPlan | None:
    """The plan of a run at ε = 0; None for a method whose plan does not depend on ε."""
    settings = run.config.model_copy(update=run.manifest.get("chosen", {}))
    kept = run.manifest.get("measurement")
    settings = settings if kept else settings.model_copy(update={"measure": "off"})
    plan = recipe_of(settings.method).plan(settings, run.schema, _units(run))
    if not isinstance(plan, Plan):
        return None
    begun = {name: float(price) for name, price in run.manifest.get("prices", {}).items()}
    plan = plan.measuring(MeasurePlan.from_dict(kept), begun) if kept else plan
    free = replace(plan.at(dict.fromkeys(plan.prices(), 0.0)), epsilon=0.0)
    return replace(free, verdict=verdict_of(free), warnings=())


def _units(run: Run) -> int:
    """The number of units that the run was planned for."""
    return int(run.manifest["plan"]["units"])
