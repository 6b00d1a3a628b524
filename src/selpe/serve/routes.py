"""The addresses of the API: what can be asked for, and in which form. What is done about it is the desk's affair."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Annotated, Any, cast

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from selpe.serve.access import client_of
from selpe.serve.clients import Door
from selpe.serve.refusals import RefusedError
from selpe.serve.runs import State
from selpe.serve.service import Desk
from selpe.serve.settings import ReadingSettings, RunSettings
from selpe.serve.shapes import (
    BudgetAbout,
    Checked,
    Health,
    Models,
    PageAbout,
    Planned,
    Refusal,
    RunAbout,
    Runs,
    SchemaAbout,
    TableAbout,
    Tables,
)
from selpe.serve.store import RUN_NAME, SCHEMA_TYPES, TABLE_NAME, TABLE_TYPES, StoredTable
from selpe.serve.streams import Streams

TableName = Annotated[str, Path(pattern=TABLE_NAME, description="The table's name; its budget is kept under it.")]
RunName = Annotated[str, Path(pattern=RUN_NAME, description="The run's name.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", pattern=r"^[A-Za-z0-9_-]{8,64}$",
        description="A submission sent again with the same key is the same run, and is paid for once.",
    ),
]  # fmt: skip
_WORDS = {
    400: "Not HTTP as it should be, or not JSON.", 401: "The token is missing or wrong.",
    403: "A page of another origin asked, or the token may not be used for that.",
    404: "There is no such table or run.",
    405: "Not to be done to this.",
    408: "The body took too long.", 409: "Not as things stand: budget, schema, or runs under way.",
    413: "The body is too large.", 415: "Not a type of file that is taken here.",
    421: "The Host header names another server.", 422: "Not in the form it must have.",
    429: "Too much at once.", 503: "The list of clients or the audit log cannot be used.", 507: "The disk is full.",
}  # fmt: skip
_BEARER = HTTPBearer(auto_error=False, description="The server's token, or a client's.")


def refused(*codes: int) -> Mapping[int | str, dict[str, Any]]:
    """The refusals that an address can answer with, beside those that every one can."""
    every = (400, 401, 403, 421, 422, 429, 503)
    return {code: {"model": Refusal, "description": _WORDS[code]} for code in sorted({*every, *codes})}


def _file(types: Mapping[str, Any]) -> dict[str, Any]:
    content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in types}
    return {"requestBody": {"required": True, "content": content}}


def build_router(desk: Desk, streams: Streams, door: Door, route: type[APIRoute]) -> APIRouter:
    """All addresses under /v1, each behind its rule."""
    router = APIRouter(prefix="/v1", dependencies=[Depends(_BEARER)], route_class=route)
    _add_tables(router, desk)
    _add_plans(router, desk)
    _add_runs(router, desk, door)
    _add_approval(router, desk)
    _add_events(router, desk, streams, door)

    @router.get("/models", responses=dict(refused()), tags=["server"])
    async def models() -> Models:
        """The models and encoders that a run may name."""
        return Models(models=list(desk.operator.models), encoders=list(desk.operator.encoders))

    return router


def build_open_router() -> APIRouter:
    """The one address that needs no token."""
    router = APIRouter(prefix="/v1")

    @router.get("/health", responses={code: refused()[code] for code in (400, 403, 421, 429)}, tags=["server"])
    async def health() -> Health:
        """That the server answers."""
        return Health()

    return router


def _add_tables(router: APIRouter, desk: Desk) -> None:
    @router.get("/tables", responses=dict(refused()), tags=["tables"])
    async def list_tables() -> Tables:
        """All tables."""
        return Tables(tables=[_about(table) for table in desk.store.tables()])

    @router.put(
        "/tables/{table}", responses={201: {"model": TableAbout}, **refused(404, 408, 409, 413, 415, 507)},
        openapi_extra=_file(TABLE_TYPES), tags=["tables"],
    )  # fmt: skip
    async def upload_table(table: TableName, request: Request, response: Response) -> TableAbout:
        """Takes in a private table: csv, JSON lines or parquet. It is read by checks, plans and runs alone."""
        form = TABLE_TYPES[_type_of(request, TABLE_TYPES)]
        stored, new = await desk.put_table(table, _stream(request), form)
        response.status_code = HTTPStatus.CREATED if new else HTTPStatus.OK
        return _about(stored)

    @router.get("/tables/{table}", responses=dict(refused(404)), tags=["tables"])
    async def show_table(table: TableName) -> TableAbout:
        """What is known of a table without reading it."""
        return _about(desk.store.table(table))

    @router.delete("/tables/{table}", status_code=204, responses=dict(refused(404, 409)), tags=["tables"])
    async def delete_table(table: TableName) -> None:
        """Deletes a table and its schema. What was spent on it stays spent."""
        await desk.remove_table(table)

    @router.put(
        "/tables/{table}/schema", responses=dict(refused(404, 408, 413, 415, 507)),
        openapi_extra=_file(SCHEMA_TYPES), tags=["tables"],
    )  # fmt: skip
    async def upload_schema(table: TableName, request: Request) -> SchemaAbout:
        """Takes in the public schema of a table: YAML, or JSON Schema."""
        suffix = SCHEMA_TYPES[_type_of(request, SCHEMA_TYPES)]
        return SchemaAbout(**(await desk.put_schema(table, _stream(request), suffix))[1])

    @router.get("/tables/{table}/schema", responses=dict(refused(404, 409)), tags=["tables"])
    async def show_schema(table: TableName) -> SchemaAbout:
        """What a table's schema says."""
        return SchemaAbout(**await desk.schema(table))

    @router.post("/tables/{table}/check", responses=dict(refused(404, 408, 409, 413)), tags=["tables"])
    async def check(table: TableName, settings: Annotated[ReadingSettings, Body()]) -> Checked:
        """How a table fits its schema: rows and fields, never a value."""
        return Checked(**await desk.check(table, settings))

    @router.get("/tables/{table}/budget", responses=dict(refused(404, 409)), tags=["tables"])
    async def budget(table: TableName) -> BudgetAbout:
        """What was spent on a table, and what is left. Raising a budget is the operator's, by `selpe budget set`."""
        return BudgetAbout(**await desk.budget(table))


def _add_plans(router: APIRouter, desk: Desk) -> None:
    @router.post("/tables/{table}/plan", responses=dict(refused(404, 408, 409, 413)), tags=["runs"])
    async def plan(table: TableName, settings: Annotated[RunSettings, Body()]) -> Planned:
        """What a run would do and cost. Spends nothing."""
        return Planned(**await desk.plan(table, settings))

    @router.post(
        "/tables/{table}/runs", status_code=202, tags=["runs"],
        responses={200: {"model": RunAbout, "description": "Was submitted before."}, **refused(404, 408, 409, 413)},
    )  # fmt: skip
    async def submit(
        table: TableName, settings: Annotated[RunSettings, Body()], request: Request, response: Response,
        key: Key = None,
    ) -> RunAbout:  # fmt: skip
        """Starts a run, if the table's budget holds all of it beside everything accepted before.

        Where the operator wants a second person, a run that spends is `waiting` until somebody else has approved it.
        """
        run, new = await desk.submit(table, settings, key, by=client_of(request))
        response.status_code = HTTPStatus.ACCEPTED if new else HTTPStatus.OK
        return RunAbout(**run.described())


def _add_runs(router: APIRouter, desk: Desk, door: Door) -> None:

    @router.get("/runs", responses=dict(refused()), tags=["runs"])
    async def list_runs(
        table: Annotated[str | None, Query(pattern=TABLE_NAME)] = None,
        state: Annotated[State | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> Runs:
        """Runs, the latest first."""
        found = [r for r in desk.shelf.all() if table in (None, r.table) and state in (None, r.state)]
        page = found[::-1][offset : offset + limit]
        return Runs(runs=[RunAbout(**run.described()) for run in page], total=len(found))

    @router.get("/runs/{run}", responses=dict(refused(404)), tags=["runs"])
    async def show_run(run: RunName) -> RunAbout:
        """A run as it stands."""
        return RunAbout(**desk.shelf.find(run).described())

    @router.post("/runs/{run}/cancel", responses=dict(refused(404, 409)), tags=["runs"])
    async def cancel(run: RunName) -> RunAbout:
        """Stops a run, or takes it out of the queue. It can be resumed."""
        return RunAbout(**(await desk.cancel(run)).described())

    @router.post("/runs/{run}/resume", status_code=202, responses=dict(refused(404, 409)), tags=["runs"])
    async def resume(run: RunName) -> RunAbout:
        """Goes on with a run that is not done. What is done is neither done nor paid for again."""
        return RunAbout(**(await desk.resume(run)).described())

    @router.get(
        "/runs/{run}/release", response_class=FileResponse, tags=["runs"],
        responses={200: {"content": {"application/zip": {}}}, **refused(404, 409)},
    )  # fmt: skip
    async def release(run: RunName) -> FileResponse:
        """The release, packed after the same checks as by `selpe release`; nothing else can be fetched."""
        path, digest = await desk.release(run)
        return FileResponse(
            path, media_type="application/zip", filename=f"{run}-release.zip", headers={"X-SHA256": digest}
        )

    @router.get("/runs/{run}/page", responses=dict(refused(404)), tags=["runs"])
    async def page(run: RunName, request: Request) -> PageAbout:
        """Where a browser can watch this run."""
        desk.shelf.find(run)
        return PageAbout(path=f"/watch/{run}/{door.key_for(client_of(request), run)}/")


def _add_approval(router: APIRouter, desk: Desk) -> None:
    @router.post("/runs/{run}/approve", status_code=202, responses=dict(refused(404, 409)), tags=["runs"])
    async def approve(run: RunName, request: Request) -> RunAbout:
        """Lets a waiting run begin and spend what it says. Whoever submitted it cannot do this."""
        return RunAbout(**(await desk.approve(run, client_of(request))).described())

    @router.post("/runs/{run}/reject", responses=dict(refused(404, 409)), tags=["runs"])
    async def reject(run: RunName, request: Request) -> RunAbout:
        """Refuses a waiting run for good. It has spent nothing."""
        return RunAbout(**(await desk.reject(run, client_of(request))).described())


def _add_events(router: APIRouter, desk: Desk, streams: Streams, door: Door) -> None:
    kinds = {kind: {"schema": {"type": "string"}} for kind in ("application/x-ndjson", "text/event-stream")}

    @router.get(
        "/runs/{run}/events", response_class=StreamingResponse, tags=["runs"],
        responses={200: {"content": kinds}, **refused(404)},
    )  # fmt: skip
    async def events(
        run: RunName,
        request: Request,
        follow: Annotated[bool, Query(description="Wait for more, until the run is over.")] = False,
        after: Annotated[int, Query(ge=0, le=10**12, description="Leave out so many events.")] = 0,
        last: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,12}$")] = None,
    ) -> StreamingResponse:
        """What has happened in a run: JSON lines, or server-sent events where those are asked for by Accept."""
        found, client = desk.shelf.find(run), client_of(request)
        streams.require_room()
        as_sse = "text/event-stream" in request.headers.get("accept", "")
        lines = streams.events(
            run, found.folder, after=int(last or after), follow=follow, as_sse=as_sse,
            allowed=lambda: door.knows(client),
        )  # fmt: skip
        return StreamingResponse(lines, media_type="text/event-stream" if as_sse else "application/x-ndjson")


def answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A refusal as a response."""
    return JSONResponse(body, status_code=status, headers=dict(headers or {}))


def _about(table: StoredTable) -> TableAbout:
    return TableAbout(
        table=table.name, format=table.format, bytes=table.bytes, uploaded=table.uploaded,
        has_schema=bool(table.schema_file),
    )  # fmt: skip


def _type_of(request: Request, known: Mapping[str, Any]) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in known:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "type", "files of this type are not taken here",
            hint=f"Content-Type: {', '.join(known)}",
        )  # fmt: skip
    return kind


def _stream(request: Request) -> AsyncIterator[bytes]:
    return cast(AsyncIterator[bytes], request.stream())
