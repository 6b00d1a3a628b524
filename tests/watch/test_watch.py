"""The page's server: this machine, one secret address, two things to ask for; and what the page is told."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from selpe.errors import RunError
from selpe.events import Answered, Finished, PoolReady, Selected, StageStarted, Started
from selpe.run.event_log import EventLog
from selpe.run.progress import Meter
from selpe.watch import WatchServer, folder_view, live_view
from small_world import SCHEMA


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "desk-1"
    (folder / "work").mkdir(parents=True)
    SCHEMA.save(tmp_path / "schema.yaml")
    write_manifest(folder, "running")
    return folder


def write_manifest(folder: Path, state: str) -> None:
    settings = {"schema": str(folder.parent / "schema.yaml"), "epsilon": "2.0", "adjacency": "replace-one",
                "dataset": "desk", "llm": "fake", "encoder": "hash"}  # fmt: skip
    manifest = {"name": "desk-1", "state": state, "settings": settings}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.fixture
def server(folder: Path) -> Iterator[WatchServer]:
    with WatchServer(live_view(folder, Meter(epsilon=2.0)), period=0.05) as server:
        yield server


def get(
    server: WatchServer, path: str | None = None, *, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    wanted = path if path is not None else "/" + server.url.split("/", 3)[3]
    connection.request(method, wanted, headers=headers or {})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, body


def streamed(server: WatchServer, count: int = 1) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.request("GET", "/" + server.url.split("/", 3)[3] + "stream")
    response = connection.getresponse()
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = response.readline().decode()
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
    connection.close()
    return found


def test_the_page_comes_with_a_policy_that_lets_nothing_else_in(server: WatchServer) -> None:
    status, headers, body = get(server)
    assert status == 200
    policy = headers["content-security-policy"]
    nonce = re.search(r"script-src 'nonce-([\w-]{16,})'", policy)
    assert nonce is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert f'<script nonce="{nonce[1]}">' in body.decode()
    assert (headers["cache-control"], headers["referrer-policy"], headers["x-frame-options"]) == (
        "no-store", "no-referrer", "DENY",
    )  # fmt: skip
    assert "access-control-allow-origin" not in headers
    assert get(server)[1]["content-security-policy"] != policy


def test_the_page_loads_nothing_from_anywhere_and_never_writes_html(server: WatchServer) -> None:
    page = (files("selpe.watch") / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", page)
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", 'setAttribute("on'):
        assert way not in page


def test_a_page_without_choices_claims_nothing_about_spending(server: WatchServer) -> None:
    """A draw that was lost with its process is paid for, and no event tells of it."""
    page = (files("selpe.watch") / "page.html").read_text(encoding="utf-8")
    assert "No private choice has been made yet" in page
    assert "Nothing is spent" not in page


def test_without_the_token_there_is_nothing(server: WatchServer) -> None:
    token = server.url.split("/")[3]
    assert len(token) >= 20
    for path in ("/", "/x/", "/stream", f"/{token[:-1]}/", f"/{token}x/", "/favicon.ico", f"/{token}"[:-3] + "/stream"):
        status, _, body = get(server, path)
        assert (status, body) == (404, b""), path


@pytest.mark.parametrize(
    "rest", ["manifest.json", "../manifest.json", "work/events.jsonl", "..%2f", "stream/", "stream?x=1", "page.html"]
)
def test_no_file_is_served(server: WatchServer, rest: str) -> None:
    assert get(server, f"/{server.url.split('/')[3]}/{rest}")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_foreign_name_for_this_machine_is_refused(server: WatchServer, host: str) -> None:
    assert get(server, headers={"Host": host.format(port=server.port)})[0] == 421


def test_localhost_is_this_machine(server: WatchServer) -> None:
    assert get(server, headers={"Host": f"localhost:{server.port}"})[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_sites_page_may_not_ask(server: WatchServer, origin: str) -> None:
    assert get(server, headers={"Origin": origin})[0] == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_only_getting_is_possible(server: WatchServer, method: str) -> None:
    assert get(server, method=method)[0] == 501


def test_only_the_loopback_interface_listens(server: WatchServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    with socket.socket() as probe:
        probe.settimeout(1)
        # Another loopback address reaches servers that listen on all interfaces, and not ours.
        assert probe.connect_ex(("127.0.0.2", server.port)) != 0


def test_a_taken_port_is_said_so(server: WatchServer, folder: Path) -> None:
    with pytest.raises(RunError, match=str(server.port)):
        WatchServer(folder_view(folder), port=server.port)


def test_closing_ends_open_streams(folder: Path) -> None:
    server = WatchServer(live_view(folder, Meter(epsilon=2.0)), period=60.0)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.request("GET", "/" + server.url.split("/", 3)[3] + "stream")
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    server.close()
    assert response.read().count(b"data: ") == 1
    connection.close()


def test_the_stream_follows_the_meter(folder: Path) -> None:
    meter = Meter(epsilon=2.0)
    with WatchServer(live_view(folder, meter), period=0.01) as server:
        assert streamed(server)[0]["reading"]["done"] == 0
        meter.listen(Started(1, 5, 10))
        meter.listen(StageStarted("round", 1, 10))
        meter.listen(Answered("II", 5, 5))
        view = streamed(server)[0]
    assert (view["run"], view["state"], view["label"], view["reading"]["done"]) == ("desk-1", "running", "urgency", 1)


def test_a_folder_tells_about_a_run_of_another_process(folder: Path) -> None:
    view = folder_view(folder)
    assert view()["reading"]["title"] == "Preparing"
    with EventLog(folder / "work" / "events.jsonl") as log:
        log.listen(Started(2, 5, 30))
        log.listen(StageStarted("round", 1, 10))
        log.listen(PoolReady("round", 1, 10, {"rule": 2}, {}, ({"topic": "<script>alert(1)</script>"},)))
        log.listen(Selected("round-1", "permute-and-flip", 0.1, 0.2, True, False, {"low": (3,)}))
        now = view()
        assert (now["state"], now["reading"]["done"], now["reading"]["spent"]) == ("running", 10, 0.2)
        assert now["reading"]["samples"] == [{"topic": "<script>alert(1)</script>"}]
        log.listen(Finished(5))
    write_manifest(folder, "done")
    assert (view()["state"], view()["reading"]["share"]) == ("done", 1.0)


def test_the_clock_of_an_interrupted_run_stands_still(folder: Path) -> None:
    with EventLog(folder / "work" / "events.jsonl", clock=lambda: 1000.0) as log:
        log.listen(Started(2, 5, 30))
    write_manifest(folder, "interrupted")
    view = folder_view(folder)
    view()
    assert view()["reading"]["elapsed"] == 0.0


def test_a_browser_that_goes_away_leaves_no_traceback_on_the_terminal(
    server: WatchServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as browser:
        path = server.url.split("/", 3)[3]
        browser.sendall(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert browser.recv(100).startswith(b"HTTP/1.1 200")
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed with a reset
    until = time.monotonic() + 300
    while any("process_request" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert capsys.readouterr().err == ""
