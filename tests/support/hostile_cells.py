"""Rows of a small table as people write them, and rows with cells of another world, for tests of the readers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random

from selpe.schema import Schema

UNIT = "person"
SCHEMA = Schema.from_dict(
    {
        "name": "desk",
        "fields": {
            "note": {"kind": "text", "max_length": 60},
            "level": {"kind": "category", "values": ["low", "high", "7", "007", "2.5", "2.50", "true"]},
            "pain": {"kind": "integer", "min": 0, "max": 10, "optional": True},
            "weight": {"kind": "number", "min": 0, "max": 2000, "step": 0.01, "optional": True},
            "seen": {"kind": "boolean", "optional": True},
            "day": {"kind": "date", "min": "2020-01-01", "max": "2030-12-31", "optional": True},
        },
        "rules": ["if level == 'low' then pain < 9"],
    }
)
COLUMNS = (*SCHEMA.names, UNIT)
_ACCENTS = ("plain", "naïve café", "Äpfel; 5 € “quoted”", "CAFÉ»", "東京", "Ünïcödé", "ok")  # codespell:ignore
_EAST = dt.timezone(dt.timedelta(hours=9))


def ordinary_texts(chance: Random) -> dict[str, str]:
    """A row as a person would write it, most of the time."""
    return {
        "note": f"{chance.choice(_ACCENTS)} {chance.randrange(100)}",
        "level": chance.choice(["low", "HIGH", "7", "007", "2.50", "2.5", "true"]),
        "pain": chance.choice(["3", "7.0", "10", "", "NA", "11"]),
        "weight": chance.choice(["71.5", "1,234.5", "2.50", "", "80", "1e2"]),
        "seen": chance.choice(["yes", "0", "1", "True", ""]),
        "day": chance.choice(["2024-02-29", "29 Feb 2024", "20240301", ""]),
        UNIT: chance.choice(["7", "007", "anna", "7.0", "Bo "]),
    }


def ordinary_values(chance: Random) -> dict[str, object]:
    """A row of Python values."""
    return {
        "note": f"{chance.choice(_ACCENTS)} {chance.randrange(100)}",
        "level": chance.choice(["low", "high", 7, Decimal("2.5"), Decimal("2.50"), 2.5, "007", True]),
        "pain": chance.choice([3, 7.0, None, Decimal("3"), "4", 11]),
        "weight": chance.choice([71.5, Decimal("2.50"), 80, None, "1,234.5", float("nan"), -0.0]),
        "seen": chance.choice([True, False, 1, 0.0, None, "yes"]),
        "day": chance.choice([dt.date(2024, 2, 29), _instant(chance), "2024-02-29", None, 20240301]),
        UNIT: chance.choice([7, 7.0, "7", Decimal("7.0"), _instant(chance), "anna"]),
    }


def _instant(chance: Random) -> dt.datetime:
    """One instant, in a time zone in which it is another day, or not."""
    return dt.datetime(2024, 2, 29, 20, 0, tzinfo=dt.timezone.utc).astimezone(chance.choice([_EAST, dt.timezone.utc]))


HOSTILE_TEXTS = (
    "", " ", "NA", "null", "None", "nan", "inf", "-inf", "1e999", "9" * 400, "9" * 5000, "A13", "013", "2.500", "7e0",
    "=1+1", "+SUM(A1)", "@x", "-", '"', '""', 'a "b" c', "'", "a,b", "a;b", "a\tb", "a|b", "two\nlines", "cr\rcr",
    "crlf\r\ncrlf", "\ufeff", "\ufeffnote", "\u202eabc", "\u200f", "\u200b", "\u00a0", "\x85", "\u2028",
    "\x00", "a\x00b", "\x07", "\x1b[31m", "\x9d", "ｎｏｔｅ", "ѕееn", "ﬁ", "İ", "ß", "é", "😀", "\ud800", "\udc9d",
    "\ud83d", "\\", "\\u0041", "{}", "[]", "sep=;", "note", "true", "TRUE", "3/4/2024", "13/4/2024",
    "2024-02-30", "1.234,5", "1,234", "x" * 3000,
)  # fmt: skip


class _Raising:
    def __str__(self) -> str:
        raise RuntimeError("no text")


HOSTILE_VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, 10**400, 10**5000, 2**53 + 1, -(2**70), 1.0, 0.0, -0.0, float("nan"), float("inf"),
    Decimal("2.500"), Decimal("2.5"), Decimal("25e-1"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"),
    Decimal("1e999999"), b"bytes", b"\xff", [1], (), {"a": 1}, {"b"}, dt.date(9999, 12, 31), dt.datetime(1, 1, 1),
    dt.datetime(2024, 2, 29, 20, 0, tzinfo=dt.timezone.utc), dt.datetime(2024, 3, 1, 5, 0, tzinfo=_EAST),
    dt.time(3, 4), dt.timedelta(days=1), 1j, _Raising(), object, *HOSTILE_TEXTS,
)  # fmt: skip


def hostile_texts(chance: Random) -> dict[str, str]:
    """An ordinary row with some cells of another world."""
    row = ordinary_texts(chance)
    return row | {name: chance.choice(HOSTILE_TEXTS) for name in COLUMNS if chance.random() < 0.5}


def hostile_values(chance: Random) -> dict[str, object]:
    row = ordinary_values(chance)
    return row | {name: chance.choice(HOSTILE_VALUES) for name in COLUMNS if chance.random() < 0.5}
