"""Doing a grid: cell by cell, each kept when it is done, so that a kill costs at most the current one.

The same command may run in several processes at once: a cell that another one works on is passed over and looked at
again at the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from selpe.errors import ModelError, SelPEError, StoppedError
from selpe.events import Event
from selpe.experiments.cells import Bench, held
from selpe.experiments.grid import Cell

log = logging.getLogger(__name__)

_WAIT = 2.0  # seconds between looks at a cell that another process works on


class Listener(Protocol):
    """Whoever wants to know how far a grid is."""

    def began(self, cell: Cell, number: int, total: int) -> None:
        """A cell is begun, the `number`-th of those that were still to do."""

    def heard(self, event: Event) -> None:
        """Something happened in the cell's run."""

    def ended(self, cell: Cell, why: str) -> None:
        """The cell is done; `why` says what went wrong, if anything did."""


class Silent:
    """A listener that does not listen."""

    def began(self, cell: Cell, number: int, total: int) -> None:
        """Nothing."""

    def heard(self, event: Event) -> None:
        """Nothing."""

    def ended(self, cell: Cell, why: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class GridOutcome:
    """What came of a grid: results by cell, and why others have none."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # by key
    failed: dict[str, str] = field(default_factory=dict)  # a cell's title -> what went wrong
    skipped: dict[str, str] = field(default_factory=dict)  # a method -> why it was left out
    fresh: int = 0  # cells that were done now


def pending(cells: Sequence[Cell], bench: Bench) -> list[Cell]:
    """The cells that are still to do and can be done here, each once."""
    found = {
        bench.key(cell): cell for cell in reversed(cells) if not bench.refusal(cell) and bench.result(cell) is None
    }
    order = {bench.key(cell): place for place, cell in reversed(list(enumerate(cells)))}
    return [found[key] for key in sorted(found, key=order.__getitem__)]


def in_turn(cells: Sequence[Cell], job: int, jobs: int) -> list[Cell]:
    """The cells as one of several processes takes them: its own splits first, then those of the others.

    Cells of a split share model answers: two processes that begin on one split would both write them.
    """
    places = {place: number for number, place in enumerate(dict.fromkeys((cell.data, cell.seed) for cell in cells))}
    return sorted(cells, key=lambda cell: (places[cell.data, cell.seed] - job) % jobs)


def conduct(
    cells: Sequence[Cell], bench: Bench, listener: Listener | None = None, *, job: int = 0, jobs: int = 1
) -> GridOutcome:
    """Does what is still to do, and gives the results of all cells; `job` counts the processes that do so from 0.

    A cell that fails is reported and tried again next time; the others go on. What the user stops, stops everything.
    """
    tell = listener or Silent()
    todo = in_turn(pending(cells, bench), job, jobs)
    keyed = {bench.key(cell): cell for cell in todo}
    failed: dict[str, str] = {}
    fresh = 0
    over: set[str] = set()  # keys of cells that were done or tried, here or by another process
    waiting = list(todo)
    while waiting:
        elsewhere = []
        for cell in waiting:
            with held(bench.folder(cell)) as mine:
                if not mine:
                    elsewhere.append(cell)
                    continue
                if bench.result(cell) is not None:  # another process has done it meanwhile
                    continue
                over |= {key for key, other in keyed.items() if key not in over and bench.result(other) is not None}
                tell.began(cell, len(over) + 1, len(todo))
                why = _tried(cell, bench, tell)
                over.add(bench.key(cell))
                fresh += not why
                if why:
                    failed[cell.title] = why
                tell.ended(cell, why)
        if len(elsewhere) == len(waiting):
            _pause(bench)
        waiting = elsewhere
    return GridOutcome(gathered(cells, bench), failed, refused(cells, bench), fresh)


def gathered(cells: Sequence[Cell], bench: Bench) -> dict[str, dict[str, Any]]:
    """The results that are there, by key."""
    found = {bench.key(cell): bench.result(cell) for cell in cells}
    return {key: result for key, result in found.items() if result is not None}


def refused(cells: Sequence[Cell], bench: Bench) -> dict[str, str]:
    """Methods that cannot be done here, with the reason; those with results from elsewhere are not among them."""
    return {cell.method: why for cell in cells if (why := bench.refusal(cell)) and bench.result(cell) is None}


def _tried(cell: Cell, bench: Bench, tell: Listener) -> str:
    """Does a cell; says what went wrong where something did that does not concern the others."""
    try:
        bench.do(cell, tell.heard)
    except StoppedError:
        raise
    except ModelError as error:
        if error.retryable:  # the model is away: the other cells would fail as well
            raise
        return error.said
    except SelPEError as error:
        return f"{error.said}{f' ({error.hint})' if error.hint else ''}"
    except Exception as error:
        # The message of a foreign exception may quote a row, so that it is left to those who ask for it.
        log.debug("an unexpected error in %s", cell.title, exc_info=True)
        return f"an unexpected {type(error).__name__}"
    return ""


def _pause(bench: Bench) -> None:
    if bench.cancel is None:
        time.sleep(_WAIT)
    elif bench.cancel.wait(_WAIT):
        raise StoppedError("stopped while another process was working")
