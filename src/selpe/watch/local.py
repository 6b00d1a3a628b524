"""A server for this machine alone: one secret address, and a look at every request before it is answered.

It listens on 127.0.0.1. The address holds a random token, so that other users of the machine and other pages in the
browser cannot guess it. The Host header must name this machine: a foreign name that resolves to 127.0.0.1 (DNS
rebinding) is refused, and so is what comes from a page of another site.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TypeVar

from selpe.errors import RunError

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Own = TypeVar("Own", bound="LocalServer")


class _QuietServer(ThreadingHTTPServer):
    """A server that says nothing when a browser goes away: a traceback would land on the terminal of the run."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keeps what is worth knowing for who asks for it with -v."""
        log.info("a request for the page ended early (%s)", type(sys.exc_info()[1]).__name__)


class LocalServer:
    """Answers requests by a handler until it is closed; `url` is where."""

    def __init__(self, handler: type[LocalHandler], *, port: int = 0, **known: Any) -> None:
        self._token = secrets.token_urlsafe(18)
        self._over = threading.Event()
        own = type("Handler", (handler,), {"token": self._token, "over": self._over, **known})
        try:
            self._server = _QuietServer((HOST, port), own)
        except OSError as error:
            raise RunError(
                f"the page cannot be served on port {port} ({error.strerror})", hint="leave --port out for a free one"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="selpe-page", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The page's address; whoever has it can do what the page can."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    def close(self) -> None:
        """Ends the streams and stops listening."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalHandler(BaseHTTPRequestHandler):
    """What every request passes, and what every answer carries."""

    token: str
    over: threading.Event
    headers_of_all: Mapping[str, str] = HEADERS
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "selpe", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answers who knows the address."""
        if (wanted := self._asked_for()) is not None:
            self.get(wanted)

    def do_POST(self) -> None:
        """Answers who knows the address."""
        if (wanted := self._asked_for()) is not None:
            self.post(wanted)

    def get(self, wanted: str) -> None:
        """Shows something."""
        self.refuse(HTTPStatus.NOT_IMPLEMENTED)

    def post(self, wanted: str) -> None:
        """Does something."""
        self.refuse(HTTPStatus.NOT_IMPLEMENTED)

    def _asked_for(self) -> str | None:
        """What stands behind the token in the address; None where the request was refused."""
        if not self._from_here():
            self.refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        token, _, rest = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            self.refuse(HTTPStatus.NOT_FOUND)
            return None
        return rest

    @property
    def own_origins(self) -> tuple[str, ...]:
        """The origins that this server's own pages have."""
        port = self.server.server_address[1]  # type: ignore[index]
        return f"http://{HOST}:{port}", f"http://localhost:{port}"

    def _from_here(self) -> bool:
        """Whether the request names this machine, and does not come from another site's page."""
        hosts = self.headers.get_all("Host") or []
        named = len(hosts) == 1 and f"http://{hosts[0]}" in self.own_origins
        return named and self.headers.get("Origin") in (None, *self.own_origins)

    def answer(self, body: bytes, kind: str, *, status: HTTPStatus = HTTPStatus.OK, policy: str = "") -> None:
        """Sends a whole answer."""
        self.start(status, kind, policy=policy, length=len(body))
        self.wfile.write(body)

    def stream(self, view: Callable[[], dict[str, Any]], period: float) -> None:
        """Server-sent events: the whole view, about once a second, as long as somebody listens."""
        self.close_connection = True
        self.start(HTTPStatus.OK, "text/event-stream; charset=utf-8")
        try:
            while True:
                self.wfile.write(f"data: {as_json(view())}\n\n".encode())
                self.wfile.flush()
                if self.over.wait(period):
                    self.wfile.write(f"data: {as_json(view())}\n\n".encode())
                    return
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return

    def refuse(self, status: HTTPStatus) -> None:
        """Answers with a status and nothing else."""
        self.close_connection = True
        self.start(status, "text/plain; charset=utf-8", length=0)

    def start(self, status: HTTPStatus, kind: str, *, policy: str = "", length: int | None = None) -> None:
        """Sends the head of an answer."""
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Security-Policy": policy or "default-src 'none'"}
        headers |= self.headers_of_all
        headers |= {"Content-Length": str(length)} if length is not None else {}
        headers |= {"Connection": "close"} if self.close_connection else {}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the address holds the token."""


def as_json(content: Any) -> str:
    """Plain data as a line of JSON."""
    return json.dumps(content, ensure_ascii=False, default=str, allow_nan=False)
