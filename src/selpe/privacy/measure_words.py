"""A measurement in plain words, before it is made: what is counted, how noisy that will be, and what it is good for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selpe.privacy.measure_plan import LEAST, Measurable, MeasurePlan
from selpe.privacy.noise import CountingNoise, count_noise_of

if TYPE_CHECKING:
    from selpe.config import Adjacency
    from selpe.privacy.plan import Plan

_NAMED = 4  # tables that are named, then the others are counted
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


@dataclass(frozen=True, slots=True)
class MeasuringStep:
    """One private step of a measurement as a row of a table; a vote has neither noise nor cells."""

    step: str
    what: str
    epsilon: float
    noise: str = ""
    expected: str = ""


def measuring_steps(plan: Plan) -> list[MeasuringStep]:
    """The votes and looks of a plan's measurement, in order; none where nothing is measured."""
    measure = plan.measure
    if measure is None:
        return []
    votes = [
        MeasuringStep(f"vote {number}", f"for one of {len(measure.candidates) - number + 1} fields", epsilon)
        for number, epsilon in enumerate(measure.choices, 1)
    ]
    looks = [
        MeasuringStep(
            "count" if len(measure.looks) == 1 else f"look {number}",
            what_is_measured(plan),
            epsilon,
            off_by(_half_width(measure, epsilon, plan.adjacency)),
            _expected(plan, measure.clusters if number < len(measure.looks) else measure.fine_clusters),
        )
        for number, epsilon in enumerate(measure.looks, 1)
    ]
    return votes + looks


def what_is_measured(plan: Plan) -> str:
    """The tables by name, or that private rows will say which."""
    measure = plan.measure
    if measure is None:
        return "nothing"
    classes = "class × " if len(plan.rows) > 1 else ""
    pairs = [f"{one} × {other}" for one, other in measure.pairs]
    if measure.votes:
        many = "the field" if measure.votes == 1 else f"the {measure.votes} fields"
        return _listed([f"{classes}{many} that your rows vote for", *pairs])
    return _listed([*(f"{classes}{name}" for name in measure.fields), *pairs])


def measured_verdict(plan: Plan, measure: MeasurePlan) -> str:
    """What is measured with so many records at such an ε, how noisy that is, and what it is good for."""
    tables = f"{_number(measure.counted)} table{' is' if measure.counted == 1 else 's are'} measured"
    rows, off = _rows(measure.expected), off_by(measure.half_width)
    return (
        f"With {_records(plan.units)} and ε = {plan.epsilon:g} {tables}: a cell is off by {off} rows where {rows} "
        f"{'is' if rows == '1' else 'are'} to be expected. {_good_for(measure)}"
    )


def measured_warnings(plan: Plan, measure: MeasurePlan) -> list[str]:
    """What to mind: fields that take the signal from each other."""
    if not measure.fields or measure.counted < 2 or measure.half_width <= 2 * measure.expected:
        return []
    alone = count_noise_of(CountingNoise(measure.epsilon, plan.adjacency, measure.delta), 1).half_width
    return [
        f"{measure.counted} tables share the noise, and a cell drowns in it: one table alone would be off by "
        f"{off_by(alone)} rows a cell. Name fewer fields under 'measure', or take a larger ε or more records."
    ]


def nothing_measured(offered: Measurable, *, units: int, epsilon: float, tables: float, adjacency: Adjacency) -> str:
    """Why nothing is measured although it was allowed, and what it would take; '' where there is nothing to say.

    `epsilon` is that of the whole run, `tables` what tables would have of it.
    """
    strength = units * tables * (1 if adjacency == "replace-one" else 2)
    if not offered.fields or not 0 < strength < LEAST:
        return ""
    more = LEAST / strength
    return (
        f"No table is measured: with {_records(units)} and ε = {epsilon:g} counts would be all noise. About "
        f"{math.ceil(units * more):,} records or ε = {_up(epsilon * more)} would do."
    )


def off_by(half_width: float) -> str:
    """The noise of one cell, as it is said."""
    return "± ∞" if math.isinf(half_width) else f"± {half_width:g}"


def _good_for(measure: MeasurePlan) -> str:
    if measure.expected >= 3 * measure.half_width:
        return "Most cells will speak clearly."
    if measure.expected >= measure.half_width:
        return "Large cells will speak clearly; small ones stay near what the model writes by itself."
    return "Only what is common will show; everything else stays near what the model writes by itself."


def _half_width(measure: MeasurePlan, epsilon: float, adjacency: Adjacency) -> float:
    return count_noise_of(CountingNoise(epsilon, adjacency, measure.delta), measure.counted).half_width


def _expected(plan: Plan, clusters: int) -> str:
    """Rows in a cell where all are spread evenly: of a number in bins, and of a text in clusters."""
    each = plan.units / max(1, len(plan.rows))
    bins = 0 if plan.measure is None else plan.measure.bins
    return f"{_rows(each / bins)} in each of {bins} bins, {_rows(each / clusters)} in each of {clusters} clusters"


def _rows(count: float) -> str:
    return f"{count:,.0f}" if count >= 9.5 else f"{count:.2g}"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _up(epsilon: float) -> str:
    """An ε rounded up to two digits, so that what is said is enough."""
    step = 10.0 ** (math.floor(math.log10(epsilon)) - 1)
    return f"{math.ceil(epsilon / step - 1e-9) * step:.2g}"
