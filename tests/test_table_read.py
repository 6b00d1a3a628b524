"""Every way into a table: formats, encodings, delimiters, quoting, row numbers."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from selpe.errors import DataError
from selpe.schema import Schema
from selpe.table import parse_records, read_table, to_records
from table_files import FORMATS, write_as

SCHEMA = Schema.from_dict(
    {
        "name": "desk",
        "fields": {
            "note": {"kind": "text", "max_length": 80},
            "level": {"kind": "category", "values": ["low", "high", "NA"]},
            "pain": {"kind": "integer", "min": 0, "max": 10, "optional": True},
            "weight": {"kind": "number", "min": 0, "max": 2000, "step": 0.1, "optional": True},
            "seen": {"kind": "boolean"},
            "day": {"kind": "date", "min": "2020-01-01", "max": "2030-12-31"},
        },
    }
)
COLUMNS = ("note", "level", "pain", "weight", "seen", "day")
ROWS = (
    ("cut, left\nhand", "low", "3", "71.5", "yes", "2024-02-29"),
    ('says "ouch"', "NA", None, "1,234.5", "0", "29 Feb 2024"),
    ("ärger; naïve | tab", "HIGH", "7.0", "NA", "False", "2024/3/1"),
)
RECORDS = [
    {"note": "cut, left\nhand", "level": "low", "pain": 3, "weight": 71.5, "seen": True, "day": "2024-02-29"},
    {"note": 'says "ouch"', "level": "NA", "pain": None, "weight": 1234.5, "seen": False, "day": "2024-02-29"},
    {"note": "ärger; naïve | tab", "level": "high", "pain": 7, "weight": None, "seen": False, "day": "2024-03-01"},
]


def _file(tmp_path: Path, name: str, content: bytes | str) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_records(form: str, tmp_path: Path) -> None:
    table = read_table(write_as(form, COLUMNS, ROWS, tmp_path))
    assert to_records(table, SCHEMA) == RECORDS


def test_pandas_frames_polars_frames_and_mappings_give_the_same_records() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    typed = {
        "note": [row[0] for row in ROWS],
        "level": ["low", "NA", "high"],
        "pain": [3, None, 7],
        "weight": [71.5, 1234.5, None],
        "seen": [True, False, False],
        "day": [dt.date(2024, 2, 29), dt.date(2024, 2, 29), dt.date(2024, 3, 1)],
    }
    frame = pd.DataFrame(typed)
    assert to_records(read_table(frame), SCHEMA) == RECORDS
    frame["day"] = pd.to_datetime(frame["day"])
    frame["level"] = frame["level"].astype("category")
    assert to_records(read_table(frame.convert_dtypes()), SCHEMA) == RECORDS
    assert to_records(read_table(pl.DataFrame(typed)), SCHEMA) == RECORDS
    assert to_records(read_table(pl.DataFrame(typed).lazy()), SCHEMA) == RECORDS
    assert to_records(read_table(RECORDS), SCHEMA) == RECORDS


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"]
)
def test_encodings_are_recognised(encoding: str, tmp_path: Path) -> None:
    text = (
        "note,price in €\nnaïve café,5\nplain,6\n" if encoding != "latin-1" else "note,price\nnaïve café,5\nplain,6\n"
    )
    table = read_table(_file(tmp_path, "t.csv", text.encode(encoding)))
    assert table.columns[0] == "note"
    assert table.column("note") == ["naïve café", "plain"]


def test_a_file_of_two_encodings_is_refused_with_its_line(tmp_path: Path) -> None:
    raw = "note\nnaïve\n".encode() + "naïve\n".encode("cp1252")
    with pytest.raises(DataError, match="line 3 is not UTF-8"):
        read_table(_file(tmp_path, "t.csv", raw))
    assert len(read_table(_file(tmp_path, "t.csv", raw), encoding="cp1252")) == 2


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_taken_from_the_header(mark: str, tmp_path: Path) -> None:
    lines = [mark.join(["a", "b", "c"]), mark.join(["1", '"x,;|y"', "3"])]
    table = read_table(_file(tmp_path, "t.csv", "\r\n".join(lines)))
    assert table.columns == ("a", "b", "c")
    assert table.column("b") == ["x,;|y"]


def test_a_header_with_the_delimiter_inside_quotes_is_split_rightly(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.csv", '"a,b,c,d";e\n1;2\n'))
    assert table.columns == ("a,b,c,d", "e")


def test_the_line_by_which_excel_names_the_delimiter_is_obeyed(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.csv", "sep=;\r\na;b\r\n1;2\r\n"))
    assert (table.columns, table.rows) == (("a", "b"), (3,))


def test_row_numbers_are_those_of_a_spreadsheet(tmp_path: Path) -> None:
    path = _file(tmp_path, "t.csv", 'a,b\n"one\ntwo",1\n\n3,4\n')
    assert read_table(path).rows == (2, 4)


def test_row_numbers_of_json_lines_are_lines(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.jsonl", '{"a": 1}\n\n{"a": 2}\nnot json\n[1]\n{"a": 1, "a": 2}\n'))
    assert table.rows == (1, 3)
    assert [(row.row, row.expected) for row in table.broken] == [
        (4, "must be valid JSON"),
        (5, "must be one JSON object of field names and values"),
        (6, "must name each field once"),
    ]


@pytest.mark.parametrize("document", ['[{"a": 1}]', '{"data": [{"a": 1}]}', '{"records": [{"a": 1}], "n": 1}'])
def test_json_documents_hold_their_rows_in_known_places(document: str, tmp_path: Path) -> None:
    assert read_table(_file(tmp_path, "t.json", document)).column("a") == [1]


def test_json_decimals_stay_exact(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.json", '[{"a": 0.1000000000000000055511151231257827}]'))
    assert str(table.column("a")[0]) == "0.1000000000000000055511151231257827"


def test_rows_of_another_width_are_set_aside(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.csv", "a,b\n1,2\n1\n1,2,3\n1,2,\n"))
    assert table.rows == (2, 5)
    assert [row.row for row in table.broken] == [3, 4]


def test_a_header_repeated_by_joined_files_is_set_aside(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.csv", "a,b\n1,2\na,b\n3,4\n"))
    assert table.column("a") == ["1", "3"]
    assert [(row.row, row.expected) for row in table.broken] == [(3, "must not repeat the header")]


def test_a_column_without_a_name_is_left_out_with_a_note(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.csv", ",a\n0,5\n1,6\n"))
    assert table.columns == ("a",)
    assert table.column("a") == ["5", "6"]
    assert table.notes == ("left out columns without a name: 1",)


def test_sheets_are_chosen_by_name_or_number(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["a"])
    book.active.append([1])
    other = book.create_sheet("second")
    for row in ([], ["b", None], [2, None], [None, None], [3, None]):
        other.append(row)
    book.save(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx").columns == ("a",)
    for choice in ("second", 2, "2"):
        table = read_table(tmp_path / "t.xlsx", sheet=choice)
        assert (table.columns, table.column("b"), table.rows) == (("b",), [2, 3], (3, 5))
    for choice in ("third", 3, 0):
        with pytest.raises(DataError, match="no sheet"):
            read_table(tmp_path / "t.xlsx", sheet=choice)


REFUSED = [
    ("t.csv", b"", "the file is empty"),
    ("t.csv", b"\n\n", "the file is empty"),
    ("t.csv", b"a,b\n", "no rows"),
    ("t.csv", b",,\n1,2,3\n", "no column names"),
    ("t.csv", b'""', "no column names"),
    ("t.csv", b'a,b\n1,"2\n', "row 2 cannot be split"),
    ("t.csv", b'a,b\n1,2\n"x"y,2\n', "row 3 cannot be split"),
    ("t.csv", b"a,b\x00\xff\xfe\x01\n1,2", "not a text file"),
    ("t.json", b'{"a": 1}', "array of objects"),
    ("t.json", b"[{]", "valid JSON"),
    ("t.json", b"[" * 100_000, "valid JSON"),
    ("t.jsonl", b"\n", "the file is empty"),
    ("t.parquet", b"PAR1 and no more", "not a readable Parquet"),
    ("t.xlsx", b"PK\x03\x04 and no more", "not a readable Excel"),
    ("t.xls", b"", "unknown kind of file"),
    ("t", b"", "unknown kind of file"),
]


@pytest.mark.parametrize(("name", "content", "said"), REFUSED, ids=[f"{n}-{s}" for n, _, s in REFUSED])
def test_what_cannot_be_read_is_refused_with_the_reason(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read_table(_file(tmp_path, name, content))
    assert caught.value.hint
    assert name in caught.value.where


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
def test_a_delimiter_that_cannot_be_one_is_refused(delimiter: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one character"):
        read_table(_file(tmp_path, "t.csv", "a,b\n1,2\n"), delimiter=delimiter)


def test_files_that_are_absent_or_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="a folder"):
        read_table(tmp_path / "folder.csv")


def test_other_objects_are_refused() -> None:
    with pytest.raises(DataError, match="cannot read a table from a int"):
        read_table(3)


def test_the_text_form_of_a_table_shows_no_cell(tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.csv", "secretname,b\nsecretcell,2\n"))
    assert repr(table) == "Table('t.csv', 2 columns, 1 rows)"


def test_a_hundred_thousand_rows_are_read(tmp_path: Path) -> None:
    lines = (
        f"note {i},low,{i % 11},{i % 1000}.5,{'yes' if i % 2 else 'no'},2024-01-0{1 + i % 9}" for i in range(100_000)
    )
    path = _file(tmp_path, "t.csv", ",".join(COLUMNS) + "\n" + "\n".join(lines))
    reading = parse_records(read_table(path), SCHEMA)
    assert len(reading.records) == 100_000
    assert reading.records[-1]["note"] == "note 99999"
    assert not reading.problems


def test_json_of_nested_cells_is_refused_by_row_and_field() -> None:
    rows = json.loads('[{"note": ["x"], "level": "low", "seen": true, "day": "2024-01-01"}]')
    reading = parse_records(read_table(rows), SCHEMA)
    assert [(problem.field, problem.rows) for problem in reading.problems] == [("note", (1,))]
