"""Connections: how long each may take, how many there may be, and which one is given up for a new one.

The guard (`guard.py`) sees a request only when its head is complete, so whoever sends none, or takes no answer, has to
be met here. A connection that has brought no token yet is a stranger's. Where there are too many, the address that has
the most strangers loses its oldest one; then those that wait for a further request go. Requests with a token stay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from selpe.serve.guard import ADMITTED
from selpe.serve.limits import Limits

_LINGER = 5.0  # seconds in which a body that was refused may go on, so that its sender sees the refusal
_PERIOD = 60.0  # seconds in which a message of one kind is logged once


class Connections:
    """Those that are open, and the choice among them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.most = _allowed(limits.connections)
        self._strangers: dict[str, dict[Connection, None]] = {}  # by address, the oldest first
        self._waiting: dict[Connection, None] = {}  # with a token before, and without a request now
        self._open = 0
        self._shed = 0.0

    def protocol(self) -> type[Connection]:
        """The class of connections that belong to these."""
        return type("OurConnection", (Connection,), {"all_of_them": self})

    def add(self, one: Connection) -> None:
        """Takes in a new one, for which another one may have to go."""
        self._open += 1
        self._strangers.setdefault(one.address, {})[one] = None
        if self._open > self.most:
            self._give_up()

    def remove(self, one: Connection) -> None:
        """Forgets one that is closed."""
        self._open -= 1
        self._forget(one)

    def place(self, one: Connection) -> None:
        """Puts one where it belongs, after its request has been answered or a new one has begun."""
        if one.known:
            self._forget(one)
            if not one.has_request:
                self._waiting[one] = None

    def shed(self) -> None:
        """Makes room where files have run out."""
        if time.monotonic() - self._shed > 0.5:  # the loop tells of it many times in a row
            self._shed = time.monotonic()
            for _ in range(1 + self._open // 2):  # the loop tries again in a second, and all who wait are to fit then
                self._give_up()

    def _give_up(self) -> None:
        while self._strangers:
            most = max(self._strangers.values(), key=len)
            one = next(iter(most))
            if not one.known:
                one.abort()
                self._forget(one)
                return
            self.place(one)  # it has brought a token since
        if self._waiting:
            one = next(iter(self._waiting))
            one.abort()
            self._forget(one)

    def _forget(self, one: Connection) -> None:
        self._waiting.pop(one, None)
        if (alike := self._strangers.get(one.address)) is not None:
            alike.pop(one, None)
            if not alike:
                del self._strangers[one.address]


class Connection(H11Protocol):
    """HTTP/1.1 on one connection, which is closed where it takes too long."""

    all_of_them: Connections

    def __init__(self, *more: Any, **rest: Any) -> None:
        super().__init__(*more, **rest)
        self._limits = self.all_of_them.limits
        self._timer: asyncio.TimerHandle | None = None
        self._known = False
        self.address = ""

    @property
    def has_request(self) -> bool:
        """Whether there is a request that has not been answered whole."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def known(self) -> bool:
        """Whether it has brought the token, with this request or an earlier one."""
        self._known = self._known or bool(self.scope and self.scope["state"].get(ADMITTED))
        return self._known

    def abort(self) -> None:
        """Closes it, whatever has not been sent."""
        self.transport.abort()

    # -- what happens on it ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._until(self._limits.header_seconds)
        self.all_of_them.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self.all_of_them.remove(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Something has come; where that completes the head of a request, its time is the guard's affair."""
        had = self.has_request
        super().handle_events()
        if self.has_request and not had:
            self._at_leisure()
            self.all_of_them.place(self)

    def on_response_complete(self) -> None:
        """A request is answered. What comes now has to be the next one, and soon."""
        whole = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        self._until(self._limits.idle_seconds if whole else _LINGER)
        super().on_response_complete()
        self.all_of_them.place(self)

    def pause_writing(self) -> None:
        """An answer is not taken."""
        super().pause_writing()
        self._until(self._limits.silent_seconds)

    def resume_writing(self) -> None:
        """It is, so it may go on."""
        super().resume_writing()
        if self.has_request:
            self._at_leisure()

    def _until(self, seconds: float) -> None:
        """Closes it after so long, unless something else is said before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.abort)

    def _at_leisure(self) -> None:
        """Leaves it alone, unless it still does not take an answer."""
        if self._timer is not None and not self.flow.write_paused:
            self._timer.cancel()


class Seldom(logging.Filter):
    """Passes a message of one kind once a minute: whoever can cause it at will cannot fill a disk with it."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is passed on."""
        kind, now = str(record.msg).partition("\n")[0], time.monotonic()
        if len(self._last) > 1000:
            self._last.clear()
        if now - self._last.get(kind, -_PERIOD) < _PERIOD:
            return False
        self._last[kind] = now
        return True


SELDOM = Seldom()


def told_of_trouble(connections: Connections) -> Any:
    """The event loop's handler of errors that nobody else handles: where no file is left, it makes room."""

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        if "out of system resource" in str(context.get("message")):
            connections.shed()
        loop.default_exception_handler(dict(context))

    return handle


def _allowed(wanted: int) -> int:
    """So many, or as many as leave half of all files for everything else; the system is asked for more first."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        more = 4 * wanted if hard == resource.RLIM_INFINITY else min(4 * wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < more:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        return wanted if soft == resource.RLIM_INFINITY else max(4, min(wanted, soft // 2))
    return wanted
