"""Small files that unpack to more than a machine holds, made in milliseconds."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_HEAD = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
_TAIL = b"</sheetData></worksheet>"


def _row(number: int, *cells: tuple[str, str]) -> bytes:
    inner = "".join(f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>' for place, text in cells)
    return f'<row r="{number}">{inner}</row>'.encode()


_HEADER = _row(1, ("A1", "a"), ("B1", "b"))
_ENTITIES = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))


def _book(*rows: bytes, before: str = "") -> bytes:
    """A workbook whose one sheet has these rows."""
    import openpyxl

    made, changed = io.BytesIO(), io.BytesIO()
    openpyxl.Workbook().save(made)
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            sheet = b"".join([before.encode(), _HEAD, *rows, _TAIL])
            target.writestr(name, sheet if name == "xl/worksheets/sheet1.xml" else source.read(name))
    return changed.getvalue()


def _parquet(kind: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = "x" * 1_000_000
    how: dict[str, Any] = {}
    if kind == "nulls":
        column = pa.nulls(60_000_000, pa.int32())
    elif kind == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array([text]))
    elif kind == "beginnings":
        column, how = pa.array([text] * 200), {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}
    else:
        column = pa.array([[text] * 20] * 10)
    made = io.BytesIO()
    pq.write_table(pa.table({"a": column}), made, compression="zstd", **how)
    return made.getvalue()


HOSTILE: Mapping[str, Callable[[], bytes]] = {
    "far-row.xlsx": lambda: _book(_HEADER, _row(2, ("A2", "1")), _row(999_999_999, ("A999999999", "1"))),
    "far-column.xlsx": lambda: _book(_HEADER, *(_row(i, (f"A{i}", "1"), (f"XFD{i}", "2")) for i in range(2, 3000))),
    "wide-header.xlsx": lambda: _book(
        _row(1, ("A1", "a"), ("XFD1", "b")), *(_row(i, (f"A{i}", "1")) for i in range(2, 3000))
    ),
    "many-cells.xlsx": lambda: _book(_HEADER, b'<row r="2">' + b"<c/>" * 2_000_000 + b"</row>"),
    "bomb.xlsx": lambda: _book(_HEADER, _row(2, ("A2", "x" * 200_000_000))),
    "entities.xlsx": lambda: _book(
        _HEADER, _row(2, ("A2", "&a9;")), before=f'<!DOCTYPE w [<!ENTITY a0 "aaaaaaaaaa">{_ENTITIES}]>'
    ),
    "nulls.parquet": lambda: _parquet("nulls"),
    "dictionary.parquet": lambda: _parquet("dictionary"),
    "beginnings.parquet": lambda: _parquet("beginnings"),
    "lists.parquet": lambda: _parquet("lists"),
    "keys.jsonl": lambda: b"".join(json.dumps({f"k{i}": 1}).encode() + b"\n" for i in range(12_000)),
    "keys.json": lambda: json.dumps([{f"k{i}": 1} for i in range(12_000)]).encode(),
    "deep.json": lambda: b"[" * 200_000 + b"]" * 200_000,
    "deep.jsonl": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "quotes.json": lambda: b'[{"a": "' + b'\\"' * 300_000 + b"}]",
    "columns.csv": lambda: b",".join(b"c%d" % i for i in range(200_000)) + b"\n" + b"1," * 199_999 + b"1\n",
}


def hostile_file(name: str, folder: Path) -> Path:
    """One of them, written."""
    path = folder / name
    path.write_bytes(HOSTILE[name]())
    return path
