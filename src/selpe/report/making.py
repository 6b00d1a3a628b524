"""How a run was made, as plain data: its private choices, its pools, its model and what they took.

Everything comes from the run's own manifest and event log, which hold nothing of a private row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from selpe.events import Event, PoolReady, Selected, Started
from selpe.run.event_log import EventReader
from selpe.run.workspace import Workspace

_SHOWN = (
    "epsilon", "delta", "adjacency", "unit", "records", "rounds", "batches", "alpha", "multiplicity", "votes",
    "measure", "mechanism", "epsilon_schedule", "guides", "guide_sample", "bundles", "contrast", "quota", "stages",
    "kernel", "inclusion", "explore", "exemplars", "temperature", "record_temperature", "attempts", "llm", "encoder",
    "seed",
)  # fmt: skip


def making(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The story of a run: choices in order with their ε, pools with their losses, model, tokens, time, settings."""
    events = _last_attempt(event for _, event in EventReader(Workspace(folder).work.events).more())
    settings: Mapping[str, Any] = manifest.get("settings", {})
    adjacency = str(settings.get("adjacency", "replace-one"))
    counts: Mapping[str, Any] = manifest.get("counts", {})
    return {
        "run": manifest.get("name"),
        "state": manifest.get("state"),
        "created": manifest.get("created"),
        "finished": manifest.get("finished"),
        "seconds": manifest.get("seconds"),
        "method": manifest.get("method"),
        "model": manifest.get("model"),
        "encoder": manifest.get("encoder"),
        "guide": manifest.get("guide"),
        "bundle": manifest.get("bundle"),
        "adjacency": adjacency,
        "measured": _measured(Workspace(folder).release.measurements),
        "choices": _choices(events, manifest, adjacency),
        "pools": _pools(events),
        "expected": _expected(manifest.get("plan")),
        "counts": {name: counts.get(name) for name in ("answers", "candidates", "prompt_tokens", "completion_tokens")},
        "retries": dict(counts.get("retries") or {}),
        "given_up": dict(counts.get("given_up") or {}),
        "settings": {name: settings[name] for name in _SHOWN if settings.get(name) is not None},
        "chosen": dict(manifest.get("chosen") or {}),
        "versions": dict(manifest.get("versions") or {}),
    }


def _measured(path: Path) -> dict[str, Any] | None:
    """Which tables were counted, and whether the release follows them; None where nothing was measured."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        tables = content["looks"][-1]["tables"]
        fields = [[axis["field"] for axis in table["axes"] if axis["kind"] != "class"] for table in tables]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    kept = ("written_by_the_counts", "rest_of_any_class", "counted")
    return {"fields": fields, **{name: content.get(name) for name in kept}}


def _last_attempt(events: Iterable[Event]) -> list[Event]:
    """The events since the last `Started`: a resumed run emits everything again."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Started):
            kept.clear()
        kept.append(event)
    return kept


def _choices(events: Iterable[Event], manifest: Mapping[str, Any], adjacency: str) -> list[dict[str, Any]]:
    """Every private choice with its price; from the manifest where the log is gone."""
    told = [event.as_dict() for event in events if isinstance(event, Selected)] or manifest.get("selections", [])
    price = "epsilon_replace_one" if adjacency == "replace-one" else "epsilon_add_remove"
    return [
        {
            "name": str(one["selection"]),
            "epsilon": _number(one[price]),
            "mechanism": one["mechanism"],
            "private": one["private"],
            "winners": {label: list(places) for label, places in dict(one.get("winners") or {}).items()},
            "records": {label: [dict(each) for each in some] for label, some in dict(one.get("records") or {}).items()},
        }
        for one in told
    ]


def _pools(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [
        {
            "name": {"guides": "guides", "round": f"round-{event.number}"}.get(
                event.stage, f"{event.stage}-{event.number}"
            ),
            "found": event.found,
            "retries": sum(event.retries.values()),
            "given_up": sum(event.given_up.values()),
        }
        for event in events
        if isinstance(event, PoolReady)
    ]


def _expected(plan: Any) -> list[float]:
    """Where the plan expected the winners of each round; methods other than ours plan otherwise."""
    rounds = plan.get("rounds") if isinstance(plan, Mapping) else None
    if not isinstance(rounds, list):
        return []
    return [
        round(100 * float(one["percentile"]), 1) for one in rounds if isinstance(one, Mapping) and "percentile" in one
    ]


def _number(value: Any) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else "inf"
