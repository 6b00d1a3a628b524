"""`selpe evaluate`, `report` and `compare`: what a user types, sees and finds afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluated_world import World, make_world
from in_process import Result, selpe
from private_world import MARKER
from selpe.intake import write_table
from small_world import SCHEMA, drawn


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_LEDGER", str(folder / "ledgers"))
        patch.setenv("SELPE_KEY", str(folder / "key"))
        patch.chdir(folder)
        yield make_world(folder)


def quick(*words: object) -> Result:
    return selpe("evaluate", *words, "--views", "minilm")


def last(result: Result) -> dict[str, Any]:
    return result.lines[-1]


def bad(result: Result, message: str) -> None:
    assert result.code == 2, result.err
    assert message in result.err
    assert "Traceback" not in result.err
    assert MARKER not in result.out + result.err


def test_a_run_is_judged_and_the_user_told_what_to_do_next(world: World) -> None:
    result = quick("desk-1", "--control", "control")
    assert result.code == 0, result.err
    for line in ("Is it useful?", "Is it faithful?", "Is it private?", "What to do next", "not for release"):
        assert line in result.out
    assert "runs/desk-1/internal/report.html" in result.out
    assert (world.run / "internal" / "report.html").is_file()
    assert "100 % done" in result.err
    assert MARKER not in result.out + result.err


def test_machines_get_progress_and_verdict(world: World) -> None:
    result = quick(world.run, "--json", "--no-private")
    assert result.code == 0, result.err
    shares = [line["progress"]["share"] for line in result.lines if "progress" in line]
    assert shares == sorted(shares)
    found = last(result)["evaluation"]
    assert found["verdict"]["headline"]
    assert found["tables"] == {"synthetic": 24, "test": 40}
    assert json.loads(Path(found["data"]).read_text(encoding="utf-8"))["attack"] is None
    assert result.err == ""


def test_a_table_of_others_goes_into_a_folder_of_its_own(world: World) -> None:
    write_table(drawn(30, offset=90), SCHEMA, world.folder / "theirs.csv")
    result = quick("theirs.csv", "--schema", "schema.yaml", "--test", "test.csv", "--encoder", "hash", "--json")
    assert result.code == 0, result.err
    assert last(result)["evaluation"]["report"] == "theirs-evaluation/report.html"
    assert (world.folder / "theirs-evaluation" / "NOT-FOR-RELEASE").is_file()


def test_real_records_are_shown_on_request_only(world: World) -> None:
    page = world.run / "internal" / "report.html"
    quick("desk-1", "--test", "private.csv")
    assert MARKER not in page.read_text(encoding="utf-8")
    quick("desk-1", "--test", "private.csv", "--show-real")
    assert MARKER in page.read_text(encoding="utf-8")
    assert all(MARKER.encode() not in content for content in world.released().values())


def test_the_report_is_written_again_from_what_is_there(world: World) -> None:
    quick("desk-1")
    report = world.run / "internal" / "report.html"
    before = report.read_text(encoding="utf-8")
    report.unlink()
    result = selpe("report", "desk-1")
    assert result.code == 0, result.err
    assert report.read_text(encoding="utf-8") == before
    assert "may be released" in result.out
    assert selpe("release", "-y", "desk-1", "--to", world.folder / "out.zip").code == 0


def test_a_run_without_an_evaluation_has_a_summary_and_is_told_how_to_get_one(world: World) -> None:
    (world.control / "internal" / "evaluation.json").unlink(missing_ok=True)
    result = selpe("report", "control")
    assert result.code == 0, result.err
    assert "selpe evaluate control" in result.out


def test_runs_are_compared_in_a_table_and_a_page(world: World) -> None:
    quick("desk-1")
    quick("control")
    result = selpe("compare", "desk-1", "control")
    assert result.code == 0, result.err
    assert re.search(r"desk-1 .*24", result.out)
    page = (world.folder / "comparison.html").read_text(encoding="utf-8")
    assert "INTERNAL, NOT FOR RELEASE" in page
    found = last(selpe("compare", "desk-1", world.control / "internal", "--to", "b.html", "--json"))["comparison"]
    assert [row["name"] for row in found["runs"]] == ["desk-1", "control"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no-such-run",), "no such run or table"),
        (("ledgers",), "not a run"),
        (("test.csv",), "needs its schema"),
        (("desk-1", "--test", "absent.csv"), "no such file"),
        (("desk-1", "--test", "schema.yaml"), "unknown kind of file"),
        (("desk-1", "--control", "desk-1"), "ε = 0"),
        (("desk-1", "--encoder", "no-such"), "no encoder"),
        (("desk-1", "--to", "runs/desk-1/release"), "must not lie in a release"),
        (("desk-1", "--seeds", "0"), "Invalid value"),
        (("private.csv", "--schema", "absent.yaml"), "absent.yaml"),
    ],
)
def test_bad_input_is_named_and_ends_with_2(world: World, words: tuple[str, ...], message: str) -> None:
    bad(quick(*words), message)


def test_bad_views_and_comparisons_are_named(world: World) -> None:
    bad(selpe("evaluate", "desk-1", "--views", "crystal-ball"), "views must be of")
    bad(selpe("compare", "desk-1"), "at least two")
    bad(selpe("compare", "desk-1", "ledgers"), "not been evaluated")
    bad(selpe("report", "test.csv"), "not a run")
    (world.folder / "broken").mkdir(exist_ok=True)
    (world.folder / "broken" / "evaluation.json").write_text("[]", encoding="utf-8")
    bad(selpe("compare", "desk-1", "broken"), "not an evaluation")
