"""Values that somebody states for some fields of records that are to be written, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from selpe.errors import ConfigError, did_you_mean
from selpe.schema.fields import CategoryField, Field, Value

if TYPE_CHECKING:
    from selpe.schema.core import Schema


def checked_given(given: Mapping[str, Any], schema: Schema) -> dict[str, Value]:
    """What is given as values of the schema; raises where a field, a value or a rule does not allow it."""
    found = {schema.field(name).name: _value(schema.field(name), value) for name, value in given.items()}
    for rule in schema.rules:
        if found.keys() >= set(rule.fields) and not rule.holds(found):
            raise ConfigError(
                f"no record can have all of this: the rule '{rule.text}' does not hold",
                where="given",
                hint=f"change what is given for {', '.join(rule.fields)}",
            )
    return found


def _value(field: Field, given: Any) -> Value:
    value: Value = _plain(given)
    if field.optional if value is None else field.check(value) is None:
        return value
    raise ConfigError(
        f"what is given for '{field.name}' must be {field.expected}", where="given", hint=_hint(field, value)
    )


def _plain(value: Any) -> Any:
    """A value as records have it: a day is text, and a number of numpy or pandas is Python's own."""
    value = value.item() if hasattr(value, "item") else value
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value)):
        return None  # what pandas and numpy call missing
    if isinstance(value, datetime):
        return value.date().isoformat()
    return value.isoformat() if isinstance(value, date) else value


def _hint(field: Field, value: Any) -> str:
    if value is None:
        return "this field is never missing"
    if not isinstance(field, CategoryField):
        return ""
    if not isinstance(value, str) and str(value) in field.values:
        return f"give it as text: {str(value)!r}"
    return did_you_mean(str(value), field.values).strip()
