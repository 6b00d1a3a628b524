"""The manifest of a run: taken only where it is what a run writes, and written so that nobody ever sees half of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selpe.owner_only import FILE_MODE, write_whole
from selpe.run.workspace import Workspace

_ALWAYS: dict[str, type] = {"name": str, "state": str, "settings": dict}
_SOMETIMES: dict[str, tuple[type, ...]] = {
    "ledger": (str,), "schema": (str,), "created": (str,), "model": (str,), "encoder": (str,), "method": (str,),
    "card": (str,), "seal": (dict,), "measurement": (dict,),
    "chosen": (dict,), "prices": (dict,), "counts": (dict,), "plan": (dict,), "spent": (dict,), "versions": (dict,),
    "selections": (list,), "records": (int,), "seconds": (int, float),
}  # fmt: skip

_COUNTED = {"answers", "replayed", "candidates", "prompt_tokens", "completion_tokens"}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in a folder; None where there is none, or one that no run has written."""
    try:
        content = json.loads(Workspace(folder).manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and _is_one(content) else None


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Puts a manifest in the place of the one before. It is on the disk when this returns, whole."""
    write_whole(Workspace(folder).manifest, json.dumps(content, ensure_ascii=False, indent=2, default=str) + "\n")


def is_worked_on(folder: Path) -> bool:
    """Whether a process of this machine works on the run in a folder now."""
    from filelock import FileLock, Timeout

    path = Workspace(folder).work.lock
    if not path.is_file():
        return False
    lock = FileLock(path, mode=FILE_MODE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def _is_one(content: Mapping[str, Any]) -> bool:
    if not all(isinstance(content.get(name), kind) for name, kind in _ALWAYS.items()) or not content["name"]:
        return False
    if not all(_of(content.get(name), kinds) for name, kinds in _SOMETIMES.items()):
        return False
    settings, counts = content["settings"], content.get("counts") or {}
    try:
        float(settings.get("epsilon", 0.0))
    except (ValueError, TypeError, OverflowError):
        return False
    if counts and not set(counts) >= _COUNTED:
        return False
    numbers = (value for name, value in counts.items() if name not in ("retries", "given_up"))
    losses = (value for name in ("retries", "given_up") for value in _values(counts.get(name)))
    texts = ("dataset", "data", "schema", "llm", "encoder", "method", "adjacency", "out")
    return (
        _of(settings.get("records"), (int,))
        and all(_of(settings.get(name), (str,)) for name in texts)
        and all(_of(value, (int, float)) for value in (*numbers, *losses))
    )


def _of(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value is absent or of a kind; True and False are no numbers."""
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool))


def _values(losses: Any) -> tuple[Any, ...]:
    return tuple(losses.values()) if isinstance(losses, dict) else (losses,)
