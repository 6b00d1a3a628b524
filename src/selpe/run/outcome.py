"""What came of a run: its records, and what further ones are written from. At its end, or at any later time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import RunError
from selpe.intake.lines import RecordLines
from selpe.privacy.sealing import require_whole
from selpe.run.large.composition import Composition
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from selpe.run.lifecycle import Run

IN_MEMORY_RECORDS = 50_000  # a larger release is read from its file


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run: its folder, its records, and what to generate more from, where its method knows how."""

    folder: Path
    schema: Schema
    records: Sequence[Record]
    manifest: Mapping[str, Any]
    composition: Composition | None


def outcome_of(run: Run) -> Outcome:
    """What came of a run that is done, from its folder; raises where it is not done, or its release was changed."""
    state = str(run.manifest["state"])
    if state != "done":
        raise RunError(
            f"this run is not finished: it is '{state}'",
            where=str(run.folder),
            hint=f"`selpe resume {run.folder}` finishes it; in Python, fit(table, name={run.name!r}) with its settings",
        )
    require_whole(run.release, run.manifest)
    schema = run.schema
    lines = RecordLines(run.workspace.release.jsonl)
    records = lines if len(lines) > IN_MEMORY_RECORDS else tuple(lines)
    return Outcome(
        run.folder, schema, records, run.manifest, Composition.load(run.workspace.work.composition, schema)
    )  # fmt: skip
