"""Many processes at one table: together they never spend more than its budget, and one run has one worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import selpe.report.summary  # noqa: F401  (loaded once, not in every child)
from fire_world import choices, ledger, require_tidy, spent, state
from in_process import selpe as command

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
SMALL = ("--records", "4", "--set", "rounds=2", "--set", "batches=1", "--set", "bundles=0", "--yes")


def all_at_once(commands: list[Callable[[], int]]) -> list[int]:
    """Exit codes of commands, each in a fork of its own. They begin when all of them are there."""
    reading, writing = os.pipe()
    children = []
    for act in commands:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                os.close(writing)
                os.read(reading, 1)  # comes back when the parent lets go
                code = act()
            finally:
                os._exit(code)
        children.append(child)
    os.close(writing)
    os.close(reading)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def tidily(*words: object) -> int:
    result = command(*words)
    try:
        require_tidy(result, 0, 1, 3)
    except AssertionError:
        sys.stderr.write(result.said)
        return 98
    return result.code


def test_ten_runs_at_once_never_spend_more_than_the_budget(project: Path) -> None:
    ledger(project).set_budget(4.0)
    names = [f"r{number}" for number in range(10)]
    codes = all_at_once(
        [lambda name=name: tidily("run", "--epsilon", "1.6", "--name", name, *SMALL) for name in names]  # type: ignore[misc]
    )
    assert set(codes) <= {0, 3}
    assert spent(project) <= 4.0 + 1e-9
    done = [name for name in names if (project / "runs" / name / "release").exists()]
    assert len(done) == codes.count(0)
    assert 1.6 * len(done) <= spent(project) + 1e-9
    assert {run for run, _ in choices(project)} >= set(done)
    for name in done:
        assert state(project, name) == "done"


def test_one_run_taken_up_by_five_processes_is_done_once(project: Path) -> None:
    require_tidy(command("run", "--epsilon", "1", "--name", "mine", *SMALL), 0)
    manifest = project / "runs" / "mine" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"state": "done"', '"state": "running"'))
    before = ledger(project).entries()
    codes = all_at_once([lambda: tidily("resume", "mine")] * 5)
    assert 0 in codes
    assert set(codes) <= {0, 1}  # 'another process is working on this run'
    assert ledger(project).entries() == before
    assert state(project) == "done"
