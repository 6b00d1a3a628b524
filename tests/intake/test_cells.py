"""One cell under one field: what is read, what is refused, what is missing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from selpe.intake.cells import Conventions, read_cell
from selpe.intake.numerals import read_numeral
from selpe.schema import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    TextField,
)

PLAIN = Conventions()
INTEGER = IntegerField("x", min=-5000, max=2_000_000, optional=True)
NUMBER = NumberField("x", min=Decimal(-5000), max=Decimal(2_000_000), step=Decimal("0.01"), optional=True)
FINE = NumberField("x", min=Decimal(0), max=Decimal(2000), step=Decimal("0.001"))
SHARE = NumberField("x", min=Decimal(0), max=Decimal(1), step=Decimal("0.001"))
PERCENT = NumberField("x", min=Decimal(0), max=Decimal(100), step=Decimal("0.1"), unit="%")
MONTHS = IntegerField("x", min=0, max=120, unit="months")
FIVES = IntegerField("x", min=0, max=100, step=5)
TENTHS = NumberField("x", min=Decimal(30), max=Decimal("42.5"), step=Decimal("0.1"))
DATE = DateField("x", min=dt.date(2000, 1, 1), max=dt.date(2030, 12, 31), optional=True)
TEXT = TextField("x", max_length=40, optional=True)
COLOUR = CategoryField("x", values=("red", "Green", "NA", "1", "true"), optional=True)
YES = BooleanField("x", optional=True)

READ: list[tuple[Field, object, object]] = [
    (INTEGER, "3", 3),
    (INTEGER, " 3.0 ", 3),
    (INTEGER, 3.0, 3),
    (INTEGER, Decimal("3"), 3),
    (INTEGER, "+3", 3),
    (INTEGER, "−3", -3),
    (INTEGER, "1,234", 1234),
    (INTEGER, "1,234,567", 1_234_567),
    (INTEGER, "12,34,567", 1_234_567),
    (INTEGER, "1.234.567", 1_234_567),
    (INTEGER, "1 234", 1234),
    (INTEGER, "1\u202f234\u00a0567", 1_234_567),
    (INTEGER, "1'234", 1234),
    (INTEGER, "$1,234", 1234),
    (INTEGER, "1 234 €", 1234),
    (INTEGER, "(250)", -250),
    (INTEGER, "-$250", -250),
    (INTEGER, "1e3", 1000),
    (NUMBER, "1,234.5", 1234.5),
    (NUMBER, "1.234,5", 1234.5),
    (NUMBER, "1 234,5", 1234.5),
    (NUMBER, "12,5", 12.5),
    (NUMBER, "1,234", 1234.0),
    (NUMBER, "1.234", 1.23),
    (NUMBER, ".5", 0.5),
    (NUMBER, "4.18", 4.18),
    (NUMBER, "0,123", 0.12),
    (FINE, "0,123", 0.123),
    (SHARE, "12.5%", 0.125),
    (PERCENT, "12.5 %", 12.5),
    (PERCENT, "12.5", 12.5),
    (MONTHS, "36 months", 36),
    (MONTHS, "36", 36),
    (FIVES, "13", 15),
    (TENTHS, "36.64", 36.6),
    (TENTHS, "42.54", 42.5),
    (TENTHS, 36.599998474121094, 36.6),
    (DATE, "2024-02-29", "2024-02-29"),
    (DATE, "2024-02-29T10:11:12Z", "2024-02-29"),
    (DATE, "2024-02-29 10:11", "2024-02-29"),
    (DATE, "2024/2/9", "2024-02-09"),
    (DATE, "20240229", "2024-02-29"),
    (DATE, 20240229, "2024-02-29"),
    (DATE, "29.2.2024", "2024-02-29"),
    (DATE, "29/02/2024", "2024-02-29"),
    (DATE, "02/29/2024", "2024-02-29"),
    (DATE, "3/3/2024", "2024-03-03"),
    (DATE, "29 February 2024", "2024-02-29"),
    (DATE, "29-Feb-2024", "2024-02-29"),
    (DATE, "Feb 29, 2024", "2024-02-29"),
    (DATE, "Sept 3rd, 2024", "2024-09-03"),
    (DATE, "Nov-2012", "2012-11-01"),
    (DATE, "2012-11", "2012-11-01"),
    (DATE, dt.datetime(2024, 2, 29, 23, 59), "2024-02-29"),
    (DATE, dt.date(2024, 2, 29), "2024-02-29"),
    (YES, "Yes", True),
    (YES, "n", False),
    (YES, "T", True),
    (YES, 0, False),
    (YES, 1.0, True),
    (YES, "off", False),
    (YES, True, True),
    (COLOUR, "red", "red"),
    (COLOUR, " GREEN ", "Green"),
    (COLOUR, "NA", "NA"),
    (COLOUR, "n/a", None),
    (COLOUR, 1, "1"),
    (COLOUR, 1.0, "1"),
    (COLOUR, True, "true"),
    (TEXT, "  two\r\nlines ", "two\nlines"),
    (TEXT, "nul\x00 and bell\x07", "nul and bell"),
    (TEXT, "half \ud800 pair", "half \ufffd pair"),
    (TEXT, 5, "5"),
    (TEXT, "none", "none"),
    (TEXT, "None", None),
    *[(TEXT, cell, None) for cell in ("", "  ", "NA", "N/A", "null", "NaN", "-", None, float("nan"))],
    *[
        (field, cell, None)
        for field in (INTEGER, NUMBER, DATE, YES)
        for cell in ("", " ", "NA", "na", "N/A", "null", "None", "NaN", "-", "#N/A", None, float("nan"), Decimal("NaN"))
    ],
]


@pytest.mark.parametrize(("field", "cell", "value"), READ, ids=[f"{f.kind}-{c!r}" for f, c, _ in READ])
def test_cells_are_read(field: Field, cell: object, value: object) -> None:
    outcome = read_cell(field, cell, PLAIN)
    assert (outcome.value, outcome.problem) == (value, "")
    assert type(outcome.value) is type(value)


BAD: list[tuple[Field, object]] = [
    *[(INTEGER, cell) for cell in ("x", "3.5", 3.5, "2000001", "1,2345", "1,23,4", "12,345,67", "1..2", "--3", "3 4")],
    *[(INTEGER, cell) for cell in (True, [3], {"a": 3}, b"3", "1_000", "0x10", "Ⅷ", "inf", float("inf"), "9" * 5000)],
    *[(NUMBER, cell) for cell in ("2 000 001", "abc", "1,234,5", dt.date(2024, 1, 1), "1e999", "1e-", "%", "$", "()")],
    *[
        (DATE, cell)
        for cell in ("2024-02-30", "2024-13-01", "31/31/2024", "1/2/24", "1999-12-31", "soon", "Foo 2012", True)
    ],
    *[(YES, cell) for cell in ("maybe", 2, "yess", dt.date(2024, 1, 1))],
    *[(COLOUR, cell) for cell in ("blue", "re d", 2, False, ["red"])],
    *[(TEXT, cell) for cell in ("x" * 41, ["a"], {"a": 1}, b"bytes")],
]


@pytest.mark.parametrize(("field", "cell"), BAD, ids=[f"{f.kind}-{str(c)[:20]}" for f, c in BAD])
def test_cells_that_do_not_fit_say_what_was_expected(field: Field, cell: object) -> None:
    outcome = read_cell(field, cell, PLAIN)
    assert outcome.value is None
    assert outcome.problem.startswith("must be ")


def test_missing_cells_are_a_problem_only_where_the_field_is_required() -> None:
    required = IntegerField("x", min=0, max=9)
    assert read_cell(required, "NA", PLAIN).problem == "must not be missing: an integer from 0 to 9"
    assert read_cell(TextField("x", min_length=0), "", PLAIN).value == ""


def test_a_comma_that_can_mean_two_things_is_refused_unless_the_convention_is_given() -> None:
    assert "two ways" in read_cell(FINE, "1,234", PLAIN).problem
    assert read_cell(FINE, "1,234", Conventions(decimal=".")).value == 1234
    assert read_cell(FINE, "1,234", Conventions(decimal=",")).value == 1.234
    assert read_cell(FINE, "1.234", Conventions(decimal=",")).value == 1234
    assert read_cell(SHARE, "0.5", Conventions(decimal=",")).value == 0.5


def test_a_day_and_month_that_cannot_be_told_apart_are_refused_unless_the_order_is_given() -> None:
    assert "told apart" in read_cell(DATE, "03/04/2024", PLAIN).problem
    assert read_cell(DATE, "03/04/2024", Conventions(day_first=True)).value == "2024-04-03"
    assert read_cell(DATE, "03/04/2024", Conventions(day_first=False)).value == "2024-03-04"


def test_rounding_to_the_step_is_noted_and_float_noise_is_not() -> None:
    assert read_cell(TENTHS, "36.64", PLAIN).note == "rounded"
    assert read_cell(TENTHS, "36.6", PLAIN).note == ""
    assert read_cell(TENTHS, 36.599998474121094, PLAIN).note == ""


def test_a_numeral_keeps_both_readings() -> None:
    assert read_numeral("1,234").readings == (Decimal(1234), Decimal("1.234"))
    assert read_numeral("1,23").readings == (Decimal("1.23"),)


def test_unconfirmed_bounds_and_listed_values_stay_unsaid() -> None:
    drafted = IntegerField("x", min=17, max=93, confirmed=False)
    assert read_cell(drafted, "x", PLAIN).problem == "must be an integer within the schema's bounds"
    assert read_cell(COLOUR, "blue", PLAIN).problem == "must be one of the values that the schema lists"


def test_integers_too_long_to_be_written_are_refused_under_every_kind() -> None:
    fields: tuple[Field, ...] = (INTEGER, NUMBER, DATE, YES, COLOUR, TEXT)
    assert all(read_cell(field, 10**5000, PLAIN).problem for field in fields)
