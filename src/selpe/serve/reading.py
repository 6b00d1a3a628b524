"""The server's side of the readers: child processes that answer questions about uploads, each within its time.

A hostile upload may keep a reader as long as a reading may take, so nobody gets all of them. An upload is read by one
at a time, a client keeps at most all but one, and what turns out to be slow has to make do with half of them: where
those are taken it is ended, and begins again when its turn comes. Whoever keeps the fewest readers is next.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from selpe.processes import OWN_GROUP, kill_group
from selpe.serve.limits import Limits
from selpe.serve.refusals import busy, from_child

COMMAND = (sys.executable, "-m", "selpe.serve.reader")
ASKING: ContextVar[str] = ContextVar("ASKING", default="")  # whose share this is of: a client or an address
_KEPT = 512  # answers to the same question about the same upload
_LINE = 64 * 2**20  # bytes of one answer


@dataclass(eq=False, slots=True)
class _QueuedReading:
    """One question that waits for its answer."""

    line: str
    client: str
    upload: str
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    slow: bool = False


class Reader:
    """Asks child processes about uploads. What was answered about a version of a table is not asked again."""

    def __init__(self, limits: Limits, *, root: str, command: Sequence[str] = COMMAND) -> None:
        self._limits, self._root, self._command = limits, root, tuple(command)
        self._waiting: list[_QueuedReading] = []
        self._reading: list[_QueuedReading] = []
        self._children: set[asyncio.subprocess.Process] = set()
        self._idle: list[asyncio.subprocess.Process] = []
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def ask(self, do: str, *, keep: bool = True, upload: str = "", **job: Any) -> dict[str, Any]:
        """The result of a job; raises what the child says is wrong, or that it took too long.

        `upload` names what is read: while it is, further questions about it wait.
        """
        line = json.dumps({"do": do, **job}, sort_keys=True)
        said = self._known.get(line) if keep else None
        if said is None:
            said = await self._in_turn(_QueuedReading(line, ASKING.get(), upload))
            if keep and "error" not in said:  # what is refused now may be right in a minute, as with a ledger restored
                self._known[line] = said
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        if "error" in said:
            raise from_child(said["error"], self._root)
        result: dict[str, Any] = said["result"]
        return result

    async def close(self) -> None:
        """Ends the children."""
        self._idle.clear()
        await asyncio.gather(*(self._end(process) for process in list(self._children)))

    # -- whose turn it is -----------------------------------------------------------------------------------------

    async def _in_turn(self, one: _QueuedReading) -> dict[str, Any]:
        if sum(other.client == one.client for other in (*self._waiting, *self._reading)) >= self._limits.readings:
            raise busy("too many checks and plans are waiting")
        while True:
            one.turn.clear()
            self._waiting.append(one)
            self._call()
            try:
                await one.turn.wait()
                # Somebody ahead in the queue may have asked the same.
                if (said := self._known.get(one.line) or await self._answer(one)) is not None:
                    return said
            finally:
                for where in (self._waiting, self._reading):
                    if one in where:
                        where.remove(one)
                self._call()

    def _call(self) -> None:
        """Gives every reader that is free to the one whose turn it is."""
        while len(self._reading) < self._limits.readers:
            kept = Counter(one.client for one in self._reading)
            may = [one for one in self._waiting if self._may(one, kept)]
            if not may:
                return
            following = min(may, key=lambda one: kept[one.client])  # of several, who has waited longest
            self._waiting.remove(following)
            self._reading.append(following)
            following.turn.set()

    def _may(self, one: _QueuedReading, kept: Counter[str]) -> bool:
        return (
            kept[one.client] < max(1, self._limits.readers - 1)
            and not (one.upload and any(other.upload == one.upload for other in self._reading))
            and (not one.slow or self._slow_may())
        )

    def _slow_may(self) -> bool:
        return sum(one.slow for one in self._reading) < max(1, self._limits.readers // 2)

    # -- one question ---------------------------------------------------------------------------------------------

    async def _answer(self, one: _QueuedReading) -> dict[str, Any] | None:
        """What a child answers; None where it was ended because it is slow and too many are."""
        process, seconds = await self._child(), self._limits.reading_seconds
        exchange = asyncio.ensure_future(_exchange(process, one.line))
        try:
            if not one.slow:
                quick = min(self._limits.quick_seconds, seconds)
                if not await _is_done(exchange, quick):
                    room, one.slow = self._slow_may(), True
                    if not room:
                        return None
                    seconds -= quick
            raw = exchange.result() if await _is_done(exchange, seconds) else None
        finally:
            if exchange.done() and not exchange.cancelled() and not exchange.exception() and exchange.result():
                self._idle.append(process)
            else:  # gone in the middle of an exchange: the answer must not reach the next one to ask
                exchange.cancel()
                await self._end(process)
        if raw is None:
            return _problem(f"this takes longer than the {self._limits.reading_seconds:g} s that the server allows")
        if not raw:
            return _problem("the process that reads tables died of this; it may need more memory than is allowed")
        said: dict[str, Any] = json.loads(raw)
        return said

    async def _child(self) -> asyncio.subprocess.Process:
        """A child that has nothing to do."""
        while self._idle:
            if (known := self._idle.pop()).returncode is None:
                return known
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, str(self._limits.reading_bytes), limit=_LINE,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True, creationflags=OWN_GROUP,
            )  # fmt: skip
        except OSError:
            raise busy("no process can be started that would read this") from None
        self._children.add(process)
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._children.discard(process)
        if process.returncode is None:
            kill_group(process.pid)
            await process.wait()


async def _is_done(exchange: asyncio.Future[bytes], seconds: float) -> bool:
    return bool((await asyncio.wait([exchange], timeout=seconds))[0])


async def _exchange(process: asyncio.subprocess.Process, line: str) -> bytes:
    to, back = process.stdin, process.stdout
    if to is None or back is None:
        raise RuntimeError("a child process without pipes")
    with suppress(BrokenPipeError, ConnectionResetError):
        to.write(line.encode() + b"\n")
        await to.drain()
    return await back.readline()


def _problem(message: str) -> dict[str, Any]:
    return {"error": {"kind": "data", "message": message}}
