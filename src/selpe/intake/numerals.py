"""Numbers as people write them: thousands separators, decimal commas, per cent, currency.

Each text is read on its own. Where it can mean two numbers, both are returned, and the schema or an option decides;
other rows never do, because one private row must not change how another is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

DecimalMark = Literal[".", ","]
LONGEST = 60
LARGEST = 100  # powers of ten; beyond it, decimal arithmetic overflows sooner or later
_SPACES = re.compile("[\u00a0\u2007\u2009\u202f]")
_CURRENCY = re.compile(
    r"^(?:US\$|[$€£¥₹₩₽]|Rs\.?|USD|EUR|GBP|CHF|JPY|CNY|INR|KRW|CAD|AUD)\s*|"
    r"\s*(?:[$€£¥₹₩₽]|USD|EUR|GBP|CHF|JPY|CNY|INR|KRW|CAD|AUD)$"
)
_PLAIN = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_POINT_GROUPS = re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?:,[0-9]+)?")
_COMMA_GROUPS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{2,3})*,[0-9]{3}(?:\.[0-9]*)?")
_SPACE_GROUPS = re.compile(r"[1-9][0-9]{0,2}(?:[ '’][0-9]{3})+(?:[.,][0-9]+)?")
_COMMA_DECIMAL = re.compile(r"[0-9]+,[0-9]+")


@dataclass(frozen=True, slots=True)
class Numeral:
    """What a text can mean as a number. With two readings, the first takes the comma as a thousands separator."""

    readings: tuple[Decimal, ...]
    percent: bool = False


NOT_A_NUMBER = Numeral(())


def read_numeral(text: str, *, unit: str = "", decimal: DecimalMark | None = None) -> Numeral:
    """The readings of a text; none when it is not a number."""
    body = _SPACES.sub(" ", text).strip()
    if not body or len(body) > LONGEST:
        return NOT_A_NUMBER
    if unit and body.casefold().endswith(unit.casefold()) and unit != "%":
        body = body[: -len(unit)].rstrip()
    percent = body.endswith("%")
    body = body.removesuffix("%").rstrip()
    sign, body = _signed(body)
    return Numeral(tuple(sign * value for value in _values(body, decimal)), percent)


def _signed(body: str) -> tuple[int, str]:
    sign = 1
    if body.startswith("(") and body.endswith(")"):  # the accountants' minus
        sign, body = -1, body[1:-1].strip()
    body = _CURRENCY.sub("", body)
    if body[:1] in ("-", "\u2212", "+"):
        sign, body = (sign if body[0] == "+" else -sign), body[1:].lstrip()
        body = _CURRENCY.sub("", body)
    return sign, body


def _values(body: str, decimal: DecimalMark | None) -> tuple[Decimal, ...]:
    texts: list[str] = []
    if _PLAIN.fullmatch(body) and not (decimal == "," and _POINT_GROUPS.fullmatch(body)):
        texts.append(body)
    elif _SPACE_GROUPS.fullmatch(body):
        texts.append(re.sub("[ '’]", "", body).replace(",", "."))
    else:
        if decimal != "," and _COMMA_GROUPS.fullmatch(body):
            texts.append(body.replace(",", ""))
        if decimal != "." and (_COMMA_DECIMAL.fullmatch(body) or _POINT_GROUPS.fullmatch(body)):
            texts.append(body.replace(".", "").replace(",", "."))
    values = (exact(text) for text in texts)
    return tuple(value for value in values if value is not None)


def exact(cell: object) -> Decimal | None:
    """A number that came as a number, exactly (floats by their shortest text); None where it is not finite."""
    try:
        value = Decimal(cell if isinstance(cell, (int, Decimal)) else str(cell))
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value.adjusted()) <= LARGEST else None
