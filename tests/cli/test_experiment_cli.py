"""`selpe data` and `selpe experiment` as a user types them: estimate, work, tables, mistakes, going on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_world import table
from in_process import selpe
from published import ktas_file, water_file
from selpe.experiments.cells import held
from selpe.experiments.tables import HEADINGS
from selpe.intake import write_table
from small_world import SCHEMA, drawn

QUICK = ("--llm", "fake", "--encoder", "hash", "--views", "minilm", "--size", "tiny", "--records", "2")
LIGHT = ("--set", "guides=off", "--set", "bundles=0", "--set", "rounds=1")
OWN = ("--data", "desk.csv", "--schema", "schema.yaml", *QUICK, *LIGHT)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table(tmp_path)
    monkeypatch.setattr("selpe.experiments.cells.torch_is_here", lambda: False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- data ------------------------------------------------------------------------------------------------------------


def test_data_writes_table_schema_and_splits_and_says_so(here: Path) -> None:
    water_file(here / "raw", per_class=60)
    result = selpe("data", "water", "raw/water.csv", "--out", "water")
    assert result.code == 0, result.err
    assert "302 rows read" in result.out
    assert "1 × 'cleaned_review': nothing left of the review, row left out" in result.out
    assert {path.name for path in (here / "water").iterdir()} >= {
        "private.csv", "validation.csv", "test.csv", "schema.yaml", "selpe.yaml", "README.md",
    }  # fmt: skip
    refused = selpe("data", "water", "raw/water.csv", "--out", "water")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert selpe("data", "water", "raw/water.csv", "--out", "water", "--force", "--without-leaks").code == 0
    assert "title" not in (here / "water" / "private.csv").read_text(encoding="utf-8").splitlines()[0]


def test_data_for_machines(here: Path) -> None:
    ktas_file(here / "raw")
    (told,) = selpe("data", "ktas", "raw/ktas_triage.csv", "--json", "--private", "4").lines
    assert told["data"]["sides"]["private"] == dict.fromkeys("12345", 4)
    assert told["data"]["folder"] == "ktas"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("data", "ktas", "nowhere.csv"), "not a file of 'ktas'"),
        (("data", "loan", "desk.csv"), "not a file of 'loan'"),
        (("data", "ktas", "desk.csv", "--enrich", "https://example.org/v1"), "not sent to another machine"),
    ],
)
def test_wrong_data_is_bad_input(words: tuple[str, ...], said: str) -> None:
    result = selpe(*words)
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


# -- experiments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("draws", "cells"), [("1", 5), ("2", 9)])
def test_selpe_is_drawn_as_often_as_asked_for(draws: str, cells: int) -> None:
    """Two draws: two of SelPE, four of the ε = 0 control, one at ε = ∞, and two controls on real rows."""
    (told,) = selpe("experiment", "main", *OWN, "--methods", "selpe", "--draws", draws, "--dry-run", "--json").lines
    assert told["outlook"]["cells"] == cells


def test_compare_runs_every_method_it_can_and_prints_one_table(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selpe.baselines.marginals.find_spec", lambda name: None)
    result = selpe("experiment", "compare", *OWN, "--epsilon", "2")
    assert result.code == 0, result.err
    assert re.search(r"desk: \d+ private, \d+ to measure on, 1 split", result.out)
    assert "skipped dpgen: dpgen trains a model and needs torch" in result.out
    assert "skipped aim: 'aim' needs mbi (Private-PGM): install selpe[marginals]" in result.out
    assert "release nothing of it" in result.out
    header = next(line for line in result.out.splitlines() if line.startswith("method"))
    assert header.split() == " ".join(HEADINGS).split()
    for title in ("SelPE", "SelPE, paper's configuration", "Aug-PE", "WASP", "CTCL", "control: ε = 0"):
        assert any(line.startswith(title) for line in result.out.splitlines()), title
    assert "Does it lead?" in result.out
    page = (here / "experiments" / "compare" / "table.md").read_text(encoding="utf-8")
    assert "| SelPE | 2 | 2 | 1 | 0 |" in page
    assert "[9 of 9]" in result.err
    assert not (here / "ledgers").exists()


def test_a_second_command_finds_the_cells_of_the_first(here: Path) -> None:
    words = ("--methods", "selpe", "--json")
    first = selpe("experiment", "compare", *OWN, *words)
    assert first.code == 0, first.err
    assert first.lines[0]["outlook"]["cells"] == 5
    again = selpe("experiment", "privacy", *OWN, *words)
    assert [line for line in again.lines if "cell" in line] == []
    assert again.lines[0]["outlook"]["done"] == 5
    last = again.lines[-1]["experiment"]
    assert (last["name"], last["done"], last["cells"]) == ("privacy", 5, 5)
    assert {"results.csv", "results.parquet", "table.md", "auc-by-row.svg"} == set(last["files"])


def test_a_dry_run_estimates_and_does_nothing(here: Path) -> None:
    result = selpe("experiment", "main", *OWN, "--seeds", "2", "--epsilon", "1,inf", "--dry-run")
    assert result.code == 0, result.err
    assert "at most about" in result.out
    assert "2 splits" in result.out
    assert not (here / "experiments" / "cells").exists()


def test_what_is_done_so_far_can_be_shown_without_doing_more(here: Path) -> None:
    asked = ("experiment", "compare", *OWN, "--show")
    early = selpe(*asked)
    assert (early.code, "Nothing of it is done yet" in early.out) == (0, True)
    assert selpe("experiment", "compare", *OWN, "--methods", "selpe").code == 0
    done = sorted((here / "experiments" / "cells").glob("*/result.json"))
    shown = selpe(*asked)
    assert shown.code == 0, shown.err
    assert any(line.startswith("control: ε = 0") for line in shown.out.splitlines())
    assert sorted((here / "experiments" / "cells").glob("*/result.json")) == done


def test_several_processes_do_one_grid(here: Path) -> None:
    result = selpe("experiment", "compare", *OWN, "--methods", "selpe,wasp", "--seeds", "2", "--jobs", "2", "--json")
    assert result.code == 0, result.err
    told = result.lines[-1]["experiment"]
    assert told["done"] == told["cells"] == 12
    assert (here / "experiments" / "jobs" / "1.log").is_file()


def test_a_process_that_takes_part_begins_on_its_own_split_and_writes_no_tables(here: Path) -> None:
    words = ("experiment", "compare", *OWN, "--methods", "selpe", "--seeds", "2", "--jobs", "2")
    with subprocess.Popen([sys.executable, "-m", "selpe", *words, "--job", "1"], stdin=subprocess.PIPE) as process:
        assert process.wait() == 0
    results = sorted((here / "experiments" / "cells").glob("*/result.json"), key=lambda path: path.stat().st_mtime_ns)
    seeds = [json.loads(path.read_text(encoding="utf-8"))["cell"]["seed"] for path in results]
    assert seeds == [1] * 5 + [0] * 5
    assert not (here / "experiments" / "compare").exists()
    assert selpe(*words, "--json").lines[0]["outlook"]["done"] == 10


def test_a_process_that_is_let_go_of_stops(here: Path) -> None:
    words = ("experiment", "compare", *OWN, "--methods", "selpe", "--jobs", "2")
    assert selpe(*words).code == 0
    result = next((here / "experiments" / "cells").glob("*/result.json"))
    result.unlink()
    with held(result.parent) as mine:  # so that there is always something left to wait for
        assert mine
        process = subprocess.Popen([sys.executable, "-m", "selpe", *words, "--job", "1"], stdin=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(8)
        process.communicate(timeout=300)  # which closes its standard input
    assert process.returncode == 130
    assert not result.exists()


def test_given_test_rows_make_the_whole_table_private(here: Path) -> None:
    write_table(drawn(12, offset=700), SCHEMA, here / "test.csv")
    result = selpe("experiment", "compare", *OWN, "--test", "test.csv", "--methods", "wasp", "--dry-run")
    assert result.code == 0, result.err
    assert "desk: 48 private, 12 to measure on" in result.out


def test_scale_holds_enough_private_rows_ready(here: Path) -> None:
    result = selpe("experiment", "scale", *OWN, "--methods", "wasp", "--dry-run", "--json")
    assert result.code == 0, result.err
    assert result.lines[0]["outlook"]["cells"] == 2 * 5  # two numbers of rows; one method and four controls


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "nowhere.csv"), "no such data"),
        (("--data", "desk.csv"), "no known data set"),
        (("--data", "water"), "no file of 'water'"),
        ((*OWN, "--methods", "magic"), "no method 'magic'"),
        ((*OWN, "--seeds", "none"), "--seeds"),
        ((*OWN, "--epsilon", "-1"), "--epsilon -1"),
        ((*OWN, "--views", "tea-leaves"), "no view 'tea-leaves'"),
        ((*OWN, "--encoder", "magic"), "no encoder called 'magic'"),
        ((*OWN, "--vary", "batches"), "varies nothing by name"),
        ((*OWN, "--set", "nonsense=1"), "no setting 'nonsense'"),
        ((*OWN, "--train-python", "/nowhere/python"), "cannot be started"),
    ],
)
def test_mistakes_are_found_before_anything_is_done(here: Path, words: tuple[str, ...], said: str) -> None:
    result = selpe("experiment", "compare", *words)
    assert result.code == 2, result.err
    assert said in result.err
    assert "Traceback" not in result.err
    assert not list((here / "experiments").glob("cells/*/run"))


def test_a_failed_cell_makes_the_command_fail_but_shows_the_rest(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    from selpe.errors import DataError
    from selpe.experiments.cells import Bench
    from selpe.experiments.grid import Cell

    before = Bench._run

    def sometimes(self: Bench, cell: Cell, *rest: Any) -> dict[str, Any]:
        if cell.method == "wasp":
            raise DataError("this one is broken", hint="mend it")
        return before(self, cell, *rest)

    monkeypatch.setattr(Bench, "_run", sometimes)
    result = selpe("experiment", "compare", *OWN, "--methods", "selpe,wasp")
    assert result.code == 1
    assert "wasp, ε 2, seed 0: failed. this one is broken (mend it)" in result.out
    assert "SelPE" in result.out


def test_help_is_there_for_every_command() -> None:
    for group, names in (("data", ("water", "mimic-ed", "ktas", "loan")), ("experiment", ("main", "compare", "scale"))):
        for name in names:
            assert f"selpe {group} {name}" in selpe(group, name, "--help").out
