"""`selpe check`: ticks where things are right, hints where they are not, and an exit code for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import run

SCHEMA = """
name: desk
label: acuity
fields:
  complaint: {kind: text, description: What the patient says}
  acuity: {kind: category, description: Level, values: ["1", "2"]}
  pain: {kind: integer, description: From none to worst, min: 0, max: 10, optional: true}
"""
CONFIG = "dataset: desk\ndata: data.csv\nschema: schema.yaml\nllm: fake\n"
GOOD = "complaint,acuity,pain\n" + "\n".join(f"note {i},{1 + i % 2},{i % 11}" for i in range(30))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "data.csv").write_text(GOOD, encoding="utf-8")
    return tmp_path


def _findings(project: Path, *words: object) -> tuple[int, dict[str, dict[str, Any]]]:
    result = run("check", *(words or [project / "selpe.yaml"]), "--json")
    return result.code, {finding["what"]: finding for finding in json.loads(result.out)["findings"]}


def test_a_project_in_order_is_all_ticks(project: Path) -> None:
    result = run("check", project / "selpe.yaml")
    assert result.code == 0
    lines = [line.split()[:2] for line in result.out.splitlines()]
    for what in ("settings", "schema", "confirmed", "data", "disk"):
        assert ["✓", what] in lines
    assert "all 30 rows fit the schema" in result.out


def test_the_settings_of_this_folder_are_the_default(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    assert run("check").code == 0


def test_two_files_can_be_checked_without_settings(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "selpe.yaml").unlink()
    monkeypatch.chdir(project)
    code, findings = _findings(project, "--schema", "schema.yaml", "--data", "data.csv")
    assert (code, set(findings)) == (0, {"schema", "confirmed", "data"})


def test_without_anything_to_check_it_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("check")
    assert result.code == 2
    assert "selpe init" in result.err


def test_unconfirmed_fields_are_listed_with_what_to_do(project: Path) -> None:
    drafted = SCHEMA.replace("optional: true}", "optional: true, confirmed: false}")
    (project / "schema.yaml").write_text(drafted, encoding="utf-8")
    code, findings = _findings(project)
    assert code == 2
    assert findings["confirmed"]["said"] == "1 fields are drafts: pain"
    assert "selpe studio" in findings["confirmed"]["hint"]


def test_bad_rows_are_listed_by_row_and_field(project: Path) -> None:
    (project / "data.csv").write_text(GOOD + "\nnote,3,4\nnote,1,secretpain\n", encoding="utf-8")
    result = run("check", project / "selpe.yaml")
    assert result.code == 2
    assert "2 of 32 rows do not fit the schema" in result.out
    assert "1 row: field 'pain' must be an integer from 0 to 10 (row 33)" in result.out
    assert "1 row: field 'acuity' must be one of the values that the schema lists (row 32)" in result.out
    assert "secretpain" not in result.out + result.err


def test_every_reading_setting_is_used(project: Path) -> None:
    """A table that fits only if all of them are."""
    lines = ["complaint;acuity;pain;weight;day", "caf\xe9;1;x;1,5;03/04/2024", "tea;1;1;2,5;03/04/2024", "tea;9;1;1,5;"]
    (project / "data.csv").write_bytes("\n".join(lines).encode("cp1252"))
    schema = SCHEMA + (
        "  weight: {kind: number, description: In kilograms, min: 0, max: 9, step: 0.5}\n"
        "  day: {kind: date, description: Of the visit, min: 2024-04-03, max: 2024-04-03}\n"
    )
    (project / "schema.yaml").write_text(schema, encoding="utf-8")
    settings = {"encoding": "cp1252", "delimiter": '";"', "decimal": '","', "day_first": "true",
                "blank_bad_cells": "true", "skip_bad_rows": "true"}  # fmt: skip
    config = CONFIG + "".join(f"{name}: {value}\n" for name, value in settings.items())
    (project / "selpe.yaml").write_text(config, encoding="utf-8")
    code, findings = _findings(project)
    assert code == 0
    assert findings["data"]["state"] == "note"
    assert "1 of 3 rows do not fit the schema and will abstain" in findings["data"]["said"]
    (project / "selpe.yaml").write_text(config.replace("blank_bad_cells: true\n", ""), encoding="utf-8")
    assert "2 of 3 rows do not fit" in _findings(project)[1]["data"]["said"]
    for name in ("day_first", "skip_bad_rows"):
        (project / "selpe.yaml").write_text(config.replace(f"{name}: true\n", ""), encoding="utf-8")
        assert _findings(project)[0] == 2, name


def test_a_table_in_which_all_rows_would_abstain_is_wrong(project: Path) -> None:
    (project / "selpe.yaml").write_text(CONFIG + "skip_bad_rows: true\n", encoding="utf-8")
    (project / "data.csv").write_text("complaint,acuity,pain\nnote,3,4\n", encoding="utf-8")
    code, findings = _findings(project)
    assert (code, findings["data"]["state"]) == (2, "wrong")


BREAKAGE = [
    ("selpe.yaml", "dataset: desk\n", "settings", "'data' must be given"),
    ("selpe.yaml", CONFIG + "colour: red\n", "settings", "no setting 'colour'"),
    ("schema.yaml", "fields: {", "schema", "not YAML"),
    ("schema.yaml", None, "schema", "no such file"),
    ("data.csv", None, "data", "no such file"),
    ("data.csv", "a,b\n1,2\n", "data", "no column for 'complaint', 'acuity'"),
    ("selpe.yaml", CONFIG + "unit: who\n", "data", "column 'who' is missing"),
]


@pytest.mark.parametrize(("name", "content", "what", "said"), BREAKAGE, ids=[said for *_, said in BREAKAGE])
def test_each_part_that_is_wrong_is_named(name: str, content: str | None, what: str, said: str, project: Path) -> None:
    if content is None:
        (project / name).unlink()
    else:
        (project / name).write_text(content, encoding="utf-8")
    code, findings = _findings(project)
    assert code == 2
    assert findings[what]["state"] == "wrong"
    assert said in findings[what]["said"]


def test_fields_without_a_description_and_small_tables_are_noted_not_refused(project: Path) -> None:
    (project / "schema.yaml").write_text(SCHEMA.replace("description: Level, ", ""), encoding="utf-8")
    (project / "data.csv").write_text("complaint,acuity\ncough,1\n", encoding="utf-8")
    code, findings = _findings(project)
    assert code == 0
    assert findings["described"]["said"] == "no description: acuity"
    assert findings["size"]["state"] == "note"


@pytest.mark.parametrize("address", ["https://user:hushhush@models.example.org/v1", "https://m.org/v1?key=hushhush"])
def test_a_servers_address_that_holds_a_secret_is_refused_without_showing_it(project: Path, address: str) -> None:
    (project / "selpe.yaml").write_text(CONFIG.replace("fake", address), encoding="utf-8")
    result = run("check", project / "selpe.yaml")
    assert result.code == 2
    assert "SELPE_API_KEY" in result.out
    assert "hushhush" not in result.out + result.err


def test_a_model_that_is_not_here_is_a_note_with_the_command_that_fetches_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path / "cache"))
    (project / "selpe.yaml").write_text(CONFIG.replace("fake", "smollm2"), encoding="utf-8")
    code, findings = _findings(project)
    assert code == 0
    assert "selpe models pull smollm2" in findings["model"]["hint"]


def test_a_full_disk_is_wrong(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selpe.cli import check

    monkeypatch.setattr(check, "_ENOUGH_DISK", 10**21)
    code, findings = _findings(project)
    assert (code, findings["disk"]["state"]) == (2, "wrong")
