"""JSON in: one object a line, an array of objects, or an object that holds one under 'data'.

The meaning of a record's keys depends only on the record: a key of another spelling changes only that record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from selpe.errors import DataError
from selpe.intake.core import FREE_CELLS, BrokenRow, Counting, Table, attempt, few_enough, folded, plain_name
from selpe.intake.encodings import NOT_DECODED, STRINGS, UNDECODABLE, decode

HOLDERS = ("data", "records", "rows")
_AN_OBJECT = "must be one JSON object of field names and values"
_REPEATED = "must name each field once"
_INVALID = "must be valid JSON"
_MOST_DIGITS = 100  # of an integer; Python itself gives up at 4,300
_SPARSE = 10  # cells for each that is given: all others are missing
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_MARK = re.compile(r"[\[\]{},]")


class _Repeated(dict[str, object]):
    """An object that names a key twice."""


def read_jsonl(raw: bytes, source: str, *, encoding: str | None) -> Table:
    """A table from JSON lines; a broken line is set aside with its number."""
    lines = decode(raw, source, encoding, marked=False).split("\n")
    # Joined files have byte-order marks within; one is dropped from the line it stands in.
    numbered = ((number, line.removeprefix("\ufeff")) for number, line in enumerate(lines, start=1))
    table = from_mappings(
        ((number, _element(number, line)) for number, line in numbered if line.strip()), source, counting="line"
    )
    if not len(table) and b"\0" in raw:
        raise DataError(
            "no line of the file can be read", where=source, hint="If it is UTF-16, say so: encoding='utf-16'."
        )
    return table


def read_json(raw: bytes, source: str, *, encoding: str | None) -> Table:
    """A table from one JSON document."""
    text = decode(raw, source, encoding, cut=STRINGS)
    document, problem = _loads(text)
    if problem or NOT_DECODED.search(text):
        document = _taken_apart(text) or document
        problem = "" if document is not None else problem
    hint = 'Give an array of objects, or {"data": [ … ]}.'
    if isinstance(document, _Repeated):
        problem = _REPEATED
    if problem:
        raise DataError(f"the file {problem}", where=source, hint=hint)
    if isinstance(document, dict):
        document = _held(document)
    if not isinstance(document, list):
        raise DataError("the file must hold an array of objects", where=source, hint=hint)
    return from_mappings(enumerate(document, start=1), source, counting="record")


def from_mappings(numbered: Iterable[tuple[int, object]], source: str, *, counting: Counting) -> Table:
    """A table from mappings of names to cells; a key that a mapping lacks is a missing cell.

    Keys are columns as they are fields: whatever their letter case, spaces, '_' and '-'. An entry that is not a
    mapping, or names a field twice, is set aside.
    """
    rows: list[tuple[int, dict[str, object]]] = []
    broken: list[BrokenRow] = []
    names: dict[str, str] = {}
    for number, item in numbered:
        if isinstance(item, BrokenRow):
            broken.append(item)
        elif not isinstance(item, Mapping):
            broken.append(BrokenRow(number, _AN_OBJECT))
        else:
            spelt = [(plain_name(str(key)), cell) for key, cell in item.items()]
            cells = {folded(name): cell for name, cell in spelt if name}
            if isinstance(item, _Repeated) or len(cells) < sum(bool(name) for name, _ in spelt):
                broken.append(BrokenRow(number, _REPEATED))
                continue
            rows.append((number, cells))
            for name, _ in spelt:
                names.setdefault(folded(name), name)
    names.pop("", None)
    few_enough(len(names), source)
    if len(names) * len(rows) > max(FREE_CELLS, _SPARSE * sum(len(cells) for _, cells in rows)):
        raise DataError(
            f"the rows name {len(names):,} different fields, and hardly any two rows the same",
            where=source,
            hint="Give every record the same field names.",
        )
    return Table(
        columns=tuple(names.values()),
        data=tuple([cells.get(key) for _, cells in rows] for key in names),
        rows=tuple(number for number, _ in rows),
        source=source,
        counting=counting,
        broken=tuple(broken),
        keyed=True,
    )


def _element(number: int, text: str) -> object:
    """One record from its text, or why it is none."""
    if NOT_DECODED.search(text):
        return BrokenRow(number, UNDECODABLE)
    item, problem = _loads(text)
    return BrokenRow(number, problem) if problem else item


def _held(document: Mapping[str, object]) -> object:
    return next((document[key] for key in HOLDERS if isinstance(document.get(key), list)), None)


def _taken_apart(text: str) -> list[object] | None:
    """The records of a document whose whole cannot be read, each by itself; None where its outline is broken too."""
    arrays, outline = _arrays(text)
    frame, problem = _loads(outline)
    if problem or isinstance(frame, _Repeated):
        return None
    name = "" if isinstance(frame, list) else next((key for key in HOLDERS if key in arrays), None)
    elements = arrays.get(name) if name is not None else None
    if elements is None or not all(element.strip() for element in elements):
        return None
    return [_element(number, element) for number, element in enumerate(elements, start=1)]


def _arrays(text: str) -> tuple[dict[str, list[str]], str]:
    """The texts of the elements of a document's arrays, found by brackets and quotes alone, and the document around.

    They are those that its keys hold, or that of '' where the document is an array itself.
    """
    arrays: dict[str, list[str]] = {}
    outline: list[str] = []
    home: list[str] | None = None
    key, depth, base, start = "", 0, 0, 0
    for token in _tokens(text):
        mark = token[0]
        if mark[0] == '"':
            key = mark[1:-1] if depth == 1 and home is None else key
        elif mark in "[{":
            depth += 1
            if mark == "[" and home is None and depth <= 2:
                outline.append(text[start : token.end()])
                home = arrays[key if depth == 2 else ""] = []
                base, start = depth, token.end()
        else:
            if home is not None and depth == base and mark != "}":
                home.append(text[start : token.start()])
                start = token.start() if mark == "]" else token.end()
                home = None if mark == "]" else home
            depth -= mark != ","
    return arrays, "".join([*outline, text[start:]]) if home is None else ""


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Strings, brackets and commas. After a quote that nothing closes, no later one is closed either."""
    for token in _TOKEN.finditer(text):
        if token[0] == '"':
            yield from _MARK.finditer(text, token.end())
            return
        yield token


def _loads(text: str) -> tuple[Any, str]:
    """The parsed document and '', or None and what is wrong with it."""

    def failed(_: str) -> DataError:
        return DataError("not JSON")

    try:
        return attempt(lambda: json.loads(text, **_EXACT), failed), ""
    except DataError:
        return None, _INVALID


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(found)


def _constant(name: str) -> object:
    return None if name == "NaN" else name


def _integer(text: str) -> object:
    return int(text) if len(text) <= _MOST_DIGITS else text


def _decimal(text: str) -> object:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of many digits
        return text


_EXACT: dict[str, Any] = {
    "parse_int": _integer,
    "parse_float": _decimal,
    "parse_constant": _constant,
    "object_pairs_hook": _pairs,
}
