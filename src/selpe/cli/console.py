"""Where output goes: rich on a terminal, plain lines elsewhere, one JSON line per result with `--json`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class Manners:
    """How this invocation talks: set once from the global options."""

    json: bool = False
    verbose: int = 0
    debug: bool = False


MANNERS = Manners()


@cache
def out() -> Console:
    """The console on standard output."""
    from rich.console import Console

    # Off a terminal lines are not wrapped at 80 columns: a pipe or a log keeps each line whole.
    return Console(soft_wrap=not sys.stdout.isatty(), highlight=False)


@cache
def err() -> Console:
    """The console on standard error, for progress, notes and errors."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=not sys.stderr.isatty(), highlight=False)


def json_mode() -> bool:
    """True when the user asked for machine-readable output."""
    return MANNERS.json


def emit(result: dict[str, Any]) -> None:
    """Writes one JSON line to standard output when `--json` was given; does nothing otherwise."""
    if MANNERS.json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()
