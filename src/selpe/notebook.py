"""A run as notebooks and terminals show it to somebody who works in Python: progress while it goes on, then a result.

IPython is used where it is loaded already, and is never imported by us. The terminal's display is the command line's
own, loaded by its name: what is inside imports nothing of the outside.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from selpe.events import Emit, Event, silence
from selpe.markup import bar, paragraph, table, view
from selpe.run.outcome import Outcome
from selpe.run.progress import Meter, ProgressReading
from selpe.run.ticking import ticking

if TYPE_CHECKING:
    from selpe.models.store.download import Progress, Step

SHOWN_RECORDS = 3  # in the view of a result
_LONG = 160  # characters of a cell there


class ProgressDisplay(Protocol):
    """Where the progress of a fit is shown."""

    def fetching(self) -> AbstractContextManager[Progress | None]:
        """What hears how far models are fetched, while they are opened."""

    def showing(self, meter: Meter) -> AbstractContextManager[Emit]:
        """What hears the events of a run, while it goes on."""


def progress_display(progress: bool | None) -> ProgressDisplay:
    """Where to show progress: nowhere, or in the notebook or terminal that we are in; None shows it where it is seen.

    True shows it in any case: where there is neither, as plain lines on standard error.
    """
    if progress is False:
        return NoDisplay()
    if (display := _notebook()) is not None:
        return NotebookDisplay(display)
    seen = progress or (sys.stderr is not None and sys.stderr.isatty())
    return TerminalDisplay() if seen else NoDisplay()


class NoDisplay:
    """Shows nothing."""

    def fetching(self) -> AbstractContextManager[Progress | None]:
        """Nothing hears of it."""
        return nullcontext()

    def showing(self, meter: Meter) -> AbstractContextManager[Emit]:
        """Nothing hears of it."""
        return nullcontext(silence)


class TerminalDisplay:
    """The display of `selpe run`: live on a terminal, plain lines elsewhere."""

    def fetching(self) -> AbstractContextManager[Progress | None]:
        """A bar for each file."""
        found: AbstractContextManager[Progress | None] = import_module("selpe.cli.fetch_bar").fetch_bar()
        return found

    def showing(self, meter: Meter) -> AbstractContextManager[Emit]:
        """A bar for the whole run, and lines for what is done."""
        found: AbstractContextManager[Emit] = import_module("selpe.cli.display").showing(meter)
        return found


class NotebookDisplay:
    """One piece of HTML below the cell, which is put in the place of the one before."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    @contextmanager
    def fetching(self) -> Iterator[Progress | None]:
        """Says which file is fetched, and how much of it is here."""
        self._put(view("Opening the models …"))
        yield self._fetched

    @contextmanager
    def showing(self, meter: Meter) -> Iterator[Emit]:
        """Says what the run is at, with a bar, the time left and what is spent."""
        with ticking(self, meter) as listen:
            yield listen
        self.tick(meter.read())

    def event(self, event: Event, reading: ProgressReading) -> None:
        """Events change what is shown at once."""
        self.tick(reading)

    def tick(self, reading: ProgressReading) -> None:
        """Shows the reading."""
        self._put(progress_view(reading))

    def _fetched(self, step: Step) -> None:
        share = step.done / step.total if step.total else 0.0
        self._put(view("Opening the models …", f"<p>{bar(share, label='fetched')}</p>", paragraph(_fetch(step))))

    def _put(self, html: str) -> None:
        shown = self._display.HTML(html)
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _notebook() -> Any:
    """`IPython.display` where a notebook's kernel runs this code; None elsewhere, also in IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else sys.modules.get("IPython.display")


def _fetch(step: Step) -> str:
    size = f"{step.done / 1e6:,.0f} of {step.total / 1e6:,.0f} MB" if step.total else f"{step.done / 1e6:,.0f} MB"
    return f"{step.file}: {step.note or size}"


# -- views ------------------------------------------------------------------------------------------------------------


def progress_view(reading: ProgressReading) -> str:
    """A moment of a run as a piece of HTML."""
    if not reading.total:
        return view(f"{reading.title} …")
    done = reading.doing == "done"
    left = f"{reading.records:,} records" if done else f"{reading.activity}, {reading.outlook}"
    return view(
        reading.title,
        f"<p>{bar(reading.share, label='done')}</p>",
        paragraph(left),
        paragraph(
            f"{reading.done:,} of {reading.total:,} {reading.unit} · "
            f"ε {reading.spent:.3g} of {reading.epsilon:g} spent ({reading.adjacency})",
            soft=True,
        ),
    )


def result_view(title: str, outcome: Outcome, card: Mapping[str, Any]) -> str:
    """A finished run as a piece of HTML: what was released, under which promise, and its first records."""
    schema, manifest = outcome.schema, outcome.manifest
    facts = [
        ("run", manifest["name"]),
        ("records", f"{len(outcome.records):,} of '{schema.name}'"),
        ("written by", manifest.get("model", "")),
        ("guarantee", f"{card['stamp']}" if card["stamp"] else card["guarantee"]["statement"]),
    ]
    first = [[_cell(record.get(name)) for name in schema.names] for record in outcome.records[:SHOWN_RECORDS]]
    return view(
        title,
        table(("about", "this run"), facts, caption="the run"),
        table(schema.names, first, caption="the first records"),
        paragraph("All of it is synthetic. .sample() has the records, .card what is promised.", soft=True),
    )


def settings_view(title: str, settings: Mapping[str, str]) -> str:
    """Settings that nothing has been made with yet, as a piece of HTML."""
    return view(
        title,
        paragraph("Not fitted: fit(table) spends ε and makes a run. plan(rows) says before what that buys."),
        table(("setting", "value"), settings.items(), caption="settings"),
    )


def _cell(value: object) -> str:
    shown = "" if value is None else str(value)
    return shown if len(shown) <= _LONG else f"{shown[:_LONG]}…"
