"""The server as a process: whole runs, no private value anywhere, kills of server and worker, stopping and going on."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from selpe.privacy.ledger import Ledger
from selpe.run.release import RELEASED
from serve_world import LONG, MARKER, ONE_STEP, SECRET, SLOW_WORKER, Served, at_once, rows, served
from small_world import SCHEMA

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]
SLOW = SLOW_WORKER.format(seconds=0.05)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[Served]]:
    """Servers that are ended with the test, whatever becomes of it."""
    made: list[Served] = []
    yield made
    for server in made:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


def spent(table: str = "desk") -> float:
    return Ledger.open(table).spent().epsilon_replace_one


def test_a_whole_run_tells_nothing_of_a_private_row(tmp_path: Path, running: list[Served]) -> None:
    server = served(tmp_path)
    running.append(server)
    said: list[httpx.Response] = []
    server.client.event_hooks["response"] = [lambda response: response.read(), said.append]
    server.take_in(tmp_path, records=rows(marked=True))
    assert server.client.post("/v1/tables/desk/check", json={}).json()["ok"] is True
    settings = {"records": 12, "epsilon": 2.0, "bundles": 4, "budget": 3.0}
    assert server.client.post("/v1/tables/desk/plan", json=settings).json()["allowed"] is True

    def submit(number: int) -> httpx.Response:
        with httpx.Client(base_url=server.client.base_url, headers=server.client.headers, timeout=300) as client:
            return client.post("/v1/tables/desk/runs", json={**settings, "seed": number})

    answers = at_once(6, submit)
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 5
    said += answers
    [run] = [answer.json()["run"] for answer in answers if answer.status_code == 202]

    lines = server.client.get(f"/v1/runs/{run}/events", params={"follow": True}).text.splitlines()
    assert (json.loads(lines[0])["event"], json.loads(lines[-1])["event"]) == ("Started", "Finished")
    assert server.until(run, "done") == "done"
    stream = server.client.get(f"/v1/runs/{run}/events", headers={"Accept": "text/event-stream", "Last-Event-ID": "2"})
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text.startswith(f"id: 3\ndata: {lines[2]}\n\n")

    about = server.client.get(f"/v1/runs/{run}").json()
    assert (about["private"], about["spent"]["epsilon_replace_one"]) == (True, pytest.approx(2.0))
    budget = server.client.get("/v1/tables/desk/budget").json()
    assert (budget["free"], budget["set_aside"]) == (pytest.approx(1.0), [])

    packed = server.client.get(f"/v1/runs/{run}/release")
    assert hashlib.sha256(packed.content).hexdigest() == packed.headers["x-sha256"]
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        contents = {Path(name).name: archive.read(name) for name in archive.namelist()}
    assert sorted(contents) == sorted((*RELEASED, "SHA256SUMS"))
    released = [json.loads(line) for line in contents["synthetic.jsonl"].splitlines()]
    assert [SCHEMA.check(record) for record in released] == [[]] * 12

    page = server.client.get(f"/v1/runs/{run}/page").json()["path"]
    with httpx.Client(base_url=server.client.base_url, timeout=300) as browser:  # the first look starts a reader
        shown = browser.get(page)
        said.append(shown)
        with browser.stream("GET", f"{page}stream") as stream_of_page:
            first = next(stream_of_page.iter_lines())
        assert (shown.status_code, browser.get(f"{page[:-2]}/").status_code) == (200, 404)
    assert "script-src 'nonce-" in shown.headers["content-security-policy"]
    view = json.loads(first.removeprefix("data: "))
    assert (view["state"], view["run"], view["folder"]) == ("done", run, "")

    (tmp_path / "root" / "runs" / run / "release" / "rows.csv").write_text(MARKER)
    refused = server.client.get(f"/v1/runs/{run}/release")
    assert (refused.status_code, refused.json()["error"]["kind"]) == (409, "privacy")
    assert str(tmp_path) not in refused.text

    assert server.end() == 0
    assert len(said) > 10
    assert all(MARKER not in response.text and MARKER.encode() not in response.content for response in said)
    assert all(MARKER.encode() not in content for content in contents.values())
    assert MARKER not in first
    (tmp_path / "root" / "runs" / run / "release" / "rows.csv").unlink()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "tables" not in path.parts]
    leaking = [path for path in files if MARKER.encode() in path.read_bytes()]
    assert leaking == [tmp_path / "rows.csv"]  # the test's own copy
    assert SECRET not in server.log.read_text()
    assert "GET /v1/runs/{run}/release 200" in server.log.read_text()


def test_a_server_killed_in_the_middle_loses_nothing(tmp_path: Path, running: list[Served]) -> None:
    first = served(tmp_path, worker=SLOW)
    running.append(first)
    first.take_in(tmp_path)
    run = first.client.post("/v1/tables/desk/runs", json=LONG).json()["run"]
    waiting = first.client.post("/v1/tables/desk/runs", json={**ONE_STEP, "epsilon": 0.0}).json()["run"]
    until_it_has_chosen(run)
    [worker] = until_there_are(1, first, run)
    first.end(signal.SIGKILL)
    worker.wait(timeout=300)  # by itself: its server has let go of it
    before = len(Ledger.open("desk").charges())

    second = served(tmp_path)
    running.append(second)
    states = {one["run"]: one["state"] for one in second.client.get("/v1/runs").json()["runs"]}
    assert states == {run: "interrupted", waiting: "interrupted"}
    assert second.client.post("/v1/tables/desk/runs", json={**ONE_STEP, "epsilon": 1.0}).status_code == 409
    assert second.client.post(f"/v1/runs/{run}/resume").json()["state"] in ("queued", "running")
    assert second.client.post(f"/v1/runs/{waiting}/resume").json()["state"] == "queued"
    assert second.until(run, "done", "failed") == "done"
    assert second.until(waiting, "done", "failed") == "done"
    assert second.end() == 0

    charges = [charge for charge in Ledger.open("desk").charges() if charge.run == run]
    assert 0 < before < len(charges)
    assert max(Counter(charge.selection for charge in charges).values()) == 1  # nothing was drawn twice
    assert spent() == pytest.approx(4.0)
    about = json.loads((tmp_path / "root" / "runs" / run / "manifest.json").read_text())
    assert about["counts"]["replayed"] > 0


def until_it_has_chosen(run: str) -> None:
    """Waits for the first private result of a run."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        ledger = Ledger.open("desk")
        if ledger.exists and any(entry.kind == "result" and entry.data["run"] == run for entry in ledger.entries()):
            return
        time.sleep(0.05)
    raise TimeoutError(run)


def test_runs_are_cancelled_killed_refused_stopped_and_gone_on_with(tmp_path: Path, running: list[Served]) -> None:
    server = served(tmp_path, worker=SLOW)
    running.append(server)
    server.take_in(tmp_path)
    run = server.client.post("/v1/tables/desk/runs", json=LONG).json()["run"]
    until_it_has_chosen(run)

    # cancelled: it stops, gives back what it has not spent, and can be gone on with
    assert server.client.post(f"/v1/runs/{run}/cancel").json()["state"] == "stopping"
    assert server.client.post(f"/v1/runs/{run}/resume").status_code == 409
    assert server.until(run, "cancelled") == "cancelled"
    after = server.client.get("/v1/tables/desk/budget").json()
    assert (after["set_aside"], after["free"]) == ([], pytest.approx(4.0 - after["used"]))
    assert 0 < after["used"] < 4.0

    # killed: its process is gone, and it says so
    assert server.client.post(f"/v1/runs/{run}/resume").status_code == 202
    [worker] = until_there_are(1, server, run)
    os.kill(worker.pid, signal.SIGKILL)
    assert server.until(run, "interrupted") == "interrupted"
    assert "SIGKILL" in server.client.get(f"/v1/runs/{run}").json()["error"]["message"]

    # refused: rows that do not fit are named by row and field, nothing is spent, and the share is given back
    bad = [row | {"minutes": 4711, "topic": MARKER} if i == 2 else row for i, row in enumerate(rows())]
    server.take_in(tmp_path, "bad", bad)
    failing = server.client.post("/v1/tables/bad/runs", json={**ONE_STEP, "epsilon": 1.0}).json()["run"]
    assert server.until(failing, "failed") == "failed"
    error = server.client.get(f"/v1/runs/{failing}").json()["error"]
    assert (error["kind"], "'minutes'" in error["message"]) == ("data", True)
    assert not any(word in json.dumps(error) for word in ("4711", MARKER, str(tmp_path)))
    assert server.client.get("/v1/tables/bad/budget").json()["free"] == 1.0

    # stopped with its server: a stream that is open is ended, not cut, and no process is left
    events = tmp_path / "root" / "runs" / run / "work" / "events.jsonl"
    before = events.stat().st_size
    assert server.client.post(f"/v1/runs/{run}/resume").status_code == 202
    with server.client.stream("GET", f"/v1/runs/{run}/events", params={"follow": True}) as stream:
        while events.stat().st_size == before:
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        assert len(stream.read()) >= before
    assert server.process.wait(timeout=300) == 0
    assert json.loads((tmp_path / "root" / "runs" / run / "manifest.json").read_text())["state"] == "interrupted"
    end = time.monotonic() + 60  # a worker's guard sees its end a moment later
    while left := [process for process in psutil.process_iter() if _about(process, run)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)
    assert spent() <= 4.0 + 1e-6


def until_there_are(count: int, server: Served, run: str) -> list[psutil.Process]:
    """The processes that work on a run, once there are so many."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        children = psutil.Process(server.process.pid).children()
        if len(found := [child for child in children if _about(child, run)]) == count:
            return found
        time.sleep(0.05)
    raise TimeoutError(run)


def _about(process: psutil.Process, run: str) -> bool:
    try:
        return run in " ".join(process.cmdline())
    except psutil.Error:
        return False
