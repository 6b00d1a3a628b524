"""What the page shows, as plain data: facts of the run and the present reading. Public by construction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from selpe.errors import SelPEError
from selpe.run.event_log import EventReader
from selpe.run.manifest import read_manifest
from selpe.run.progress import Meter
from selpe.run.workspace import Workspace
from selpe.schema import Schema

View: TypeAlias = Callable[[], dict[str, Any]]
_STATES = {"created": "preparing", "running": "running"}


def live_view(folder: Path, meter: Meter) -> View:
    """The view of a run in this process."""

    def view() -> dict[str, Any]:
        reading = meter.read()
        facts = _facts(folder)
        state = "done" if reading.doing == "done" else facts["state"]
        return facts | {"state": state, "reading": reading.as_dict()}

    return view


def folder_view(folder: Path) -> View:
    """The view of a run of any process, from its folder: manifest and event log."""
    settings = _manifest(folder).get("settings", {})
    meter = Meter(epsilon=float(settings.get("epsilon", 0.0)), adjacency=settings.get("adjacency") or "replace-one")
    log, reading_log = EventReader(Workspace(folder).work.events), threading.Lock()
    last = 0.0

    def view() -> dict[str, Any]:
        nonlocal last
        with reading_log:
            for moment, event in log.more():
                meter.listen(event, moment)
                last = moment
        facts = _facts(folder)
        # The clock of a run that stands still stands still too.
        still = facts["state"] not in ("preparing", "running")
        return facts | {"reading": meter.read(last if still and last else None).as_dict()}

    return view


def _facts(folder: Path) -> dict[str, Any]:
    manifest = _manifest(folder)
    settings: Mapping[str, Any] = manifest.get("settings", {})
    state = str(manifest.get("state", "created"))
    return {
        "run": str(manifest.get("name", folder.name)),
        "dataset": str(settings.get("dataset", "")),
        "folder": str(folder),
        "state": _STATES.get(state, state),
        "model": str(manifest.get("model") or settings.get("llm", "")),
        "encoder": str(manifest.get("encoder") or settings.get("encoder", "")),
        "label": _label(str(settings.get("schema", ""))),
        "private": manifest.get("private", True),
    }


@lru_cache(maxsize=8)
def _label(path: str) -> str:
    """The label field's name, by which the page tells the class of a candidate."""
    try:
        return Schema.load(path).label or ""
    except SelPEError:
        return ""


def _manifest(folder: Path) -> dict[str, Any]:
    return read_manifest(folder) or {}
