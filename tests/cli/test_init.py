"""`selpe init`: two files that parse, a report, and no overwriting."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import run
from selpe.config import load_config
from selpe.schema import Schema

REAL = ["ktas_triage.csv", "loan.csv", "loan_lendingclub_desc.csv", "mimic_ed_demo_triage.csv", "water.csv"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = [f"{100 + i},note number {i},{1 + i % 3},{20 + i},no" for i in range(40)]
    path = tmp_path / "desk visits.csv"
    path.write_text(
        "\n".join(["patient_id,complaint,acuity,age,injury", *lines, "100,again,1,30,yes"]), encoding="utf-8"
    )
    return path


def test_both_files_are_written_and_parse(table: Path, tmp_path: Path) -> None:
    result = run("init", table, "--out", tmp_path / "project")
    assert (result.code, result.err) == (0, "")
    schema = Schema.load(tmp_path / "project" / "schema.yaml")
    assert schema.names == ("complaint", "acuity", "age", "injury")
    assert schema.unconfirmed == schema.names
    config = load_config(tmp_path / "project" / "selpe.yaml", environment={})
    assert (config.dataset, config.unit, config.records, config.epsilon) == ("desk-visits", "patient_id", 200, 2.0)
    assert Path(config.data).resolve() == table.resolve()


def test_the_report_names_columns_and_next_steps_on_whole_lines(table: Path, tmp_path: Path) -> None:
    lines = run("init", table, "--out", tmp_path).out.splitlines()
    assert any(line.startswith("acuity") and "category" in line for line in lines)
    assert "  → set a label if records have classes; 'acuity' looks like one" in lines
    assert "  → then run: selpe check" in lines


def test_files_that_exist_are_kept_unless_forced(table: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("mine", encoding="utf-8")
    refused = run("init", table, "--out", tmp_path)
    assert refused.code == 2
    assert "--force" in refused.err
    assert (tmp_path / "schema.yaml").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "selpe.yaml").exists()
    assert run("init", table, "--out", tmp_path, "--force").code == 0


def test_a_public_table_needs_no_confirmation(table: Path, tmp_path: Path) -> None:
    run("init", table, "--out", tmp_path, "--public", "--label", "acuity")
    schema = Schema.load(tmp_path / "schema.yaml")
    assert (schema.unconfirmed, schema.label, schema.labels) == ((), "acuity", ("1", "2", "3"))


def test_json_holds_columns_kinds_and_notes(table: Path, tmp_path: Path) -> None:
    result = json.loads(run("init", table, "--out", tmp_path, "--json").out)
    kinds = {column["name"]: column["kind"] for column in result["columns"]}
    assert kinds == {
        "patient_id": "identifier",
        "complaint": "text",
        "acuity": "category",
        "age": "integer",
        "injury": "boolean",
    }
    assert result["likely_labels"] == ["acuity"]


def test_a_database_is_drafted_and_its_password_is_not_written(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    connection = sqlite3.connect(tmp_path / "desk.db")
    connection.execute("CREATE TABLE visits (complaint text, pain integer)")
    connection.executemany("INSERT INTO visits VALUES (?, ?)", [(f"note {i}", i % 10) for i in range(30)])
    connection.commit()
    connection.close()
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    assert run("init", url, "--query", "SELECT * FROM visits", "--out", tmp_path).code == 0
    config = load_config(tmp_path / "selpe.yaml", environment={})
    assert (config.data, config.query) == (url, "SELECT * FROM visits")

    from selpe.cli.init import _location

    assert _location("postgresql://ann:secret@host/db", tmp_path) == "postgresql://ann@host/db"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.csv"], "no such file"),
        (["{table}", "--label", "absent"], "no column 'absent'"),
    ],
)
def test_bad_input_leaves_with_code_two(words: list[str], said: str, table: Path, tmp_path: Path) -> None:
    result = run("init", *[word.format(table=table) for word in words], "--out", tmp_path / "x")
    assert result.code == 2
    assert said in result.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", REAL)
def test_real_tables_are_drafted_then_checked(name: str, tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    assert run("init", shared_data(name), "--out", tmp_path).code == 0
    result = run("check", tmp_path / "selpe.yaml", "--json")
    findings = {finding["what"]: finding for finding in json.loads(result.out)["findings"]}
    assert result.code == 2  # a draft is not confirmed
    assert findings["settings"]["state"] == findings["schema"]["state"] == "ok"
    assert findings["confirmed"]["state"] == "wrong"
    assert findings["data"]["said"].startswith(name)
    if name == "mimic_ed_demo_triage.csv":
        assert any(
            "field 'pain' must be an integer" in line and "rows 18, 19" in line for line in findings["data"]["lines"]
        )
        assert "ett" not in result.out.replace("settings", "").split('"')
