"""Whether a release was judged before it left the house, for its owner, and what of that a receiver may know.

A judgement is computed from private rows without noise. So no grade and no figure of it goes out: a receiver is told
whether and when it was judged, and what the owner chooses to say in words of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from selpe.errors import ConfigError
from selpe.run.workspace import Workspace

JUDGED = "judged.txt"
LONGEST = 1000  # letters of an owner's statement
_READY = ("good", "fair")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `selpe evaluate` said of a run, and the day it did. For the owner alone."""

    grade: str
    headline: str
    day: str

    @property
    def ready(self) -> bool:
        """Whether the release was found fit to be used."""
        return self.grade in _READY


def judgement_of(folder: Path) -> Judgement | None:
    """The last judgement of a run; None where there is none that can be read."""
    path = Workspace(folder).internal.evaluation
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))["verdict"]
        day = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).date().isoformat()
        return Judgement(str(verdict["grade"]), str(verdict["headline"]), day)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def told_to_receivers(judgement: Judgement | None, statement: str = "") -> str:
    """The text that leaves with a release: nothing in it depends on what was found."""
    stated = " ".join(statement.split())
    if len(stated) > LONGEST or not stated.isprintable():
        raise ConfigError(f"a statement must be plain text of at most {LONGEST:,} letters", where="--statement")
    if judgement is None:
        lines = ["Judged by the owner against real records: no."]
    else:
        lines = [
            f"Judged by the owner against real records: yes, on {judgement.day}.",
            "What came of it is not stated: it is computed from private rows without noise, and stays with the owner.",
        ]
    lines += [f"The owner states: {stated}"] if stated else []
    return "\n".join([*lines, "This note is the owner's word. Unlike the other files it is not under the seal.", ""])
