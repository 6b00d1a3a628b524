"""Is it private? What is promised, and what attacks found, with what chance alone would find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selpe.evaluation.attack.alarms import SIGNIFICANCE
from selpe.evaluation.grades import BOUNDS, Grade, worst
from selpe.report.grading import Finding, is_model_alone
from selpe.report.words import epsilon, figure, percent, plural

_LEAK = (
    "Find out why before anything leaves: are the held-out rows of the same time and place as the private ones, and do "
    "the schema's examples come from the private table?"
)


def private(evaluation: Mapping[str, Any]) -> Finding:
    """The answer to 'Is it private?'."""
    question, subject, found = "Is it private?", evaluation["subject"], evaluation["attack"]
    promise = _promise(subject)
    alarms = (found or {}).get("alarms") or []
    if alarms:
        steps = [_LEAK]
        if subject.get("private") is None:
            steps = ["Treat this table like the private one: it tells private rows from others."]
        return Finding(question, "alarm", plural(len(alarms), "alarm"), f"{promise} {alarms[0]}", tuple(steps))
    if found is None:
        said = f"{promise} No attack was tried."
        steps = ["Try attacks: give the private table with --private, and rows that were never used with --holdout."]
        if subject.get("private") is None:
            return Finding(question, "fair", "no promise", said, tuple(steps))
        return Finding(question, "unknown", "not attacked", said, tuple(steps))
    grade, said = attacked(found)
    if subject.get("private") is None:
        without = f"{promise} {said} Without a guarantee that proves little."
        return Finding(question, worst(("fair", grade)), "no promise", without, ())
    if is_model_alone(subject):
        return Finding(question, grade, "no private row was read", f"{promise} {said}", ())
    answer = f"ε = {epsilon(subject.get('epsilon'))}, {'no alarm' if grade == 'good' else 'look twice'}"
    return Finding(question, grade, answer, f"{promise} {said}", ())


def attacked(found: Mapping[str, Any]) -> tuple[Grade, str]:
    """What attacks without an alarm say. Of several tests one is small by chance: that is told with them."""
    made = found.get("tests") or {}
    if not found["counts"].get("holdout") or not made.get("count"):
        return "good", "No attack raises an alarm; without held-out rows to compare with, most cannot tell anything."
    return BOUNDS["chance_of_p"].grade(made["by_chance"]), _multiple_tests(made)


def _multiple_tests(made: Mapping[str, Any]) -> str:
    """The smallest p-value of an evaluation without an alarm, its threshold, and what chance alone would do."""
    tests, smallest, chance = made["count"], made["smallest"], made["by_chance"]
    said = f"No attack passes the threshold of an alarm, p < {SIGNIFICANCE:g} in one of {plural(tests, 'test')}"
    if chance >= 1:
        return f"{said}; the smallest p is {figure(smallest, 2)}, as it is by chance."
    often = percent(chance, 0 if chance >= 0.01 else 1)
    said = (
        f"{said}; the smallest p is {figure(smallest, 3)}, which chance alone brings in up to {often} of evaluations."
    )
    if BOUNDS["chance_of_p"].grade(chance) == "good":
        return said
    return f"{said} That is no alarm, but worth a second look with more held-out rows."


def _promise(subject: Mapping[str, Any]) -> str:
    if is_model_alone(subject):
        return "This run has read no private row (ε = 0): there is nothing in it that could leak."
    if subject.get("private") is True and subject.get("epsilon") is not None:
        unit = f"one {subject.get('unit') or 'record'}"
        return f"The run promises ε = {epsilon(subject['epsilon'])} for {unit} ({subject.get('adjacency')})."
    if subject.get("private") is False:
        return "This is a control without a guarantee."
    return "This table comes without a promise of differential privacy."
