"""The server of the page: this machine only, one secret address, two things to ask for, and nothing else.

It listens on 127.0.0.1. The address holds a random token, so that other users of the machine and other pages in the
browser cannot guess it. The Host header must name this machine: a foreign name that resolves to 127.0.0.1 (DNS
rebinding) is refused. The page may load nothing, and runs only the script whose nonce the server has just drawn.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import TracebackType
from typing import Any

from selpe.errors import RunError
from selpe.watch.view import View

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page() -> tuple[bytes, str]:
    """The page, and the policy that lets nothing run in it but its own script, by a nonce drawn just now."""
    nonce = secrets.token_urlsafe(16)
    html = (files("selpe.watch") / "page.html").read_text(encoding="utf-8").replace("{{nonce}}", nonce)
    return html.encode("utf-8"), _POLICY.format(nonce=nonce)


class WatchServer:
    """Serves the view of one run until it is closed; `url` is where."""

    def __init__(self, view: View, *, port: int = 0, period: float = 1.0) -> None:
        self._token = secrets.token_urlsafe(18)
        self._over = threading.Event()
        handler = type("Handler", (_Handler,), {"view": staticmethod(view), "period": period, "over": self._over,
                                                "token": self._token})  # fmt: skip
        try:
            self._server = ThreadingHTTPServer((HOST, port), handler)
        except OSError as error:
            raise RunError(
                f"the page cannot be served on port {port} ({error.strerror})", hint="leave --port out for a free one"
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="selpe-watch", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The page's address; whoever has it can look on."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    def close(self) -> None:
        """Ends the streams and stops listening."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> WatchServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    """Answers GET for the page and for its stream of readings."""

    view: View
    period: float
    over: threading.Event
    token: str
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "selpe", ""
    timeout = 60

    def do_GET(self) -> None:
        """The page, the stream, or a refusal."""
        if not self._from_here():
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return
        token, _, rest = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()) or rest not in ("", "stream"):
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        if rest == "stream":
            self._stream()
        else:
            self._page()

    def _from_here(self) -> bool:
        """Whether the request names this machine, and does not come from another site's page."""
        port = self.server.server_address[1]  # type: ignore[index]
        names = {f"{HOST}:{port}", f"localhost:{port}"}
        hosts = self.headers.get_all("Host") or []
        origin = self.headers.get("Origin")
        return len(hosts) == 1 and hosts[0] in names and origin in (None, *(f"http://{name}" for name in names))

    def _page(self) -> None:
        body, policy = page()
        self._start(HTTPStatus.OK, "text/html; charset=utf-8", policy=policy, length=len(body))
        self.wfile.write(body)

    def _stream(self) -> None:
        """Server-sent events: the whole view, about once a second, as long as somebody listens."""
        self.close_connection = True
        self._start(HTTPStatus.OK, "text/event-stream; charset=utf-8")
        try:
            while True:
                self.wfile.write(f"data: {_json(self.view())}\n\n".encode())
                self.wfile.flush()
                if self.over.wait(self.period):
                    self.wfile.write(f"data: {_json(self.view())}\n\n".encode())
                    return
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._start(status, "text/plain; charset=utf-8", length=0)

    def _start(
        self, status: HTTPStatus, kind: str, *, policy: str = "default-src 'none'", length: int | None = None
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Security-Policy": policy, **HEADERS}
        headers |= {"Content-Length": str(length)} if length is not None else {}
        headers |= {"Connection": "close"} if self.close_connection else {}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the address holds the token."""


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, default=str, allow_nan=False)
