"""Feeding a display of a run: events as they come, and a tick a second."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from selpe.events import Answered, Emit, Event
from selpe.run.progress import Meter, ProgressReading


class Display(Protocol):
    """Shows a run. `event` gets every event, `tick` is called about once a second."""

    def event(self, event: Event, reading: ProgressReading) -> None:
        """Something happened."""

    def tick(self, reading: ProgressReading) -> None:
        """A second has passed."""


@contextmanager
def ticking(display: Display, meter: Meter) -> Iterator[Emit]:
    """A listener that feeds a display; the ticks come from a thread that ends with the block."""
    over, showing = threading.Event(), threading.Lock()

    def listen(event: Event) -> None:
        meter.listen(event)
        if not isinstance(event, Answered):
            with showing:
                display.event(event, meter.read())

    def tick() -> None:
        while not over.wait(1.0):
            with showing:
                display.tick(meter.read())

    thread = threading.Thread(target=tick, name="selpe-progress", daemon=True)
    thread.start()
    try:
        yield listen
    finally:
        over.set()
        thread.join()
