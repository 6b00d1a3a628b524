"""Whole grids with the fake model: what is kept, what is done again, and what a kill costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_world import ask, bench, size, source
from selpe.errors import ModelError, StoppedError
from selpe.events import Answered, Event
from selpe.experiments.arms import NOTHING
from selpe.experiments.cells import RESULT, Bench, held
from selpe.experiments.conduct import Silent, conduct, gathered, in_turn, pending
from selpe.experiments.designs import DESIGNS
from selpe.experiments.grid import Cell
from selpe.experiments.outlook import outlook
from selpe.experiments.results import gather
from selpe.models.base import Answer, Follow, Request
from selpe.models.fake import FakeModel
from selpe.privacy.ledger import Ledger


def cells() -> list[Cell]:
    return list(DESIGNS["compare"](ask()))


def figures(made: Bench, cell: Cell) -> dict[str, float]:
    result = made.result(cell)
    assert result is not None
    return {f"{one['measure']} {one['view']}".strip(): one["value"] for one in result["measures"]}


def test_a_grid_measures_every_cell_and_leaves_no_trace_in_the_users_ledger(tmp_path: Path) -> None:
    with bench(tmp_path / "exp") as made:
        done = conduct(cells(), made)
        assert (done.failed, done.skipped, done.fresh, len(done.results)) == ({}, {}, 6, 6)
        selpe = next(cell for cell in cells() if cell.row == "selpe")
        found = figures(made, selpe)
        assert {"auc minilm", "r_cfg", "s_cfg", "nrs", "dcr", "tpr text", "tpr kernel", "records", "recall"} <= set(
            found
        )
        assert (found["s_cfg"], found["records"]) == (100.0, 6.0)
        result = made.result(selpe)
        assert result is not None
        assert result["run"]["spent"]["epsilon_replace_one"] == pytest.approx(2.0)
        assert 0 < result["run"]["spent"]["epsilon_add_remove"] <= 1.0 + 1e-9
        assert result["run"]["completion_tokens"] > 0
        nothing = made.result(next(cell for cell in cells() if cell.row == NOTHING))
        assert nothing is not None
        assert nothing["run"]["spent"]["epsilon_replace_one"] == 0
    assert not Path(os.environ["SELPE_LEDGER"]).exists()
    roots = list((tmp_path / "exp" / "cells").glob("*/ledger"))
    assert len(roots) == 4  # two controls and two methods
    assert {tuple(Ledger.names(root)) for root in roots} == {("experiment-desk",)}
    assert (tmp_path / "exp" / "NOT-FOR-RELEASE").is_file()


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    with bench(tmp_path / "exp") as made:
        first = conduct(cells(), made)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "exp" / "cells").glob(f"*/{RESULT}")}
    model = FakeModel()
    with bench(tmp_path / "exp", model=model) as made:
        again = conduct(cells(), made)
    assert (again.fresh, model.requests_served) == (0, 0)
    assert again.results == first.results
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "exp" / "cells").glob(f"*/{RESULT}")}


def unmeasured(cell: Cell) -> Cell:
    """The same cell without measured tables."""
    return replace(cell, settings={**cell.settings, "measure": "off"})


def test_cells_share_answers_and_say_what_they_would_take_alone(tmp_path: Path) -> None:
    model = FakeModel(seconds_per_answer=0.005)
    grid = [unmeasured(cell) for cell in cells() if cell.method == "selpe" and cell.kind == "run"]
    with bench(tmp_path / "exp", model=model) as made:
        conduct(grid, made)
        runs = [result["run"] for cell in grid if (result := made.result(cell)) is not None]
    # One round, no exemplars, nothing measured: ε = 0, ε = ∞ and ε = 2 ask for the same candidates.
    assert len(runs) == 3
    assert [run["fresh_tokens"] > 0 for run in runs] == [True, False, False]
    assert len({run["completion_tokens"] for run in runs}) == 1
    pace = 0.005 * model.requests_served
    assert all(run["seconds"] >= 0.9 * pace - 0.1 for run in runs)


@pytest.mark.parametrize(("settings", "pools"), [({}, 2), ({"seed": 0}, 1)])
def test_splits_have_answers_of_their_own_unless_the_seed_of_the_runs_is_set(
    tmp_path: Path, settings: dict[str, Any], pools: int
) -> None:
    model = FakeModel()
    asked = ask(seeds=[0, 1], settings=settings, methods=("selpe",))
    grid = [cell for cell in DESIGNS["compare"](asked) if cell.row == "selpe"]
    with bench(tmp_path / "exp", model=model) as made:
        conduct(grid, made)
        fresh = [(made.result(cell) or {})["run"]["fresh_tokens"] for cell in grid]
    assert [cell.seed for cell in grid] == [0, 1]
    assert sum(tokens > 0 for tokens in fresh) == pools


class Failing(FakeModel):
    """A model that fails where its seed says so."""

    def __init__(self, *, retryable: bool) -> None:
        super().__init__()
        self.broken, self._retryable = True, retryable

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        if self.broken:
            raise ModelError("the model is gone", retryable=self._retryable)
        return super().generate(requests, follow=follow, cancel=cancel)


def test_a_cell_that_fails_is_reported_and_tried_again_next_time(tmp_path: Path) -> None:
    model = Failing(retryable=False)
    with bench(tmp_path / "exp", model=model) as made:
        done = conduct(cells(), made)
        assert done.fresh == 2  # the controls on real rows
        assert len(done.failed) == 4
        assert set(done.failed.values()) == {"the model is gone"}
        model.broken = False
        assert conduct(cells(), made).fresh == 4


def test_a_model_that_is_away_stops_the_grid(tmp_path: Path) -> None:
    with bench(tmp_path / "exp", model=Failing(retryable=True)) as made, pytest.raises(ModelError, match="gone"):
        conduct(cells(), made)


def test_an_unexpected_error_costs_one_cell_and_tells_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def broken(*arguments: Any) -> Any:
        raise ValueError("secret row")

    monkeypatch.setattr("selpe.experiments.judging.CellJudge.release", broken)
    with bench(tmp_path / "exp") as made:
        done = conduct(cells(), made)
    assert set(done.failed.values()) == {"an unexpected ValueError"}
    assert done.fresh == 2


def test_methods_that_train_are_skipped_with_a_reason_where_torch_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selpe.experiments.cells.torch_is_here", lambda: False)
    grid = list(DESIGNS["compare"](ask(methods=("wasp", "dpgen", "dpds"))))
    with bench(tmp_path / "exp") as made:
        assert {cell.method for cell in pending(grid, made)} == {"selpe", "wasp", ""}
        done = conduct(grid, made)
    assert set(done.skipped) == {"dpgen", "dpds"}
    assert "--train-python" in done.skipped["dpgen"]


class Told(Silent):
    """Keeps the numbers of cells; another process does the last one while this one is at the first."""

    def __init__(self, last: Cell, made: Bench) -> None:
        self.numbers: list[tuple[int, int]] = []
        self._last, self._made = last, made

    def began(self, cell: Cell, number: int, total: int) -> None:
        self.numbers.append((number, total))

    def ended(self, cell: Cell, why: str) -> None:
        if len(self.numbers) == 1:
            assert conduct([self._last], self._made).fresh == 1


def test_cells_that_another_process_has_done_are_counted_at_once(tmp_path: Path) -> None:
    grid = cells()
    with bench(tmp_path / "exp") as made:
        told = Told(grid[-1], made)
        assert conduct(grid, made, told).fresh == 5
    assert told.numbers == [(1, 6), (3, 6), (4, 6), (5, 6), (6, 6)]


def test_a_cell_that_another_process_works_on_is_left_to_it(tmp_path: Path) -> None:
    grid = [cell for cell in cells() if cell.kind != "run"]
    with bench(tmp_path / "exp") as made:
        first = grid[0]
        with held(made.folder(first)) as mine:
            assert mine
            with held(made.folder(first)) as theirs:
                assert not theirs
        other = threading.Event()

        def elsewhere() -> None:
            with held(made.folder(first)):
                other.set()
                time.sleep(0.5)
                made.do(first)

        worker = threading.Thread(target=elsewhere)
        worker.start()
        assert other.wait(20)
        done = conduct(grid, made)
        worker.join()
    assert (done.fresh, len(done.results)) == (1, 2)


def test_processes_begin_on_splits_of_their_own() -> None:
    places = [("a", 0), ("a", 1), ("b", 0)]
    grid = [Cell(data, seed, row) for data, seed in places for row in ("one", "two")]

    def taken(job: int) -> list[tuple[str, int]]:
        return [(cell.data, cell.seed) for cell in in_turn(grid, job, 2)]

    assert in_turn(grid, 0, 1) == grid
    assert taken(0) == [("a", 0)] * 2 + [("b", 0)] * 2 + [("a", 1)] * 2
    assert taken(1) == [("a", 1)] * 2 + [("a", 0)] * 2 + [("b", 0)] * 2
    assert [cell.row for cell in in_turn(grid, 1, 2)] == ["one", "two"] * 3


def test_an_estimate_comes_before_and_knows_what_is_done(tmp_path: Path) -> None:
    grid = cells()
    with bench(tmp_path / "exp") as made:
        before = outlook(grid, pending(grid, made), made)
        assert (before.cells, before.done) == (6, 0)
        assert before.tokens > 0 < before.seconds
        conduct(grid, made)
        after = outlook(grid, pending(grid, made), made)
        assert (after.cells, after.done, after.tokens) == (6, 6, 0)


def test_texts_that_are_written_before_any_choice_are_counted_once(tmp_path: Path) -> None:
    one, several = (
        [unmeasured(cell) for cell in DESIGNS["main"](ask(size=one_size, methods=("selpe",))) if cell.kind == "run"]
        for one_size in (size(draws=1), size(draws=4))
    )
    voted = [replace(cell, settings={**cell.settings, "guides": "auto"}) for cell in several]
    with bench(tmp_path / "exp") as made:
        single, shared, apart = (outlook(grid, pending(grid, made), made).tokens for grid in (one, several, voted))
        conduct(one[:1], made)
        assert outlook(several, pending(several, made), made).tokens == 0
    assert 0 < single == shared < apart


def test_draws_with_measured_tables_are_estimated_by_what_each_writes_anew(tmp_path: Path) -> None:
    settings = {**size().settings, "rounds": 1, "guides": "mixed", "measure": "auto"}
    one, several = (
        [
            cell
            for cell in DESIGNS["main"](
                ask(size=size(draws=draws, per_class=12, settings=settings), methods=("selpe",), epsilons=[20.0])
            )
            if cell.row == "selpe"
        ]
        for draws in (1, 5)
    )
    with bench(tmp_path / "exp") as made:
        single, shared = (outlook(grid, pending(grid, made), made).tokens for grid in (one, several))
        done = conduct(several, made)
    written = sum(result["run"]["fresh_tokens"] for result in done.results.values())
    assert single < shared < 4 * single
    assert written < 1.5 * shared
    assert shared < 4 * written


def test_cells_of_an_older_version_are_shown_and_done_again_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = [cell for cell in cells() if cell.row in ("selpe", "control: private rows")]
    with bench(tmp_path / "exp") as made:
        conduct(grid, made)
    spent = [path.read_bytes() for path in (tmp_path / "exp" / "cells").glob("*/ledger/**/*.jsonl")]
    for module in ("cells", "outlook"):
        monkeypatch.setattr(f"selpe.experiments.{module}.code_fingerprint", lambda: "newer")
    model = FakeModel()
    with bench(tmp_path / "exp", model=model) as made:
        assert outlook(grid, pending(grid, made), made).older == 2
        assert conduct(grid, made).fresh == 0
    with bench(tmp_path / "exp", model=model, redo=True) as made:
        assert outlook(grid, pending(grid, made), made).older == 0
        assert conduct(grid, made).fresh == 2
        assert conduct(grid, made).fresh == 0
    assert model.requests_served == 0  # the answers were there
    again = [path.read_bytes() for path in (tmp_path / "exp" / "cells").glob("*/ledger/**/*.jsonl")]
    assert len(again) == len(spent)
    assert again != spent  # a ledger of its own for the run that was done anew


# -- stops and kills -------------------------------------------------------------------------------------------------


class Counting:
    """A listener that asks for a stop after some answers."""

    def __init__(self, cancel: threading.Event, answers: int) -> None:
        self._cancel, self._left = cancel, answers

    def began(self, cell: Cell, number: int, total: int) -> None:
        pass

    def heard(self, event: Event) -> None:
        if isinstance(event, Answered):
            self._left -= 1
            if self._left == 0:
                self._cancel.set()

    def ended(self, cell: Cell, why: str) -> None:
        pass


def test_a_stop_keeps_what_is_done_and_the_run_in_hand_goes_on(tmp_path: Path) -> None:
    cancel, model = threading.Event(), FakeModel()
    with bench(tmp_path / "exp", model=model, cancel=cancel) as made, pytest.raises(StoppedError):
        conduct(cells(), made, Counting(cancel, 8))
    served = model.requests_served
    assert served >= 8
    whole = FakeModel()
    with bench(tmp_path / "other", {"desk": source(tmp_path / "table")}, model=whole) as made:
        conduct(cells(), made)
    with bench(tmp_path / "exp", model=model) as made:
        done = conduct(cells(), made)
        assert len(done.results) == 6
        resumed = [result for result in done.results.values() if result.get("run", {}).get("resumed")]
    assert len(resumed) == 1
    assert model.requests_served == whole.requests_served  # nothing was generated twice


SLOW = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
from bench_world import ask, bench
from selpe.experiments.conduct import conduct
from selpe.experiments.designs import DESIGNS
from selpe.models.fake import FakeModel
with bench(Path({root!r}), model=FakeModel(seconds_per_answer=0.02)) as made:
    conduct(list(DESIGNS["compare"](ask())), made)
"""


def finished(root: Path) -> list[Path]:
    return sorted((root / "cells").glob(f"*/{RESULT}"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_kill_costs_at_most_the_cell_in_hand(tmp_path: Path) -> None:
    root = tmp_path / "exp"
    script = SLOW.format(support=str(Path(__file__).resolve().parents[1] / "support"), root=str(root))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE)
    try:
        while len(finished(root)) < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    kept = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in finished(root)}
    assert 3 <= len(kept) < 6
    with bench(root) as made:
        done = conduct(cells(), made)
    assert len(done.results) == 6
    assert done.fresh == 6 - len(kept)
    assert all((path.stat().st_mtime_ns, path.read_bytes()) == before for path, before in kept.items())


def test_a_process_that_died_before_its_manifest_was_written_is_begun_anew(tmp_path: Path) -> None:
    cell = next(cell for cell in cells() if cell.row == "selpe")
    with bench(tmp_path / "exp") as made:
        (made.folder(cell) / "run" / "work").mkdir(parents=True)
        assert conduct([cell], made).fresh == 1
        result = json.loads((made.folder(cell) / RESULT).read_text(encoding="utf-8"))
    assert result["state"] == "done"


def test_results_of_cells_are_gathered_by_what_varies(tmp_path: Path) -> None:
    grid = [replace(cell, factors={"rows": 6}) for cell in cells() if cell.kind != "run"]
    with bench(tmp_path / "exp") as made:
        conduct(grid, made)
        found = gather(grid, gathered(grid, made), made.key)
    assert found.values("rows") == [6]
    assert (found.done, found.views()) == (2, ("minilm",))
