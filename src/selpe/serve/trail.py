"""What a server tells its audit log, and when: before a change is begun, before an answer leaves, when ε was spent.

Lines that come together are written together, so that a disk which takes milliseconds for each write is no bottleneck.
A refusal that repeats is written once a minute with its number, so that nobody can fill the disk by being refused.
No line holds a token, a cell, a key of a page or words that a client sent: names of tables and runs that exist, numbers
and kinds of refusals are all there is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from selpe.errors import SelPEError
from selpe.serve.audit_log import AuditLog, LogLine
from selpe.serve.clients import Client

log = logging.getLogger("selpe.serve")

PERIOD = 60.0  # seconds in which a refusal that repeats is counted and not written
STARTED, ASKED, ANSWERED, REFUSED = "started", "asked", "answered", "refused"
SUBMITTED, APPROVED, REJECTED, SPENT = "submitted", "approved", "rejected", "spent"
TOKEN = "token"


@dataclass(slots=True)
class _RefusedAgain:
    """A refusal that was written, and how often it has come since."""

    until: float
    times: int = 0


class Trail:
    """The way to the log. Without a log, as in a server of one token, nothing is written and all of this is free."""

    def __init__(self, to: AuditLog | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = to, clock
        self.spent: dict[str, Mapping[str, Any]] = {}  # by run, what was told last
        self._waiting: list[tuple[tuple[str, Mapping[str, Any]], asyncio.Future[LogLine]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._refused: dict[tuple[tuple[str, Any], ...], _RefusedAgain] = {}
        self._counting = threading.Lock()

    @property
    def kept(self) -> bool:
        """Whether there is a log."""
        return self._log is not None

    def begin(self, **about: Any) -> None:
        """Checks the whole log and goes on with it; raises AuditError where that cannot be done."""
        if self._log is not None:
            self._log.read(self._learn)
            self.write(STARTED, **about)

    def write(self, kind: str, **data: Any) -> None:
        """One line, on the disk when this returns; for threads that can wait. Raises AuditError where it is not."""
        if self._log is not None:
            for line in self._log.append([(kind, data)]):
                self._learn(line)

    async def note(self, kind: str, **data: Any) -> LogLine | None:
        """One line, on the disk when this returns, beside whatever else waits to be written."""
        if self._log is None:
            return None
        done: asyncio.Future[LogLine] = asyncio.get_running_loop().create_future()
        self._waiting.append(((kind, data), done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting(self._log))
        return await done

    async def refused(self, client: Client | None, status: int, why: str, **about: Any) -> None:
        """What was refused to whom. What cannot be written here must not keep a refusal from being one."""
        if self._log is None:
            return
        data = {**who(client), **about, "status": int(status), "why": why}
        try:
            for repeated in self._over():
                await self.note(REFUSED, **repeated)
            if self._is_new(data):
                await self.note(REFUSED, **data)
        except SelPEError as error:
            log.error("a refusal is not in the audit log: %s", error.message)

    async def close(self) -> None:
        """Writes what was only counted."""
        try:
            for repeated in self._over(all_of_them=True):
                await self.note(REFUSED, **repeated)
        except SelPEError as error:
            log.error("refusals are not in the audit log: %s", error.message)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _learn(self, line: LogLine) -> None:
        if line.kind == SPENT:
            self.spent[str(line.data["run"])] = line.data

    async def _write_waiting(self, to: AuditLog) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                lines = await asyncio.to_thread(to.append, [entry for entry, _ in taken])
            except Exception as error:  # each of them waits for its own answer
                for _, done in taken:
                    if not done.done():
                        done.set_exception(error)
                continue
            for (_, done), line in zip(taken, lines, strict=True):
                if not done.done():
                    done.set_result(line)

    def _is_new(self, data: Mapping[str, Any]) -> bool:
        with self._counting:
            name = tuple(sorted(data.items()))
            known = self._refused.get(name)
            if known is None:
                self._refused[name] = _RefusedAgain(self._clock() + PERIOD)
                return True
            known.times += 1
            return False

    def _over(self, *, all_of_them: bool = False) -> list[dict[str, Any]]:
        """The refusals whose minute is over, with how often each has come again."""
        with self._counting:
            now = self._clock()
            over = {name: one for name, one in self._refused.items() if all_of_them or one.until <= now}
            for name in over:
                del self._refused[name]
        return [{**dict(name), "again": one.times} for name, one in over.items() if one.times]


def who(client: Client | None) -> dict[str, str]:
    """The names of a client; nothing of somebody whose token is none."""
    return {"client": client.name, "person": client.person} if client else {}


def why_of(error: BaseException) -> tuple[int, str]:
    """The status and the kind by which a refusal is known, and nothing of its words."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    from selpe.serve.refusals import status_of

    match error:
        case SelPEError():
            return int(status_of(error)), error.kind
        case RequestValidationError():
            return int(HTTPStatus.UNPROCESSABLE_ENTITY), "request"
        case HTTPException():
            return error.status_code, "request"
        case _:
            return int(HTTPStatus.INTERNAL_SERVER_ERROR), "bug"
