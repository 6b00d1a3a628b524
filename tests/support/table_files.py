"""The same table in every format, for tests."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

FORMATS = ("csv", "tsv", "jsonl", "json", "parquet", "xlsx")
Rows = Sequence[Sequence[str | None]]


def write_as(form: str, columns: Sequence[str], rows: Rows, folder: Path) -> Path:
    """A file of text cells in one of the formats."""
    path = folder / f"table.{form}"
    items = [dict(zip(columns, row, strict=True)) for row in rows]
    if form in ("csv", "tsv"):
        text = io.StringIO()
        writer = csv.writer(text, delimiter="," if form == "csv" else "\t")
        writer.writerow(columns)
        writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
    elif form == "jsonl":
        path.write_text("\n".join(json.dumps(item) for item in items), encoding="utf-8")
    elif form == "json":
        path.write_text(json.dumps({"data": items}), encoding="utf-8")
    elif form == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = pa.schema([(name, pa.string()) for name in columns])
        pq.write_table(pa.Table.from_pylist(items, schema=types), path, compression="none")
    else:
        import openpyxl

        book = openpyxl.Workbook()
        sheet = book.active
        sheet.append(list(columns))
        for row in rows:
            sheet.append(list(row))
        book.save(path)
    return path
