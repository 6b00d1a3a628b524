"""Is it faithful? Validity, fields, pairs of fields, what is covered, repetitions, and copies of examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selpe.evaluation.grades import Grade, worst
from selpe.report.grading import Finding, GradedFigure, decisive, fidelity_parts
from selpe.report.words import figure, known, plural

_DULL = "Look at the fidelity alarms: a larger model, a higher temperature or more varied examples usually help."
_ECHOING = (
    "Give the schema more and more varied examples, or take a larger model: this one copies those that it is shown."
)
_NARROW = (
    "Most real records have nothing like them in this table: say in the schema what is missing, add examples of it, or "
    "take a larger model."
)
_FEW = "Ask for more records: of {records} different ones little can be learned, and little can be said."
_BADGES = {
    "validity": "{} valid",
    "distinct": "only {} records",
    "echoes": "{} copy an example",
    "near_echoes": "{} nearly copy an example",
    "marginals": "{} from real",
    "associations": "associations off by {}",
    "recall": "covers {} of real",
    "precision": "{} look real",
    "repeated": "{} repeated",
    "near": "{} near duplicates",
    "effective": "{} of real variety",
}


def faithful(evaluation: Mapping[str, Any]) -> Finding:
    """The answer to 'Is it faithful?'."""
    question = "Is it faithful?"
    found = evaluation["fidelity"] or {}
    parts = fidelity_parts(evaluation)
    grade = worst(part.grade for part in parts)
    if not found.get("summary") and grade != "poor":
        grade = "unknown"  # nothing real to compare with: it can be found wanting, but not good
    alarms = found.get("alarms") or evaluation["synthetic_alarms"]
    if alarms:
        grade = "poor"
    steps = tuple(_fidelity_steps(evaluation, parts, alarms))
    return Finding(question, grade, _badge(parts, grade), _fidelity_sentence(found, parts, alarms), steps, tuple(parts))


def _badge(parts: Sequence[GradedFigure], grade: Grade) -> str:
    """The figure that decided; of a good table, how far its fields are from real ones."""
    if grade == "unknown":
        return "not measured"
    named = {part.name: part for part in parts}
    deciding = named.get("marginals") if grade == "good" else decisive(parts, grade)
    return _BADGES[deciding.name].format(deciding.shown) if deciding else "see the alarm"


def _fidelity_sentence(found: Mapping[str, Any], parts: Sequence[GradedFigure], alarms: Sequence[str]) -> str:
    named, reference = {part.name: part for part in parts}, found.get("reference") or {}
    said = [f"{named['validity'].shown} of the records are valid" if "validity" in named else "Validity is unknown"]
    if "marginals" in named:
        beside = reference.get("marginals")
        near = f" (two halves of the real rows: {figure(beside, 2)})" if known(beside) else ""
        far = named["marginals"].shown
        said.append(f"the fields' spreads differ from real ones by {far} on a scale from 0 to 1{near}")
    more = []
    if "recall" in named:
        more.append(f"{named['recall'].shown} of real records have synthetic ones around them")
    if "echoes" in named:
        more.append(f"{named['echoes'].shown} of the records copy an example of the schema")
        if "near_echoes" in named:
            more[-1] += f" ({named['near_echoes'].shown} nearly)"
    sentences = [" and ".join(said), ", and ".join(more)]
    return " ".join([*(f"{one[0].upper()}{one[1:]}." for one in sentences if one), *alarms[:1]])


def _fidelity_steps(evaluation: Mapping[str, Any], parts: Sequence[GradedFigure], alarms: Sequence[str]) -> list[str]:
    steps = []
    named = {part.name: part for part in parts if part.grade in ("fair", "poor")}
    if {"echoes", "near_echoes"} & set(named):
        steps.append(_ECHOING)
    if alarms:
        steps.append(_DULL)
    if "recall" in named and named["recall"].grade == "poor":
        steps.append(_NARROW)
    if "distinct" in named:
        steps.append(_FEW.format(records=named["distinct"].shown))
    rate = evaluation["validity"]["rate"]
    if known(rate) and rate < 1.0:
        steps.append(f"Leave out or repair the {plural(evaluation['validity']['invalid'], 'invalid record')}.")
    return steps
