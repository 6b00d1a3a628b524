"""Is it useful? What models learn from the table, beside real rows, the schema's examples and a control."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from selpe.evaluation.grades import Grade, worst
from selpe.report.grading import (
    CONTROL,
    EXAMPLES,
    Finding,
    Scores,
    decisive,
    gain,
    is_model_alone,
    reached,
    reference,
    scores,
    utility_parts,
)
from selpe.report.words import figure, listing, percent, plural

_NO_STEERING = (
    "The private table steered nothing that can be measured: see `selpe plan`, then raise ε, bring more rows or merge "
    "classes."
)
_NO_BETTER = (
    "Take a larger model or bring more rows: so far the schema's own examples teach a model as much as this table does."
)
_POOR = (
    "Improve the schema's descriptions and examples first (`selpe preview` is free), then try a larger model or more ε."
)
_POOR_CONTROL = (
    "Improve the schema's descriptions and examples (`selpe preview` is free) or take a larger model: both cost no ε."
)
_BESIDE = "Set it beside the run that it controls: `selpe evaluate <that run> --control {run}`"
_NO_CONTROL = (
    "See what the private table added: `selpe run --control {run}` spends nothing; then evaluate again with "
    "`--control`."
)
_BADGES = {
    "above_chance": "no better than chance",
    "over_examples": "no better than the examples",
    "over_control": "no better than ε = 0",
    "missing_classes": "classes are missing",
}


def useful(evaluation: Mapping[str, Any]) -> Finding:
    """The answer to 'Is it useful?'."""
    question = "Is it useful?"
    ours, best = scores(evaluation, "synthetic"), reference(evaluation)
    if not ours:
        why = "the schema names no label" if not evaluation["subject"]["label"] else "no test records were given"
        step = () if not evaluation["subject"]["label"] else ("Give real records to test on: --test test.csv",)
        return Finding(question, "unknown", "not measured", f"Utility was not measured: {why}.", step)
    parts = utility_parts(evaluation)
    grade, way = worst(part.grade for part in parts), reached(ours, best)
    answer = f"{percent(way, 0)} of the way to real" if way is not None else f"AUC {figure(_mean(ours), 1)}"
    deciding = decisive(parts, grade)
    if deciding is not None and deciding.grade != "good":
        answer = _BADGES.get(deciding.name, answer)
    sentence = f"{_utility_sentence(ours, best)}{_no_better(evaluation)}"
    return Finding(question, grade, answer, sentence, tuple(_utility_steps(evaluation, ours, grade)), tuple(parts))


def _utility_sentence(ours: Scores, best: Scores) -> str:
    told = [f"{figure(score['auc'], 1)} ({_kind(score)})" for score in ours.values()]
    said = f"Trained on these records alone, a model tells real cases apart with an AUC of {listing(told)}"
    if not best:
        return f"{said}; 50 is chance."
    theirs = [figure(best[view]["auc"], 1) for view in ours if view in best]
    name = next(iter(best.values()))["trained_on"]
    rows = "the private rows themselves" if name == "private rows" else "as many real rows"
    return f"{said}; {rows} reach {listing(theirs)}, and 50 is chance."


def _no_better(evaluation: Mapping[str, Any]) -> str:
    """A plain sentence where the table is no better than what its owner had written before any run."""
    points, theirs = gain(evaluation, EXAMPLES), scores(evaluation, EXAMPLES)
    if points is None or points > 0:
        return ""
    rows = max(score["rows"] for score in theirs.values())
    return (
        f" It is no better than the schema's {plural(rows, 'example')} alone, which reach {figure(_mean(theirs), 1)}."
    )


def _kind(score: Mapping[str, Any]) -> str:
    return "text view" if score["kind"] == "text" else "structured view"


def _mean(found: Scores) -> float:
    return fmean(score["auc"] for score in found.values())


def _utility_steps(evaluation: Mapping[str, Any], ours: Scores, grade: Grade) -> list[str]:
    steps = []
    missing = sorted({label for score in ours.values() for label in score["missing"]})
    if missing:
        steps.append(f"Add records of the missing {'class' if len(missing) == 1 else 'classes'} {listing(missing)}.")
    subject, over = evaluation["subject"], gain(evaluation, CONTROL)
    if is_model_alone(subject):
        return [*steps, *([_POOR_CONTROL] if grade == "poor" else []), _BESIDE.format(run=subject["run"])]
    examples = gain(evaluation, EXAMPLES)
    if over is not None and over <= 0:
        steps.append(_NO_STEERING)
    elif examples is not None and examples <= 0:
        steps.append(_NO_BETTER)
    elif grade == "poor" and subject.get("run"):
        steps.append(_POOR)
    if over is None and subject.get("run") and grade != "good":
        steps.append(_NO_CONTROL.format(run=subject["run"]))
    return steps
