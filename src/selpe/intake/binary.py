"""Parquet files and Excel sheets in."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from selpe.errors import DataError
from selpe.intake.core import Table, attempt, build_table, cells_of, plain_name
from selpe.intake.encodings import own_text


def read_parquet(raw: bytes, source: str) -> Table:
    """A table from a Parquet file."""

    def load() -> Table:
        import pyarrow.parquet as pq

        table = pq.read_table(io.BytesIO(raw))
        rows = tuple(range(1, table.num_rows + 1))
        names = tuple(plain_name(str(name)) for name in table.column_names)
        typed = tuple(name for name, entry in zip(names, table.schema, strict=True) if not _as_written(entry.type))
        data = tuple(_arrow_cells(column) for column in table.columns)
        return Table(columns=names, data=data, rows=rows, source=source, typed=typed)

    return attempt(load, lambda kind: _damaged("Parquet", kind, source))


def _as_written(kind: Any) -> bool:
    """True for a column of texts, which hold what was written, and for one of nothing."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(fits(kind) for fits in (types.is_string, types.is_large_string, types.is_string_view, types.is_null))


def _arrow_cells(column: Any) -> Sequence[object]:
    import pyarrow as pa

    def part(start: int, stop: int) -> Sequence[object]:
        cells: list[object]
        try:
            cells = column.slice(start, stop - start).to_pylist()
        except UnicodeDecodeError:
            raw = column.slice(start, stop - start).cast(pa.binary()).to_pylist()
            cells = [None if cell is None else own_text(cell) for cell in raw]
        return cells

    return cells_of(part, len(column))


def read_xlsx(raw: bytes, source: str, *, sheet: str | int | None) -> Table:
    """A table from one sheet of an Excel workbook: the first sheet unless told otherwise (1-based, or by name)."""

    def load() -> Table:
        import openpyxl

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openpyxl warns about styles and extensions that do not concern us
            book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
            try:
                return _sheet(_choose(book, sheet, source), source)
            finally:
                book.close()

    return attempt(load, lambda kind: _damaged("Excel", kind, source))


def _choose(book: Any, sheet: str | int | None, source: str) -> Any:
    sheets = list(book.worksheets)
    if not sheets:
        raise DataError("the workbook has no sheet", where=source, hint="Save a sheet with a header row.")
    if sheet is None:
        return sheets[0]
    if isinstance(sheet, int) or (sheet.isdecimal() and sheet not in book.sheetnames):
        number = int(sheet)
        if 1 <= number <= len(sheets):
            return sheets[number - 1]
    else:
        for found in sheets:
            if found.title == sheet:
                return found
    raise DataError(
        f"the workbook has no sheet '{sheet}'",
        where=source,
        hint=f"It has {len(sheets)} sheet(s); name one, or count from 1.",
    )


def _sheet(worksheet: Any, source: str) -> Table:
    worksheet.reset_dimensions()  # the size a writer declares is often wrong
    rows = _filled(worksheet)
    first = next(rows, None)
    if first is None:
        raise DataError("the sheet is empty", where=source, hint="A table needs a header row and data rows.")
    width = len(first[1])
    padded = ((number, cells + (None,) * (width - len(cells))) for number, cells in rows)
    return build_table(first[1], padded, source=source, counting="sheet")


def _filled(worksheet: Any) -> Iterator[tuple[int, tuple[object, ...]]]:
    for number, cells in enumerate(worksheet.iter_rows(values_only=True), start=1):
        if any(cell is not None and cell != "" for cell in cells):
            yield number, cells


def _damaged(what: str, kind: str, source: str) -> DataError:
    return DataError(
        f"this is not a readable {what} file ({kind})", where=source, hint="Check the file, or save it again."
    )
