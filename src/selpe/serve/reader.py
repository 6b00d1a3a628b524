"""The child process that reads uploads: hostile files, patterns and tables meet their limits here, not in the server.

It takes one JSON line per job on standard input and gives one JSON line back. It does nothing else, spends nothing, and
may be killed at any moment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from selpe.errors import SchemaError, SelPEError
from selpe.processes import end_with_parent

MOST_PROBLEMS = 50
_NICE = 10  # the server comes first where cores are few: it answers everybody, also who asks for nothing that is read


def schema(path: str) -> dict[str, Any]:
    """What a schema says: its fields and which of them are still drafts."""
    from selpe.schema import Schema

    found = _schema(Schema.load, Path(path))
    return {
        "name": found.name,
        "fields": [{"name": f.name, "kind": f.kind, "optional": f.optional} for f in found.fields],
        "label": found.label,
        "labels": list(found.labels),
        "rules": len(found.rules),
        "unconfirmed": list(found.unconfirmed),
    }


def check(data: str, schema: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """How a table fits a schema: rows and fields, never a value."""
    from selpe.intake.options import ReadingOptions
    from selpe.schema import Schema

    found = _schema(Schema.load, Path(schema))
    how = ReadingOptions(**options)
    table = how.table(data)
    reading = how.reading(table, found)
    messages = [problem.message for problem in reading.problems]
    return {
        "rows": len(table) + len(table.broken),
        "fit": len(reading.records),
        "problems": messages[:MOST_PROBLEMS],
        "more_problems": max(0, len(messages) - MOST_PROBLEMS),
        "notes": list(reading.notes),
        "unconfirmed": list(found.unconfirmed),
    }


def plan(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run of these settings would do and be charged. Of the table only the number of units is read."""
    from selpe.config import check_config
    from selpe.privacy.ledger import Ledger
    from selpe.run.preflight import preflight

    config = check_config(settings, where="settings")
    found = preflight(config, Ledger.open(config.dataset))
    return {
        "plan": found.plan.to_dict(),
        "estimate": found.estimate.as_dict(),
        "warnings": list(found.warnings),
        "verdict": found.plan.verdict,
        "charges": [charge.to_dict() for charge in found.plan.charges("this run", config.unit or "record")],
    }


def pack(run: str, to: str) -> dict[str, Any]:
    """The packed release of a run, proved as `selpe release` proves it."""
    from selpe.run.lifecycle import Run
    from selpe.run.packing import pack_release
    from selpe.run.release import RELEASED

    found = Run.open(Path(run))
    packed = pack_release(found.folder, found.manifest, found.schema, allowed=RELEASED, to=Path(to))
    return {"sha256": packed.sha256, "records": packed.records, "files": dict(packed.files)}


def view(run: str) -> dict[str, Any]:
    """What the page of a run shows now, as JSON can say it."""
    shown: dict[str, Any] = json.loads(json.dumps(_view_of(run)(), default=str))
    return shown


@lru_cache(maxsize=32)
def _view_of(run: str) -> Callable[[], dict[str, Any]]:
    """Looks at a run; reads on where it stopped."""
    from selpe.watch import folder_view

    return folder_view(Path(run))


JOBS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "schema": schema, "check": check, "plan": plan, "pack": pack, "view": view,
}  # fmt: skip


def answer(line: bytes) -> dict[str, Any]:
    """The result of one job, or what is wrong; of a foreign error its kind alone, for its message may quote a cell."""
    try:
        job = json.loads(line)
        return {"result": JOBS[job.pop("do")](**job)}
    except SelPEError as error:
        return {"error": error.as_dict()}
    except MemoryError:
        return {"error": {"kind": "data", "message": "this takes more memory than the server allows"}}
    except Exception as error:
        return {"error": {"kind": "bug", "message": f"an unexpected {type(error).__name__}"}}


def main() -> None:
    """Answers until standard input ends."""
    end_with_parent(0.0)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    limit_memory(int(sys.argv[1]))
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin.buffer:
        answers.write(json.dumps(answer(line)).encode() + b"\n")


def limit_memory(size: int) -> None:
    """Bounds what this process may allocate, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    # Data, not address space: allocators and thread stacks reserve far more addresses than they ever use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size if hard < 0 else min(size, hard), hard))


def _schema(load: Callable[[Path], Any], path: Path) -> Any:
    """The schema of a file. Where it is no YAML at all, the parser's words are left out: they quote what they found."""
    try:
        return load(path)
    except SchemaError as error:
        if error.message.startswith("this is not YAML"):
            raise SchemaError("this is not YAML", where=error.where) from None
        raise


if __name__ == "__main__":
    main()
