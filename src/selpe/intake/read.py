"""The one way in: a file, a frame, records, or a SQL query becomes a `Table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from selpe.errors import DataError
from selpe.intake.binary import read_parquet, read_xlsx
from selpe.intake.core import Table, attempt
from selpe.intake.frames import frame_library, from_frame
from selpe.intake.objects import from_mappings, read_json, read_jsonl
from selpe.intake.sql import looks_like_url, read_sql
from selpe.intake.text import read_delimited

Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "xlsx"]
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}


def read_table(
    source: object,
    *,
    format: Format | None = None,
    query: str | None = None,
    sheet: str | int | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> Table:
    """The raw table behind a path, a pandas or polars frame, a list of mappings, or a database URL with a query."""
    if isinstance(source, Table):
        table = source
    elif frame_library(source):
        table = from_frame(source, "frame")
    elif isinstance(source, str) and looks_like_url(source):
        if not query:
            raise DataError("a database needs a query", hint="Give query='SELECT … FROM …'.")
        table = read_sql(source, query)
    elif isinstance(source, (str, Path)):
        table = _from_file(Path(source), format, sheet, encoding, delimiter)
    elif isinstance(source, Sequence) and (not source or any(isinstance(item, Mapping) for item in source)):
        table = from_mappings(enumerate(source, start=1), "records", counting="record")
    else:
        raise DataError(
            f"cannot read a table from a {type(source).__name__}",
            hint="Give a path, a pandas or polars frame, a list of dicts, or a database URL with a query.",
        )
    if not len(table) and not table.broken:
        raise DataError("the table has no rows", where=table.source, hint="Give at least one record.")
    return table


def _from_file(
    path: Path, format: Format | None, sheet: str | int | None, encoding: str | None, delimiter: str | None
) -> Table:
    form = format or _format(path)
    raw, source = _bytes(path), path.name
    if form == "parquet":
        return read_parquet(raw, source)
    if form == "xlsx":
        return read_xlsx(raw, source, sheet=sheet)
    if not raw.strip():
        raise DataError("the file is empty", where=source, hint="A table needs a header row and data rows.")
    if form == "jsonl":
        return read_jsonl(raw, source, encoding=encoding)
    if form == "json":
        return read_json(raw, source, encoding=encoding)
    return read_delimited(
        raw, source, encoding=encoding, delimiter="\t" if delimiter is None and form == "tsv" else delimiter
    )


def _format(path: Path) -> Format:
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    known = ", ".join(get_args(Format))
    hint = "Save the sheet as .xlsx." if suffix == ".xls" else f"Use one of {known}, or say format=…."
    raise DataError(f"unknown kind of file '{suffix or path.name}'", where=path.name, hint=hint)


def _bytes(path: Path) -> bytes:
    def failed(kind: str) -> DataError:
        reasons: dict[str, str] = {
            "FileNotFoundError": "there is no such file",
            "IsADirectoryError": "this is a folder, not a file",
            "PermissionError": "the file may not be read by this user",
        }
        return DataError(
            reasons.get(kind, f"the file cannot be read ({kind})"), where=str(path), hint="Check the path."
        )

    return attempt(path.read_bytes, failed)
