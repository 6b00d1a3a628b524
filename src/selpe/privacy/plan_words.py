"""A plan in plain words: what the private data will steer, and what to mind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from selpe.privacy.measure_words import measured_verdict, measured_warnings

if TYPE_CHECKING:
    from selpe.privacy.plan import Plan

AIM = 0.80  # the percentile that each selection's winner is aimed at
NOTHING = 0.60  # below this percentile a choice is hardly better than chance
SMALLEST_POOL = 8  # a choice among fewer candidates of a class is not worth a round


def verdict_of(plan: Plan) -> str:
    """One or two sentences on what this ε buys on this many records."""
    if plan.epsilon == 0:
        return "With ε = 0 no private row takes part: every choice is made by chance. This is a control."
    if math.isinf(plan.epsilon):
        return "With ε = ∞ there is no noise and no privacy. This is a reference, never a release."
    if plan.measure is not None:
        steered = f" {_steered(plan)}" if plan.record_epsilon else ""
        return measured_verdict(plan, plan.measure) + steered
    given = f"With {_count(plan.units, 'record')} and ε = {plan.epsilon:g}"
    strength = plan.percentile
    choices = {"guides": plan.guide, "candidate releases": plan.bundle}
    found = [(name, choice.percentile) for name, choice in choices.items() if choice is not None]
    if max([strength, *(percentile for _, percentile in found)]) < NOTHING:
        return f"{given} the private data will steer almost nothing."
    strong = " and ".join(name for name, percentile in found if percentile >= NOTHING)
    where = f"a winner is expected at percentile {100 * strength:.0f} of true closeness, 50 is chance"
    if strength >= AIM or not strong:
        how = "" if strength >= AIM else " weakly" if strength >= NOTHING else " hardly at all"
        also = f" The choice among {strong} is worth its price." if strong else ""
        return f"{given} the private data steers the records{how} ({where}).{also}"
    weakly = "weakly" if strength >= NOTHING else "hardly at all"
    return f"{given} the private data steers the choice among {strong}, and single records {weakly} ({where})."


def _steered(plan: Plan) -> str:
    """What the rounds do beside a measurement."""
    how = "" if plan.percentile >= AIM else " weakly" if plan.percentile >= NOTHING else " hardly at all"
    return f"Rounds steer single records{how} (percentile {100 * plan.percentile:.0f} of true closeness, 50 is chance)."


def warnings_of(plan: Plan, *, sizes_stated: bool) -> tuple[str, ...]:
    """What a person should know before spending."""
    found: list[str] = []
    if sizes_stated:
        found.append("The class sizes in the settings are treated as public.")
        if not math.isclose(sum(plan.rows.values()), plan.units, rel_tol=0.1):  # a stated number is a rounded one
            found.append("The stated class sizes do not add up to the number of records.")
    if plan.epsilon == 0 or math.isinf(plan.epsilon):
        return tuple(found)
    if plan.measure is not None:
        found += measured_warnings(plan, plan.measure)
    if plan.measure is not None and not plan.record_epsilon:
        pass  # rounds only write: nobody wins them
    elif plan.vote == "prototype":
        found.append("The paper's rule chooses nearly at random at any ε that protects; votes 'approval' do not.")
    else:
        found += _weak(plan)
    small = [number for number, part in enumerate(plan.rounds, 1) if 0 < _least_pool(part.pool) < SMALLEST_POOL]
    if small and len(plan.rounds) > 1:
        found.append(f"Fewer than {SMALLEST_POOL} candidates of a class in round {_listed(small)}: take fewer rounds.")
    if any(not quota for part in plan.rounds for quota in part.quota.values()):
        found.append("A class gets no record in some round: more records, or fewer rounds, would mend it.")
    return tuple(found)


def _weak(plan: Plan) -> list[str]:
    """Where the aim is missed: by all classes, or by some that are small. Nothing where whole sets are chosen well."""
    if plan.bundle is not None and plan.bundle.percentile >= AIM:
        return []  # then records have what is left of ε on purpose
    every = {label for part in plan.rounds for label in part.by_class}
    weak = {label for part in plan.rounds for label, percentile in part.by_class.items() if percentile < AIM}
    simple = len(plan.rounds) == 1 and plan.batches == 1
    means = "a larger ε or more records" if simple else "fewer rounds, fewer batches, a larger ε or more records"
    if weak == every:
        return [f"Winners are expected below the {100 * AIM:.0f}th percentile; {means} would raise it."]
    named = [label for label in plan.rows if label in weak]
    return [f"In {_classes(named)} winners are expected below the {100 * AIM:.0f}th percentile."] if named else []


def _least_pool(pool: Mapping[str, int]) -> int:
    return min((size for size in pool.values() if size), default=0)


def _classes(labels: list[str]) -> str:
    return f"class {labels[0]}" if len(labels) == 1 else f"classes {', '.join(labels)}"


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
