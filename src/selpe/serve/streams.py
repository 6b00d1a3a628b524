"""Streams: the events of a run as JSON lines or server-sent events, and the readings that its page draws."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from selpe.errors import SelPEError
from selpe.run.workspace import Workspace
from selpe.serve.reading import ASKING
from selpe.serve.refusals import busy
from selpe.serve.runs import ACTIVE
from selpe.serve.service import Desk

PERIOD = 0.25  # seconds between two looks at the log
PAGE_PERIOD = 1.0
_HEARTBEAT = 15.0  # seconds of silence after which a comment shows that the line is alive
_CHUNK = 2**18
_PAGE_STATES = {"waiting": "preparing", "queued": "preparing", "stopping": "running", "rejected": "cancelled"}


class Streams:
    """Opens streams, so many at once as the operator allows."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: Counter[str] = Counter()  # by client

    def require_room(self) -> None:
        """Raises where too many are open."""
        most = self._desk.operator.limits.streams
        if self._open.total() >= most or self._open[ASKING.get()] >= max(1, most // 2):
            raise busy("too many streams are open")

    async def events(
        self, run: str, folder: Path, *, after: int, follow: bool, as_sse: bool, allowed: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """The events of a run behind the `after`-th; with `follow`, new ones too, as long as it is worked on.

        They end when whoever reads them is not allowed to any more.
        """
        log, number, quiet = _GrowingFile(Workspace(folder).work.events), 0, time.monotonic()
        with self._counted() as until:
            while allowed():
                working = follow and self._desk.shelf.find(run).state in ACTIVE
                while lines := await asyncio.to_thread(log.more):
                    for line in lines:
                        number += 1
                        if number > after:
                            yield _as_sse(number, line) if as_sse else line + b"\n"
                    quiet = time.monotonic()
                if not working or self._desk.closing or time.monotonic() > until:
                    return
                if as_sse and time.monotonic() - quiet > _HEARTBEAT:
                    quiet = time.monotonic()
                    yield b": waiting\n\n"
                await asyncio.sleep(PERIOD)

    async def readings(self, run: str, *, allowed: Callable[[], bool]) -> AsyncIterator[bytes]:
        """What the page shows, about once a second, until the run is over for now."""
        with self._counted() as until:
            while allowed():
                state = self._desk.shelf.find(run).state
                with suppress(SelPEError):  # a look that is refused, as on a busy machine: the next one may not be
                    shown = {**await self._desk.view(run), "state": _PAGE_STATES.get(state, state), "folder": ""}
                    yield f"data: {_json(shown)}\n\n".encode()
                if self._desk.closing or time.monotonic() > until:
                    return
                await asyncio.sleep(PAGE_PERIOD)

    @contextmanager
    def _counted(self) -> Iterator[float]:
        client = ASKING.get()
        self._open[client] += 1
        try:
            yield time.monotonic() + self._desk.operator.limits.stream_seconds
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]


class _GrowingFile:
    """The whole lines of a growing file, some at a time."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def more(self) -> list[bytes]:
        """Further lines; a line that is still being written waits."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read(_CHUNK)
        except OSError:
            return []
        self._offset += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        return lines if lines or not fresh else self.more()


def _as_sse(number: int, line: bytes) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (number, line)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, default=str, allow_nan=False)
