"""The server's side of the reader: one job at a time, each within its time, and a new process where one has died."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from selpe.processes import OWN_GROUP
from selpe.serve.limits import Limits
from selpe.serve.refusals import busy, from_child

COMMAND = (sys.executable, "-m", "selpe.serve.reader")
_KEPT = 512  # answers to the same question about the same upload
_LINE = 64 * 2**20  # bytes of one answer


class Reader:
    """Asks a child process about uploads. What it has answered about a version of a table it need not answer again."""

    def __init__(self, limits: Limits, *, root: str, command: Sequence[str] = COMMAND) -> None:
        self._limits, self._root, self._command = limits, root, tuple(command)
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._process: asyncio.subprocess.Process | None = None
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def ask(self, do: str, *, keep: bool = True, **job: Any) -> dict[str, Any]:
        """The result of a job; raises what the child says is wrong, or that it took too long."""
        line = json.dumps({"do": do, **job}, sort_keys=True)
        said = self._known.get(line) if keep else None
        if said is None:
            said = await self._in_turn(line)
            if keep and "error" not in said:  # what is refused now may be right in a minute, as with a ledger restored
                self._known[line] = said
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        if "error" in said:
            raise from_child(said["error"], self._root)
        result: dict[str, Any] = said["result"]
        return result

    async def close(self) -> None:
        """Ends the child."""
        await self._end()

    async def _in_turn(self, line: str) -> dict[str, Any]:
        if self._waiting >= self._limits.readings:
            raise busy("too many checks and plans are waiting")
        self._waiting += 1
        try:
            async with self._turn:
                # Somebody ahead in the queue may have asked the same.
                return self._known.get(line) or await self._answer(line)
        finally:
            self._waiting -= 1

    async def _answer(self, line: str) -> dict[str, Any]:
        try:
            raw = await asyncio.wait_for(self._exchange(line), self._limits.reading_seconds)
        except asyncio.TimeoutError:
            await self._end()
            return _problem(f"this takes longer than the {self._limits.reading_seconds:g} s that the server allows")
        except BaseException:  # gone in the middle of an exchange: the answer must not reach the next one to ask
            await self._end()
            raise
        if not raw:
            await self._end()
            return _problem("the process that reads tables died of this; it may need more memory than is allowed")
        said: dict[str, Any] = json.loads(raw)
        return said

    async def _exchange(self, line: str) -> bytes:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, str(self._limits.reading_bytes), limit=_LINE,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True, creationflags=OWN_GROUP,
            )  # fmt: skip
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:
            raise RuntimeError("a child process without pipes")
        with suppress(BrokenPipeError, ConnectionResetError):
            to.write(line.encode() + b"\n")
            await to.drain()
        return await back.readline()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _problem(message: str) -> dict[str, Any]:
    """A refusal that another try may not meet again, so it is not remembered."""
    return {"error": {"kind": "data", "message": message}, "passing": True}
