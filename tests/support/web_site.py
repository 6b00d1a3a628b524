"""A small web site on 127.0.0.1 with Range support and faults on demand, for tests of downloads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """A small web site with Range support and faults on demand."""

    pages: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)  # for each next answer: bytes before the line goes dead
    statuses: list[int] = field(default_factory=list)  # for each next answer: a status instead of the page
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    delay: float = 0.0
    url: str = ""

    def asked(self, path: str) -> list[dict[str, str]]:
        return [headers for seen, headers in self.seen if seen == path]


@contextmanager
def site() -> Iterator[Site]:
    served = Site()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            return

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            served.seen.append((path, {key.lower(): value for key, value in self.headers.items()}))
            threading.Event().wait(served.delay)
            if served.statuses:
                self._head(served.statuses.pop(0), {"Retry-After": "0", "Content-Length": "0"})
            elif path in served.redirects:
                location = {"Location": served.redirects[path], "Content-Length": "0"}
                self._head(302, {**location, **served.headers.get(path, {})})
            elif path in served.pages:
                self._page(path, served.pages[path])
            else:
                self._head(404, {"Content-Length": "0"})

        def do_HEAD(self) -> None:
            threading.Event().wait(served.delay)
            self._head(200 if self.path in served.pages else 404, {"Content-Length": "0"})

        def _page(self, path: str, body: bytes) -> None:
            asked = self.headers.get("Range", "")
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
            if start >= len(body) and asked:
                self._head(416, {"Content-Length": "0"})
                return
            extra = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if asked else {}
            length = {"Content-Length": str(len(body) - start)}
            self._head(206 if asked else 200, {**length, **extra, **served.headers.get(path, {})})
            cut = served.cut_after.pop(0) if served.cut_after else len(body)
            self.wfile.write(body[start : start + cut])
            if cut < len(body) - start:
                self.close_connection = True

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that has gone is no fault: a traceback would land in whatever test runs by then."""

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
