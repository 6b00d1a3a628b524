from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selpe.cli import main
from selpe.privacy.ledger import Ledger

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "triage" / "selpe.yaml"
MARKER = "QX7-Zebra-4711"
SCHEMA = """
name: line
label: kind
fields:
  note: {kind: text, max_length: 40}
  kind: {kind: category, values: [a, b]}
"""


def run(*arguments: str) -> int:
    try:
        main(["plan", *arguments])
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(*arguments, "--json") == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def write(folder: Path, count: int = 12, /, **settings: str) -> Path:
    (folder / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    lines = ["note,kind,who"] + [f"{MARKER} {i},{'ab'[i % 2]},p{i // 3}" for i in range(count)]
    (folder / "data.csv").write_text("\n".join(lines), encoding="utf-8")
    given = {"dataset": "line", "data": "data.csv", "epsilon": "2"} | settings
    path = folder / "selpe.yaml"
    path.write_text("\n".join(f"{name}: {value}" for name, value in given.items()), encoding="utf-8")
    return path


def test_the_plan_is_shown_as_a_table_with_a_bar_per_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(EXAMPLE), "--rounds", "2") == 0
    said = capsys.readouterr().out
    for part in ("150 records", "round 1", "round 2", "release", "█", "paper's rule", "T = 2", "vote 1", "count"):
        assert part in said
    assert "2 if one unit is replaced, 1 if one is added or removed" in said
    assert "budget: none yet" in said


def test_tokens_are_shown_with_what_they_cost_and_cached_ones_at_their_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = {"llm": "http://127.0.0.1:9/v1", "price_in": "10", "price_out": "20"}
    costs = []
    for more in ({}, {"price_cached": "1"}):
        expected = told(capsys, str(write(tmp_path, **prices, **more)))["estimate"]
        cached, cold = expected["cached_tokens"], expected["prompt_tokens"] - expected["cached_tokens"]
        reduced = 1 if more else 10
        wanted = (10 * cold + reduced * cached + 20 * expected["completion_tokens"]) / 1e6
        assert expected["cost"] == pytest.approx(wanted)
        costs.append(expected["cost"])
    assert costs[1] < costs[0]
    assert run(str(tmp_path / "selpe.yaml")) == 0
    said = capsys.readouterr().out
    assert "of them shared" in said
    assert "by your prices" in said


def test_what_is_measured_is_shown_with_its_noise_and_rounds_that_only_write_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(str(EXAMPLE)) == 0
    said = capsys.readouterr().out
    for part in ("vote 1", "for one of 14", "count", "noise of a cell", "rows to expect", "noisy counts", "release"):
        assert part in said
    assert "one table is measured: a cell is off by ±" in said
    for part in ("round 1", "paper's rule the best", "T = 1", "winner", "approval votes"):
        assert part not in said
    measure = told(capsys, str(EXAMPLE))["measure"]
    assert (measure["fields"], len(measure["candidates"]), len(measure["choices"])) == ([], 14, 1)
    assert measure["half_width"] > 0


def test_a_table_too_small_to_teach_what_was_measured_is_told_how_many_records_would(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(str(EXAMPLE), "--records", "80") == 0
    assert "80 synthetic records (60 a class, 240, would teach a model more, at no ε)" in " ".join(
        capsys.readouterr().out.split()
    )
    assert run(str(EXAMPLE), "--records", "240") == 0
    assert "would teach" not in capsys.readouterr().out


def test_too_little_to_measure_is_said_with_what_it_would_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path)
    found = told(capsys, str(path), "--rows", "8", "--epsilon", "0.5")
    assert found["measure"] is None
    assert any(one.startswith("No table is measured: with 8 records and ε = 0.5") for one in found["warnings"])
    off = told(capsys, str(write(tmp_path, measure="off")), "--rows", "8", "--epsilon", "0.5")
    assert not any("measured" in one for one in off["warnings"])


def test_the_table_is_counted_and_its_values_never_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    assert told(capsys, str(path))["units"] == 12
    assert run(str(path)) == 0
    caught = capsys.readouterr()
    assert MARKER not in caught.out + caught.err


def test_people_are_counted_where_a_unit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, str(write(tmp_path, unit="who")))
    assert (found["units"], found["unit"]) == (4, "who")


def test_with_rows_given_the_table_is_not_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    (tmp_path / "data.csv").unlink()
    assert told(capsys, str(path), "--rows", "500")["units"] == 500


def test_flags_override_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--epsilon", "4", "--rounds", "2", "--batches", "3", "--alpha", "0.3", "--records", "77")
    found = told(capsys, str(write(tmp_path)), *flags)
    assert (found["epsilon"], len(found["rounds"]), found["batches"], found["alpha"]) == (4.0, 2, 3, 0.3)
    assert sum(sum(part["quota"].values()) for part in found["rounds"]) == 77


def test_too_little_to_steer_is_said_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(write(tmp_path)), "--rows", "8", "--epsilon", "0.5") == 0
    assert "With 8 records and ε = 0.5 the private data will steer almost nothing." in capsys.readouterr().out


def test_what_is_left_of_the_budget_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    Ledger.open("line").set_budget(1.5)
    assert told(capsys, str(path))["budget"] == {"cap": 1.5, "left": 1.5, "adjacency": "replace-one", "enough": False}
    assert run(str(path)) == 0
    assert "not enough for this plan" in capsys.readouterr().out
    assert told(capsys, str(path), "--epsilon", "1")["budget"]["enough"] is True


def test_planning_spends_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert run(str(path)) == 0
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("method", ["selpe", "augpe"])
def test_add_remove_without_a_stated_number_says_that_it_is_revealed_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    assert run(str(write(tmp_path, adjacency="add-remove", method=method))) == 0
    said = capsys.readouterr().out
    assert "if one is added or removed (apart from their number)" in said
    assert "release may reveal it" in said
    assert "'rows: 10'" in said
    assert run(str(write(tmp_path, adjacency="add-remove", method=method, rows="10"))) == 0
    said = capsys.readouterr().out
    assert "reveal" not in said
    assert "if one is added or removed;" in said


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_plan_is_made_from_the_stated_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], adjacency: str
) -> None:
    plans = [told(capsys, str(write(tmp_path, count, adjacency=adjacency, rows="20"))) for count in (20, 21)]
    assert plans[0] == plans[1]
    assert plans[0]["units"] == 20


def test_a_stated_number_far_from_the_table_is_a_warning_to_the_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stated, far in (("23", True), ("51", False), ("110", True)):
        found = told(capsys, str(write(tmp_path, 52, rows=stated)))
        assert found["units"] == int(stated)
        assert any("far from what the table has" in warning for warning in found["warnings"]) is far
        assert "52" not in str(found["warnings"])


@pytest.mark.parametrize("epsilon", ["0", "inf"])
def test_controls_can_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str], epsilon: str) -> None:
    path = write(tmp_path)
    assert run(str(path), "--epsilon", epsilon) == 0
    assert ("control" if epsilon == "0" else "no privacy") in capsys.readouterr().out
    assert told(capsys, str(path), "--epsilon", epsilon)["epsilon"] == (0.0 if epsilon == "0" else "inf")


@pytest.mark.parametrize("flags", [("--rows", "0"), ("--rounds", "0"), ("--alpha", "2"), ("--epsilon", "-1")])
def test_flags_out_of_range_are_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, str]
) -> None:
    assert run(str(write(tmp_path)), *flags) == 2
    assert "error" in capsys.readouterr().err
