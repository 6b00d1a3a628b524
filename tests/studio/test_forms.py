"""Fields as a person types them: what the file then says, and what is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from selpe.errors import SchemaError
from selpe.schema import BooleanField, CategoryField, DateField, Field, IntegerField, NumberField, Schema, TextField
from selpe.studio.forms import FieldForm, built, form_of, is_from_table, value_of, words_of

FIELDS: list[Field] = [
    TextField("note", "A note", max_length=120, pattern="[a-z]+", examples=("abc",)),
    CategoryField("way", values=("1", "no", "by post"), descriptions={"no": "not at all"}),
    IntegerField("age", min=0, max=120, unit="years", optional=True, examples=(4,)),
    IntegerField("dose", min=0, max=100, step=5),
    NumberField("size", min=Decimal("-1.5"), max=Decimal("2"), step=Decimal("0.1"), examples=(0.3,)),
    BooleanField("hurt", examples=(True, False)),
    DateField("day", min=date(2024, 1, 1), max=date(2024, 12, 31), examples=("2024-02-29",)),
]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_field_comes_back_as_it_was(field: Field, confirmed: bool) -> None:
    form = FieldForm.model_validate({**form_of(field), "confirmed": confirmed})
    again = built(field.name, form)
    assert form_of(again) == {**form_of(field), "confirmed": confirmed}
    assert (again.expected, again.examples) == (field.expected, field.examples)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "integer", "min": "", "max": "9"}, "min: must be given"),
    ({"kind": "integer", "min": "0.5", "max": "9"}, "min: must be a whole number"),
    ({"kind": "integer", "min": "ten", "max": "9"}, "min: must be a number"),
    ({"kind": "integer", "min": "10", "max": "9"}, "min must not be above max"),
    ({"kind": "number", "min": "0", "max": "inf"}, "max: must be a number of at most 15 digits"),
    ({"kind": "number", "min": "0", "max": "1", "step": "0"}, "step must be above 0"),
    ({"kind": "text", "max_length": "-1"}, "min_length must be at least 0"),
    ({"kind": "text", "max_length": "9", "pattern": "("}, "the pattern must be a regular expression"),
    ({"kind": "category", "values": []}, "at least one value"),
    ({"kind": "category", "values": [{"value": "a"}, {"value": " a "}]}, "must be distinct"),
    ({"kind": "date", "min": "2024-02-30", "max": "2024-12-31"}, "min: must be a day written YYYY-MM-DD"),
    ({"kind": "integer", "min": "0", "max": "9", "examples": ["10"]}, "examples: an example must be an integer"),
]


@pytest.mark.parametrize(("form", "said"), WRONG)
def test_what_is_no_field_is_refused_in_words(form: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError) as refused:
        built("x", FieldForm.model_validate(form))
    assert said in str(refused.value)


DRAFTED = [
    (TextField("note", confirmed=False), True),
    (TextField("note"), False),
    (CategoryField("way", values=("a",), confirmed=False), True),
    (BooleanField("hurt", confirmed=False), False),
    (IntegerField("age", min=0, max=120, confirmed=False), False),  # a range that anybody knows
    (IntegerField("age", min=3, max=97, confirmed=False), True),
    (IntegerField("visits", min=0, max=50, confirmed=False), True),
    (DateField("day", confirmed=False), True),
]


@pytest.mark.parametrize(("field", "told"), DRAFTED)
def test_what_the_draft_read_off_the_table_is_known_as_such_and_not_put_into_words(field: Field, told: bool) -> None:
    assert is_from_table(field) == told
    if told:
        assert words_of(field, shown=False) != field.expected
        assert words_of(field, shown=True) == field.expected


VALUES = [
    ("note", "abc", "abc", ""),
    ("note", "ABC", None, "must be text"),
    ("note", "", None, "must not be empty"),
    ("way", "no", "no", ""),
    ("way", "never", None, "must be one of"),
    ("age", "", None, ""),
    ("age", " 12 ", 12, ""),
    ("age", "121", None, "must be an integer from 0 to 120"),
    ("size", "0.30", 0.3, ""),
    ("size", "0.35", 0.4, ""),  # on the grid, as a cell of a table
    ("size", "2.1", None, "must be a number"),
    ("hurt", "yes", True, ""),
    ("hurt", "perhaps", None, "must be true or false"),
    ("day", "2024-02-29", "2024-02-29", ""),
    ("day", "2025-01-01", None, "must be a date"),
]


@pytest.mark.parametrize(("name", "text", "value", "problem"), VALUES)
def test_values_are_read_as_typed(name: str, text: str, value: object, problem: str) -> None:
    field = Schema("t", tuple(FIELDS)).field(name)
    found, said = value_of(field, text, shown=True)
    assert found == value
    assert said.startswith(problem) if problem else not said
