"""Many processes at one table: together they never spend more than its budget, and one run has one worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import selpe.report.summary  # noqa: F401  (loaded once, not in every child)
from faults_world import choices, ledger, require_tidy, spent, state
from in_process import selpe as command
from selpe.method.algorithm import Evolution
from selpe.privacy.ledger import Charge

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


def test_of_fifty_runs_at_once_as_many_finish_as_fit_and_the_others_spend_nothing(project: Path) -> None:
    ledger(project).set_budget(4.0)
    names = [f"r{number}" for number in range(50)]
    codes = all_at_once(
        [lambda name=name: tidily("run", "--epsilon", "0.8", "--name", name, *SMALL) for name in names]  # type: ignore[misc]
    )
    assert (codes.count(0), codes.count(3)) == (5, 45)
    done = {name for name, code in zip(names, codes, strict=True) if code == 0}
    assert spent(project) == pytest.approx(4.0, abs=1e-9)
    assert {run for run, _ in choices(project)} == done
    assert {path.name for path in (project / "runs").iterdir()} == done  # nothing is left of those that were refused
    assert {state(project, name) for name in done} == {"done"}
    assert ledger(project).reservations() == {}


def test_a_killed_run_keeps_its_epsilon_until_it_is_finished_or_given_up(project: Path) -> None:
    ledger(project).set_budget(1.0)
    run = ("run", "--epsilon", "0.8", *SMALL)

    def killed_at_once() -> int:
        Evolution.run = lambda self: os._exit(9)  # type: ignore[method-assign]
        return tidily(*run, "--name", "mine")

    assert all_at_once([killed_at_once]) == [9]
    assert (set(ledger(project).reservations()), spent(project)) == ({"mine"}, 0.0)
    refused = command(*run, "--name", "other")
    require_tidy(refused, 3)
    assert "1 other run(s) have ε 0.8 reserved. Nothing was spent on it" in refused.err
    shown = command("budget", "show", "desk")
    assert "mine: ε 0.8 reserved" in shown.out
    assert "no process works on it" in shown.out
    require_tidy(command("resume", "mine"), 0)
    assert ledger(project).reservations() == {}
    assert spent(project) == pytest.approx(0.8)


def test_what_a_dead_run_has_reserved_can_be_freed_and_what_it_drew_cannot(project: Path) -> None:
    ledger(project).set_budget(1.0)
    ledger(project).reserve("dead", [Charge("dead", "round-1", "x", 0.2, 0.4), Charge("dead", "bundle", "x", 0.2, 0.4)])
    ledger(project).charge(Charge("dead", "round-1", "x", 0.2, 0.4))
    require_tidy(command("budget", "free", "desk"), 3)  # not without a word
    require_tidy(command("budget", "free", "desk", "alive", "--yes"), 2)
    require_tidy(command("budget", "free", "desk", "dead", "--yes"), 0)
    assert (ledger(project).reservations(), spent(project)) == ({}, 0.4)
    require_tidy(command("run", "--epsilon", "0.6", "--name", "mine", *SMALL), 0)
    assert spent(project) == pytest.approx(1.0)


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
