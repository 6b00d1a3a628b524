"""The application: routes, refusals in one shape, and the guard around everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from selpe.errors import SelPEError
from selpe.serve.access import route_class
from selpe.serve.clients import Door
from selpe.serve.guard import Guard
from selpe.serve.pages import build_pages
from selpe.serve.refusals import bug, invalid, status_of, told
from selpe.serve.routes import answer, build_open_router, build_router
from selpe.serve.service import Desk
from selpe.serve.streams import Streams
from selpe.version import __version__

_ABOUT = "Differentially private synthetic tables: upload a table and its schema, plan, run, watch, fetch the release."
# FastAPI can report requests, their bodies and errors to a collector that the environment names. None of it is wanted.
_SILENT = {
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
    "exclude": lambda scope: True,
}  # fmt: skip


def build_app(desk: Desk, door: Door, *, hosts: Collection[str]) -> Guard:
    """The whole server as one ASGI application; `hosts` are the names that it may be asked by."""
    streams = Streams(desk)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await desk.close()

    more: dict[str, Any] = {"telemetry": _SILENT}
    app = FastAPI(
        title="SelPE", version=__version__, description=_ABOUT, lifespan=lifespan,
        docs_url=None, redoc_url=None,  # those pages would load scripts from elsewhere
        redirect_slashes=False, **more,
    )  # fmt: skip
    app.include_router(build_open_router())
    app.include_router(build_router(desk, streams, door, route_class(desk.trail, desk.names)))
    app.include_router(build_pages(desk, streams, door))
    _add_refusals(app, str(desk.store.root))
    return Guard(app, door=door, hosts=hosts, limits=desk.operator.limits, trail=desk.trail)


def _add_refusals(app: FastAPI, root: str) -> None:
    @app.exception_handler(SelPEError)
    async def ours(request: Request, error: SelPEError) -> JSONResponse:
        status = status_of(error)
        headers = {"Retry-After": "5"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
        return answer(status, told(error, root), headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, invalid(list(error.errors())))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        said = {"kind": "request", "message": str(error.detail).lower(), "where": "", "hint": "see /openapi.json"}
        return answer(error.status_code, {"error": said}, error.headers)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        return answer(HTTPStatus.BAD_REQUEST, bug(error))  # nobody is left to read it

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        return answer(HTTPStatus.INTERNAL_SERVER_ERROR, bug(error))
