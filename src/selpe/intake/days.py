"""Dates as people write them. A text that can be day/month or month/day has two readings."""

from __future__ import annotations

import re
from datetime import date

_TIME = r"(?:[T ]\s*[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?\s*(?:[AaPp][Mm]|Z|[+-][0-9]{2}:?[0-9]{2})?)?"
_YEAR_FIRST = re.compile(r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})" + _TIME)
_COMPACT = re.compile(r"(1[89]|2[01])([0-9]{2})([0-9]{2})([0-9]{2})")
_DOTTED = re.compile(r"([0-9]{1,2})\.\s?([0-9]{1,2})\.\s?([0-9]{4})" + _TIME)
_YEAR_LAST = re.compile(r"([0-9]{1,2})([-/])([0-9]{1,2})\2([0-9]{4})" + _TIME)
_DAY_NAMED = re.compile(r"([0-9]{1,2})(?:st|nd|rd|th)?[\s./-]*([A-Za-z]{3,9})\.?,?[\s./-]*([0-9]{4})")
_NAMED_DAY = re.compile(r"([A-Za-z]{3,9})\.?[\s-]*([0-9]{1,2})(?:st|nd|rd|th)?,?[\s-]+([0-9]{4})")
_MONTH = re.compile(r"([A-Za-z]{3,9})\.?[\s./-]*([0-9]{4})")
_YEAR_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


def date_readings(text: str, *, day_first: bool | None = None) -> tuple[date, ...]:
    """The days a text can name: none, one, or two when the order of day and month is unclear.

    A month without a day ('Nov-2012') is its first day.
    """
    body = " ".join(text.split())
    if len(body) > 40:
        return ()
    if found := _YEAR_FIRST.fullmatch(body):
        return _days((found[1], found[3], found[4]))
    if found := _COMPACT.fullmatch(body):
        return _days((found[1] + found[2], found[3], found[4]))
    if found := _DOTTED.fullmatch(body):
        return _days((found[3], found[2], found[1]))
    if found := _YEAR_LAST.fullmatch(body):
        month_day, day_month = (found[4], found[1], found[3]), (found[4], found[3], found[1])
        if day_first is not None:
            return _days(day_month if day_first else month_day)
        return _days(month_day, day_month)
    return _named(body)


def _named(body: str) -> tuple[date, ...]:
    if found := _YEAR_MONTH.fullmatch(body):
        return _days((found[1], found[2], "1"))
    if found := _DAY_NAMED.fullmatch(body):
        return _days((found[3], _month(found[2]), found[1]))
    if found := _NAMED_DAY.fullmatch(body):
        return _days((found[3], _month(found[1]), found[2]))
    if found := _MONTH.fullmatch(body):
        return _days((found[2], _month(found[1]), "1"))
    return ()


def _month(word: str) -> str:
    name = word.casefold()
    name = "sep" if name == "sept" else name
    matches = [number for number, month in enumerate(_MONTHS, 1) if name in (month, month[:3])]
    return str(matches[0]) if matches else "0"


def _days(*parts: tuple[str, str, str]) -> tuple[date, ...]:
    found: list[date] = []
    for year, month, day in parts:
        try:
            reading = date(int(year), int(month), int(day))
        except ValueError:
            continue
        if reading not in found:
            found.append(reading)
    return tuple(found)
