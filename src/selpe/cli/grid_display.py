"""The progress of a grid: two bars on a terminal, lines in a log, JSON for machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from selpe.cli.console import emit, err, json_mode
from selpe.run.progress import Meter, duration

if TYPE_CHECKING:
    from selpe.events import Event
    from selpe.experiments.conduct import Listener
    from selpe.experiments.grid import Cell

LINE_EVERY = 10.0  # seconds between lines of progress where there is no terminal


@contextmanager
def showing(cells: int) -> Iterator[Listener]:
    """A listener that shows how far a grid of so many cells is: bars, lines now and then, or JSON."""
    if json_mode():
        yield _Json()
        return
    if not err().is_terminal:
        yield _Lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err(), transient=True) as bar:
        yield _Bars(bar, cells)


class _Reading:
    """What all listeners share: a meter on the cell's run."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.began_at = time.monotonic()

    def began(self, cell: Cell, number: int, total: int) -> None:
        """A cell starts."""
        self.meter = Meter(epsilon=cell.epsilon)
        self.began_at = time.monotonic()

    def heard(self, event: Event) -> None:
        """Takes in an event of its run."""
        self.meter.listen(event)

    @property
    def seconds(self) -> float:
        """How long the cell has taken so far."""
        return time.monotonic() - self.began_at


class _Bars(_Reading):
    """Two bars: all cells, and the current one."""

    def __init__(self, bar: Any, total: int) -> None:
        super().__init__()
        self._bar = bar
        self._all = bar.add_task("cells", total=total)
        self._one = bar.add_task("", total=100)

    def began(self, cell: Cell, number: int, total: int) -> None:
        """A cell starts."""
        super().began(cell, number, total)
        self._bar.update(self._all, completed=number - 1, total=total)
        self._bar.update(self._one, description=f"{cell.title:<50.50}", completed=0)

    def heard(self, event: Event) -> None:
        """Takes in an event of its run."""
        super().heard(event)
        self._bar.update(self._one, completed=round(100 * self.meter.read().share))

    def ended(self, cell: Cell, why: str) -> None:
        """The cell is done."""
        from rich.markup import escape

        self._bar.advance(self._all)
        mark, said = ("[green]✓[/]", "") if not why else ("[red]✗[/]", f": {escape(why)}")
        self._bar.console.print(
            f"{mark} [dim]{duration(self.seconds):>7}[/]  {escape(cell.title)}{said}", highlight=False
        )


class _Lines(_Reading):
    """One line per cell and one every ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()
        self._place = ""

    def began(self, cell: Cell, number: int, total: int) -> None:
        """A cell starts."""
        super().began(cell, number, total)
        self._place = f"[{number} of {total}] {cell.title}"
        self._print(self._place)

    def heard(self, event: Event) -> None:
        """Takes in an event of its run."""
        super().heard(event)
        if time.monotonic() - self._last >= LINE_EVERY:
            reading = self.meter.read()
            self._print(f"{self._place}: {reading.title}, {reading.done:,} of {reading.total:,} {reading.unit}")

    def ended(self, cell: Cell, why: str) -> None:
        """The cell is done."""
        self._print(f"{self._place}: {f'failed: {why}' if why else 'done'} after {duration(self.seconds)}")

    def _print(self, line: str) -> None:
        self._last = time.monotonic()
        err().print(line, markup=False)


class _Json(_Reading):
    """A JSON line per cell."""

    def began(self, cell: Cell, number: int, total: int) -> None:
        """A cell starts."""
        super().began(cell, number, total)
        emit({"cell": {"state": "begun", "number": number, "total": total, **cell.as_dict()}})

    def ended(self, cell: Cell, why: str) -> None:
        """The cell is done."""
        state = {"state": "failed" if why else "done", "why": why, "seconds": round(self.seconds, 1)}
        emit({"cell": {**cell.as_dict(), **state}})
