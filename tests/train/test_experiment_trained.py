"""Cells of methods that train: in this process, and in another interpreter that is told to finish the run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench_world import ask, bench
from selpe.errors import ConfigError, RunError
from selpe.experiments.conduct import conduct
from selpe.experiments.designs import DESIGNS
from selpe.experiments.grid import Cell
from selpe.experiments.trained import TrainPython, torch_is_here

METHODS = ("dpgen", "ctcl", "dpds")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def cells(tiny: Path, methods: tuple[str, ...]) -> list[Cell]:
    training = {"model": str(tiny), "steps": 2, "stretches": 1, "rank": 2, "tokens": 48}
    settings: dict[str, Any] = {
        "dpgen": training, "dpds": training, "ctcl": {**training, "topics": 2, "public_records": 6, "public_steps": 1},
    }  # fmt: skip
    return [cell for cell in DESIGNS["compare"](ask(methods=methods, settings=settings)) if cell.method in methods]


def figures(result: dict[str, Any]) -> set[str]:
    return {f"{one['measure']} {one['view']}".strip() for one in result["measures"]}


def test_every_method_that_trains_is_a_cell_like_any_other(tmp_path: Path, tiny: Path) -> None:
    assert torch_is_here()
    grid = cells(tiny, METHODS)
    with bench(tmp_path / "exp") as made:
        done = conduct(grid, made)
        assert (done.failed, done.skipped, done.fresh) == ({}, {}, 3)
        found = {cell.method: made.result(cell) for cell in grid}
    assert figures(found["dpds"] or {}) == {"auc dp-ds"}
    assert {"auc minilm", "r_cfg", "s_cfg", "records"} <= figures(found["dpgen"] or {})
    assert all(result and result["run"]["spent"]["delta"] == 1e-5 for result in found.values())


def test_another_interpreter_finishes_what_was_begun_here(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selpe.experiments.cells.torch_is_here", lambda: False)
    train = TrainPython(Path(sys.executable))
    train.require()
    grid = cells(tiny, ("dpds",))
    with bench(tmp_path / "exp", train=train) as made:
        done = conduct(grid, made)
        assert (done.failed, done.fresh) == ({}, 1)
        (result,) = done.results.values()
    assert figures(result) == {"auc dp-ds"}
    assert result["run"]["spent"]["epsilon_replace_one"] == pytest.approx(2.0, abs=1e-6)
    assert result["run"]["seconds"] > 0


def test_what_goes_wrong_there_is_said_here(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selpe.experiments.cells.torch_is_here", lambda: False)
    train = TrainPython(Path(sys.executable))
    (cell,) = cells(tmp_path / "no-such-model", ("dpds",))
    with bench(tmp_path / "exp", train=train) as made, pytest.raises(RunError, match="the training failed") as problem:
        made.do(cell)
    assert "no such model" in problem.value.hint


def test_an_interpreter_without_torch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selpe.experiments.trained.NEEDED", ("a_library_that_nobody_has",))
    with pytest.raises(ConfigError, match="cannot train: ModuleNotFoundError"):
        TrainPython(Path(sys.executable)).require()
