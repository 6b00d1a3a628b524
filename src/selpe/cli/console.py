"""Where output goes: rich on a terminal, plain lines elsewhere, one JSON line per result with `--json`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

# What a terminal obeys instead of showing it. Records and names come from models and files, and may hold such things.
_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(slots=True)
class Manners:
    """How this command prints: set once from the global options."""

    json: bool = False
    verbose: int = 0
    debug: bool = False
    words: tuple[str, ...] = ()  # the command as it was given


MANNERS = Manners()


@cache
def out() -> Console:
    """The console on standard output."""
    # Off a terminal lines are not wrapped at 80 columns: a pipe or a log keeps each line whole.
    return plain_console(soft_wrap=not sys.stdout.isatty())


@cache
def err() -> Console:
    """The console on standard error, for progress, notes and errors."""
    return plain_console(stderr=True, soft_wrap=not sys.stderr.isatty())


def plain_console(**settings: Any) -> Console:
    """A console that shows control characters inside a text as '�' and does not send them to the terminal."""
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        """A console for text that comes from elsewhere."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:  # what is put on the screen passes through here, the console's own orders apart
            """The segments of a renderable, with plain text in them."""
            for part in super().render(renderable, options):
                plain = part.control or not _ORDERS.search(part.text)
                yield part if plain else Segment(_ORDERS.sub("\ufffd", part.text), part.style)

    return PlainConsole(highlight=False, **settings)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Says on a terminal what goes on while the block runs; nothing elsewhere."""
    if json_mode() or not err().is_terminal:
        yield
        return
    with err().status(f"{what} …"):
        yield


def json_mode() -> bool:
    """True when the user asked for machine-readable output."""
    return MANNERS.json


def emit(result: dict[str, Any]) -> None:
    """Writes one JSON line to standard output when `--json` was given; does nothing otherwise."""
    if MANNERS.json:
        line = json.dumps(result, ensure_ascii=False, default=str)
        sys.stdout.write(_ORDERS.sub(lambda found: f"\\u{ord(found[0]):04x}", line) + "\n")
        sys.stdout.flush()
