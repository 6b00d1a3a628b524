"""Which version of the method a cell was done by: a hash of the source that decides what comes out.

Results outlive changes of the code. A cell that was done before one is still shown, and the user is told; `--redo` does
it again.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import selpe

# Rooms that only show, serve or fetch things: changing them changes no figure. Sampling lives in models/, which counts.
_APART = ("cli", "experiments", "report", "serve", "watch", "examples", "intake/draft", "models/store")
_SUFFIXES = (".py", ".j2")


@cache
def code_fingerprint() -> str:
    """A hash of the modules and prompts behind methods and measures."""
    home = Path(selpe.__file__).resolve().parent
    found = hashlib.sha256()
    for inside in deciding(home):
        found.update(f"{inside}\n".encode())
        found.update((home / inside).read_bytes())
    return found.hexdigest()[:12]


def deciding(home: Path) -> list[str]:
    """The files of a package that decide what comes out, by their paths in it."""
    files = (path.relative_to(home).as_posix() for path in home.rglob("*") if path.suffix in _SUFFIXES)
    return sorted(inside for inside in files if not inside.startswith(tuple(f"{room}/" for room in _APART)))
