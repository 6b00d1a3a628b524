"""What every request passes first: who asks, by which name, with how much; and what every answer carries.

The Host header must name this server: a foreign name that resolves to this machine (DNS rebinding) is refused, and so
is a page of another origin. There are no CORS headers. The token is looked at before a byte of the body is read.
One client has at most half of all requests under way; that the server is alive is said however many there are.
Whatever goes wrong further in is answered by its kind alone and logged by its kind alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selpe.serve.limits import Limits
from selpe.serve.reading import CLIENT
from selpe.serve.refusals import RefusedError, bug, busy, told
from selpe.serve.store import too_large
from selpe.serve.token import Token
from selpe.watch.server import HEADERS

log = logging.getLogger("selpe.serve")

HEALTH = "/v1/health"
OPEN_PATHS = (HEALTH, "/openapi.json")  # tell nothing about this server
PAGES = "/watch/"  # have keys of their own
ADMITTED = "selpe.admitted"  # in the state of a request that had the token
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ALWAYS = {**HEADERS, "Content-Security-Policy": _POLICY}


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, *, token: Token, hosts: Collection[str], limits: Limits) -> None:
        self._app, self._token, self._limits = app, token, limits
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
        began, answer, client = time.monotonic(), _Answer(send), _client(scope)
        self._under_way[client] += 1
        asking = CLIENT.set(client)
        try:
            self._admit(scope)
            self._require_room(scope["path"], client)
            await self._app(scope, self._bounded(scope, receive), answer)
        except RefusedError as refusal:
            await answer.refuse(refusal.status, told(refusal), _refusal_headers(refusal.status))
        except Exception as error:
            log.error("%s %s: an unexpected %s", scope["method"], _route(scope), type(error).__name__)
            await answer.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, bug(error), [])
        finally:
            CLIENT.reset(asking)
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]
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
            if len(tokens) != 1 or not self._token.allows(tokens[0]):
                raise RefusedError(
                    HTTPStatus.UNAUTHORIZED, "token", "this needs the server's token", hint="Authorization: Bearer …"
                )
            scope.setdefault("state", {})[ADMITTED] = True  # its connection is not one to be given up

    def _require_room(self, path: str, client: str) -> None:
        most = self._limits.requests
        if path != HEALTH and (self._under_way.total() > most or self._under_way[client] > max(1, most // 2)):
            raise busy("too many requests at once")

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


def _client(scope: Scope) -> str:
    """Who is asking, as far as that shows before anything is read: an address."""
    return str((scope.get("client") or ("",))[0])


def _first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _route(scope: Scope) -> str:
    """The pattern of the address, not the address: that may hold a page's key."""
    return str(getattr(scope.get("route"), "path", "(no route)"))
