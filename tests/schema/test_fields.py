from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.errors import SchemaError
from selpe.schema import BooleanField, CategoryField, DateField, Field, IntegerField, NumberField, TextField
from selpe.schema.days import days_pattern

TEXT = TextField("note", min_length=2, max_length=5)
CODE = TextField("code", max_length=20, pattern=r"[A-Z]{2}\d+")
LEVEL = CategoryField("level", values=("low", "high"))
AGE = IntegerField("age", min=0, max=120)
AMOUNT = IntegerField("amount", min=500, max=40000, step=100)
TEMP = NumberField("temp", min=Decimal(33), max=Decimal("42.5"), step=Decimal("0.1"))
RATE = NumberField("rate", min=Decimal(0), max=Decimal(30), step=Decimal("0.01"))
DAY = DateField("day", min=date(2024, 1, 1), max=date(2024, 12, 31))


@pytest.mark.parametrize(
    ("field", "value", "level"),
    [
        (TEXT, "abc", None),
        (TEXT, "a", "domain"),
        (TEXT, "abcdef", "domain"),
        (TEXT, 3, "syntax"),
        (TEXT, "a\x00b", "domain"),
        (TEXT, "a\ud800b", "domain"),
        (TEXT, "a\nb", None),
        (CODE, "AB12", None),
        (CODE, "xAB12", "domain"),
        (LEVEL, "low", None),
        (LEVEL, "Low", "domain"),
        (LEVEL, True, "syntax"),
        (AGE, 7, None),
        (AGE, 121, "domain"),
        (AGE, 7.0, "syntax"),
        (AGE, True, "syntax"),
        (AGE, 10**400, "domain"),
        (AMOUNT, 1200, None),
        (AMOUNT, 1250, "domain"),
        (TEMP, 36.6, None),
        (TEMP, 36, None),
        (TEMP, 36.65, "domain"),
        (TEMP, float("nan"), "domain"),
        (TEMP, float("inf"), "domain"),
        (TEMP, "36.6", "syntax"),
        (RATE, 4.18, None),
        (RATE, Decimal("4.18"), None),
        (RATE, Decimal("1e-500"), "domain"),
        (RATE, Decimal("1e-999999999"), "domain"),
        (RATE, Decimal("1.500"), None),
        (BooleanField("b"), True, None),
        (BooleanField("b"), 1, "syntax"),
        (DAY, "2024-02-29", None),
        (DAY, "2024-02-30", "domain"),
        (DAY, "2025-01-01", "domain"),
        (DAY, "2024-W01-1", "domain"),
        (DAY, 20240101, "syntax"),
    ],
)
def test_a_value_is_judged_at_the_right_level(field: Field, value: object, level: str | None) -> None:
    assert field.check(value) == level


@pytest.mark.parametrize(
    "build",
    [
        lambda: TextField("x", min_length=5, max_length=2),
        lambda: TextField("x", pattern="["),
        lambda: TextField("x", pattern="(?=a)b"),
        lambda: TextField("x", pattern=r"a\b"),
        lambda: TextField("x", pattern=r"(a)\1"),
        lambda: CategoryField("x"),
        lambda: CategoryField("x", values=("a", "a")),
        lambda: CategoryField("x", values=("a", "")),
        lambda: IntegerField("x", min=5, max=1),
        lambda: IntegerField("x", min=1, max=5, step=0),
        lambda: IntegerField("x", min=1, max=5, step=100),
        lambda: NumberField("x", min=Decimal("NaN")),
        lambda: NumberField("x", min=Decimal(1), max=Decimal(2), step=Decimal("2.5")),
        lambda: DateField("x", min=date(2024, 2, 1), max=date(2024, 1, 1)),
    ],
)
def test_a_field_that_contradicts_itself_is_refused(build: object) -> None:
    with pytest.raises(SchemaError):
        build()  # type: ignore[operator]


def test_values_read_as_text_with_their_unit_and_precision() -> None:
    pressure = IntegerField("systolic_pressure", min=0, max=300, unit="mmHg")
    assert pressure.lexicalise(120) == "systolic pressure: 120 mmHg"
    assert pressure.lexicalise(None) == "systolic pressure: unknown"
    assert TEMP.lexicalise(37) == "temp: 37.0"
    assert BooleanField("injury").lexicalise(False) == "injury: no"


@given(st.dates(date(1890, 1, 1), date(2110, 12, 31)), st.integers(0, 40000), st.integers(-400, 41000))
def test_the_pattern_for_days_matches_exactly_the_days_between_the_bounds(
    first: date, length: int, offset: int
) -> None:
    last = first + timedelta(days=length)
    probe = first + timedelta(days=offset)
    matched = re.fullmatch(days_pattern(first, last), probe.isoformat()) is not None
    assert matched == (first <= probe <= last)


@pytest.mark.parametrize("text", ["2024-02-30", "2023-02-29", "2024-13-01", "2024-00-10", "2024-1-1", "2024-04-31"])
def test_the_pattern_for_days_refuses_days_that_do_not_exist(text: str) -> None:
    assert re.fullmatch(days_pattern(date(2000, 1, 1), date(2050, 12, 31)), text) is None
