"""A Ray of our own on this machine: who can reach it, and what of the private table it ever sees.

The run is done in a process of its own. Just before its release is written, while all workers live, every process of
Ray is looked at from there: its sockets, its folders, and its memory.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from selpe.config.execution import RaySettings
from selpe.errors import ConfigError
from selpe.execute.ray import connected
from selpe.intake import write_table
from small_world import SCHEMA, drawn

pytest.importorskip("ray", reason="Ray is not installed (make test-ray)")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]

MARKER, PROMPT = "QX7-Zebra-4711", "help desk"
LOOKING = """
import json, os, sys
from pathlib import Path

import psutil

import selpe.run.lifecycle as lifecycle
from selpe.cli import main

found, marker, prompt, *words = sys.argv[1:]
written = lifecycle.write_release


def memory(process):
    '''All that a process may write to, region by region.'''
    try:
        with open(f"/proc/{process.pid}/maps") as maps, open(f"/proc/{process.pid}/mem", "rb", 0) as raw:
            for line in maps:
                place, rights = line.split()[:2]
                if rights.startswith("rw"):
                    start, end = (int(number, 16) for number in place.split("-"))
                    try:
                        raw.seek(start)
                        yield raw.read(end - start)
                    except (OSError, ValueError, OverflowError):
                        continue
    except OSError:
        return


def look(process):
    held = {"name": process.name(), "listens": [], "read": 0, "marked": 0, "prompted": 0}
    for one in process.net_connections(kind="inet"):
        if one.status == psutil.CONN_LISTEN or (one.status == psutil.CONN_NONE and not one.raddr):
            held["listens"].append(one.laddr.ip)
    for region in memory(process) if process.pid != os.getpid() else ():
        held["read"] += len(region)
        held["marked"] += region.count(marker.encode())
        held["prompted"] += region.count(prompt.encode())
    return held


def looking(*about, **more):
    import ray

    me = psutil.Process()
    place = Path(ray._private.worker._global_node.get_session_dir_path())
    above = next(one for one in place.parents if one.parent == Path("/tmp"))
    Path(found).write_text(json.dumps({
        "processes": [look(process) for process in [me, *me.children(recursive=True)]],
        "folder": str(above), "mode": above.stat().st_mode & 0o777,
        "logs": sum(marker.encode() in path.read_bytes() for path in place.rglob("*") if path.is_file()),
    }))
    return written(*about, **more)


lifecycle.write_release = looking
main(words)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a whole run by `address: local` looked like from inside."""
    place = tmp_path_factory.mktemp("local")
    write_table([row | {"topic": f"{MARKER} {i}"} for i, row in enumerate(drawn(40))], SCHEMA, place / "desk.csv")
    SCHEMA.save(place / "schema.yaml")
    settings = {
        "dataset": "desk", "data": "desk.csv", "schema": "schema.yaml", "records": 12, "rounds": 1, "bundles": 0,
        "llm": "fake", "encoder": "hash", "execute": "ray", "ray": {"address": "local", "workers": 2},
    }  # fmt: skip
    (place / "selpe.yaml").write_text(json.dumps(settings), encoding="utf-8")
    home = place / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    (home / ".ray" / "auth_token").chmod(0o644)  # as Ray itself leaves it
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", LOOKING, str(place / "found.json"), MARKER, PROMPT, "run", "--yes", "--name", "it"],
        cwd=place, env={**surroundings, "HOME": str(home), "RAY_gcs_server_request_timeout_seconds": "300"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((place / "found.json").read_text())
    return {**found, "token": (home / ".ray" / "auth_token").stat().st_mode & 0o777, "out": place / "runs" / "it"}


def test_every_process_of_it_listens_on_this_machine_alone(seen: dict[str, Any]) -> None:
    names = {process["name"] for process in seen["processes"] if process["listens"]}
    assert {"gcs_server", "raylet"} <= names
    assert len([process for process in seen["processes"] if process["listens"]]) >= 5  # and two workers, and the driver
    for process in seen["processes"]:
        for heard in process["listens"]:
            address = ipaddress.ip_address(heard)
            mapped = getattr(address, "ipv4_mapped", None)
            assert (mapped or address).is_loopback, process["name"]


def test_its_token_and_its_sockets_are_the_owners_alone(seen: dict[str, Any]) -> None:
    assert (oct(seen["token"]), oct(seen["mode"])) == ("0o600", "0o700")
    assert not Path(seen["folder"]).exists()  # and nothing is left of it


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="this system does not show the memory of a process")
def test_no_private_cell_is_in_the_memory_of_any_process_of_it(seen: dict[str, Any]) -> None:
    others = [process for process in seen["processes"] if process["read"]]
    assert {"gcs_server", "raylet"} <= {process["name"] for process in others}
    assert sum(process["prompted"] for process in others) > 0  # prompts were found where they are
    assert [process["name"] for process in others if process["marked"]] == []
    assert seen["logs"] == 0


def test_a_ray_without_a_token_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="every user of this machine"), connected(RaySettings(address="local")):
        pytest.fail("Ray was started")
