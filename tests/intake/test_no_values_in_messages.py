"""No cell value leaves in a message: markers planted in broken tables, and looked for in everything that comes out."""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import traceback
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from command_line import run
from selpe.intake import parse_records, read_table, to_frame, to_records, write_table
from selpe.intake.draft import draft_schema
from selpe.schema import Schema
from table_files import FORMATS, write_as

MARK = "Qzx7Marker"
SCHEMA_TEXT = """
name: desk
label: level
fields:
  note: {kind: text, min_length: 5, max_length: 8, pattern: "[a-z ]+"}
  level: {kind: category, values: [low, high]}
  pain: {kind: integer, min: 0, max: 10}
  weight: {kind: number, min: 0, max: 200, step: 0.1}
  seen: {kind: boolean}
  day: {kind: date, min: 2020-01-01, max: 2030-12-31}
rules:
  - if level == "low" then pain < 5
"""
SCHEMA = Schema.from_yaml(SCHEMA_TEXT)
COLUMNS = SCHEMA.names
GOOD = ("a cough", "low", "3", "70.5", "yes", "2024-01-31")


def _marks(row: int) -> tuple[str, ...]:
    return tuple(f"{MARK} {row} {name}" for name in COLUMNS)


MARKED = [_marks(row) for row in range(8)]


def _csv(*lines: str, header: str = ",".join(COLUMNS), end: str = "\n") -> bytes:
    return end.join([header, ",".join(GOOD), *lines, ""]).encode()


def _one(form: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], Path]:
    return lambda folder: write_as(form, COLUMNS, [GOOD, *[tuple(change(list(row))) for row in MARKED]], folder)


def _raw(name: str, content: bytes | str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def _cut(form: str, keep: float) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = write_as(form, COLUMNS, MARKED, folder)
        raw = path.read_bytes()
        path.write_bytes(raw[: int(len(raw) * keep)])
        return path

    return make


def _columns(form: str, columns: tuple[str, ...]) -> Callable[[Path], Path]:
    rows = [tuple(row[: len(columns)]) for row in MARKED]
    return lambda folder: write_as(form, columns, rows, folder)


def _zip(folder: Path) -> Path:
    path = folder / "table.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", f"<workbook>{MARK}</notclosed>")
        archive.writestr("[Content_Types].xml", f"<Types {MARK}")
    return path


def _nested_parquet(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: pa.array([[MARK], [MARK]]) for name in COLUMNS}
    pq.write_table(pa.table(columns), folder / "table.parquet", compression="none")
    return folder / "table.parquet"


CELL = json.dumps(MARK)
BROKEN: dict[str, Callable[[Path], Path]] = {
    **{f"{form}-every-cell": _one(form, lambda row: row) for form in FORMATS},
    **{f"{form}-missing-columns": _columns(form, ("note", "pain")) for form in FORMATS},
    **{f"{form}-other-columns": _columns(form, ("one", "two")) for form in FORMATS},
    **{f"{form}-cut-short": _cut(form, 0.7) for form in ("jsonl", "json", "parquet", "xlsx")},
    **{
        f"{form}-{COLUMNS[i]}-alone": _one(form, lambda row, i=i: [*GOOD[:i], row[i], *GOOD[i + 1 :]])  # type: ignore[misc]
        for form in ("csv", "jsonl")
        for i in range(len(COLUMNS))
    },
    "csv-too-long": _raw("t.csv", _csv(",".join([*GOOD, MARK]))),
    "csv-too-short": _raw("t.csv", _csv(f"{MARK},low")),
    "csv-open-quote": _raw("t.csv", _csv(f'"{MARK},low,3')),
    "csv-stray-quote": _raw("t.csv", _csv(f'"{MARK}"x{MARK},low,3')),
    "csv-no-header": _raw("t.csv", _csv(header=",".join(_marks(0)))),
    "csv-header-of-numbers": _raw("t.csv", f"{MARK},51,2024-01-31\n{MARK},52,2024-01-31\n"),
    "csv-repeated-column": _raw("t.csv", _csv(",".join([*GOOD, MARK]), header=",".join([*COLUMNS, "pain"]))),
    "csv-repeated-marks": _raw("t.csv", f"{MARK},{MARK}\n{MARK},{MARK}\n"),
    "csv-other-delimiter": _raw("t.csv", ";".join(COLUMNS) + f"\n{MARK},{MARK},{MARK}\n"),
    "csv-two-encodings": _raw("t.csv", _csv(f"{MARK} é,low,1,1,1,1") + f"{MARK} é,low".encode("latin-1")),
    "csv-nul": _raw("t.csv", _csv(f"{MARK}\0\0,low,3,1,yes,2024-01-31")),
    "csv-binary": _raw("t.csv", b"\x00\x01\x02" + MARK.encode() + b"\xff\xfe"),
    "csv-half-utf16": _raw("t.csv", f"note,level\n{MARK},x\n".encode("utf-16")[:-1]),
    "csv-broken-rule": _raw("t.csv", _csv("a cough,low,9,70.5,yes,2024-01-31", f"{MARK},low,9,1,1,2024-01-31")),
    "csv-two-readings": _raw("t.csv", _csv(f'a cough,low,3,"1,234",{MARK},03/04/2024')),
    "jsonl-not-json": _raw("t.jsonl", f'{{"note": {CELL}\n{MARK}\n{{"note": {CELL}, }}\n'),
    "jsonl-not-objects": _raw("t.jsonl", f"[{CELL}]\n{CELL}\n"),
    "jsonl-repeated-keys": _raw("t.jsonl", f'{{"note": {CELL}, "note": {CELL}}}\n'),
    "jsonl-nested": _raw("t.jsonl", json.dumps({name: {MARK: [MARK]} for name in COLUMNS})),
    "jsonl-lone-surrogate": _raw("t.jsonl", json.dumps(dict.fromkeys(COLUMNS, f"{MARK}\ud800"))),
    "jsonl-marked-keys": _raw("t.jsonl", json.dumps({f"{MARK}{i}": MARK for i in range(3)})),
    "json-no-array": _raw("t.json", json.dumps({"note": MARK, MARK: [MARK]})),
    "json-mixed-array": _raw("t.json", json.dumps([MARK, [MARK], {"note": MARK}])),
    "json-invalid": _raw("t.json", f"[{{'note': {CELL}}}]"),
    "xlsx-other-zip": _zip,
    "parquet-nested": _nested_parquet,
    "parquet-not": _raw("t.parquet", b"PAR1" + MARK.encode() * 20 + b"PAR1"),
}


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def _everything(error: BaseException | None) -> str:
    """All that an exception and the chain behind it can show, tracebacks included."""
    said: list[str] = []
    seen: set[int] = set()
    if error is not None:
        said.extend(traceback.format_exception(type(error), error, error.__traceback__))
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        said += [str(error), repr(error), repr(error.args), repr(getattr(error, "__notes__", ""))]
        said.append(repr({name: value for name, value in vars(error).items() if isinstance(value, (str, int))}))
        error = error.__cause__ or error.__context__
    return "\n".join(said)


def _caught(act: Callable[[], object]) -> tuple[str, bool]:
    """What an action says, on purpose or by failing, and whether anything was wrong."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            result = act()
        except Exception as error:
            return _everything(error) + out.getvalue() + err.getvalue(), True
    problems = getattr(result, "problems", ())
    said = [repr(result), *[problem.message for problem in problems]]
    return "\n".join(said) + out.getvalue() + err.getvalue(), bool(problems)


@pytest.mark.parametrize("name", BROKEN)
def test_the_library_never_quotes_a_cell(name: str, tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    path = BROKEN[name](tmp_path)
    actions: list[Callable[[], object]] = [
        lambda: read_table(path),
        lambda: parse_records(read_table(path), SCHEMA),
        lambda: parse_records(read_table(path), SCHEMA, blank_bad_cells=True),
        lambda: len(to_records(read_table(path), SCHEMA)),
        lambda: len(to_records(read_table(path), SCHEMA, skip_bad_rows=True)),
        lambda: draft_schema(read_table(path), label=COLUMNS[1]).notes,
    ]
    outcomes = [_caught(act) for act in actions]
    assert any(wrong for _, wrong in outcomes), "this table is not broken"
    assert all(MARK not in said for said, _ in outcomes)
    assert MARK not in logs.text


@pytest.mark.parametrize("name", BROKEN)
def test_the_command_line_never_quotes_a_cell(name: str, tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    path = BROKEN[name](tmp_path)
    schema = tmp_path / "schema.yaml"
    schema.write_text(SCHEMA_TEXT, encoding="utf-8")
    for manners in ([], ["--json"], ["-v", "-v", "--debug"]):
        checked = run(*manners, "check", "--schema", schema, "--data", path)
        assert checked.code == 2
        assert MARK not in checked.out + checked.err
        drafted = run(*manners, "init", path, "--label", COLUMNS[1], "--out", tmp_path / "new", "--force")
        assert MARK not in drafted.out + drafted.err
    assert MARK not in logs.text


def test_a_table_in_order_shows_no_cell_either(tmp_path: Path) -> None:
    rows = [(f"{MARK} {i}", f"{MARK}-{i % 2}", str(i % 10), "x", "yes", "2024-01-31") for i in range(60)]
    path = write_as("csv", COLUMNS, rows, tmp_path)
    for manners in ([], ["--debug"], ["--json"]):
        drafted = run(*manners, "init", path, "--out", tmp_path, "--force")
        assert drafted.code == 0
        checked = run(*manners, "check", tmp_path / "selpe.yaml")
        assert checked.code == 2
        assert MARK not in drafted.out + drafted.err + checked.out + checked.err


def test_a_database_that_fails_on_a_value_does_not_repeat_it(tmp_path: Path, logs: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("sqlalchemy")
    connection = sqlite3.connect(tmp_path / "desk.db")
    connection.execute("CREATE TABLE visits (note text)")
    connection.execute("INSERT INTO visits VALUES (?)", (MARK,))
    connection.commit()
    connection.close()
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    for query in ("SELECT json_extract(note, '$.x') FROM visits", "SELECT note FROM visits", "SELECT nope FROM visits"):
        said, wrong = _caught(lambda query=query: parse_records(read_table(url, query=query), SCHEMA))  # type: ignore[misc]
        assert wrong
        assert MARK not in said
    assert MARK not in logs.text


def test_frames_with_values_that_do_not_fit_do_not_repeat_them(logs: pytest.LogCaptureFixture) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    cells = {name: [MARK, MARK] for name in COLUMNS}
    lists = {name: [[MARK], [MARK]] for name in COLUMNS}
    for frame in (pd.DataFrame(cells), pl.DataFrame(cells), pd.DataFrame(lists), pl.DataFrame(lists)):
        said, wrong = _caught(lambda frame=frame: parse_records(read_table(frame), SCHEMA))  # type: ignore[misc]
        assert wrong
        assert MARK not in said
    assert MARK not in logs.text


def test_writing_a_value_that_no_format_takes_does_not_repeat_it(tmp_path: Path) -> None:
    bad: list[dict[str, str | int | float | bool | None]] = [{"note": f"{MARK}\ud800", "pain": MARK, "day": MARK}]
    actions: list[Callable[[], object]] = [
        lambda suffix=suffix: write_table(bad, SCHEMA, tmp_path / f"t.{suffix}")  # type: ignore[misc]
        for suffix in ("csv", "jsonl", "parquet", "xlsx")
    ]
    outcomes = [_caught(act) for act in [*actions, lambda: len(to_frame(bad, SCHEMA))]]
    assert any(wrong for _, wrong in outcomes)
    assert all(MARK not in said for said, _ in outcomes)


def test_the_search_itself_finds_a_marker_that_is_there() -> None:
    def leak() -> None:
        try:
            int(MARK)
        except ValueError:
            raise KeyError("harmless") from None

    assert MARK in _caught(leak)[0]
