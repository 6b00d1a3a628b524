"""The privacy section: what attacks find in private rows, each figure beside the same one for held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from selpe.evaluation.attack.alarms import SIGNIFICANCE
from selpe.report.answers.private import attacked
from selpe.report.charts import Level, Scale, level_bars
from selpe.report.panels import Spread, spread
from selpe.report.words import NOTHING, count, figure, known, percent

_ATTACKS = {"text": "text distance", "kernel": "kernel distance"}
_MOST_COPIES = 50


def privacy_section(evaluation: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the template shows of the attacks; None where none was tried."""
    found = evaluation["attack"]
    if not found:
        return None
    grade, said = attacked(found)
    return {
        "alarms": found["alarms"],
        "calm": {"said": said, "grade": grade, "compared": bool((found.get("tests") or {}).get("count"))},
        "threshold": f"{SIGNIFICANCE:g}",
        "notes": found["notes"],
        "counts": found["counts"],
        "rows": _rows(found),
        "membership": _membership(found["membership"]),
        "distances": _distances(found["dcr"] or {}),
        "copies": ((found["copies"] or {}).get("found") or [])[:_MOST_COPIES],
    }


def _rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    nrs, dcr, copies = found["nrs"] or {}, found["dcr"] or {}, found["copies"] or {}
    beside = (dcr.get("to_holdout") or {}).get("value")
    rows = [
        _row("NRS", "synthetic records that repeat no row", nrs,
             percent(nrs.get("value")), percent(nrs.get("to_holdout"))),
        _row("DCR", "mean distance to the closest row; larger is safer", {},
             figure(dcr.get("value"), 2), figure(beside, 2)),
        _row("Nearer to private rows", "share of synthetic records", dcr,
             percent(dcr.get("closer_to_private"), 0), _by_chance(percent(dcr.get("expected"), 0), "expected")),
    ]  # fmt: skip
    for name, title in _ATTACKS.items():
        one = found["membership"].get(name) or {}
        rows += [
            _row(f"Membership by {title}", "members found at 1 % false alarms, 95 % interval", one, _tpr(one),
                 _by_chance(percent(one.get("chance")), "by guessing")),
            _row("", "AUC of the same attack", {"p_value": one.get("auc_p_value")}, figure(one.get("auc"), 2),
                 "0.50 by guessing"),
        ]  # fmt: skip
    if known(copies.get("words")):
        rows += [
            _row(f"{copies['words']} words in a row", "rows that share such a run with a synthetic record", copies,
                 _touched(copies, "private"), _touched(copies, "holdout")),
            _row("", "longest shared run, in words", {}, count(copies.get("longest")), ""),
        ]  # fmt: skip
    return [row for row in rows if row["private"] != NOTHING]


def _row(name: str, about: str, found: Mapping[str, Any], private: str, beside: str) -> dict[str, str]:
    p = found.get("p_value")
    chance = "" if not known(p) else "< 0.001" if p < 0.001 else figure(p, 3)
    return {"name": name, "about": about, "private": private, "beside": beside, "p": chance}


def _by_chance(text: str, how: str) -> str:
    return NOTHING if text == NOTHING else f"{text} {how}"


def _touched(copies: Mapping[str, Any], which: str) -> str:
    if not copies.get(f"{which}_rows"):
        return NOTHING
    return f"{count(copies.get(f'{which}_touched'))} of {count(copies[f'{which}_rows'])}"


def _tpr(found: Mapping[str, Any]) -> str:
    if not known(found.get("tpr")):
        return NOTHING
    return f"{percent(found['tpr'])} ({percent(found['low'])} to {percent(found['high'])})"


def _members(found: Mapping[str, Any]) -> str:
    return f"{count(found['members'])} members"


def _membership(found: Mapping[str, Any]) -> Markup | None:
    tried = {title: found.get(name) or {} for name, title in _ATTACKS.items()}
    levels = [
        Level(f"By {title}", 100 * one["tpr"], 100 * one["low"], 100 * one["high"], "private", _members(one))
        for title, one in tried.items()
        if known(one.get("tpr"))
    ]
    if not levels:
        return None
    most = max(10.0, *(5 * -(-(level.high or 0.0) // 5) for level in levels))
    step = 2 if most <= 10 else 5 if most <= 30 else 20
    scale = Scale(0.0, most, tuple(float(tick) for tick in range(0, int(most) + 1, step)))
    return level_bars(levels, scale, title="Members found at 1 % false alarms, percent", start=0.0, mark=1.0)


def _distances(found: Mapping[str, Any]) -> Markup | None:
    edges, held = found.get("edges"), found.get("holdout")
    if not edges or not found.get("synthetic"):
        return None
    names = tuple(figure(edge, 2) for edge in (edges[0], (edges[0] + edges[-1]) / 2, edges[-1]))
    beside = tuple(held) if held else None
    return spread(
        Spread("Distance to the closest private row", names, tuple(found["synthetic"]), beside, histogram=True)
    )
