"""The whole way from a draft to a packed release, by a process that may speak to nobody but the hosts it was given."""

from __future__ import annotations

from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from fake_model_server import written
from faults_world import make_project, places
from faulty_server import MODELS, FaultyServer, status
from guarded_process import outcome

_COMMANDS = """
import os
os.chdir({folder!r})
os.environ.update({places!r})
from selpe.cli import main
def do(*words):
    try:
        main(list(words))
    except SystemExit as leave:
        assert leave.code == 0, (words, leave.code)
{commands}
"""
_WAY = """
do("init", "desk.csv", "--out", "draft")
do("check")
do("plan")
do("run", "--dry-run")
do("preview", "-n", "2")
do("run", "--name", "mine", "--yes")
do("evaluate", "mine", "--test", "desk.csv", "--views", "boosted", "--encoder", "hash")
do("report", "mine")
do("release", "-y", "mine", "--to", "packed.zip")
do("budget", "show", "desk")
"""
_DEFAULTS = """
import importlib
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
"""


def given(host: str, port: int) -> str:
    """A guard that lets one address of this machine pass, and no other."""
    return f"""
def only(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple) and args[1][:2] != ({host!r}, {port}):
        attempts.append(f"{{event}} {{args[1]}}")
        raise OSError("blocked by the test")
sys.addaudithook(only)
"""


def way(folder: Path, commands: str) -> str:
    return _COMMANDS.format(folder=str(folder), places=places(folder), commands=commands)


def test_every_command_of_a_run_speaks_to_no_one(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    found = outcome(way(make_project(folder), _WAY), tmp_path)
    assert found["attempts"] == []
    assert not found["telemetry"]
    assert (folder / "packed.zip").is_file()


def test_a_run_on_a_server_speaks_to_that_server_alone(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    make_project(folder)
    with FaultyServer(rest=written, models=status(200, MODELS)) as server:
        command = f'do("run", "--name", "mine", "--yes", "--llm", "{server.url}#toy")\n'
        found = outcome(given("127.0.0.1", server.port) + way(folder, command), tmp_path)
        assert len(server.posts) > 30
    assert found["attempts"] == []


def default_modules() -> list[str]:
    """The modules that a default installation brings along: what selpe requires, and what those require."""
    wanted, seen = ["selpe"], set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            required = distribution(name).requires or []
        except Exception:
            continue
        wanted += [_plain(line) for line in required if "extra ==" not in line]
    owners = packages_distributions()
    return sorted(m for m, owner in owners.items() if {_plain(one) for one in owner} & seen and not m.startswith("_"))


def _plain(line: str) -> str:
    name = line.split(";", maxsplit=1)[0]
    for mark in "[<>=!~( ":
        name = name.split(mark)[0]
    return name.strip().lower().replace("_", "-").replace(".", "-")


def test_importing_every_default_dependency_speaks_to_no_one(tmp_path: Path) -> None:
    names = [name for name in default_modules() if name not in ("openvino_telemetry", "selpe")]
    assert {"openvino", "pyarrow", "opendp"} <= set(names)
    found = outcome("import selpe.models.engine.runtime as r\nr.openvino()\n" + _DEFAULTS.format(names=names), tmp_path)
    assert found["attempts"] == []
    assert not found["telemetry"]
    # No identifier is left in the user's folders. hf_xet, which nothing of ours imports, begins a log of its own.
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "xet" not in path.parts] == []


@pytest.mark.skipif(find_spec("openvino_telemetry") is None, reason="OpenVINO's telemetry is not installed")
def test_the_guard_sees_openvinos_telemetry_where_it_is_not_kept_away(tmp_path: Path) -> None:
    """Else the tests above would prove nothing."""
    assert outcome("import openvino_telemetry\n", tmp_path)["telemetry"]
