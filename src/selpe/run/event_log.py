"""The events of a run in a file, one JSON line each, for whoever looks on from another process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, get_args, get_origin, get_type_hints

from selpe.events import (
    Answered,
    Event,
    Finished,
    Graded,
    Included,
    Judging,
    PoolReady,
    Selected,
    StageStarted,
    Started,
    Trained,
)
from selpe.owner_only import open_text

_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (Answered, Finished, Graded, Included, Judging, PoolReady, Selected, StageStarted, Started, Trained)
}
_HINTS = {name: get_type_hints(kind) for name, kind in _KINDS.items()}
_PERIOD = 1.0  # seconds: answers are summed up and written about this often


class EventLog:
    """Writes events as they come. Answers, of which there are many, are summed up to a line or two a second."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file = open_text(path, "a")
        self._clock = clock
        self._since = clock()
        self._answers: dict[tuple[str, bool], Answered] = {}

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A disk that is full has stopped the run already; this must not take the place of what it said.
        with suppress(OSError) if error is not None else nullcontext():
            try:
                self._write_answers()
            finally:
                self._file.close()

    def listen(self, event: Event) -> None:
        """Keeps one event; it is on its way to the disk when this returns, unless it is an answer."""
        if isinstance(event, Answered):
            alike = (event.stage, event.replayed)
            self._answers[alike] = event.plus(self._answers.get(alike))
            if abs(self._clock() - self._since) >= _PERIOD:  # a clock may be set back
                self._write_answers()
            return
        self._write_answers()
        self._write(event)

    def _write_answers(self) -> None:
        for summed in self._answers.values():
            self._write(summed)
        self._answers.clear()
        self._since = self._clock()

    def _write(self, event: Event) -> None:
        moment = datetime.fromtimestamp(self._clock(), timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": moment, **event.as_dict()}
        self._file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self._file.flush()


class EventReader:
    """Reads the events of a run as its log grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def more(self) -> list[tuple[float, Event]]:
        """The events since the last call, each with its time; a line that is still being written waits."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read()
        except OSError:
            return []
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [found for line in whole.splitlines() if (found := _event(line)) is not None]


def _event(line: bytes) -> tuple[float, Event] | None:
    """The event of a line; None for lines of other versions, which an onlooker can do without."""
    try:
        content: dict[str, Any] = json.loads(line)
        moment = datetime.fromisoformat(content.pop("time")).timestamp()
        kind = content.pop("event")
        if not all(_fits(value, _HINTS[kind][name]) for name, value in content.items()):
            return None
        return moment, _KINDS[kind](**content)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value read from JSON is what an event holds in this place."""
    inner = get_args(hint)
    if hint is Any:
        return True
    if get_origin(hint) is tuple:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if get_origin(hint) is Mapping:
        return isinstance(value, dict) and all(_fits(one, inner[1]) for one in value.values())
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is hint
