"""The page of a run for a browser, under an address with a key of its own. The token is in no address."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from selpe.serve.clients import Door
from selpe.serve.refusals import missing
from selpe.serve.runs import ShelvedRun
from selpe.serve.service import Desk
from selpe.serve.streams import Streams
from selpe.watch.server import page


def build_pages(desk: Desk, streams: Streams, door: Door) -> APIRouter:
    """The page and its stream of readings."""
    router = APIRouter(prefix="/watch", include_in_schema=False)

    @router.get("/{run}/{key}/")
    async def show(run: str, key: str) -> Response:
        """The page."""
        _opened(desk, door, run, key)
        body, policy = page()
        return Response(body, media_type="text/html", headers={"Content-Security-Policy": policy})

    @router.get("/{run}/{key}/stream")
    async def stream(run: str, key: str) -> StreamingResponse:
        """What the page draws."""
        _opened(desk, door, run, key)
        streams.require_room()
        readings = streams.readings(run, allowed=lambda: door.opens(run, key))
        return StreamingResponse(readings, media_type="text/event-stream")

    return router


def _opened(desk: Desk, door: Door, run: str, key: str) -> ShelvedRun:
    """The run, to whoever has its key; to all others there is no page, whether there is a run or not."""
    if not door.opens(run, key):
        raise missing("page", "")
    return desk.shelf.find(run)
