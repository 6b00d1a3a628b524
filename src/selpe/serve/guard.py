"""What every request passes first: who asks, by which name, with how much; and what every answer carries.

The Host header must name this server: a foreign name that resolves to this machine (DNS rebinding) is refused, and so
is a page of another origin. There are no CORS headers. The token is looked at before a byte of the body is read.
One client, or one address, has at most half of all requests under way; that the server is alive is always said.
Whatever goes wrong further in is answered by its kind alone and logged by its kind alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selpe.errors import ConfigError
from selpe.serve.clients import Client, Door
from selpe.serve.limits import Limits
from selpe.serve.reading import ASKING
from selpe.serve.refusals import RefusedError, bug, busy, told
from selpe.serve.store import too_large
from selpe.serve.token import OWNER
from selpe.serve.trail import Trail
from selpe.watch.server import HEADERS

log = logging.getLogger("selpe.serve")

HEALTH = "/v1/health"
OPEN_PATHS = (HEALTH, "/openapi.json")  # tell nothing about this server
PAGES = "/watch/"  # have keys of their own
CLIENT = "selpe.client"  # where a request says further in who asks
ADMITTED = "selpe.admitted"  # in the state of a request that had the token
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ALWAYS = {**HEADERS, "Content-Security-Policy": _POLICY}


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, *, door: Door, hosts: Collection[str], limits: Limits, trail: Trail) -> None:
        self._app, self._door, self._limits, self._trail = app, door, limits, trail
        self._hosts = {host.lower().encode() for host in hosts}
        self._origins = {f"{scheme}://{host}".lower().encode() for host in hosts for scheme in ("http", "https")}
        self._under_way: Counter[str] = Counter()  # by client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._exchange(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, answer = time.monotonic(), _Answer(send)
        try:
            self._admit(scope)
            with self._counted(scope["path"], _asking(scope)):
                await self._app(scope, self._bounded(scope, receive), answer)
        except RefusedError as refusal:
            await self._trail.refused(scope.get(CLIENT), refusal.status, refusal.kind)
            await answer.refuse(refusal.status, told(refusal), _refusal_headers(refusal.status))
        except Exception as error:
            log.error("%s %s: an unexpected %s", scope["method"], _route(scope), type(error).__name__)
            await answer.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, bug(error), [])
        finally:
            took = 1000 * (time.monotonic() - began)
            log.info("%s %s %d %.0f ms", scope["method"], _route(scope), answer.status, took)

    def _admit(self, scope: Scope) -> None:
        """Raises unless the request may go further."""
        headers = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, "host", "this server does not go by that name",
                hint="ask for it by its own address; the operator can add names with --allowed-host",
            )  # fmt: skip
        if (origin := _first(headers, b"origin")) is not None and origin.lower() not in self._origins:
            raise RefusedError(HTTPStatus.FORBIDDEN, "origin", "pages of other origins may not ask here")
        path = scope["path"]
        if path not in OPEN_PATHS and not path.startswith(PAGES):
            tokens = [value for name, value in headers if name == b"authorization"]
            client = self._client_of(tokens[0]) if len(tokens) == 1 else None
            if client is None:
                raise RefusedError(
                    HTTPStatus.UNAUTHORIZED, "token", "this needs the server's token", hint="Authorization: Bearer …"
                )
            scope[CLIENT] = client
            scope.setdefault("state", {})[ADMITTED] = True  # its connection is not one to be given up

    @contextmanager
    def _counted(self, path: str, asking: str) -> Iterator[None]:
        """Has a request under way, for those further in too; raises where there are too many."""
        most, before = self._limits.requests, ASKING.set(asking)
        self._under_way[asking] += 1
        try:
            if path != HEALTH and (self._under_way.total() > most or self._under_way[asking] > max(1, most // 2)):
                raise busy("too many requests at once")
            yield
        finally:
            ASKING.reset(before)
            self._under_way[asking] -= 1
            if not self._under_way[asking]:
                del self._under_way[asking]

    def _client_of(self, header: bytes) -> Client | None:
        try:
            return self._door.client_of(header)
        except ConfigError as error:  # nobody is let in by a list that cannot be relied on
            log.error("%s", error.message)
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "tokens", "the server cannot say now whose token this is"
            ) from None

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """The body of a request, cut off where it is too long or too slow."""
        limit = self._limits.table_bytes if scope["method"] == "PUT" else self._limits.body_bytes
        declared = _first(scope["headers"], b"content-length") or b"0"
        if not declared.isdigit() or int(declared[:20]) > limit:
            raise too_large(limit)
        until, size, complete = time.monotonic() + self._limits.body_seconds, 0, False

        async def bounded() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                left = min(until - time.monotonic(), self._limits.silent_seconds)
                message = await asyncio.wait_for(receive(), max(0.0, left))
            except asyncio.TimeoutError:
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "the body took too long") from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > limit:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large(limit).message)
            return message

        return bounded


class _Answer:
    """Sends an answer on, with the headers that every answer carries."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            more = [(name.lower().encode(), value.encode()) for name, value in _ALWAYS.items()]
            message = {**message, "headers": [*message["headers"], *(one for one in more if one[0] not in present)]}
        await self._send(message)

    async def refuse(self, status: HTTPStatus, body: Any, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Answers with a refusal, unless an answer is on its way already."""
        if self.status:
            return
        raw = json.dumps(body).encode()
        length = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        await self({"type": "http.response.start", "status": int(status), "headers": [*length, *headers]})
        await self({"type": "http.response.body", "body": raw})


def _refusal_headers(status: HTTPStatus) -> list[tuple[bytes, bytes]]:
    if status == HTTPStatus.UNAUTHORIZED:
        return [(b"www-authenticate", b"Bearer")]
    return [(b"retry-after", b"5")] if status == HTTPStatus.TOO_MANY_REQUESTS else []


def _asking(scope: Scope) -> str:
    """Whose share a request is of: a client's that has a token of its own, else that of its address."""
    client: Client | None = scope.get(CLIENT)
    if client is not None and client != OWNER:
        return f"client {client.name}"  # no address has a blank, so no name is mistaken for one
    return str((scope.get("client") or ("",))[0])


def _first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _route(scope: Scope) -> str:
    """The pattern of the address, not the address: that may hold a page's key."""
    return str(getattr(scope.get("route"), "path", "(no route)"))
