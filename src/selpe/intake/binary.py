"""Parquet files and Excel sheets in."""

from __future__ import annotations

import io
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from selpe.errors import DataError
from selpe.intake.core import Allowance, Table, attempt, build_table, cells_of, few_enough, plain_name
from selpe.intake.encodings import own_text

MOST_ROWS = 1_048_576  # of a sheet
_EMPTY_CELLS = 20_000_000  # in the rows of a sheet, which cost time alone
_AT_ONCE = 65_536  # rows


def read_parquet(raw: bytes, source: str) -> Table:
    """A table from a Parquet file."""

    def load() -> Table:
        import pyarrow as pa

        file = _parquet(raw, source)
        table = pa.Table.from_batches(_unpacked(file, Allowance(len(raw), source)), schema=file.schema_arrow)
        rows = tuple(range(1, table.num_rows + 1))
        names = tuple(plain_name(str(name)) for name in table.column_names)
        typed = tuple(name for name, entry in zip(names, table.schema, strict=True) if not _as_written(entry.type))
        data = tuple(_arrow_cells(column) for column in table.columns)
        return Table(columns=names, data=data, rows=rows, source=source, typed=typed)

    return attempt(load, lambda kind: _damaged("Parquet", kind, source))


def _parquet(raw: bytes, source: str) -> Any:
    """The file with its columns of text as dictionaries, in which a text that is repeated stands once."""
    import pyarrow.parquet as pq
    from pyarrow import types

    file = pq.ParquetFile(io.BytesIO(raw))
    few_enough(len(file.schema_arrow), source)
    # Only what was written as a dictionary can be read as one.
    plain = {chunk.path_in_schema for chunk in _chunks(file) if "RLE_DICTIONARY" not in chunk.encodings}
    texts = [
        entry.name
        for entry in file.schema_arrow
        if entry.name not in plain and (types.is_string(entry.type) or types.is_binary(entry.type))
    ]
    return pq.ParquetFile(io.BytesIO(raw), read_dictionary=texts) if texts else file


def _chunks(file: Any) -> list[Any]:
    """What the file says of each column in each of its groups of rows."""
    found = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if group.num_columns != file.metadata.num_columns:
            raise ValueError("a group has other columns than the file")  # to ask Arrow about them ends the process
        if group.num_rows > 0:
            # To ask Arrow about a column whose description is damaged ends the process; to read it is an error.
            next(file.iter_batches(1, row_groups=[number]), None)
            found += [group.column(place) for place in range(group.num_columns)]
    return found


def _unpacked(file: Any, allowance: Allowance) -> Iterator[Any]:
    """The rows of a file, some at once, as long as it holds no more than it may."""
    chunks = _chunks(file)
    allowance.take(max(file.metadata.num_rows, sum(chunk.num_values for chunk in chunks)))
    largest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
    Allowance(allowance.size, allowance.source).take(0, sum(chunk.total_uncompressed_size for chunk in chunks) // 4)
    # No text is longer than all texts of its column, as they stand in the file.
    shared = any(_repeats(file, chunk) for chunk in chunks)
    nested = any("." in chunk.path_in_schema for chunk in chunks)
    at_once = max(1, min(_AT_ONCE, allowance.most_characters // max(1, largest))) if shared else _AT_ONCE
    at_once = 1 if shared and nested else at_once
    for batch in file.iter_batches(batch_size=at_once):
        allowance.take(0, sum(map(_size, batch.columns)))
        yield batch


def _repeats(file: Any, chunk: Any) -> bool:
    """Whether texts, or their beginnings, may stand once in the file and often in the column as it is unpacked."""
    if chunk.physical_type != "BYTE_ARRAY" or set(chunk.encodings) <= {"PLAIN", "RLE", "BIT_PACKED"}:
        return False
    from pyarrow import types

    place = file.schema_arrow.get_field_index(chunk.path_in_schema)
    return place < 0 or "DELTA_BYTE_ARRAY" in chunk.encodings or not types.is_dictionary(file.schema_arrow.types[place])


def _size(column: Any) -> int:
    """The bytes of a column with every repeated text written out."""
    import pyarrow.compute as pc
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return int(column.nbytes)
    kind = column.dictionary.type
    if not (types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind)):
        return int(column.nbytes)
    return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0


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

        allowance = Allowance(len(raw), source)
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            # No more than this can be read from them, whatever they hold.
            allowance.take(0, sum(part.file_size for part in archive.infolist()))
            for part in archive.infolist():
                _rows_have_an_end(archive, part, source)
        allowance.characters = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openpyxl warns about styles and extensions that do not concern us
            book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
            try:
                return _sheet(_choose(book, sheet, source), allowance)
            finally:
                book.close()

    return attempt(load, lambda kind: _damaged("Excel", kind, source))


def _rows_have_an_end(archive: zipfile.ZipFile, part: zipfile.ZipInfo, source: str) -> None:
    """Raises DataError where a row has more cells than a sheet has columns: each, even an empty one, would cost time.

    Of a part that is no XML nothing is said here; whoever reads it refuses it.
    """
    from xml.parsers import expat

    counts, rows = [0], [False]  # of open elements: how many are directly in each, and whether it is a row

    def begin(name: str, _: object) -> None:
        counts[-1] += 1
        if rows[-1]:
            few_enough(counts[-1], source)
        counts.append(0)
        rows.append(name.rpartition(":")[2] == "row")

    def end(_: str) -> None:
        counts.pop()
        rows.pop()

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    with suppress(expat.ExpatError, zipfile.BadZipFile, zlib.error, EOFError), archive.open(part) as file:
        parser.ParseFile(file)


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


def _sheet(worksheet: Any, allowance: Allowance) -> Table:
    worksheet.reset_dimensions()  # the size a writer declares is often wrong
    rows = _filled(worksheet, allowance)
    source = allowance.source
    first = next(rows, None)
    if first is None:
        raise DataError("the sheet is empty", where=source, hint="A table needs a header row and data rows.")
    width = len(first[1])
    padded = ((number, _padded(cells, width, allowance)) for number, cells in rows)
    return build_table(first[1], padded, source=source, counting="sheet")


def _padded(cells: tuple[object, ...], width: int, allowance: Allowance) -> tuple[object, ...]:
    kept = cells + (None,) * (width - len(cells))
    allowance.take(len(kept), sum(len(cell) for cell in cells if isinstance(cell, str)))
    return kept


def _filled(worksheet: Any, allowance: Allowance) -> Iterator[tuple[int, tuple[object, ...]]]:
    """The rows that hold something, with their numbers."""
    seen = 0
    for number, cells in enumerate(worksheet.iter_rows(values_only=True), start=1):
        seen += len(cells)
        if number > MOST_ROWS or seen > max(_EMPTY_CELLS, 10 * allowance.size):
            raise DataError(
                "the sheet has cells far outside of its table",
                where=allowance.source,
                hint="Copy the table into a new workbook, or save it as csv.",
            )
        if any(cell is not None and cell != "" for cell in cells):
            yield number, cells


def _damaged(what: str, kind: str, source: str) -> DataError:
    return DataError(
        f"this is not a readable {what} file ({kind})", where=source, hint="Check the file, or save it again."
    )
