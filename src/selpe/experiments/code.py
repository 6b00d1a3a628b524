"""Which version of the method a cell was done by: a hash of the source that decides what comes out.

Results outlive changes of the code. A cell that was done before one is still shown, and the user is told; `--redo` does
it again.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import selpe

# Rooms that only show, serve or fetch things: changing them changes no figure.
_APART = ("cli", "experiments", "report", "serve", "watch", "examples", "draft", "llm")
_SUFFIXES = (".py", ".j2")


@cache
def code_fingerprint() -> str:
    """A hash of the modules and prompts behind methods and measures."""
    home = Path(selpe.__file__).resolve().parent
    found = hashlib.sha256()
    for path in sorted(home.rglob("*")):
        inside = path.relative_to(home)
        if path.suffix in _SUFFIXES and inside.parts[0] not in _APART:
            found.update(f"{inside.as_posix()}\n".encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:12]
