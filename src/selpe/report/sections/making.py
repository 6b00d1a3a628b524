"""The section on how a table was made: private choices with their ε, winners over rounds, pools, model and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from selpe.report.charts import Round, spending, winners
from selpe.report.sections.measured import taken
from selpe.report.words import NOTHING, compact, count, epsilon, known, listing
from selpe.run.progress import duration

# Private choices as people would name them; the number of a round or look goes where the braces are.
_CHOICES = {
    "guide": "choice of the guide",
    "round": "choices of round {}",
    "field": "vote for field {} to count",
    "measure": "noisy counts, look {}",
    "bundle": "choice among whole releases",
}


def making_section(evaluation: Mapping[str, Any], titles: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """What the template shows of a run's making; None for tables of others."""
    found = evaluation["making"]
    if not found:
        return None
    priced = [(_choice(one["name"]), float(one["epsilon"])) for one in found["choices"] if one["epsilon"] != "inf"]
    return {
        "facts": _facts(found),
        "spending": spending(priced, title=f"ε of each private choice ({found['adjacency']})") if priced else None,
        "ours": found["method"] in (None, "selpe"),
        "total": epsilon(evaluation["subject"]["epsilon"]),  # of other methods, the parts need not add up to it
        "controls": any(not one["private"] or one["epsilon"] == "inf" for one in found["choices"]),
        "adjacency": found["adjacency"],
        "measured": _measured(found.get("measured"), titles or {}),
        "winners": _winners(evaluation["winners"]),
        "pools": [{**pool, "name": _words(pool["name"])} for pool in found["pools"]],
        "settings": {name: _setting(value) for name, value in found["settings"].items()},
        "versions": found["versions"],
    }


def _facts(found: Mapping[str, Any]) -> list[dict[str, str]]:
    counts = found["counts"]
    facts = {
        "method": None if found["method"] == "selpe" else found["method"],
        "model": found["model"],
        "encoder": found["encoder"],
        "of work": duration(found["seconds"]) if known(found["seconds"]) else None,
        "tokens read": compact(counts.get("prompt_tokens")),
        "tokens written": compact(counts.get("completion_tokens")),
        "candidates": count(counts.get("candidates")),
        "retries": count(sum(found["retries"].values())),
        "given up": count(sum(found["given_up"].values())),
        "guide": found["guide"],
        "release chosen": found["bundle"],
    }
    return [{"name": name, "value": str(value)} for name, value in facts.items() if value not in (None, "", NOTHING)]


def _winners(found: Sequence[Mapping[str, Any]] | None) -> Markup | None:
    rounds = [
        Round(_words(one["name"]), one.get("expected"), tuple((str(label), float(at)) for label, at in one["winners"]))
        for one in found or ()
    ]
    return winners(rounds, title="Winners over rounds: closeness to real records, percentile") if rounds else None


def _measured(found: Mapping[str, Any] | None, titles: Mapping[str, str]) -> str:
    """What was counted of the private table, and whether the release follows it."""
    if not found:
        return ""
    tables = listing([" with ".join(titles.get(name, name) for name in fields) for fields in found["fields"]])
    return f"Counted with noise: {tables}. {taken(found)}".strip()


def _choice(name: str) -> str:
    kind, _, number = name.rpartition("-") if name[-1:].isdigit() else (name, "", "")
    return _CHOICES[kind].format(number) if kind in _CHOICES else _words(name)


def _words(name: str) -> str:
    return name.replace("-", " ")


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
