"""The utility section: a chart per view, and one table with every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selpe.report.charts import Level, Scale, level_bars
from selpe.report.words import NOTHING, figure, known, plural

# In the order of the page.
TRAINED = {
    "synthetic": "These synthetic records",
    "private rows": "The private rows",
    "real rows": "As many real rows",
    "epsilon 0": "A run with ε = 0",
    "schema examples": "The schema's examples alone",
    "chance": "Chance",
}
VIEWS = {
    "minilm": "embeddings, logistic regression",
    "boosted": "all fields, gradient boosting",
    "roberta": "RoBERTa, fine-tuned",
    "tabstar": "TabSTAR",
}
_COLOURS = {"synthetic": "synthetic", "private rows": "real", "real rows": "real"}


def utility_section(evaluation: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the template shows of utility; None where there is nothing."""
    found = evaluation["utility"]
    if not found or not found["scores"]:
        return None
    views: dict[str, list[Mapping[str, Any]]] = {}
    for score in sorted(found["scores"], key=_order):
        views.setdefault(score["view"], []).append(score)
    ours = [score for score in found["scores"] if score["trained_on"] == "synthetic"]
    return {
        "views": [_view(name, scores) for name, scores in views.items()],
        "rows": _rows(views),
        "classes": _classes(views),
        "missing": sorted({label for score in ours for label in score["missing"]}),
        "notes": found["notes"],
    }


def view_title(score: Mapping[str, Any]) -> str:
    """The kind of a view in words."""
    return "Text view" if score["kind"] == "text" else "Structured view"


def _order(score: Mapping[str, Any]) -> tuple[bool, float]:
    """Text views before structured ones; training sets as the page has them, strangers before the control."""
    places = {trained: float(place) for place, trained in enumerate(TRAINED)}
    return score["kind"] != "text", places.get(score["trained_on"], 2.5)


def _view(name: str, scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    bars = [_bar(score) for score in scores if score["trained_on"] != "chance" and known(score["auc"])]
    low = min([40.0, *(10 * (level.low // 10) for level in bars if known(level.low))])
    scale = Scale(low, 100.0, tuple(float(tick) for tick in range(int(low), 101, 10)))
    title = view_title(scores[0])
    chart = level_bars(bars, scale, title=f"{title}: ROC-AUC by training set, percent", start=50.0)
    return {"title": title, "about": VIEWS.get(name, name), "chart": chart}


def _bar(score: Mapping[str, Any]) -> Level:
    trained = score["trained_on"]
    name, colour = TRAINED.get(trained, trained), _COLOURS.get(trained, "other")
    return Level(name, score["auc"], score["low"], score["high"], colour, plural(score["rows"], "row"))


def _rows(views: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """One row per training set, the figures of each view behind each other."""
    names = dict.fromkeys(score["trained_on"] for scores in views.values() for score in scores)
    rows = {score["trained_on"]: score["rows"] for scores in views.values() for score in scores}
    few = rows.get("real rows", 0) < rows.get("synthetic", 0)
    return [
        {
            "name": TRAINED.get(name, name),
            "rows": "" if name == "chance" else plural(rows[name], "row"),
            "few": ", all there are" if name == "real rows" and few else "",
            "ours": name == "synthetic",
            "cells": [_cells(scores, name) for scores in views.values()],
        }
        for name in names
    ]


def _cells(scores: Sequence[Mapping[str, Any]], trained: str) -> dict[str, str]:
    score = next((one for one in scores if one["trained_on"] == trained), None)
    if score is None:
        return {"auc": NOTHING, "interval": "", "accuracy": NOTHING, "f1": NOTHING}
    return {
        "auc": figure(score["auc"], 1),
        "interval": "" if trained == "chance" else f"{figure(score['low'], 1)} to {figure(score['high'], 1)}",
        "accuracy": figure(score["accuracy"], 1),
        "f1": figure(score["macro_f1"], 1),
    }


def _classes(views: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
    """AUC of each class against the rest: synthetic beside the best reference there is, by view."""
    shown = []
    for scores in views.values():
        by_set = {score["trained_on"]: score for score in scores}
        best = next((name for name in ("private rows", "real rows") if name in by_set), None)
        shown += [by_set[name] for name in ("synthetic", best) if name in by_set]
    labels = dict.fromkeys(label for score in shown for label in score["per_class"])
    if not labels:
        return None
    return {
        "columns": [{"set": TRAINED[score["trained_on"]], "view": view_title(score)} for score in shown],
        "rows": {label: [figure(score["per_class"].get(label), 1) for score in shown] for label in labels},
    }
