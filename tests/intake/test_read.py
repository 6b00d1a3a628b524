"""Every way into a table: formats, encodings, delimiters, quoting, row numbers."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest

from selpe.errors import DataError
from selpe.intake import parse_records, read_table, to_records
from selpe.schema import Schema
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


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_is_decoded_by_itself(end: str, tmp_path: Path) -> None:
    lines = [b"note", "naïve".encode(), "naïve".encode("cp1252"), b"5 \x80 \x9d", b"\x93q\x94", b"a\xa0\x85b"]
    table = read_table(_file(tmp_path, "t.csv", end.encode().join(lines)))
    assert table.column("note") == ["naïve", "naïve", "5 € \x9d", "“q”", "a\xa0…b"]


def test_a_line_that_is_not_of_the_stated_encoding_is_set_aside(tmp_path: Path) -> None:
    raw = b"a,b\nx,1\n\xff,2\n" + "é,3\n".encode()
    for content, encoding in ((raw, "utf-8"), (b"\xef\xbb\xbf" + raw, None)):
        table = read_table(_file(tmp_path, "t.csv", content), encoding=encoding)
        assert (table.column("a"), table.rows) == (["x", "é"], (2, 4))
        assert [(row.row, row.expected) for row in table.broken] == [(3, "must be text in the encoding of the file")]
    lines = read_table(_file(tmp_path, "t.jsonl", b'{"a": 1}\n{"a": "\xff"}\n'), encoding="utf-8")
    document = read_table(_file(tmp_path, "t.json", b'[{"a": 1}, {"a": "\xff"}]'), encoding="utf-8")
    assert [row.row for row in (*lines.broken, *document.broken)] == [2, 2]
    assert (lines.column("a"), document.column("a")) == ([1], [1])


def test_a_header_that_is_not_of_the_stated_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="header row must be text"):
        read_table(_file(tmp_path, "t.csv", b"\xff,b\n1,2\n"), encoding="utf-8")


def test_an_encoding_with_a_state_is_read_or_refused_as_a_whole(tmp_path: Path) -> None:
    raw = "note\n東京\n".encode("iso-2022-jp")
    assert read_table(_file(tmp_path, "t.csv", raw), encoding="iso-2022-jp").column("note") == ["東京"]
    with pytest.raises(DataError, match="not valid iso-2022-jp"):
        read_table(_file(tmp_path, "t.csv", raw + b"\xff\n"), encoding="iso-2022-jp")
    with pytest.raises(DataError, match="unknown encoding"):
        read_table(_file(tmp_path, "t.csv", raw), encoding="base64")


def test_wide_text_without_a_mark_is_told_by_the_header_alone(tmp_path: Path) -> None:
    """Rows of other scripts have no zero bytes: a share of zeros over the file would let rows decide."""
    raw = ("note\n" + "東京都\n" * 500).encode("utf-16-le")
    assert read_table(_file(tmp_path, "t.csv", raw)).column("note") == ["東京都"] * 500
    half = "note\nx\n".encode("utf-16-le") + b"\x00\xd8\n\x00" + "y\n".encode("utf-16-le")
    assert read_table(_file(tmp_path, "t.csv", half)).column("note") == ["x", "\ufffd", "y"]


def test_json_lines_in_utf16_are_asked_for_their_encoding(tmp_path: Path) -> None:
    """They have no header: the first bytes are those of a record, and must not decide for the others."""
    path = _file(tmp_path, "t.jsonl", '{"a": 1}\n{"a": 2}\n'.encode("utf-16"))
    with pytest.raises(DataError, match="no line") as caught:
        read_table(path)
    assert "utf-16" in caught.value.hint
    assert read_table(path, encoding="utf-16").column("a") == [1, 2]


@pytest.mark.parametrize("line", ['"x"y,2', '"x"y,"two\nlines"', "x" * (16 * 2**20 + 1) + ",2"])
def test_a_row_against_the_rules_of_csv_is_set_aside(line: str, tmp_path: Path) -> None:
    table = read_table(_file(tmp_path, "t.csv", f"a,b\n1,2\n{line}\n3,4\n"))
    assert (table.column("a"), table.rows) == (["1", "3"], (2, 4))
    assert [row.row for row in table.broken] == [3]


def test_an_empty_cell_of_the_only_column_is_a_row(tmp_path: Path) -> None:
    assert read_table(_file(tmp_path, "t.csv", 'a\nx\n""\n\n  \ny\n')).column("a") == ["x", "", "y"]


HOSTILE_RECORDS = [
    '{"A": 5, "a": 6}', '{"a": 5, "a": 6}', "[1]", "7", "null", '{"a": tru}', '{"a": ' + "9" * 5000 + "}",
    '{"a": 1e99999999999999999999}', '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"x": {"y": 1, "y": 2}}',
]  # fmt: skip


@pytest.mark.parametrize("record", HOSTILE_RECORDS, ids=range(len(HOSTILE_RECORDS)))
@pytest.mark.parametrize("form", ["json", "held", "jsonl"])
def test_a_record_that_cannot_be_read_leaves_the_others_as_they_are(form: str, record: str, tmp_path: Path) -> None:
    rows = ['{"a": "one"}', record, '{"A": 2.50}']
    text = {
        "json": f"[{', '.join(rows)}]",
        "held": f'{{"n": [1], "data": [{", ".join(rows)}]}}',
        "jsonl": "\n".join(rows),
    }
    table = read_table(_file(tmp_path, f"t.{form.replace('held', 'json')}", text[form]))
    found = dict(zip(table.rows, table.column("a"), strict=True))
    assert len(table) + len(table.broken) == 3
    assert (found[1], str(found[3])) == ("one", "2.50")


def test_the_strings_of_a_json_document_are_decoded_by_themselves(tmp_path: Path) -> None:
    raw = b'[{"a": "' + "é".encode() + b'"}, {"a": "\xe9"}, {"a": "\\u00c3\\u00a9"}]'
    assert read_table(_file(tmp_path, "t.json", raw)).column("a") == ["é", "é", "Ã©"]


def test_a_list_may_hold_what_is_no_mapping() -> None:
    table = read_table([{"a": 1}, None, {"A": 2}])
    assert (table.column("a"), [row.row for row in table.broken]) == ([1, 2], [2])


def test_columns_typed_for_all_rows_are_named_and_strings_are_not() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pd.DataFrame({"i": [1, 2], "s": ["x", "y"], "f": [1.5, None], "o": pd.Series(["x", 1], dtype=object)})
    frame["c"], frame["n"] = frame["s"].astype("category"), frame["i"].astype("category")
    frame["d"], frame["I"] = pd.to_datetime(["2024-01-01"] * 2, utc=True), frame["i"].astype("Int64")
    assert read_table(frame).typed == ("i", "f", "n", "d", "I")
    assert read_table(frame.astype(str)).typed == ()
    other = pl.DataFrame({"i": [1, 2], "s": ["x", "y"], "d": [Decimal("2.5"), Decimal("2.50")], "e": [None, None]})
    other = other.with_columns(c=pl.col("s").cast(pl.Categorical), m=pl.col("s").cast(pl.Enum(["x", "y"])))
    assert read_table(other).typed == ("i", "d")


def test_columns_typed_in_a_parquet_file_are_named(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"i": [1], "s": ["x"], "c": pa.array(["x"]).dictionary_encode(), "e": pa.nulls(1)})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").typed == ("i",)


def test_a_cell_that_a_library_cannot_hand_out_is_its_own_rows_problem(tmp_path: Path) -> None:
    pa, pq, pl = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet", "polars"))
    late = pa.array([0, 2**62], pa.timestamp("us"))
    raw = pa.array([b"caf\xc3\xa9", b"caf\xe9"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"t": late, "s": raw}), tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", pl.DataFrame({"t": pl.Series([0, 2**62]).cast(pl.Datetime("us"))})):
        assert read_table(source).column("t") == [dt.datetime(1970, 1, 1), b""]
    assert read_table(tmp_path / "t.parquet").column("s") == ["café", "café"]


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
    ("t.csv", b'a,b\n1,2\n3,"4\n5,6\n', "row 3 cannot be split"),
    ("t.csv", b'"a"x,b\n1,2\n', "header row must have quotes"),
    ("t.json", b'[{"a": 1}, ]', "valid JSON"),
    ("t.json", b'{"data": [{"a": 1}], "data": []}', "each field once"),
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
