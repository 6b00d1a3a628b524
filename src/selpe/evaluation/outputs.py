"""Raw outputs in a file, with their rows: lines of jsonl as they stand, rows of a table as the JSON they amount to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from selpe.errors import DataError
from selpe.evaluation.patterns import JSON_NUMBER
from selpe.schema import Field, Schema

if TYPE_CHECKING:
    from selpe.intake import Table

_NUMBER = re.compile(JSON_NUMBER)
LINES = frozenset({".jsonl", ".ndjson", ".txt"})


def read_outputs(path: Path, schema: Schema) -> list[tuple[int, str]]:
    """Every output of a file with its row. Raises DataError where the file cannot be read or holds nothing."""
    if path.suffix.lower() in LINES:
        outputs = list(_lines(path))
    else:
        from selpe.intake import read_table

        outputs = _rows(read_table(path), schema)
    if not outputs:
        raise DataError("the file holds no record", where=str(path), hint="Give at least one record.")
    return outputs


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line that is not blank. A line that is one JSON string stands for the text inside it."""
    from selpe.intake.encodings import decode

    try:
        content = path.read_bytes()
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else "the file cannot be read"
        raise DataError(reason, where=str(path), hint="Check the path.") from None
    # Only a line feed ends a line: JSON texts may hold the other line separators of Unicode.
    for number, line in enumerate(decode(content, path.name).split("\n"), 1):
        if line.strip():
            yield number, _unquoted(line.rstrip("\r"))


def _unquoted(line: str) -> str:
    if not line.lstrip().startswith('"'):
        return line
    try:
        text = json.loads(line)
    except ValueError:
        return line
    return text if isinstance(text, str) else line


def _rows(table: Table, schema: Schema) -> list[tuple[int, str]]:
    """Each row as a JSON object: a cell that is not a literal of its field's kind stays text, and fails as text."""
    fields = [schema.field(name) if name in schema.names else None for name in table.columns]
    found = [(row.row, "") for row in table.broken]
    for position, row in enumerate(table.rows):
        cells = [column[position] for column in table.data]
        pairs = [
            f"{json.dumps(name)}: {_literal(field, cell)}"
            for name, field, cell in zip(table.columns, fields, cells, strict=True)
        ]
        found.append((row, f"{{{', '.join(pairs)}}}"))
    return sorted(found)


def _literal(field: Field | None, cell: object) -> str:
    from selpe.intake.cells import cell_text, is_missing

    if field is None or is_missing(field, cell):
        return "null"
    text = cell if isinstance(cell, str) else cell_text(cell)
    if field.kind in ("integer", "number") and _NUMBER.fullmatch(text):
        return text
    if field.kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower()
    return json.dumps(text)
