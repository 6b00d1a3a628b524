from __future__ import annotations

import contextlib
import time
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.errors import SchemaError
from selpe.schema import BooleanField, CategoryField, DateField, IntegerField, NumberField, Record, Rule, TextField

FIELDS = (
    IntegerField("sbp", min=0, max=300),
    IntegerField("dbp", min=0, max=200, optional=True),
    CategoryField("injury", values=("Yes", "No")),
    BooleanField("alert"),
    NumberField("rate", min=Decimal(0), max=Decimal(100), step=Decimal("0.01")),
    TextField("note"),
    DateField("arrived", min=date(2020, 1, 1), max=date(2030, 1, 1)),
    IntegerField("Loan Amount", min=0, max=10000),
)
RECORD: Record = {
    "sbp": 120, "dbp": 80, "injury": "No", "alert": True, "rate": 4.18, "note": "if x then y",
    "arrived": "2024-05-01", "Loan Amount": 500,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "change", "holds"),
    [
        ("dbp < sbp", {}, True),
        ("dbp < sbp", {"dbp": 130}, False),
        ("dbp < sbp", {"dbp": None}, True),
        ("dbp != null", {"dbp": None}, False),
        ("dbp == null or dbp > 10", {"dbp": None}, True),
        ('if injury == "No" then sbp > 100', {}, True),
        ('if injury == "No" then sbp > 100', {"sbp": 90}, False),
        ('if injury == "No" then sbp > 100', {"sbp": 90, "injury": "Yes"}, True),
        ('if injury == "No" then sbp > 100 else sbp > 200', {"injury": "Yes"}, False),
        ("if alert == true then rate <= 4.18", {}, True),
        ("rate * 2 == 8.36", {}, True),
        ('injury in ["Yes", "No"] and alert', {}, True),
        ('arrived >= d"2024-01-01"', {}, True),
        ('arrived < d"2024-01-01"', {}, False),
        ("`Loan Amount` <= sbp * 10", {}, True),
        ("`Loan Amount` <= sbp", {}, False),
        ('if note == "if x then y" then sbp == 120', {}, True),
        ('note != "$"', {}, True),
    ],
)
def test_a_rule_holds_or_not(text: str, change: Record, holds: bool) -> None:
    assert Rule.parse(text, FIELDS).holds(RECORD | change) is holds


@pytest.mark.parametrize(
    "text",
    [
        "dbp <", "nonsense < 3", "dbp < injury", "if dbp > 3", "if then x", "__import__('os')", "$now > arrived",
        "sbp.__class__", "1 < 2", "`no such` > 3", "", "(" * 500, "dbp < sbp; sbp", "lambda: 1", "if  then sbp > 1",
    ],
)  # fmt: skip
def test_what_is_not_a_rule_is_refused_when_the_schema_is_read(text: str) -> None:
    with pytest.raises(SchemaError):
        Rule.parse(text, FIELDS)


def test_a_rule_knows_which_fields_it_mentions() -> None:
    assert Rule.parse("if alert == true then dbp < sbp", FIELDS).fields == ("sbp", "dbp", "alert")


@given(st.text(max_size=60))
def test_no_text_makes_the_parser_raise_anything_but_our_error(text: str) -> None:
    with contextlib.suppress(SchemaError):
        Rule.parse(text, FIELDS)


@given(
    st.dictionaries(
        st.sampled_from([field.name for field in FIELDS]),
        st.none() | st.integers() | st.text() | st.floats() | st.booleans(),
    )
)
def test_no_record_makes_a_rule_raise(record: dict[str, object]) -> None:
    for text in ("dbp < sbp", 'if injury == "No" then rate * sbp < 3', 'arrived > d"2024-01-01"', "dbp == null"):
        assert Rule.parse(text, FIELDS).holds(record) in (True, False)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone of a process cannot be set here")
def test_a_day_in_a_rule_is_the_same_day_in_every_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as world:
        world.setenv("TZ", "America/New_York")
        time.tzset()
        rule = Rule.parse('arrived == d"2024-05-01"', FIELDS)
        assert rule.holds(RECORD)
    time.tzset()
