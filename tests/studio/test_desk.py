"""Commands that the page starts: one of a kind at a time, stopped cleanly, and gone on with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from selpe.errors import RunError
from selpe.studio.child import Child
from selpe.studio.desk import CommandDesk, runs_in
from studio_world import drafted

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"), pytest.mark.timeout(1200)]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings of a confirmed schema, for a run that takes a while."""
    config = drafted(tmp_path)
    schema = tmp_path / "schema.yaml"
    confirmed = schema.read_text(encoding="utf-8").replace("confirmed: false", "confirmed: true")
    schema.write_text(confirmed, encoding="utf-8")
    settings = config.read_text(encoding="utf-8").replace("records: 300", "records: 2000")
    config.write_text(settings, encoding="utf-8")
    return config


@pytest.fixture
def desk(config: Path) -> Iterator[CommandDesk]:
    desk = CommandDesk(config)
    yield desk
    found = desk.active_run()
    if found is not None:
        desk.stop("run")
        desk.stop("run")
    desk.close()


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 500
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_run_is_stopped_gone_on_with_and_stopped_again(desk: CommandDesk, config: Path) -> None:
    out = config.parent / "runs"
    name = desk.run("visits")
    until(lambda: [run["state"] for run in runs_in(out)] == ["running"])
    active = desk.active_run()
    assert active is not None
    assert active[0] == name
    with pytest.raises(RunError, match="running already"):
        desk.run("visits")
    desk.stop("run")
    until(lambda: desk.as_dict()["run"]["state"] == "stopped")
    (run,) = runs_in(out)
    assert (run["name"], run["state"], run["judged"]) == (name, "interrupted", False)
    assert desk.as_dict()["run"]["error"] is None
    desk.resume(Path(run["folder"]))
    until(lambda: [run["state"] for run in runs_in(out)] == ["running"])
    assert desk.as_dict()["run"]["about"] == name
    desk.stop("run")
    desk.stop("run")  # at once
    until(lambda: desk.as_dict()["run"]["state"] == "stopped")
    with pytest.raises(RunError, match="nothing is running"):
        desk.stop("run")


def test_what_a_command_says_is_read_line_by_line_and_only_as_json(tmp_path: Path) -> None:
    child = Child(["check", str(tmp_path / "gone.yaml")], tmp_path / "log.jsonl")
    child.wait(300)
    told = child.as_dict()
    assert (told["state"], told["error"]["message"]) == ("failed", "there is no such file")
    with (tmp_path / "log.jsonl").open("ab") as log:
        log.write(b'not json\n[1]\n{"findings": [1]}\n{"half": ')
    assert child.last("findings") == [1]
    assert child.last("half") is None


def test_the_log_is_the_owners_alone(tmp_path: Path) -> None:
    child = Child(["--version"], tmp_path / "log.jsonl")
    child.wait(300)
    assert (tmp_path / "log.jsonl").stat().st_mode & 0o777 == 0o600
    assert child.state == "done"
