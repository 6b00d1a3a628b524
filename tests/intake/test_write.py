"""Records out and back in: nothing lost, formulas only where they were, files whole or absent."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selpe.errors import DataError
from selpe.intake import read_table, to_frame, to_records, write_table
from selpe.schema import Record, Schema

SCHEMA = Schema.from_dict(
    {
        "name": "desk",
        "fields": {
            "note": {"kind": "text", "max_length": 60, "optional": True},
            "level": {"kind": "category", "values": ["low", "high", "NA", "=1"]},
            "pain": {"kind": "integer", "min": -10, "max": 10, "optional": True},
            "weight": {"kind": "number", "min": -2000, "max": 2000, "step": 0.1, "optional": True},
            "seen": {"kind": "boolean", "optional": True},
            "day": {"kind": "date", "min": "2020-01-01", "max": "2030-12-31", "optional": True},
        },
    }
)
TEXTS = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp", "Zs"]) | st.sampled_from(" ,;\n\t\"'="), max_size=40
)
RECORDS = st.fixed_dictionaries(
    {
        # 'NA' and its kin, and outer space, mean missing or nothing in every table.
        "note": st.none() | TEXTS.map(str.strip).map(lambda text: f"n{text}"),
        "level": st.sampled_from(["low", "high", "NA", "=1"]),
        "pain": st.none() | st.integers(-10, 10),
        "weight": st.none() | st.integers(-20000, 20000).map(lambda tenths: float(Decimal(tenths) / 10)),
        "seen": st.none() | st.booleans(),
        "day": st.none() | st.dates(dt.date(2020, 1, 1), dt.date(2030, 12, 31)).map(dt.date.isoformat),
    }
)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
@given(records=st.lists(RECORDS, min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_what_is_written_reads_back_the_same(suffix: str, records: list[Record]) -> None:
    with TemporaryDirectory() as folder:
        path = write_table(records, SCHEMA, Path(folder) / f"out.{suffix}")
        assert to_records(read_table(path), SCHEMA) == records
        assert [file.name for file in Path(folder).iterdir()] == [path.name]


@given(records=st.lists(RECORDS, min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_a_frame_reads_back_the_same(records: list[Record]) -> None:
    assert to_records(read_table(to_frame(records, SCHEMA)), SCHEMA) == records


def test_a_frame_has_the_schemas_types() -> None:
    record: Record = {"note": "x", "level": "low", "pain": 1, "weight": 1.5, "seen": True, "day": "2024-01-31"}
    frame = to_frame([record, {"level": "high"}], SCHEMA)
    kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert kinds == {
        "note": "string",
        "level": "category",
        "pain": "Int64",
        "weight": "float64",
        "seen": "boolean",
        "day": "datetime64[s]",
    }
    assert list(frame["level"].cat.categories) == ["low", "high", "NA", "=1"]


def test_csv_cells_are_exact_by_default_and_safe_for_spreadsheets_on_demand(tmp_path: Path) -> None:
    records: list[Record] = [
        {"note": "=1+1", "level": "=1", "pain": -3, "weight": -2.0},
        {"note": "@x", "level": "low"},
    ]
    plain = write_table(records, SCHEMA, tmp_path / "plain.csv").read_text(encoding="utf-8")
    safe = write_table(records, SCHEMA, tmp_path / "safe.csv", excel_safe=True).read_text(encoding="utf-8")
    assert plain.splitlines()[1:] == ["=1+1,=1,-3,-2.0,,", "@x,low,,,,"]
    assert safe.splitlines()[1:] == ["'=1+1,'=1,-3,-2.0,,", "'@x,low,,,,"]


def test_text_in_a_workbook_is_never_a_formula(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = write_table([{"note": "=1+1", "level": "=1"}], SCHEMA, tmp_path / "t.xlsx")
    sheet = openpyxl.load_workbook(path).active
    assert [cell.data_type for cell in sheet[2][:2]] == ["s", "s"]


def test_numbers_are_written_at_the_schemas_precision(tmp_path: Path) -> None:
    path = write_table([{"level": "low", "weight": 0.1 + 0.2}], SCHEMA, tmp_path / "t.csv")
    assert path.read_text(encoding="utf-8").splitlines()[1] == ",low,,0.3,,"


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot write a '\.doc' file"):
        write_table([], SCHEMA, tmp_path / "t.doc")


def test_a_failed_write_leaves_the_old_file_and_no_scraps(tmp_path: Path) -> None:
    path = write_table([{"level": "low"}], SCHEMA, tmp_path / "t.parquet")
    before = path.read_bytes()
    with pytest.raises(DataError, match="cannot be written"):
        write_table([{"level": "low", "pain": 2**70}], SCHEMA, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["t.parquet"]
