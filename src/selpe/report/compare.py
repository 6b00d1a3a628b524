"""Comparison of evaluated runs: one row of plain figures each, one table, one chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from selpe.report.charts import Level, Line, Scale, lines
from selpe.report.render import page
from selpe.report.words import NOTHING, count, epsilon, figure, known, percent
from selpe.run.progress import duration

COLUMNS = (
    ("records", "records"), ("epsilon", "ε"), ("text", "AUC text"), ("structured", "AUC structured"),
    ("marginals", "spreads"), ("recall", "recall"), ("echoes", "copies"), ("s_cfg", "S-CFG"), ("tpr", "TPR"),
    ("alarms", "alarms"),
    ("seconds", "time"),
)  # fmt: skip


def compared(evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per evaluation: names, grades, figures, and the figures as they are shown."""
    return [_row(evaluation) for evaluation in evaluations]


def compare_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The comparison as one self-contained page."""
    return page(
        "compare.html",
        internal=True,
        title=f"Comparison of {len(rows)} runs",
        rows=rows,
        columns=COLUMNS,
        chart=_chart(rows),
        best=_best(rows),
        unlike=len({row["tested_on"] for row in rows}) > 1,
    )


def _row(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    subject, fidelity = evaluation["subject"], evaluation["fidelity"] or evaluation["synthetic"] or {}
    making, summary = evaluation["making"] or {}, fidelity.get("summary") or {}
    scores = [one for one in (evaluation["utility"] or {}).get("scores", ()) if one["trained_on"] == "synthetic"]
    rates = [one["tpr"] for one in ((evaluation["attack"] or {}).get("membership") or {}).values() if one]
    found = {
        "records": subject["records"],
        "epsilon": subject["epsilon"],
        **{kind: next((one["auc"] for one in scores if one["kind"] == kind), None) for kind in ("text", "structured")},
        "marginals": summary.get("marginals"),
        "recall": summary.get("recall"),
        "echoes": ((fidelity.get("echoes") or {}).get("synthetic") or {}).get("share"),
        "s_cfg": (fidelity.get("validity") or {}).get("s_cfg"),
        "tpr": max(rates, default=None),
        "alarms": len((evaluation["attack"] or {}).get("alarms", ())) + len(fidelity.get("alarms") or ()),
        "seconds": making.get("seconds"),
    }
    return {
        "name": subject["name"],
        "model": making.get("model"),
        "method": making.get("method"),
        "grade": evaluation["verdict"]["grade"],
        "headline": evaluation["verdict"]["headline"],
        "private": subject["private"],
        "tested_on": evaluation.get("tested_on"),
        "scores": [{key: one[key] for key in ("view", "kind", "auc", "low", "high")} for one in scores],
        "figures": found,
        "shown": _shown(found),
    }


def _shown(found: Mapping[str, Any]) -> dict[str, str]:
    seconds = found["seconds"]
    return {
        "records": count(found["records"]),
        "epsilon": epsilon(found["epsilon"]),
        "text": figure(found["text"], 1),
        "structured": figure(found["structured"], 1),
        "marginals": figure(found["marginals"], 2),
        "recall": percent(found["recall"], 0),
        "echoes": percent(found["echoes"]),
        "s_cfg": percent(found["s_cfg"] / 100) if known(found["s_cfg"]) else NOTHING,
        "tpr": percent(found["tpr"]),
        "alarms": count(found["alarms"]),
        "seconds": duration(seconds) if known(seconds) else NOTHING,
    }


def _chart(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    runs = [
        Line(
            row["name"],
            tuple(Level(one["view"], one["auc"], one["low"], one["high"], one["kind"]) for one in row["scores"]),
        )
        for row in rows
        if row["scores"]
    ]
    if not runs:
        return None
    low = min([40.0, *(10 * (level.low // 10) for run in runs for level in run.levels if known(level.low))])
    scale = Scale(low, 100.0, tuple(float(tick) for tick in range(int(low), 101, 10)))
    return lines(runs, scale, title="ROC-AUC of each run, percent, with 95 % intervals")


def _best(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Which run has the best figure of each column, where one has: shown in bold."""
    best: dict[str, str] = {}
    for key, larger in (
        ("text", True),
        ("structured", True),
        ("marginals", False),
        ("recall", True),
        ("echoes", False),
    ):
        known_rows = [row for row in rows if known(row["figures"][key])]
        if len(known_rows) > 1:
            ordered = sorted(known_rows, key=lambda row: row["figures"][key], reverse=larger)
            best[key] = ordered[0]["shown"][key]
    return best
