"""Records out: csv, tsv, jsonl, parquet, xlsx, pandas and polars frames, all in the schema's order and types."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import DataError
from selpe.intake.core import attempt
from selpe.lasting import put_in_place
from selpe.owner_only import claim, make_folder
from selpe.schema import CategoryField, Field, NumberField, Schema, Value

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Row = Mapping[str, Value]
Rows = Sequence[Row]
_BLOCK = 50_000  # records of a parquet file that are in memory at a time
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_table(records: Iterable[Row], schema: Schema, path: str | Path, *, excel_safe: bool = False) -> Path:
    """Writes records to a file whose suffix names the format; the file is written completely or not at all.

    They are taken one by one, and all at once only for xlsx: a csv, jsonl or parquet file may be larger than memory.
    `excel_safe` puts an apostrophe before text that a spreadsheet would run as a formula; without it, csv cells
    are exactly the records' values. Only its owner can read the file (0600): records may be private.
    """
    target = Path(path)
    writers: dict[str, Callable[[Path], None]] = {
        ".csv": lambda file: _write_csv(records, schema, file, ",", excel_safe),
        ".tsv": lambda file: _write_csv(records, schema, file, "\t", excel_safe),
        ".jsonl": lambda file: _write_jsonl(records, schema, file),
        ".parquet": lambda file: _write_parquet(records, schema, file),
        ".xlsx": lambda file: _write_xlsx(records, schema, file, excel_safe),
    }
    if target.suffix.lower() not in writers:
        raise DataError(
            f"cannot write a '{target.suffix}' file", where=target.name, hint=f"Use one of {', '.join(writers)}."
        )
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")

    def write() -> Path:
        make_folder(target.parent)
        claim(draft)
        writers[target.suffix.lower()](draft)
        put_in_place(draft, target)
        return target

    def failed(kind: str) -> DataError:
        return DataError(f"the file cannot be written ({kind})", where=str(target), hint="Check the folder.")

    try:
        return attempt(write, failed)
    finally:
        draft.unlink(missing_ok=True)


def to_frame(records: Rows, schema: Schema) -> pd.DataFrame:
    """Records as a pandas frame: strings, categoricals, nullable integers and booleans, floats and days."""
    import pandas as pd

    large = len(records) > _BLOCK

    def build() -> pd.DataFrame:
        blocks = [records[start : start + _BLOCK] for start in range(0, len(records), _BLOCK)] if large else [records]
        frames = [pd.DataFrame({field.name: _series(field, block) for field in schema.fields}) for block in blocks]
        frame: pd.DataFrame = pd.concat(frames, ignore_index=True) if large else frames[0]
        return frame

    return attempt(build, _not_the_types)


def to_polars(records: Rows, schema: Schema) -> pl.DataFrame:
    """Records as a polars frame: strings, enumerations, integers, floats, booleans and days."""
    import polars as pl

    types: dict[str, Any] = {
        "text": pl.String, "integer": pl.Int64, "number": pl.Float64, "boolean": pl.Boolean, "date": pl.Date
    }  # fmt: skip

    def column(field: Field, rows: Rows) -> pl.Series:
        kind = pl.Enum(list(field.values)) if isinstance(field, CategoryField) else types[field.kind]
        cells = [_day(field, record.get(field.name)) for record in rows]
        if field.kind == "number":  # a whole number among decimals is one of them
            cells = [None if cell is None else float(cell) for cell in cells]  # type: ignore[arg-type]
        return pl.Series(field.name, cells, dtype=kind, strict=True)

    def build() -> pl.DataFrame:
        starts = range(0, max(1, len(records)), _BLOCK)
        blocks = [records[start : start + _BLOCK] for start in starts]
        frame: pl.DataFrame = pl.concat(
            [pl.DataFrame([column(field, block) for field in schema.fields]) for block in blocks]
        )
        return frame

    return attempt(build, _not_the_types)


def _not_the_types(kind: str) -> DataError:
    return DataError(f"the records do not have the schema's types ({kind})", hint="Check them with the schema.")


def _series(field: Field, records: Rows) -> Any:
    import pandas as pd

    cells = [record.get(field.name) for record in records]
    if isinstance(field, CategoryField):
        return pd.Series(pd.Categorical(cells, categories=list(field.values)))
    if field.kind == "date":
        days = pd.to_datetime(pd.Series(cells, dtype="object"), format="%Y-%m-%d")
        return days.astype("datetime64[s]")
    dtypes: dict[str, Any] = {"text": "string", "integer": "Int64", "number": "float64", "boolean": "boolean"}
    return pd.Series(cells, dtype=dtypes[field.kind])


def _write_csv(records: Iterable[Row], schema: Schema, path: Path, delimiter: str, excel_safe: bool) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(schema.names)
        for row in _cells(records, schema, excel_safe):
            writer.writerow(row)


def _cells(records: Iterable[Row], schema: Schema, excel_safe: bool) -> Iterable[list[str]]:
    for record in records:
        yield [_text(field, record.get(field.name), excel_safe) for field in schema.fields]


def _text(field: Field, value: Value, excel_safe: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(field, NumberField) and not isinstance(value, str):
        return f"{value:.{field.decimals}f}"
    text = str(value)
    return f"'{text}" if excel_safe and isinstance(value, str) and text.startswith(_FORMULA) else text


def _write_jsonl(records: Iterable[Row], schema: Schema, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(schema.dumps(record) + "\n")


def _write_parquet(records: Iterable[Row], schema: Schema, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "text": pa.string(),
        "category": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
    }
    columns = pa.schema([(field.name, types[field.kind]) for field in schema.fields])
    rows = iter(records)
    with pq.ParquetWriter(path, columns) as writer:
        while block := list(islice(rows, _BLOCK)):
            arrays = [
                pa.array([_day(field, record.get(field.name)) for record in block], type=types[field.kind])
                for field in schema.fields
            ]
            writer.write_table(pa.table(arrays, schema=columns))


def _write_xlsx(records: Iterable[Row], schema: Schema, path: Path, excel_safe: bool) -> None:
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    # Everything that can fail comes before the sheet is opened: openpyxl does not clean up after itself.
    rows = [
        [_day(field, _shown(field, record.get(field.name), excel_safe)) for field in schema.fields]
        for record in records
    ]
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("records")
    sheet.append(list(schema.names))
    for row in rows:
        cells = [WriteOnlyCell(sheet, value=value) for value in row]
        for cell, value in zip(cells, row, strict=True):
            if isinstance(value, str):
                cell.data_type = "s"  # text that starts with '=' stays text
        sheet.append(cells)
    with path.open("wb") as file:
        book.save(file)


def _shown(field: Field, value: Value, excel_safe: bool) -> Value:
    return _text(field, value, excel_safe) if isinstance(value, str) else value


def _day(field: Field, value: Value) -> Value | date:
    return date.fromisoformat(value) if field.kind == "date" and isinstance(value, str) else value


def framed(records: Rows, schema: Schema, library: str) -> Any:
    """The records as a frame of pandas or polars."""
    return to_polars(records, schema) if library == "polars" else to_frame(records, schema)


def joined(first: Any, second: Any, library: str) -> Any:
    """Two frames of one library, one below the other."""
    if library == "polars":
        import polars as pl

        return pl.concat([first, second])
    import pandas as pd

    return pd.concat([first, second], ignore_index=True)
