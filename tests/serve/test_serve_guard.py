"""What every request passes first: the token, the Host header, the size; and what every answer carries."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from selpe.serve.guard import OPEN_PATHS
from selpe.serve.limits import Limits
from serve_world import CSV, HOST, MARKER, SECRET, House

GUARDED = [
    "/v1/tables",
    "/v1/tables/desk",
    "/v1/runs",
    "/v1/models",
    "/v1/nowhere",
    "/",
    "/v1/tables/%2e%2e/health",
    "/docs",
]
WRONG = [
    "",
    "Bearer",
    "Bearer ",
    f"Bearer {SECRET}x",
    f"Bearer {SECRET[:-1]}",
    f"Basic {SECRET}",
    SECRET,
    "Bearer \xe9",
]


@pytest.mark.parametrize("header", WRONG)
def test_nothing_is_told_without_the_token(shared: House, header: str) -> None:
    for path in GUARDED:
        status, body = shared.raw("GET", path, authorization=header)
        assert (status, json.loads(body)["error"]["kind"]) == (401, "token"), path
        assert SECRET.encode() not in body
    assert shared.do(shared.client(Authorization="").get("/")).headers["www-authenticate"] == "Bearer"


def test_two_tokens_are_no_token(shared: House) -> None:
    headers = [("Authorization", f"Bearer {SECRET}"), ("Authorization", "Bearer other"), ("Host", HOST)]
    assert shared.do(shared.client(Authorization="").get("/v1/tables", headers=headers)).status_code == 401


def test_the_token_is_looked_at_before_the_body_is_read(house: House) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"x"

    answer = house.do(house.client(Authorization="").put("/v1/tables/desk", content=body(), headers=CSV))
    assert (answer.status_code, read) == (401, 0)


def test_what_needs_no_token_tells_nothing_about_this_server(house: House) -> None:
    house.take_in("secretname")
    for path in OPEN_PATHS:
        found = house.do(house.client(Authorization="").get(path))
        assert found.status_code == 200
        assert "secretname" not in found.text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8460", "127.0.0.1", "127.0.0.1:1", "localhost.evil:8460"]
)
def test_a_foreign_name_for_this_machine_is_refused(shared: House, host: str) -> None:
    for path in ("/v1/tables", "/v1/health", "/openapi.json", "/watch/a/b/"):
        assert shared.ask("GET", path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_sites_page_may_not_ask(shared: House, origin: str) -> None:
    assert shared.ask("GET", "/v1/tables", headers={"Origin": origin}).status_code == 403
    assert shared.ask("GET", "/v1/tables", headers={"Origin": f"http://{HOST}"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/tables", "/v1/health", "/v1/nowhere", "/watch/a/b/"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_every_answer_carries_the_headers_that_keep_browsers_in_bounds(shared: House, path: str, method: str) -> None:
    headers = shared.ask(method, path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert not [name for name in headers if name.startswith("access-control-")]


def test_a_body_that_says_it_is_too_long_is_refused_unread(build: Callable[..., House]) -> None:
    house = build(Limits(workers=0, table_bytes=1000, body_bytes=100))
    answer = house.ask("PUT", "/v1/tables/desk", content=b"x" * 1001, headers=CSV)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (413, "too-large")
    assert house.ask("POST", "/v1/tables/desk/plan", content=b"[" * 101).status_code == 413


@pytest.mark.parametrize("path", ["/v1/tables/desk", "/v1/tables/desk/schema"])
def test_a_body_that_does_not_say_is_cut_off_where_it_is_too_long(build: Callable[..., House], path: str) -> None:
    house = build(Limits(workers=0, table_bytes=1000, schema_bytes=900))
    assert house.ask("PUT", "/v1/tables/desk", content=b"a\n1\n", headers=CSV).status_code == 201
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 100
            yield b"x" * 100

    kind = CSV if path.endswith("desk") else {"Content-Type": "application/yaml"}
    assert house.ask("PUT", path, content=body(), headers=kind).status_code == 413
    assert sent <= 1300
    assert list((house.root / "incoming").iterdir()) == []


@pytest.mark.parametrize("path", ["/v1/tables/desk", "/v1/tables/desk/plan"])
def test_a_body_that_never_ends_is_given_up(build: Callable[..., House], path: str) -> None:
    house = build(Limits(workers=0, body_seconds=0.2))

    async def body() -> AsyncIterator[bytes]:
        yield b"a,b\n"
        await asyncio.sleep(60)

    method, headers = ("PUT", CSV) if path.endswith("desk") else ("POST", {"Content-Type": "application/json"})
    began = time.monotonic()
    assert house.ask(method, path, content=body(), headers=headers).status_code == 408
    assert time.monotonic() - began < 30


def test_too_many_requests_at_once_are_told_to_come_back(build: Callable[..., House]) -> None:
    house = build(Limits(workers=0, requests=3, body_seconds=5))

    async def slow() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.5)
        yield b"a,b\n1,2\n"

    async def all_at_once() -> list[httpx.Response]:
        client = house.client()
        puts = [client.put(f"/v1/tables/t{i}", content=slow(), headers=CSV) for i in range(6)]
        return list(await asyncio.gather(*puts))

    answers = house.do(all_at_once())
    assert sorted({answer.status_code for answer in answers}) == [201, 429]
    assert all(answer.headers["retry-after"] == "5" for answer in answers if answer.status_code == 429)


def test_one_client_does_not_take_the_requests_of_another_and_health_is_always_told(
    build: Callable[..., House],
) -> None:
    house = build(Limits(workers=0, requests=4))
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await gate.wait()
        yield b"a,b\n1,2\n"

    async def work() -> tuple[list[int], list[int]]:
        hostile, mine = house.client("10.0.0.66"), house.client("10.0.0.1")
        puts = [asyncio.ensure_future(hostile.put(f"/v1/tables/t{i}", content=slow(), headers=CSV)) for i in range(6)]
        while sum(put.done() for put in puts) < 4:  # refused at once, the others wait for their bodies
            await asyncio.sleep(0.01)
        asked = [(client, path) for client in (hostile, mine) for path in ("/v1/health", "/v1/tables")]
        meanwhile = [(await client.get(path)).status_code for client, path in asked]
        gate.set()
        return sorted(answer.status_code for answer in await asyncio.gather(*puts)), meanwhile

    assert house.do(work()) == ([201, 201, 429, 429, 429, 429], [200, 429, 200, 200])


def test_a_body_that_falls_silent_is_given_up(build: Callable[..., House]) -> None:
    house = build(Limits(workers=0, silent_seconds=0.2))

    async def body() -> AsyncIterator[bytes]:
        yield b"a,b\n"
        await asyncio.sleep(600)

    assert house.ask("PUT", "/v1/tables/desk", content=body(), headers=CSV).status_code == 408


def test_an_unexpected_error_is_told_and_logged_by_its_kind_alone(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise KeyError(MARKER)

    monkeypatch.setattr(house.desk.store, "tables", broken)
    with caplog.at_level(logging.DEBUG):
        answer = house.ask("GET", "/v1/tables")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (500, "bug")
    assert "KeyError" in answer.text
    assert "KeyError" in caplog.text
    assert MARKER not in answer.text + caplog.text


def test_the_log_names_routes_and_not_addresses(shared: House, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "selpe.serve"):
        shared.ask("GET", f"/watch/{MARKER}/some-key/")
        shared.ask("GET", f"/v1/{MARKER}")
        shared.ask("GET", "/v1/tables", headers={"X-Other": MARKER})
    assert "/watch/{run}/{key}/ 404" in caplog.text
    assert "some-key" not in caplog.text
    assert MARKER not in caplog.text
    assert SECRET not in caplog.text


def test_what_is_not_http_is_refused(shared: House) -> None:
    sent: list[object] = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    shared.do(shared.app({"type": "websocket", "path": "/", "headers": []}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_the_frameworks_own_reports_are_off(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer in the process gets no span, and so neither a body nor an error with the values it was made of."""
    trace = pytest.importorskip("opentelemetry.trace")
    asked: list[str] = []

    def noted(self: object, name: str, *more: object, **rest: object) -> object:
        asked.append(name)
        return trace.INVALID_SPAN

    tracer = type("Tracer", (trace.NoOpTracer,), {"start_span": noted, "start_as_current_span": noted})()
    provider = type("Provider", (trace.TracerProvider,), {"get_tracer": lambda *_, **__: tracer})()
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    house.take_in()
    house.ask("POST", "/v1/tables/desk/plan", json={"epsilon": MARKER})
    assert asked == []
