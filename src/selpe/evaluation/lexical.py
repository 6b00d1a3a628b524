"""From a matched token to the value it stands for: what R-CFG found, as a record would hold it."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal, InvalidOperation

from selpe.evaluation import patterns
from selpe.schema import CategoryField, Field, Value

_BODIES = {
    "integer": re.compile(patterns.INTEGER_BODY),
    "number": re.compile(patterns.NUMBER_BODY),
    "boolean": re.compile(patterns.BOOLEAN_BODY),
    "date": re.compile(patterns.DATE_BODY),
}
_TRUE = frozenset({"true", "yes", "y", "t", "on", "1"})
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# Words that stand for a missing value where one may be missing, and no category is called that.
_NOTHING = frozenset({"none", "null", "nan", "na", "n/a", "unknown", "missing", "not available", "not stated"})
_PARTNERS = {"“": "”", "‘": "’", "«": "»", "`": "`", "'": "'", '"': '"'}
# More digits than any sensible bound has; beyond them a number is out of every range, and slow to convert.
MAX_DIGITS = 400


def lexeme(field: Field, token: str) -> str:
    """The part of a token that carries the value: without quotes, emphasis, currency signs and trailing separators."""
    if body := _BODIES.get(field.kind):
        match = body.search(token)
        return match.group() if match else ""
    return _text(token)


def _text(token: str) -> str:
    text = token.strip("*_`") if token[:1] in "*_" else token
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        return _json_text(text)
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return re.sub(r"\\(.)", _unescaped, text[1:-1])
    if text[:1] in _PARTNERS and text.endswith(_PARTNERS[text[0]]) and len(text) > 1:
        return text[1:-1]
    return _bare(text)


def _json_text(quoted: str) -> str:
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return re.sub(r"\\([\s\S])", _unescaped, quoted[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match.group(1), match.group(1))


def _bare(text: str) -> str:
    """Unquoted text without the separators that its surroundings left on it."""
    stripped = text.strip(" \t\r\n,;*`")
    if stripped.endswith("]") and "[" not in stripped:
        stripped = stripped[:-1].rstrip(" \t,;*`")
    if len(stripped) > 1 and stripped[0] in "\"'" and stripped[-1] == stripped[0]:
        stripped = stripped[1:-1]
    return stripped


def says_nothing(field: Field, text: str) -> bool:
    """True for an unquoted word that means 'missing', where the field may be missing and lists no such value."""
    listed = isinstance(field, CategoryField) and text in field.values
    return field.optional and not listed and text.casefold() in _NOTHING


def value_of(field: Field, text: str) -> Value:
    """The value that a lexeme stands for, by the field's kind alone (no domain check); None where there is none."""
    if field.kind == "integer":
        exact = _decimal(text)
        return int(exact) if exact is not None and exact == exact.to_integral_value() else None
    if field.kind == "number":
        exact = _decimal(text)
        return None if exact is None else float(exact)
    if field.kind == "boolean":
        return text.lower() in _TRUE
    if field.kind == "date":
        day = _day(text)
        return None if day is None else day.isoformat()
    return text


def literal_of(field: Field, text: str) -> Value:
    """The value of a text that is one readable value of the field's kind and nothing more; None otherwise."""
    body = _BODIES.get(field.kind)
    return value_of(field, text) if body is None or body.fullmatch(text) else None


def _decimal(text: str) -> Decimal | None:
    """An exact number of moderate size, or None."""
    digits = text.replace(",", "").replace("−", "-")
    if len(digits) > MAX_DIGITS:
        return None
    try:
        exact = Decimal(digits)
    except InvalidOperation:
        return None
    return exact if exact.is_zero() or abs(exact.adjusted()) < 300 else None


def _day(text: str) -> date | None:
    """The day that a date-like text names; None where it does not exist or where day and month cannot be told apart."""
    parts = [part for part in re.split(r"[^0-9A-Za-z]+", text) if part and part.lower() != "of"]
    if len(parts) != 3:
        return None
    months = [_MONTHS.index(part[:3].lower()) + 1 for part in parts if part[:3].lower() in _MONTHS]
    numbers = [int(re.sub(r"[^0-9]", "", part)) for part in parts if part[0].isdigit()]
    if months:
        return _built(numbers[1], months[0], numbers[0])
    if len(parts[0]) == 4:
        return _built(numbers[0], numbers[1], numbers[2])
    first, second, year = numbers
    if "." in text or first == second or first > 12:
        return _built(year, second, first)
    return _built(year, first, second) if second > 12 else None


def _built(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
