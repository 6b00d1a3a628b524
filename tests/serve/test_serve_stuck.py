"""Workers and readers that cannot end by themselves: C code holds their interpreter, or a signal has stopped them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from selpe.serve.limits import Limits
from serve_world import STUCK_WORKER, House

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]
COMMAND = (sys.executable, "-c", STUCK_WORKER)
WAYS = ("spinning", "stopped")


def until(path: Path) -> int:
    """The number that a file holds, once it does."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.05)
    raise TimeoutError(path)


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def require_gone(pid: int) -> None:
    """Waits for the end of a process; one that does not end fails the test, and does not outlive it."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    end = time.monotonic() + 60
    while not gone(process):
        if time.monotonic() > end:
            process.kill()
            raise AssertionError(f"process {pid} outlived those who started it")
        time.sleep(0.05)


def stuck(house: House, how: str) -> tuple[str, int]:
    """A run whose worker is stuck, and that worker's process."""
    run = str(house.submit(epsilon=1.0, budget=4.0).json()["run"])
    place, end = house.root / "runs" / run / "stuck", time.monotonic() + 120
    while not place.exists() and time.monotonic() < end:
        house.do(asyncio.sleep(0.05))
    pid = until(place)
    if how == "stopped":
        os.kill(pid, signal.SIGSTOP)
    return run, pid


@pytest.mark.parametrize("how", WAYS)
def test_a_cancelled_run_that_is_stuck_is_killed_and_frees_its_place(build: Callable[..., House], how: str) -> None:
    house = build(Limits(workers=1, stop_seconds=0.5), worker=COMMAND)
    house.take_in()
    run, pid = stuck(house, how)
    assert house.ask("POST", f"/v1/runs/{run}/cancel").json()["state"] == "stopping"
    assert house.ask("POST", f"/v1/runs/{run}/cancel").json()["state"] == "stopping"
    assert house.until(run, "cancelled", seconds=60) == "cancelled"
    require_gone(pid)
    end = time.monotonic() + 60
    while house.ask("GET", "/v1/tables/desk/budget").json()["set_aside"]:  # just after the state is told
        assert time.monotonic() < end
        house.do(asyncio.sleep(0.05))
    following, other = stuck(house, "spinning")  # the only worker's place is free again
    assert other != pid
    house.ask("POST", f"/v1/runs/{following}/cancel")


@pytest.mark.parametrize("how", WAYS)
def test_a_server_that_stops_kills_what_is_stuck(build: Callable[..., House], how: str) -> None:
    house = build(Limits(workers=1, stop_seconds=0.5), worker=COMMAND)
    house.take_in()
    run, pid = stuck(house, how)
    house.do(asyncio.wait_for(house.desk.close(), 60))
    require_gone(pid)
    again = build(Limits(workers=0))
    about = again.ask("GET", f"/v1/runs/{run}").json()
    assert about["state"] == "interrupted"  # so what it will spend stays reserved, and it can be resumed
    assert "did not stop within 0.5 s" in about["error"]["message"]


def test_a_run_that_takes_longer_than_a_run_may_is_stopped_and_can_be_resumed(build: Callable[..., House]) -> None:
    house = build(Limits(workers=1, run_seconds=1.0, stop_seconds=0.5), worker=COMMAND)
    house.take_in()
    run, pid = stuck(house, "spinning")
    assert house.until(run, "interrupted", seconds=60) == "interrupted"
    require_gone(pid)
    error = house.ask("GET", f"/v1/runs/{run}").json()["error"]
    assert (error["kind"], "hours at once" in error["message"]) == ("killed", True)


PARENT = """
import asyncio, sys
from pathlib import Path
from selpe.serve.limits import Limits
from selpe.serve.reading import Reader
from selpe.serve.supervisor import Supervisor
what, folder, child = sys.argv[1:]
limits, command = Limits(stop_seconds=0.5), (sys.executable, "-c", child)
async def main():
    if what == "worker":
        Supervisor(limits, command=command).begin("run", Path(folder))
        await asyncio.sleep(600)
    else:
        await Reader(limits, root="/nowhere", command=command).ask("schema", path=folder)
asyncio.run(main())
"""
STUCK_READER = """
import os, re
from pathlib import Path
from selpe.serve import reader
def schema(path):
    (Path(path) / "stuck").write_text(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 60 + "b")
reader.JOBS = {"schema": schema}
reader.main()
"""


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("what", "child"), [("worker", STUCK_WORKER), ("reader", STUCK_READER)])
def test_what_is_stuck_does_not_outlive_a_server_that_was_killed(
    tmp_path: Path, how: str, what: str, child: str
) -> None:
    (tmp_path / "work").mkdir()
    server = subprocess.Popen([sys.executable, "-c", PARENT, what, str(tmp_path), child])
    try:
        pid = until(tmp_path / "stuck")
        if how == "stopped":
            os.kill(pid, signal.SIGSTOP)
    finally:
        server.kill()
        server.wait()
    require_gone(pid)


def test_a_worker_that_ends_leaves_no_guard_behind(tmp_path: Path) -> None:
    code = "from selpe.processes import end_with_parent; end_with_parent(600)"
    child = subprocess.Popen([sys.executable, "-c", f"{code}; input()"], stdin=subprocess.PIPE)
    end = time.monotonic() + 60
    while not (guards := psutil.Process(child.pid).children()) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(guards) == 1
    child.kill()
    child.communicate()
    require_gone(guards[0].pid)
