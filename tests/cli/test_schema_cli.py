"""`selpe schema show|json|grammar|validate` on small files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from selpe.cli.console import MANNERS
from selpe.cli.schema import register
from selpe.errors import ConfigError, DataError, SchemaError, SelPEError

SCHEMA = """
name: desk
description: One row per visit.
label: level
fields:
  note: {kind: text, min_length: 3, max_length: 40, pattern: "[a-zA-Z ]+", description: What was said}
  level: {kind: category, values: [low, high]}
  pulse: {kind: integer, min: 30, max: 220, optional: true, unit: bpm}
  amount: {kind: number, min: 0, max: 100, step: 0.01, confirmed: false}
  injury: {kind: boolean}
  seen: {kind: date, min: 2024-01-01, max: 2025-12-31}
rules: [if injury == true then pulse >= 60]
"""
GOOD = {"note": "chest pain", "level": "low", "pulse": 72, "amount": 4.18, "injury": True, "seen": "2024-03-09"}

app = typer.Typer()
register(app)


@pytest.fixture(autouse=True)
def manners() -> Iterator[None]:
    MANNERS.json = False
    yield
    MANNERS.json = False


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "desk.yaml"
    path.write_text(SCHEMA, encoding="utf-8")
    return path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["schema", *map(str, arguments)])
    if isinstance(result.exception, SelPEError):
        raise result.exception
    return result.exit_code, result.stdout


def lines(path: Path, *entries: object) -> Path:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")
    return path


def test_show_lists_fields_label_rules_and_what_is_unconfirmed(schema: Path) -> None:
    code, text = run("show", schema)
    assert code == 0
    assert "text of 3 to 40 characters that match the pattern [a-zA-Z ]+" in text
    assert "an integer from 30 to 220 bpm  optional" in text
    assert "label: level (2 classes)" in text
    assert "rule: if injury == true then pulse >= 60" in text
    assert "not confirmed as public yet: amount" in text


def test_show_as_json_is_the_schema_as_data(schema: Path) -> None:
    MANNERS.json = True
    code, text = run("show", schema)
    shown = json.loads(text)
    assert code == 0
    assert list(shown["fields"]) == list(GOOD)
    assert shown["unconfirmed"] == ["amount"]


def test_json_writes_json_schema_with_fixed_fields(schema: Path) -> None:
    code, text = run("json", schema, "--fixed", "level=high", "--fixed", "pulse=70", "--fixed", "injury=false")
    properties = json.loads(text)["properties"]
    assert code == 0
    assert [properties[name]["const"] for name in ("level", "pulse", "injury")] == ["high", 70, False]


@pytest.mark.parametrize("pair", ["level=SECRET", "level", "pulse=SECRET", "pulse=7", "injury=perhaps"])
def test_json_refuses_a_fixed_value_outside_its_domain_without_quoting_it(schema: Path, pair: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run("json", schema, "--fixed", pair)
    assert "SECRET" not in str(caught.value) + caught.value.hint


def test_json_refuses_an_unknown_field(schema: Path) -> None:
    with pytest.raises(SchemaError, match="there is no field 'colour'"):
        run("json", schema, "--fixed", "colour=red")


def test_grammar_prints_either_grammar(schema: Path) -> None:
    assert "S-CFG" in run("grammar", schema)[1]
    assert "S-CFG" in run("grammar", "--strict", schema)[1]
    assert "R-CFG" in run("grammar", "--rough", schema)[1]
    MANNERS.json = True
    assert json.loads(run("grammar", "--rough", schema)[1])["grammar"] == "rough"


def test_validate_passes_good_records_with_exit_code_0(schema: Path, tmp_path: Path) -> None:
    path = lines(tmp_path / "good.jsonl", GOOD, GOOD | {"pulse": None, "injury": False}, json.dumps(GOOD))
    code, text = run("validate", path, "--schema", schema)
    assert code == 0
    assert "good.jsonl: 3 records" in text
    assert text.count("100.0%") == 4


def test_validate_names_line_field_and_expectation_but_no_value(schema: Path, tmp_path: Path) -> None:
    bad = [
        GOOD,
        GOOD | {"level": "SECRET"},
        GOOD | {"pulse": "SECRET"},
        GOOD | {"pulse": 31},
        GOOD | {"SECRET": "SECRET"},
        "SECRET",
    ]
    code, text = run("validate", lines(tmp_path / "bad.jsonl", *bad), "--schema", schema)
    assert code == 2
    assert "SECRET" not in text
    assert "row 2: field 'level' must be one of low, high" in text
    assert "row 3: field 'pulse' must be a whole number in JSON" in text
    assert "row 4: rule 'if injury == true then pulse >= 60' must hold" in text
    assert "row 5: the record must be a record with the schema's fields only" in text
    assert "row 6: the record must be exactly one JSON object" in text


def test_validate_as_json_lists_counts_and_violations(schema: Path, tmp_path: Path) -> None:
    MANNERS.json = True
    path = lines(tmp_path / "bad.jsonl", GOOD, GOOD | {"amount": 4.185}, GOOD | {"pulse": 31})
    code, text = run("validate", path, "--schema", schema)
    report = json.loads(text)
    assert code == 2
    assert report["valid"] is False
    assert report["counts"] == {"rough": 3, "syntax": 3, "domain": 2, "rules": 1}
    assert [(entry["row"], entry["field"], entry["level"]) for entry in report["found"]] == [
        (2, "amount", "domain"),
        (3, "pulse", "rule"),
    ]


def test_validate_shortens_long_lists(schema: Path, tmp_path: Path) -> None:
    path = lines(tmp_path / "bad.jsonl", *[GOOD | {"level": "none"}] * 30)
    assert "… and 25 more; --limit 0 lists all" in run("validate", path, "--schema", schema, "--limit", 5)[1]
    assert run("validate", path, "--schema", schema, "--limit", 0)[1].count("row ") == 30


def test_validate_reads_csv_rows_under_the_schema(schema: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "note,level,pulse,amount,injury,seen\n"
        '"chest pain",low,72,4.18,True,2024-03-09\n'
        "chest pain,low,,4.18,false,2024-03-09\n"
        "chest pain,low,SECRET,4.18,false,2024-03-09\n"
        "chest pain,low,72,4.185,false,2024-03-09\n"
        "chest pain,,72,4.18,false,2024-03-09\n",
        encoding="utf-8",
    )
    code, text = run("validate", path, "--schema", schema)
    assert code == 2
    assert "SECRET" not in text
    assert [line.partition(":")[0] for line in text.splitlines() if line.startswith("row")] == [
        "row 4",
        "row 5",
        "row 6",
    ]


def test_validate_refuses_columns_that_the_schema_does_not_name(schema: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("note,level,pulse,amount,injury,seen,who\nchest pain,low,72,4.18,true,2024-03-09,SECRET\n")
    code, text = run("validate", path, "--schema", schema)
    assert code == 2
    assert "SECRET" not in text
    assert "the schema's fields only" in text


@pytest.mark.parametrize("name", ["absent.jsonl", "absent.csv"])
def test_validate_says_when_the_file_is_absent(schema: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        run("validate", tmp_path / name, "--schema", schema)


def test_validate_refuses_an_empty_file(schema: Path, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n\n")
    with pytest.raises(DataError, match="no record"):
        run("validate", path, "--schema", schema)
