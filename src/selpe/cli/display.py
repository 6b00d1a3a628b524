"""The progress of a run on a terminal, as plain lines in a log, or as JSON lines for machines."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from selpe.cli.console import err, json_mode
from selpe.events import Event, Finished, Graded, PoolReady, Selected, StageStarted, Started
from selpe.run.progress import Meter, ProgressReading, clock
from selpe.run.ticking import ticking

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_EVERY = 10.0  # seconds between lines in a log
_BUDGET_BAR = 24
_TIGHT, _VERY_TIGHT = 60, 40  # columns below which only the essentials are shown


@contextmanager
def showing(meter: Meter) -> Iterator[Callable[[Event], None]]:
    """A listener for a run's events that keeps the user informed while the block runs."""
    if json_mode():
        with ticking(JsonLines(), meter) as listen:
            yield listen
    elif not err().is_terminal:
        with ticking(PlainLines(), meter) as listen:
            yield listen
    else:
        from rich.live import Live

        console = err()
        live = Live(
            console=console,
            get_renderable=lambda: render(meter.read(), console.width),
            refresh_per_second=4,
            transient=True,
            vertical_overflow="crop",
        )
        with live, ticking(Milestones(console), meter) as listen:
            yield listen


# -- the live display ------------------------------------------------------------------------------------------------


def render(reading: ProgressReading, width: int) -> RenderableType:
    """The display at one moment: a headline, the bar, the budget, and the counts; nothing wraps."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def sides(left: Text, right: Text) -> Table:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
        grid.add_row(left, right)
        return grid

    if not reading.total:
        return Text(f"{reading.title} …", style="dim")
    tight = width < _TIGHT
    head = Text(reading.title, style="bold")
    if not tight and reading.activity:
        head.append(f"  {reading.activity}", style="dim")
    bar = Table.grid(expand=True, padding=(0, 1))
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    count = f"{reading.done:,} / {reading.total:,}" + ("" if tight else f" {reading.unit}")
    bar.add_row(ProgressBar(total=1.0, completed=reading.share, complete_style="cyan"), Text(count))
    lines: list[RenderableType] = [
        sides(head, Text(reading.outlook if width >= _VERY_TIGHT else "", style="cyan")),
        bar,
        _budget(reading, tight),
        Text(_counts(reading, tight), style="dim", no_wrap=True, overflow="ellipsis"),
    ]
    return Group(*lines)


def _budget(reading: ProgressReading, tight: bool) -> RenderableType:
    from rich.text import Text

    share = reading.spent / reading.epsilon if reading.epsilon else 0.0
    full = min(_BUDGET_BAR, round(_BUDGET_BAR * share)) if math.isfinite(share) else _BUDGET_BAR
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append("ε ", style="bold")
    line.append("■" * full, style="magenta")
    line.append("□" * (_BUDGET_BAR - full), style="dim")
    line.append(f" {reading.spent:.3g} of {reading.epsilon:g} spent")
    if not tight:
        line.append(f"  {reading.adjacency}", style="dim")
    return line


def _counts(reading: ProgressReading, tight: bool) -> str:
    parts = [f"{reading.records_per_second:.1f} records/s", f"{reading.tokens_per_second:,.0f} tokens/s"]
    if reading.replayed:
        parts.append(f"{reading.replayed:,} answers from disk")
    parts.append(f"{reading.retried:,} retries")
    if not tight:
        parts.append(f"{reading.records:,} of {reading.wanted:,} records chosen")
    return " · ".join(parts)


class Milestones:
    """What stays on the terminal above the live display: one line per stage and private choice."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def event(self, event: Event, reading: ProgressReading) -> None:
        """Prints a line for events worth keeping."""
        if said := milestone(event, reading):
            self._console.print(f"[green]✓[/] [dim]{clock(reading.elapsed):>5}[/]  {said}", highlight=False)

    def tick(self, reading: ProgressReading) -> None:
        """The live display refreshes itself."""


def milestone(event: Event, reading: ProgressReading) -> str:
    """One line about an event that closes something; '' for the others."""
    if isinstance(event, PoolReady):
        lost = sum(event.given_up.values())
        if event.stage == "measured" and not event.found and not lost:
            return "no record had to be written anew" if event.number == 1 else ""
        names = {
            "guides": "guides tried", "round": f"round {event.number} written", "more": "classes filled up",
            "public": "public records written", "texts": "texts written by the tuned model",
            "further": f"part {event.number} of the further records written",
            "measured": "records written around what was measured",
        }  # fmt: skip
        more = _reasons(event.retries, "retried") + (f", {lost} given up" if lost else "")
        return f"{names.get(event.stage, event.stage)}: {event.found:,} candidates{more}"
    if isinstance(event, Graded):
        weak = ", ".join(f"{one['name']} {one['grade']}" for one in event.measures if one["grade"] in ("fair", "poor"))
        poor = "; Ctrl-C stops before any ε is spent" if event.grade == "poor" else ""
        return f"the model's first candidates are {event.grade}{f' ({weak})' if weak else ''}{poor}"
    if isinstance(event, Selected):
        epsilon = event.epsilon_replace_one if reading.adjacency == "replace-one" else event.epsilon_add_remove
        again = ", from the ledger" if event.replayed else ""
        stamp = "" if event.private else ", NOT PRIVATE"
        return f"{chosen(event.selection)}: ε {epsilon:.3g}{again}{stamp}"
    return ""


def chosen(selection: str) -> str:
    """A private step in words."""
    kind, _, number = selection.partition("-")
    if kind == "measure":
        return f"private rows counted, look {number}"
    said = {
        "field": f"private vote {number} for a field to measure",
        "guide": "private vote for the guide that the model writes by",
        "round": f"private vote for the winners of round {number}",
        "bundle": "private vote for the table to release",
    }
    return said.get(kind, f"private choice '{selection}'")


def _reasons(counts: Any, word: str) -> str:
    told = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count)
    return f", {word}: {told}" if told else ""


# -- logs and machines -----------------------------------------------------------------------------------------------


class PlainLines:
    """One line per stage and one every ten seconds: few enough for a log."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def event(self, event: Event, reading: ProgressReading) -> None:
        """A line for stages and choices."""
        if isinstance(event, Started):
            rounds = f"{event.rounds} round{'s' if event.rounds > 1 else ''}"
            said = f"{event.records:,} records in {rounds} from {event.candidates:,} candidates"
        elif isinstance(event, StageStarted) and event.candidates:
            said = f"{reading.title}: writing {event.candidates:,} candidates"
        elif isinstance(event, StageStarted) and event.stage == "measure":
            said = f"{reading.title}: phrases for codebooks, then counts"
        elif isinstance(event, Finished):
            said = f"{event.records:,} records, ε {reading.spent:.3g} of {reading.epsilon:g} spent"
        else:
            said = milestone(event, reading)
        if said:
            self._print(f"[{clock(reading.elapsed)}] {said}")

    def tick(self, reading: ProgressReading) -> None:
        """A line when the last one is ten seconds old."""
        if self._clock() - self._last < LINE_EVERY:
            return
        if not reading.total:  # nothing to count yet
            self._print(f"[{clock(reading.elapsed)}] {reading.title}: {reading.activity}")
        else:
            doing = f"{reading.judging}, " if reading.judging else ""
            self._print(
                f"[{clock(reading.elapsed)}] {reading.title}: {doing}"
                f"{reading.done:,} of {reading.total:,} {reading.unit}, "
                f"{_counts(reading, tight=True)}, ε {reading.spent:.3g} of {reading.epsilon:g}, {reading.outlook}"
            )

    def _print(self, line: str) -> None:
        self._last = self._clock()
        err().print(line, markup=False)


class JsonLines:
    """Every event as a JSON line, and one with the whole reading a second."""

    def event(self, event: Event, reading: ProgressReading) -> None:
        """The event as it is; sample records stay out, they are many and in the release anyway."""
        content = event.as_dict()
        for bulky in ("samples", "records") if isinstance(event, PoolReady | Selected) else ():
            content.pop(bulky, None)
        self._write(content)

    def tick(self, reading: ProgressReading) -> None:
        """The reading."""
        content = reading.as_dict()
        for bulky in ("samples", "choices"):
            content.pop(bulky)
        self._write({"progress": content})

    def _write(self, content: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(content, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()
