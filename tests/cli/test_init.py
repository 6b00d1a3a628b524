"""`selpe init`: two files that parse, a report, and no overwriting."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import run
from selpe.config import load_config
from selpe.intake.draft.conventions import TextForm, text_form
from selpe.intake.options import ReadingOptions
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
    assert (config.dataset, config.unit, config.records, config.epsilon) == ("desk-visits", "patient_id", 300, 2.0)
    assert Path(config.data).resolve() == table.resolve()


def test_a_table_of_many_classes_is_proposed_as_many_records_as_serve_each(tmp_path: Path) -> None:
    path = tmp_path / "desks.csv"
    path.write_text("\n".join(["note,desk", *(f"note number {i},desk {i % 8}" for i in range(80))]), encoding="utf-8")
    assert run("init", path, "--label", "desk", "--out", tmp_path / "project").code == 0
    assert load_config(tmp_path / "project" / "selpe.yaml", environment={}).records == 480


FORMS = [
    ("plain.csv", ["a,b"], "{i},x", {"encoding": "utf-8", "delimiter": ","}),
    ("marked.csv", ["a;b"], "{i};x", {"encoding": "utf-8-sig", "delimiter": ";"}),
    ("windows.csv", ["a|b"], "{i}|caf\xe9", {"encoding": "cp1252", "delimiter": "|"}),
    ("wide.csv", ["a,b"], "{i},x", {"encoding": "utf-16", "delimiter": ","}),
    ("tabs.tsv", ["a\tb"], "{i}\tx", {"encoding": "utf-8", "delimiter": "\t"}),
    ("excel.csv", ["sep=;", "a;b"], "{i};x", {"encoding": "utf-8", "delimiter": ";"}),
    ("lines.jsonl", [], '{{"a": {i}, "b": "x"}}', {"encoding": "utf-8", "delimiter": None}),
]


@pytest.mark.parametrize(("name", "head", "row", "settings"), FORMS, ids=[form[0] for form in FORMS])
def test_how_a_text_file_is_written_stands_in_the_settings_and_reads_it_again(
    name: str, head: list[str], row: str, settings: dict[str, str | None], tmp_path: Path
) -> None:
    lines = [*head, *(row.format(i=i % 7) for i in range(40))]
    (tmp_path / name).write_bytes("\n".join(lines).encode(str(settings["encoding"])))
    assert run("init", tmp_path / name, "--out", tmp_path).code == 0
    config = load_config(tmp_path / "selpe.yaml", environment={})
    assert {key: getattr(config, key) for key in settings} == settings
    again = ReadingOptions.of(config).table(config.data)
    assert (len(again), again.columns) == (40, ("a", "b"))


CELLS = [
    (["25/12/2024", "03/04/2024"], ["2.5", "3"], {"day_first": True, "decimal": None}, []),
    (["12/25/2024", "03/04/2024"], ["3,5", "1.234,5"], {"day_first": False, "decimal": ","}, []),
    (["2024-03-04", "2024-12-25"], ["1,234.5", "2.5"], {"day_first": None, "decimal": "."}, []),
    (["2024-03-04", "2024-12-25"], ["1,234", "2.5"], {"day_first": None, "decimal": "."}, []),
    (["03/04/2024", "05/06/2024"], ["1,234", "1,235"], {"day_first": None, "decimal": None}, ["day_first", "decimal"]),
    (["25/12/2024", "12/25/2024"], ["3,5", "1,234.5"], {"day_first": None, "decimal": None}, ["day_first", "decimal"]),
]


@pytest.mark.parametrize(("days", "numbers", "settings", "asked"), CELLS)
def test_day_order_and_decimal_mark_are_written_where_the_cells_show_them_and_asked_for_where_not(
    days: list[str], numbers: list[str], settings: dict[str, object], asked: list[str], tmp_path: Path
) -> None:
    lines = ["when;size;note", *(f"{days[i % 2]};{numbers[i % 2]};note {i} is like no other" for i in range(40))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    assert run("init", tmp_path / "t.csv", "--out", tmp_path).code == 0
    config = load_config(tmp_path / "selpe.yaml", environment={})
    assert {key: getattr(config, key) for key in settings} == settings
    text = (tmp_path / "selpe.yaml").read_text(encoding="utf-8")
    assert [name for name in ("day_first", "decimal") if f"# {name}:" in text] == asked


def test_no_cell_stands_in_the_settings(tmp_path: Path) -> None:
    lines = ["when;size;note", *(f"2{i % 9}/11/2031;7{i % 9},77;zebra {i}" for i in range(40))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    assert run("init", tmp_path / "t.csv", "--out", tmp_path).code == 0
    text = (tmp_path / "selpe.yaml").read_text(encoding="utf-8")
    assert "day_first: true" in text
    assert not any(part in text for part in ("2031", "77", "zebra", "/11"))


def test_a_binary_table_has_neither_encoding_nor_delimiter(table: Path, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.read_csv(table, dtype=str).to_parquet(tmp_path / "t.parquet")
    assert run("init", tmp_path / "t.parquet", "--out", tmp_path).code == 0
    text = (tmp_path / "selpe.yaml").read_text(encoding="utf-8")
    assert "encoding" not in text
    assert "delimiter" not in text


def test_a_file_whose_lines_are_written_differently_gets_no_encoding(tmp_path: Path) -> None:
    lines = [b"a,b", *(b"%d,x" % (i % 7) for i in range(40)), b"1,\xc3\xa9", b"1,\xe9"]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    assert text_form(str(tmp_path / "t.csv")) == TextForm(None, ",")


def test_the_number_of_rows_is_stated_rounded_and_counts_people_where_a_unit_is_named(
    table: Path, tmp_path: Path
) -> None:
    run("init", table, "--out", tmp_path)
    assert load_config(tmp_path / "selpe.yaml", environment={}).rows == 40  # 41 rows of 40 people
    lines = ["topic,size", *(f"note {i} is like no other,{i % 9}" for i in range(1234))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    run("init", tmp_path / "t.csv", "--out", tmp_path, "--force")
    text = (tmp_path / "selpe.yaml").read_text(encoding="utf-8")
    assert load_config(tmp_path / "selpe.yaml", environment={}).rows == 1200
    assert "1234" not in text + (tmp_path / "schema.yaml").read_text(encoding="utf-8")


def test_the_report_names_columns_and_next_steps_on_whole_lines(table: Path, tmp_path: Path) -> None:
    lines = run("init", table, "--out", tmp_path).out.splitlines()
    assert any(line.startswith("acuity") and "category" in line for line in lines)
    assert "  → if records have classes, name the field that says them as `label`, such as 'acuity'" in lines
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
