"""Baselines from the command line: outlook, plan, run, resume, and settings of one method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from in_process import selpe
from selpe.intake import write_table
from selpe.privacy.ledger import Ledger
from small_world import SCHEMA, drawn

CONFIG = """
dataset: desk
data: desk.csv
schema: schema.yaml
records: 12
llm: fake
encoder: hash
augpe: {rounds: 2, expansion: 2}
wasp: {rounds: 2, votes: 4}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40), SCHEMA, tmp_path / "desk.csv")
    (tmp_path / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(out: str) -> dict[str, Any]:
    found: dict[str, Any] = next(line["done"] for line in map(json.loads, out.splitlines()) if "done" in line)
    return found


@pytest.mark.parametrize("method", ["augpe", "wasp"])
def test_a_baseline_is_run_by_its_name(project: Path, method: str) -> None:
    code, out, err = selpe("run", "--yes", "--method", method)
    assert code == 0, err
    assert f"{method}, a baseline" in out
    assert "ε = 2, δ = 1e-05 (replace-one), the whole budget of this table" in out
    assert "2 looks (round) (σ" in out
    assert "12 records" in out
    assert "δ = 1e-05 (replace-one) spent on 'desk'" in out
    assert Ledger.open("desk", root=project / "ledgers").spent().epsilon_replace_one == pytest.approx(2.0, rel=1e-5)


def test_a_dry_run_shows_noise_and_estimate_and_spends_nothing(project: Path) -> None:
    code, out, _ = selpe("--json", "run", "--method", "augpe", "--dry-run", "--set", "augpe.rounds=3")
    assert code == 0
    (outlook,) = [json.loads(line)["outlook"] for line in out.splitlines()]
    assert [look["name"] for look in outlook["plan"]["looks"]] == ["round-1", "round-2", "round-3"]
    assert outlook["estimate"]["candidates"] == 12 + 3 * 12
    assert outlook["estimate"]["completion_tokens"] > 48 * 10
    assert outlook["allowed"] is True
    assert not (project / "ledgers" / "desk").exists()
    assert not (project / "runs").exists()


def test_a_single_setting_of_a_group_leaves_the_others_as_the_file_has_them(project: Path) -> None:
    code, out, err = selpe("--json", "run", "--method", "wasp", "--set", "wasp.calibration=published", "--yes")
    assert code == 0, err
    result = done(out)
    assert result["method"] == "wasp"
    assert 0 < result["epsilon"] < 1.0  # the published noise is more than ε = 2 asks for
    settings = json.loads((Path(result["folder"]) / "manifest.json").read_text())["settings"]
    assert (settings["wasp"]["votes"], settings["wasp"]["calibration"]) == (4, "published")


def test_a_plan_of_a_baseline_is_shown_before_anything_is_spent() -> None:
    code, out, _ = selpe("plan", "--method", "wasp", "--rows", 100)
    assert code == 0
    assert "ε 2, δ 1e-05 (replace-one): 2 if one unit is replaced, 1.36" in out
    assert "wasp: 2 looks (round) (σ" in out


def test_an_unknown_method_and_a_bad_setting_of_a_group_are_refused_by_name() -> None:
    assert selpe("run", "--yes", "--method", "gan")[0] == 2
    code, _, err = selpe("run", "--yes", "--method", "augpe", "--set", "augpe.roundz=3")
    assert code == 2
    assert "roundz" in err


def test_a_run_that_does_not_fit_is_refused_before_it_begins(project: Path) -> None:
    assert selpe("run", "--yes", "--method", "augpe")[0] == 0
    code, _, err = selpe("run", "--yes", "--method", "augpe", "--seed", 1)
    assert code == 3
    assert "this run would cost" in err
    code, out, _ = selpe("--json", "budget", "show", "desk")
    shown = json.loads(out)
    assert shown["budget"]["composition"] == "gaussian"
    assert shown["used"]["epsilon"] == pytest.approx(2.0, rel=1e-5)
    assert shown["spent"]["epsilon_add_remove"] == pytest.approx(1.36, abs=0.01)


def test_runs_list_their_method() -> None:
    selpe("run", "--yes", "--method", "wasp", "--name", "w")
    code, out, _ = selpe("--json", "runs")
    assert code == 0
    assert [run["method"] for run in json.loads(out)["runs"]] == ["wasp"]
