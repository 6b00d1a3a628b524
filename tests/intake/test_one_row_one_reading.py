"""What a record is depends on its own bytes and on public settings: one row is replaced, and all others are compared.

`benchmarks/one_row_one_reading.py` does the same with many more pairs.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

from hostile_cells import SCHEMA, UNIT, ordinary_texts
from hostile_rows import READERS, Pair, by_row, csv_text, differences, make_pair
from selpe.intake import cells, objects, read_table

PAIRS = 40


def _different(reader: str, folder: Path, seeds: Iterable[int] = range(PAIRS)) -> list[tuple[int, list[str]]]:
    found = [(seed, differences(make_pair(reader, seed, folder))) for seed in seeds]
    return [(seed, said) for seed, said in found if said]


@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_row_changes_no_other_record_and_no_count(reader: str, tmp_path: Path) -> None:
    assert _different(reader, tmp_path) == []


def test_pairs_are_not_alike() -> None:
    """Hostile rows are read, refused and set aside; otherwise nothing would have been tried."""
    pairs = [make_pair("mappings", seed, Path()) for seed in range(PAIRS)]
    rows = [by_row(pair.tables[1], SCHEMA, UNIT)[pair.row] for pair in pairs]
    assert 0 < sum(map(bool, rows)) < PAIRS
    assert any(pair.tables[1].broken for pair in pairs)


def test_keys_settled_over_all_rows_are_noticed(tmp_path: Path) -> None:
    def by_exact_key(numbered: Any, source: str, *, counting: Any) -> Any:
        """The old rule: every spelling is a column of its own, and the first that fits is the field's for all."""
        table = real(numbered, source, counting=counting)
        lower = [place for place, name in enumerate(table.columns) if name.islower()]
        return dataclasses.replace(table, data=tuple(table.data[place] for place in lower),
                                   columns=tuple(table.columns[place] for place in lower))  # fmt: skip

    real = objects.from_mappings
    with mock.patch.object(objects, "from_mappings", by_exact_key):
        assert _different("jsonl", tmp_path)


def test_cells_remembered_by_equality_are_noticed(tmp_path: Path) -> None:
    def remembering(field: Any, conventions: Any) -> Any:
        seen: dict[Any, Any] = {}

        def read(cell: object) -> Any:
            try:
                return seen.setdefault((type(cell), cell), real(field, conventions)(cell))
            except TypeError:
                return real(field, conventions)(cell)

        return read

    real = cells.reader_of
    with mock.patch("selpe.intake.records.reader_of", remembering):
        assert _different("mappings", tmp_path)


def test_a_change_of_type_that_no_reading_names_is_noticed() -> None:
    pd = pytest.importorskip("pandas")
    texts = [ordinary_texts(Random(seed)) for seed in range(3)]
    numbers = [row | {"person": "007"} for row in texts]
    other = [*numbers[:2], numbers[2] | {"person": "A7"}]
    frames = [pd.read_csv(io.StringIO(csv_text(rows))) for rows in (numbers, other)]
    tables = [read_table(frame) for frame in frames]
    assert differences(Pair(tables, 3)) == []
    silent = [dataclasses.replace(table, typed=()) for table in tables]
    assert differences(Pair(silent, 3)) == ["row 1", "row 2"]
