"""The server of the page about one run: two things to ask for, and nothing else.

The page may load nothing, and runs only the script whose nonce the server has just drawn.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from importlib.resources import files

from selpe.watch.local import HEADERS, LocalHandler, LocalServer
from selpe.watch.view import View

__all__ = ["HEADERS", "WatchServer", "page"]

_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {framed}"
)


def page(*, framed: str = "'none'") -> tuple[bytes, str]:
    """The page, and the policy that lets nothing run in it but its own script, by a nonce drawn just now.

    `framed` says which pages may show it within themselves.
    """
    nonce = secrets.token_urlsafe(16)
    html = (files("selpe.watch") / "page.html").read_text(encoding="utf-8").replace("{{nonce}}", nonce)
    return html.encode("utf-8"), _POLICY.format(nonce=nonce, framed=framed)


class WatchServer(LocalServer):
    """Serves the view of one run until it is closed; `url` is where."""

    def __init__(self, view: View, *, port: int = 0, period: float = 1.0) -> None:
        super().__init__(_WatchHandler, port=port, view=staticmethod(view), period=period)


class _WatchHandler(LocalHandler):
    """Answers GET for the page and for its stream of readings."""

    view: View
    period: float

    def get(self, wanted: str) -> None:
        """The page, the stream, or a refusal."""
        if wanted == "":
            body, policy = page()
            self.answer(body, "text/html; charset=utf-8", policy=policy)
        elif wanted == "stream":
            self.stream(self.view, self.period)
        else:
            self.refuse(HTTPStatus.NOT_FOUND)
