"""Rows of large csv files, a stretch at a time, with only the columns that are wanted."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from selpe.errors import DataError
from selpe.intake.core import attempt

CHUNK = 20_000
_MARKS = (",", ";")  # between the cells of a row
_LINES_ABOVE = 3  # LendingClub's own files begin with a line about the prospectus
_LONGEST_HEADER = 100_000


def header(path: Path) -> tuple[str, ...]:
    """The column names of a csv file, compressed or not; empty where it is none."""
    return _header(path)[1]


def rows(path: Path, columns: Collection[str]) -> Iterator[dict[str, str]]:
    """The rows of a csv file as texts, with those of the columns that it has; a missing cell is ''."""
    import pandas as pd

    above, there, mark = _header(path)
    wanted = [name for name in there if name in columns]
    if not wanted:
        raise DataError("the file has none of the expected columns", where=path.name, hint="Is it the right file?")

    def failed(kind: str) -> DataError:
        return DataError(f"the file cannot be read as csv ({kind})", where=path.name, hint="Download it again.")

    def opened() -> Any:
        return pd.read_csv(
            path, sep=mark, usecols=wanted, dtype=str, keep_default_na=False, skiprows=above, chunksize=CHUNK,
            encoding="utf-8-sig", low_memory=False,
        )  # fmt: skip

    with attempt(opened, failed) as parts:
        while True:
            part = attempt(lambda: next(parts, None), failed)
            if part is None:
                return
            # Short lines (a publisher's sums below the table) are filled up with missing cells.
            for row in part.fillna("").to_dict("records"):
                yield {name: str(cell).strip() for name, cell in row.items()}


def _header(path: Path) -> tuple[int, tuple[str, ...], str]:
    """How many lines stand above the header, its names, and the mark between them."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", errors="strict", newline="") as file:
            lines = [file.readline(_LONGEST_HEADER) for _ in range(_LINES_ABOVE + 1)]
    except (OSError, UnicodeDecodeError, EOFError):
        return 0, (), _MARKS[0]
    for above, line in enumerate(lines):
        for mark in _MARKS:
            names = [name.strip() for name in next(csv.reader([line], delimiter=mark), [])]
            if len(names) > 2 and all(names):
                return above, tuple(names), mark
    return 0, (), _MARKS[0]
