"""The studio's server: the page and its files, what the page asks for, and the pages of a run.

Only a page of this server may change something: a POST needs the Origin header of this server, the token in the
address, and JSON. A page of another site can send none of these. No page loads anything from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any

from selpe.errors import SelPEError
from selpe.run.workspace import Workspace
from selpe.studio.project import StaleError
from selpe.studio.requests import GETS, LOOKING, POSTS, read_request
from selpe.studio.studio import Studio
from selpe.watch import folder_view
from selpe.watch.local import HEADERS, LocalHandler, LocalServer, as_json
from selpe.watch.server import page as watch_page
from selpe.watch.view import View

MOST_BYTES = 2_000_000  # of a request
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A page of a run has a policy of its own in it; it is shown within the studio's page.
_FRAMED = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


class StudioServer(LocalServer):
    """Serves the page of one studio until it is closed; `url` is where."""

    def __init__(self, studio: Studio, *, port: int = 0, period: float = 1.0) -> None:
        super().__init__(_StudioHandler, port=port, studio=studio, period=period, views={})


class _StudioHandler(LocalHandler):
    """Answers the page."""

    studio: Studio
    period: float
    views: dict[str, View]
    headers_of_all: Mapping[str, str] = {**HEADERS, "X-Frame-Options": "SAMEORIGIN"}

    def get(self, wanted: str) -> None:
        """A file of the page, what it asks for, or a page of a run."""
        if wanted in GETS:
            self._answer_with(lambda: GETS[wanted](self.studio))
        elif wanted.startswith("runs/"):
            self._run(wanted.split("/")[1:])
        else:
            self._file(wanted or "page.html")

    def post(self, wanted: str) -> None:
        """Does what the page asks for."""
        body = self._body()
        if body is None:
            return
        if wanted not in POSTS:
            self.refuse(HTTPStatus.NOT_FOUND)
            return
        shape, method = POSTS[wanted]
        self._answer_with(lambda: method(self.studio, read_request(shape, body)), looking=wanted in LOOKING)

    def _body(self) -> bytes | None:
        """The body of a request that our own page has sent; None where it was refused."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Origin") not in self.own_origins:
            self.refuse(HTTPStatus.FORBIDDEN)
        elif self.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        elif not length.isascii() or not length.isdigit():
            self.refuse(HTTPStatus.LENGTH_REQUIRED)
        elif int(length[:12]) > MOST_BYTES:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            return self.rfile.read(int(length))
        return None

    def _answer_with(self, make: Callable[[], dict[str, Any]], *, looking: bool = False) -> None:
        """Plain data, or what went wrong: of a foreign error its kind alone, for its message may quote a cell."""
        try:
            status, content = HTTPStatus.OK, make()
        except StaleError as error:
            status, content = HTTPStatus.CONFLICT, {"error": error.as_dict()}
        except SelPEError as error:
            status = HTTPStatus.OK if looking else HTTPStatus.UNPROCESSABLE_ENTITY
            content = {"refused" if looking else "error": error.as_dict()}
        except Exception as error:
            said = {"kind": "bug", "message": f"an unexpected {type(error).__name__}", "where": "", "hint": ""}
            status, content = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": said}
        self.answer(as_json(content).encode(), "application/json", status=status)

    def _file(self, name: str) -> None:
        kind = _KINDS.get(Path(name).suffix)
        place = files("selpe.studio") / "static" / name
        if "/" in name or "\\" in name or kind is None or not place.is_file():
            self.refuse(HTTPStatus.NOT_FOUND)
            return
        self.answer(place.read_bytes(), f"{kind}; charset=utf-8", policy=_POLICY)

    def _run(self, parts: list[str]) -> None:
        """The watch page of a run and its stream, its report and the summary of its release."""
        if len(parts) != 2:
            self.refuse(HTTPStatus.NOT_FOUND)
            return
        name, what = parts
        try:
            folder = self.studio.run_folder(name)
        except SelPEError:
            self.refuse(HTTPStatus.NOT_FOUND)
            return
        pages = {"report": Workspace(folder).internal.report, "summary": Workspace(folder).release.summary}
        if what == "":
            body, policy = watch_page(framed="'self'")
            self.answer(body, "text/html; charset=utf-8", policy=policy)
        elif what == "stream":
            self.stream(self._view(folder), self.period)
        elif what in pages and pages[what].is_file():
            self.answer(pages[what].read_bytes(), "text/html; charset=utf-8", policy=_FRAMED)
        else:
            self.refuse(HTTPStatus.NOT_FOUND)

    def _view(self, folder: Path) -> View:
        if folder.name not in self.views:
            self.views[folder.name] = folder_view(folder)
        return self.views[folder.name]
