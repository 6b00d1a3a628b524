"""The figures that a verdict rests on: each with its grade, and with the bounds that it was graded by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from selpe.evaluation.fidelity.diversity import judged
from selpe.evaluation.grades import BOUNDS, Bounds, Grade
from selpe.report.words import NOTHING, count, figure, known, percent

Scores: TypeAlias = Mapping[str, Mapping[str, Any]]  # view -> score
REFERENCES = ("private rows", "real rows")
EXAMPLES, CONTROL = "schema examples", "epsilon 0"


@dataclass(frozen=True, slots=True)
class GradedFigure:
    """One figure that is graded: as a number, as it is shown, and by which rule."""

    name: str
    title: str
    figure: float | None
    shown: str
    grade: Grade
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one of the three questions, and the graded figures behind it."""

    question: str
    grade: Grade
    answer: str  # a few words: the figure that decided the grade
    sentence: str
    steps: tuple[str, ...] = ()
    parts: tuple[GradedFigure, ...] = ()


def decisive(parts: Sequence[GradedFigure], grade: Grade) -> GradedFigure | None:
    """The first of the figures that have this grade."""
    return next((part for part in parts if part.grade == grade), None)


def is_model_alone(subject: Mapping[str, Any]) -> bool:
    """Whether this is a run with ε = 0, which has read no private row."""
    return bool(subject.get("run")) and subject.get("epsilon") == 0


# -- is it useful? ---------------------------------------------------------------------------------------------------


def scores(evaluation: Mapping[str, Any], trained_on: str) -> Scores:
    """The scores of one training set by view."""
    found = (evaluation["utility"] or {}).get("scores", ())
    return {score["view"]: score for score in found if score["trained_on"] == trained_on and known(score["auc"])}


def reference(evaluation: Mapping[str, Any]) -> Scores:
    """The scores of real rows: the private ones, or others where those were not given."""
    return next((found for name in REFERENCES if (found := scores(evaluation, name))), {})


def reached(ours: Scores, best: Scores) -> float | None:
    """How far the synthetic table gets from chance to the reference, over views whose reference beats chance."""
    shares = [
        (ours[view]["auc"] - 50) / (best[view]["auc"] - 50)
        for view in ours
        if view in best and best[view]["auc"] > 52
    ]  # fmt: skip
    return max(0.0, fmean(shares)) if shares else None


def gain(evaluation: Mapping[str, Any], over: str) -> float | None:
    """Points of AUC above another training set, mean over the views that both have."""
    ours, theirs = scores(evaluation, "synthetic"), scores(evaluation, over)
    gains = [ours[view]["auc"] - theirs[view]["auc"] for view in ours if view in theirs]
    return fmean(gains) if gains else None


def utility_parts(evaluation: Mapping[str, Any]) -> list[GradedFigure]:
    """What 'Is it useful?' rests on; nothing where utility was not measured."""
    ours = scores(evaluation, "synthetic")
    if not ours:
        return []
    missing = {label for score in ours.values() for label in score["missing"]}
    lowest = max(score["low"] - 50 for score in ours.values())
    parts = [
        _way(ours, reference(evaluation)),
        _part("above_chance", "Lower end of the interval, above chance", lowest, _points, "above 0 in one view"),
    ]
    for name, title, over in (
        ("over_examples", "Gain over the schema's examples alone", EXAMPLES),
        ("over_control", "Gain over a run with ε = 0", CONTROL),
    ):
        if (points := gain(evaluation, over)) is not None:
            parts.append(_part(name, title, points, _points, "good above 0, else fair"))
    return [
        *parts,
        _part("missing_classes", "Classes without a record", len(missing), count, "good if none, else fair"),
    ]


def _way(ours: Scores, best: Scores) -> GradedFigure:
    title, way = "Way from chance to real rows", reached(ours, best)
    if way is not None:
        return _part("reached", title, way, lambda value: percent(value, 0))
    # Without anything to compare with, nothing can be called good.
    why = "real rows do no better than chance themselves" if best else "no real rows to compare with"
    return GradedFigure("reached", title, None, NOTHING, "fair", f"{why}: fair at best")


# -- is it faithful? -------------------------------------------------------------------------------------------------


def fidelity_parts(evaluation: Mapping[str, Any]) -> list[GradedFigure]:
    """What 'Is it faithful?' rests on, as far as it was measured."""
    found = evaluation["fidelity"] or evaluation["synthetic"] or {}
    summary, halves = found.get("summary") or {}, found.get("reference") or {}
    valid = evaluation["validity"]
    parts = [
        _part("validity", "Valid records", valid["rate"], percent),
        _part("distinct", "Different records", valid.get("distinct"), count),
        *_echoes(found),
    ]
    for name, title, form in (
        ("marginals", "Spreads of fields, distance", _two_digits),
        ("associations", "Associations of fields, difference", _two_digits),
        ("recall", "Real records with synthetic ones around them (recall)", _whole_percent),
        ("precision", "Synthetic records where real ones are (precision)", _whole_percent),
    ):
        parts.append(_part(name, title, summary.get(name), form, bounds=BOUNDS[name].beside(_number(halves.get(name)))))
    return [part for part in (*parts, *_variety(found)) if part.grade != "unknown"]


def _echoes(found: Mapping[str, Any]) -> list[GradedFigure]:
    counted = (found.get("echoes") or {}).get("synthetic") or {}
    return [
        _part("echoes", "Records that copy an example of the schema", counted.get("share"), percent),
        _part("near_echoes", "Records that nearly copy one, a few words changed", counted.get("near_share"), percent),
    ]


def _variety(found: Mapping[str, Any]) -> list[GradedFigure]:
    variety = found.get("diversity") or {}
    if not variety.get("synthetic"):
        return []
    real = variety.get("real")
    more = "" if real is None else ", more than among real ones"
    named: dict[str, tuple[str, Callable[[Any], str]]] = {
        "repeated": (f"Records or texts that come again{more}", percent),
        "near": (f"Near duplicates{more}", percent),
        "effective": ("Variety, as a share of that of as many real records", _whole_percent),
    }
    graded = judged(variety["synthetic"], real)
    return [
        _part(name, named[name][0], value, named[name][1], bounds=bounds) for name, (value, bounds) in graded.items()
    ]


# -- one rule --------------------------------------------------------------------------------------------------------


def _part(
    name: str, title: str, value: Any, form: Callable[[Any], str], rule: str = "", *, bounds: Bounds | None = None
) -> GradedFigure:
    number, by = _number(value), bounds or BOUNDS[name]
    return GradedFigure(name, title, number, form(number), by.grade(number), rule or _rule(by, form))


def _rule(bounds: Bounds, form: Callable[[Any], str]) -> str:
    to = "from" if bounds.larger else "up to"
    return f"good {to} {form(bounds.good)}, fair {to} {form(bounds.fair)}"


def _number(value: Any) -> float | None:
    return float(value) if known(value) else None


def _points(value: Any) -> str:
    if not known(value):
        return NOTHING
    return f"{'+' if value > 0 else ''}{figure(value, 1)}"


def _two_digits(value: Any) -> str:
    return figure(value, 2)


def _whole_percent(value: Any) -> str:
    return percent(value, 0)
