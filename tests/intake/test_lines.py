"""Records that stay in their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from selpe.errors import DataError
from selpe.intake import to_frame, write_table
from selpe.intake.lines import RecordLines
from small_world import SCHEMA, drawn

RECORDS = drawn(9)


@pytest.fixture
def lines(tmp_path: Path) -> RecordLines:
    RECORDS[2]["topic"] = "two\u2028lines\n and a ü"
    return RecordLines(write_table(RECORDS, SCHEMA, tmp_path / "a.jsonl"))


def test_they_are_a_sequence_like_a_list(lines: RecordLines) -> None:
    assert len(lines) == 9
    assert list(lines) == RECORDS
    assert [lines[place] for place in (8, 0, -1, 2)] == [RECORDS[place] for place in (8, 0, -1, 2)]
    for part in (slice(2, 5), slice(None), slice(7, 99), slice(None, None, -3), slice(4, 4)):
        assert lines[part] == RECORDS[part]
    with pytest.raises(IndexError):
        lines[9]


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    for spoilt in (b"[1]\n", b"{\n", b'{"a": "\xff"}\n'):
        path.write_bytes(b'{"a": 1}\n\n' + spoilt)
        lines = RecordLines(path)
        assert (len(lines), lines[0]) == (2, {"a": 1})
        with pytest.raises(DataError, match="one JSON object a line"):
            list(lines)


def test_tables_are_written_and_framed_in_blocks_as_at_once(
    lines: RecordLines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    whole = to_frame(RECORDS, SCHEMA)
    write_table(RECORDS, SCHEMA, tmp_path / "whole.parquet")
    monkeypatch.setattr("selpe.intake.write._BLOCK", 4)
    blocks = to_frame(lines, SCHEMA)
    assert blocks.equals(whole)
    assert list(blocks.dtypes) == list(whole.dtypes)
    write_table(iter(lines), SCHEMA, tmp_path / "blocks.parquet")
    assert pq.ParquetFile(tmp_path / "blocks.parquet").num_row_groups == 3
    assert pq.read_table(tmp_path / "blocks.parquet").equals(pq.read_table(tmp_path / "whole.parquet"))
