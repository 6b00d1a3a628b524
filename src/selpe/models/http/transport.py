"""One server, spoken to over HTTP/1.1 or HTTP/2: JSON in, JSON or a fault out, never an exception."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from selpe.errors import ConfigError
from selpe.models.http.faults import Fault, FaultKind, from_status
from selpe.models.http.secret import Secret

# These log request headers or full addresses at the lower levels; a key must not get into anyone's log.
for _name in ("httpx", "httpcore", "hpack", "h2"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_ROUTES = ("/chat/completions", "/completions", "/embeddings", "/models")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to connect, without any byte (so also until the first one), and for one exchange in all."""

    connect: float = 10.0
    first_byte: float = 120.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server's OpenAI routes (`base`) and its own routes (`root`) lie."""

    host: str
    root: str
    base: str
    query: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address in any of its usual spellings: bare host, with /v1, or with a whole route."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "a server's address must start with http:// or https:// and name a host",
                hint="for example http://127.0.0.1:8000/v1",
            )
        if parts.username or parts.password:
            raise ConfigError(
                "a server's address must not contain a user name, password or key",
                where=parts.hostname,
                hint="put the key into an environment variable or a file",
            )
        path = parts.path.rstrip("/")
        for route in _ROUTES:
            path = path.removesuffix(route)
        origin = f"{parts.scheme}://{parts.netloc}"
        return cls(
            host=parts.netloc,
            root=origin + path.removesuffix("/v1"),
            base=origin + (path or "/v1"),
            query=f"?{parts.query}" if parts.query else "",
        )

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        name = urlsplit(self.root).hostname or ""
        try:
            return name == "localhost" or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A server's JSON, and how long it took."""

    data: Any
    seconds: float


class Transport:
    """A client of one server. `quiet` keeps every word of requests and responses out of faults."""

    def __init__(
        self,
        address: Address,
        *,
        key: Secret | None = None,
        timeouts: Timeouts | None = None,
        max_body: int = 8 << 20,
        quiet: bool = False,
        ca_file: str = "",
        droppable: tuple[str, ...] = (),
    ) -> None:
        self.address = address
        self._timeouts = timeouts or Timeouts()
        self._max_body = max_body
        self._quiet = quiet
        self._ca_file = ca_file
        self._key = key
        self._droppable = droppable
        self._revealed = ""
        self._client: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"Transport({self.address.host})"

    def __reduce__(self) -> Any:
        raise TypeError("a connection cannot be pickled")

    async def get(self, path: str, *, total: float | None = None) -> ServerReply | Fault:
        """What the server returns for a GET."""
        return await self._exchange("GET", path, None, total)

    async def post(self, path: str, body: Mapping[str, Any], *, total: float | None = None) -> ServerReply | Fault:
        """What the server returns for a POST of JSON. `path` lies under the OpenAI base, with '/' first at the root."""
        return await self._exchange("POST", path, json.dumps(body).encode("ascii"), total)

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            headers = {"accept": "application/json", "accept-encoding": "identity"}
            if self._key is not None:
                self._revealed = self._key.reveal()
                headers["authorization"] = f"Bearer {self._revealed}"
            wait = self._timeouts
            self._client = httpx.AsyncClient(
                http2=True,
                headers=headers,
                timeout=httpx.Timeout(wait.first_byte, connect=wait.connect, pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
                verify=ssl.create_default_context(cafile=self._ca_file) if self._ca_file else True,
                trust_env=not self.address.loopback,
            )
        return self._client

    async def _exchange(self, method: str, path: str, body: bytes | None, total: float | None) -> ServerReply | Fault:
        place = (self.address.root + path) if path.startswith("/") else f"{self.address.base}/{path}"
        client = self._connected()
        started = time.perf_counter()
        kind: FaultKind
        try:
            sending = self._send(client, method, place + self.address.query, body)
            got = await asyncio.wait_for(sending, self._timeouts.total if total is None else total)
        except (asyncio.TimeoutError, httpx.TimeoutException) as problem:
            kind = "unreachable" if isinstance(problem, httpx.ConnectTimeout) else "timeout"
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as problem:
            kind = _kind_of(problem)
        else:
            return got if isinstance(got, Fault) else ServerReply(got, time.perf_counter() - started)
        return Fault(kind, self.address.host)

    async def _send(self, client: httpx.AsyncClient, method: str, url: str, body: bytes | None) -> Any:
        headers = {"content-type": "application/json"} if body is not None else None
        async with client.stream(method, url, content=body, headers=headers) as response:
            raw = bytearray()
            async for chunk in response.aiter_bytes():
                raw += chunk
                if len(raw) > self._max_body:
                    return Fault("too-big", self.address.host, response.status_code)
            if response.status_code != 200:
                return self._fault(response.status_code, response.headers, bytes(raw))
        try:
            data = json.loads(raw)
        except (ValueError, RecursionError):
            return Fault("garbage", self.address.host, 200)
        if isinstance(data, dict) and data.get("error") and "choices" not in data:
            return self._fault(_inner_status(data["error"]), response.headers, bytes(raw))
        return data

    def _fault(self, status: int, headers: Mapping[str, str], raw: bytes) -> Fault:
        return from_status(
            status,
            headers,
            raw,
            host=self.address.host,
            secret=self._revealed,
            quiet=self._quiet,
            droppable=self._droppable,
        )


def _inner_status(error: object) -> int:
    """The status that a gateway put into the body of a 200."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _kind_of(problem: BaseException) -> FaultKind:
    if isinstance(problem, httpx.ConnectError):
        cause: BaseException | None = problem
        while cause is not None:
            if isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                return "tls"
            cause = cause.__cause__ or cause.__context__
        return "unreachable"
    if isinstance(problem, httpx.RemoteProtocolError):
        words = str(problem)
        return "cut" if "closed connection" in words or "disconnected" in words else "garbage"
    if isinstance(problem, (httpx.NetworkError, OSError)):
        return "cut"
    if isinstance(problem, (httpx.DecodingError, httpx.StreamError)):
        return "garbage"
    return "refused"
