"""JSON in: one object a line, an array of objects, or an object that holds one under 'data'."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from selpe.errors import DataError
from selpe.table.core import BrokenRow, Counting, Table, attempt
from selpe.table.text import decode

HOLDERS = ("data", "records", "rows")
_AN_OBJECT = "must be one JSON object of field names and values"
_REPEATED = "must name each field once"


class _RepeatedKeyError(ValueError):
    """An object that names a key twice."""


def read_jsonl(raw: bytes, source: str, *, encoding: str | None) -> Table:
    """A table from JSON lines; a broken line is set aside with its number."""
    numbered: list[tuple[int, Mapping[str, object]]] = []
    broken: list[BrokenRow] = []
    for number, line in enumerate(decode(raw, source, encoding).split("\n"), start=1):
        if not line.strip():
            continue
        item, problem = _loads(line)
        if isinstance(item, dict) and not problem:
            numbered.append((number, item))
        else:
            broken.append(BrokenRow(number, problem or _AN_OBJECT))
    return from_mappings(numbered, source, counting="line", broken=broken)


def read_json(raw: bytes, source: str, *, encoding: str | None) -> Table:
    """A table from one JSON document."""
    text = decode(raw, source, encoding)
    document, problem = _loads(text)
    hint = 'Give an array of objects, or {"data": [ … ]}.'
    if problem:
        raise DataError(f"the file {problem}", where=source, hint=hint)
    if isinstance(document, dict):
        held = [document[key] for key in HOLDERS if isinstance(document.get(key), list)]
        document = held[0] if held else document
    if not isinstance(document, list):
        raise DataError("the file must hold an array of objects", where=source, hint=hint)
    items = list(enumerate(document, start=1))
    numbered = [(number, item) for number, item in items if isinstance(item, dict)]
    broken = [BrokenRow(number, _AN_OBJECT) for number, item in items if not isinstance(item, dict)]
    return from_mappings(numbered, source, counting="record", broken=broken)


def from_mappings(
    numbered: Iterable[tuple[int, Mapping[str, object]]],
    source: str,
    *,
    counting: Counting,
    broken: Sequence[BrokenRow] = (),
) -> Table:
    """A table from mappings of names to cells; a key that a mapping lacks is a missing cell."""
    rows = list(numbered)
    names: dict[str, str] = {}
    for _, item in rows:
        for key in item:
            if key not in names:
                names[key] = " ".join(str(key).split())
    kept = {key: name for key, name in names.items() if name}
    return Table(
        columns=tuple(kept.values()),
        data=tuple([item.get(key) for _, item in rows] for key in kept),
        rows=tuple(number for number, _ in rows),
        source=source,
        counting=counting,
        broken=tuple(broken),
    )


def _loads(text: str) -> tuple[Any, str]:
    """The parsed document and '', or None and what is wrong with it."""
    kinds: list[str] = []

    def failed(kind: str) -> DataError:
        kinds.append(kind)
        return DataError("not JSON")

    try:
        return attempt(lambda: json.loads(text, **_EXACT), failed), ""
    except DataError:
        pass
    return None, _REPEATED if kinds == ["_RepeatedKeyError"] else "must be valid JSON"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RepeatedKeyError
    return found


def _constant(name: str) -> object:
    return None if name == "NaN" else name


_EXACT: dict[str, Any] = {
    "parse_float": Decimal,
    "parse_constant": _constant,
    "object_pairs_hook": _unique,
}
