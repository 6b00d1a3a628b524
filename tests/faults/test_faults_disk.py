"""Disks that are full, or can only be read: a clean message, nothing spent unseen, and a run that goes on later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import selpe.report.summary
import selpe.run.lifecycle
import selpe.run.release
from faults_world import (
    at,
    befallen,
    choices,
    ledger,
    make_project,
    places,
    require_tidy,
    spent,
    state,
)
from in_process import selpe as command
from selpe.errors import RunError
from selpe.models.answers import AnswerStore
from selpe.models.base import Answer, Request
from selpe.models.encoders.vectors import VectorStore
from selpe.privacy.ledger import Ledger
from selpe.run.event_log import EventLog

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and limits of the system")


def fill_up() -> None:
    """From now on no file of this process can grow: as on a full disk, a part of a write may still get through."""
    import resource  # which Windows has not

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))


MOMENTS: dict[str, tuple[Any, str, int, int]] = {
    "before the first charge": (Ledger, "charge", 1, 3),
    "before the first result": (Ledger, "store", 1, 3),
    "before the last result": (Ledger, "store", 3, 3),
    "before an answer is kept": (AnswerStore, "put", 5, 1),
    "before vectors are kept": (VectorStore, "put", 1, 1),
    "before an event is logged": (EventLog, "_write", 3, 1),
    "before the release is written": (selpe.run.release, "write_table", 1, 2),
    "before the card is written": (selpe.run.release, "build_card", 1, 1),
    "before 'running' is noted": (selpe.run.lifecycle, "write_manifest", 3, 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_disk_that_fills_up_stops_the_run_cleanly_and_it_goes_on_when_there_is_room(
    project: Path, moment: str
) -> None:
    owner, name, nth, code = MOMENTS[moment]
    stopped = befallen(("run", "--name", "mine", "--yes"), at(owner, name, fill_up, nth=nth))
    require_tidy(stopped, code)
    assert "larger than the system allows" in stopped.err or "cannot be" in stopped.err, stopped.err
    assert state(project) != "done"
    kept, paid = choices(project), spent(project)
    result = command("resume", "mine")
    require_tidy(result, 0)
    assert state(project) == "done"
    assert kept.items() <= choices(project).items()
    assert paid <= spent(project) <= 4.0 + 1e-9
    charges, results = len(ledger(project).charges()), len(choices(project))
    assert (charges - results) == (moment.endswith("result"))  # a draw that could not be stored is paid for, once


def test_a_run_folder_that_cannot_be_filled_leaves_nothing_in_the_way(project: Path) -> None:
    refused = befallen(("run", "--name", "mine", "--yes"), at(selpe.run.lifecycle.Run, "create", fill_up))
    require_tidy(refused, 1)
    assert not (project / "runs" / "mine").exists()
    require_tidy(command("run", "--name", "mine", "--yes"), 0)


def test_an_answer_that_is_half_written_is_taken_back(tmp_path: Path) -> None:
    import resource

    store = AnswerStore(tmp_path / "answers.jsonl")
    answers = [
        Answer(Request(prompt=f"p{n}"), "text " * 20, "stop", prompt_tokens=1, completion_tokens=1) for n in "abc"
    ]
    store.put("m", answers[0])
    whole = (tmp_path / "answers.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 50, hard))  # room for half a line: the write comes back short
    try:
        with pytest.raises(RunError, match="larger than the system allows"):
            store.put("m", answers[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "answers.jsonl").stat().st_size == whole
    store.put("m", answers[2])
    assert [store.get("m", answer.request) is not None for answer in answers] == [True, False, True]
    store.close()


# -- folders that can only be read ---------------------------------------------


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch, worked: None) -> Iterator[Path]:
    """A project that another user can look into: root may write anywhere, so the child must not be root."""
    folder = Path(tempfile.mkdtemp(prefix="selpe-faults-"))
    folder.chmod(0o755)
    for name, value in places(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    make_project(folder)
    for name in ("selpe.yaml", "schema.yaml", "desk.csv"):
        (folder / name).chmod(0o644)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def read_only(*folders: Path) -> Callable[[], None]:
    def befall() -> None:
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o555 if path.is_dir() else 0o444)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

    return befall


def test_folders_that_can_only_be_read_are_named_and_nothing_is_spent(strangers: Path) -> None:
    (strangers / "key").write_text("0" * 64)
    refused = befallen(("run", "--name", "mine", "--yes"), read_only(strangers))
    require_tidy(refused, 1, 3)
    assert str(strangers) in refused.err
    assert not (strangers / "ledger").exists()


def test_a_home_that_can_only_be_read_is_named_when_the_key_cannot_be_made(
    strangers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = strangers / "home"
    home.mkdir()
    for name in ("SELPE_KEY", "SELPE_LEDGER", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    (strangers / "runs").mkdir(exist_ok=True)
    (strangers / "runs").chmod(0o777)
    refused = befallen(("run", "--name", "mine", "--yes"), read_only(home))
    require_tidy(refused, 3)
    assert "the ledger key cannot be created" in refused.err
    assert str(home) in refused.err


def test_a_run_that_can_only_be_read_is_shown_and_packed_and_not_gone_on_with(strangers: Path) -> None:
    require_tidy(command("run", "--name", "mine", "--yes"), 0)
    before = spent(strangers)
    for path in (strangers / "ledger", *(strangers / "ledger").rglob("*"), strangers / "key"):
        os.chown(path, 65534, 65534) if os.geteuid() == 0 else None
    frozen = read_only(strangers / "runs")
    require_tidy(befallen(("runs",), frozen), 0)
    require_tidy(befallen(("release", "-y", "mine", "--to", "/dev/null/no.zip"), frozen), 1)
    manifest = strangers / "runs" / "mine" / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text(manifest.read_text().replace('"state": "done"', '"state": "running"'))
    refused = befallen(("resume", "mine"), frozen)
    require_tidy(refused, 1)
    assert "may not" in refused.err
    assert spent(strangers) == before


def test_a_full_device_in_the_place_of_the_output_is_said_so(project: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "selpe", "runs"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1, done.stderr
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr
