"""Between a field and the inputs of a person: texts in, what the YAML file says out, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from selpe.errors import SchemaError
from selpe.intake.cells import Conventions, read_cell
from selpe.intake.cells import expected as guarded_words
from selpe.intake.draft.names import measures
from selpe.schema import BooleanField, CategoryField, DateField, IntegerField, NumberField, Schema, TextField, Value
from selpe.schema import Field as SchemaField
from selpe.schema.fields import Kind, parse_date, plain

_LONGEST = 20_000  # characters of one input


class CategoryValue(BaseModel):
    """One value of a category, and what it means where it does not speak for itself."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    value: str = Field(max_length=_LONGEST)
    description: str = Field("", max_length=_LONGEST)


class FieldForm(BaseModel):
    """What a person says about one field, as typed. What its kind does not need is left aside."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    kind: Kind
    description: str = Field("", max_length=_LONGEST)
    optional: bool = False
    confirmed: bool = False
    min: str = ""
    max: str = ""
    step: str = ""
    unit: str = Field("", max_length=100)
    min_length: str = ""
    max_length: str = ""
    pattern: str = Field("", max_length=_LONGEST)
    values: list[CategoryValue] = Field([], max_length=1000)
    examples: list[str] = Field([], max_length=100)

    def entry(self, name: str) -> dict[str, Any]:
        """What the file says of the field, in its usual order. Raises SchemaError where an input cannot be read."""
        entry: dict[str, Any] = {
            "kind": self.kind,
            "description": self.description.strip(),
            **_DOMAINS[self.kind](self),
        }
        if self.optional:
            entry["optional"] = True
        if given := [text for text in self.examples if text.strip()]:
            entry["examples"] = _examples(name, entry, given)
        return entry | ({} if self.confirmed else {"confirmed": False})


def form_of(field: SchemaField) -> dict[str, Any]:
    """The inputs of a field as they stand in the file."""
    form: dict[str, Any] = {
        "kind": field.kind, "description": field.description, "optional": field.optional,
        "confirmed": field.confirmed, "examples": [text_of(field, value) for value in field.examples],
    }  # fmt: skip
    if isinstance(field, TextField):
        form |= {"min_length": str(field.min_length), "max_length": str(field.max_length)}
        form |= {"pattern": field.pattern or ""}
    if isinstance(field, CategoryField):
        said = field.descriptions
        form["values"] = [{"value": value, "description": said.get(value, "")} for value in field.values]
    if isinstance(field, IntegerField | NumberField):
        form |= {name: plain(Decimal(getattr(field, name))) for name in ("min", "max", "step")} | {"unit": field.unit}
    if isinstance(field, DateField):
        form |= {"min": field.min.isoformat(), "max": field.max.isoformat()}
    return form


def built(name: str, form: FieldForm) -> SchemaField:
    """The field that a form describes. Raises SchemaError in plain words where there is none."""
    schema = Schema.from_dict({"name": "field", "fields": {name: form.entry(name)}})
    return schema.fields[0]


def is_from_table(field: SchemaField) -> bool:
    """Whether what a drafted field allows was read off the private table; known ranges of measures were not."""
    if field.confirmed or isinstance(field, BooleanField):
        return False
    if isinstance(field, IntegerField | NumberField):
        return all((field.min, field.max) != (usual.low, usual.high) for usual in measures(field.name))
    return True


def words_of(field: SchemaField, *, shown: bool) -> str:
    """What a value must be; without values and bounds that came from the table, unless they may be shown."""
    return field.expected if shown else guarded_words(field)


def value_of(field: SchemaField, text: str, *, shown: bool) -> tuple[Value, str]:
    """The value that a person typed for a field, and what is wrong with it: '' for nothing."""
    outcome = read_cell(field, text, Conventions(decimal="."))
    if not outcome.problem:
        return outcome.value, ""
    missing = "must not be empty: " if not text.strip() else "must be "
    return None, missing + words_of(field, shown=shown)


def text_of(field: SchemaField, value: Value) -> str:
    """A value as a person would type it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(Decimal(str(value))) if isinstance(field, NumberField) else str(value)


# -- the kinds -------------------------------------------------------------------------------------------------------


def _text(form: FieldForm) -> dict[str, Any]:
    lengths = {
        "min_length": _whole(form.min_length or "1", "min_length"),
        "max_length": _whole(form.max_length, "max_length"),
    }
    return lengths | ({"pattern": form.pattern} if form.pattern else {})


def _category(form: FieldForm) -> dict[str, Any]:
    given = [(one.value.strip(), one.description.strip() or None) for one in form.values if one.value.strip()]
    if len({value for value, _ in given}) != len(given):
        raise SchemaError("the values of a category must be distinct", where="values")
    if not given:
        raise SchemaError("a category must have at least one value", where="values")
    return {"values": dict(given)}


def _integer(form: FieldForm) -> dict[str, Any]:
    bounds = {name: _whole(getattr(form, name), name) for name in ("min", "max")}
    step = _whole(form.step or "1", "step")
    return bounds | ({"step": step} if step != 1 else {}) | ({"unit": form.unit} if form.unit else {})


def _number(form: FieldForm) -> dict[str, Any]:
    bounds = {name: _decimal(getattr(form, name), name) for name in ("min", "max")}
    return bounds | {"step": _decimal(form.step or "0.01", "step")} | ({"unit": form.unit} if form.unit else {})


def _date(form: FieldForm) -> dict[str, Any]:
    return {name: _day(getattr(form, name), name) for name in ("min", "max")}


_DOMAINS: Mapping[Kind, Callable[[FieldForm], dict[str, Any]]] = {
    "text": _text,
    "category": _category,
    "integer": _integer,
    "number": _number,
    "boolean": lambda form: {},
    "date": _date,
}


def _examples(name: str, entry: Mapping[str, Any], texts: list[str]) -> list[Value]:
    field = Schema.from_dict({"name": "field", "fields": {name: dict(entry)}}).fields[0]
    found = []
    for text in texts:
        value, problem = value_of(field, text, shown=True)
        if problem:
            raise SchemaError(f"an example {problem}", where="examples")
        found.append(value)
    return found


def _whole(text: str, where: str) -> int:
    number = _decimal(text, where)
    if not isinstance(number, int):
        raise SchemaError("must be a whole number", where=where)
    return number


def _decimal(text: str, where: str) -> int | float:
    if not text.strip():
        raise SchemaError("must be given", where=where)
    try:
        exact = Decimal(text.strip())
    except InvalidOperation:
        raise SchemaError("must be a number, such as 12 or 0.5", where=where) from None
    if not exact.is_finite() or abs(exact) > 10**15:
        raise SchemaError("must be a number of at most 15 digits", where=where)
    return int(exact) if exact == exact.to_integral_value() else float(exact)


def _day(text: str, where: str) -> date:
    day = parse_date(text.strip())
    if day is None:
        raise SchemaError("must be a day written YYYY-MM-DD", where=where)
    return day
