"""JSON Schema out, for constrained decoding, and JSON Schema (2020-12) in, also from pydantic models.

Out: every key is required and in schema order, missing values are null, and every domain is closed, because a
`number` without bounds lets a model write digits without end. In: what JSON Schema does not define (bounds, lengths)
gets a wide default and `confirmed: false`, so that a person decides before private rows are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from selpe.errors import SchemaError
from selpe.schema.core import Schema
from selpe.schema.days import days_pattern
from selpe.schema.fields import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    TextField,
    Value,
    exact_decimal,
)

WIDE = 1_000_000_000
MAX_LENGTH = 400
_HINT = "records are flat: text, categories (enum), integers, numbers, booleans and dates"

# -- out -----------------------------------------------------------------------------------------------------------


def to_json_schema(schema: Schema, fixed: Mapping[str, Value]) -> dict[str, Any]:
    """JSON Schema for records of a schema; fields in `fixed` become constants."""
    for name in fixed:
        schema.field(name)
    properties = {
        field.name: {"const": fixed[field.name]} if field.name in fixed else _property(field) for field in schema.fields
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": schema.name,
        "type": "object",
        "properties": properties,
        "required": list(schema.names),
        "additionalProperties": False,
    }


def _property(field: Field) -> dict[str, Any]:
    domain = _domain(field)
    if field.optional:
        domain = {"anyOf": [domain, {"type": "null"}]}
    return domain | ({"description": field.description} if field.description else {})


def _domain(field: Field) -> dict[str, Any]:
    if isinstance(field, TextField):
        lengths = {"type": "string", "minLength": field.min_length, "maxLength": field.max_length}
        return lengths | ({"pattern": f"^(?:{field.pattern})$"} if field.pattern is not None else {})
    if isinstance(field, CategoryField):
        return {"type": "string", "enum": list(field.values)}
    if isinstance(field, IntegerField):
        bounds = {"type": "integer", "minimum": field.min, "maximum": field.max}
        return bounds | ({"multipleOf": field.step} if field.step != 1 else {})
    if isinstance(field, NumberField):
        low, high, step = (_number(bound) for bound in (field.min, field.max, field.step))
        return {"type": "number", "minimum": low, "maximum": high, "multipleOf": step}
    if isinstance(field, DateField):
        # Bounds in the pattern: a grammar can follow it, unlike "format": "date" with a range.
        return {"type": "string", "pattern": f"^(?:{days_pattern(field.min, field.max)})$"}
    return {"type": "boolean"}


def _number(exact: Decimal) -> int | float:
    return int(exact) if exact == exact.to_integral_value() else float(exact)


# -- in ------------------------------------------------------------------------------------------------------------


def from_json_schema(content: Mapping[str, Any], *, label: str | None = None) -> Schema:
    """The schema that a JSON Schema object states, as far as records can have it."""
    name = str(content.get("title") or "records")
    properties = content.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SchemaError("the JSON Schema must be an object with properties", where=name, hint=_HINT)
    required = content.get("required", [])
    definitions = content.get("$defs", content.get("definitions", {}))
    fields = []
    for key, entry in properties.items():
        where = f"{name} (properties.{key})"
        if not isinstance(entry, Mapping):
            raise SchemaError("a property must be a JSON Schema object", where=where, hint=_HINT)
        resolved, nullable = _resolved(entry, definitions, where)
        try:
            fields.append(_field(str(key), resolved, nullable or key not in required, where))
        except (TypeError, ValueError, ArithmeticError):
            raise SchemaError("a keyword of this property has the wrong type", where=where, hint=_HINT) from None
    return Schema(name, tuple(fields), label, (), str(content.get("description", "")))


def _resolved(entry: Mapping[str, Any], definitions: Any, where: str) -> tuple[dict[str, Any], bool]:
    """A property with its reference followed and its null branch taken off."""
    nullable, resolved = False, dict(entry)
    for _ in range(8):  # references may point at references, but not for ever
        if isinstance(reference := resolved.pop("$ref", None), str):
            target = definitions.get(reference.rsplit("/", 1)[-1]) if isinstance(definitions, Mapping) else None
            if not reference.startswith("#/") or not isinstance(target, Mapping):
                raise SchemaError("a $ref must point into this document's $defs", where=where, hint=_HINT)
            resolved = dict(target) | resolved
            continue
        branches = resolved.get("anyOf") or resolved.get("oneOf") or resolved.get("allOf")
        if isinstance(branches, list) and branches:
            kept = [branch for branch in branches if isinstance(branch, Mapping) and branch.get("type") != "null"]
            nullable = nullable or len(kept) < len(branches)
            if len(kept) != 1:
                raise SchemaError("a property must have one type, besides null", where=where, hint=_HINT)
            rest = {key: value for key, value in resolved.items() if key not in ("anyOf", "oneOf", "allOf")}
            resolved = dict(kept[0]) | rest
            continue
        break
    kinds = resolved.get("type")
    if isinstance(kinds, list):
        nullable = nullable or "null" in kinds
        resolved["type"] = next((kind for kind in kinds if kind != "null"), None)
    return resolved, nullable


def _field(name: str, entry: Mapping[str, Any], optional: bool, where: str) -> Field:
    common: dict[str, Any] = {
        "name": name,
        "description": str(entry.get("description", "")),
        "optional": optional,
    }
    values = [entry["const"]] if "const" in entry else entry.get("enum")
    if isinstance(values, list):
        return _category(common, values, where)
    kind = entry.get("type")
    if kind == "boolean":
        return BooleanField(**common)
    if kind == "integer":
        return _integer(common, entry)
    if kind == "number":
        return _real(common, entry)
    if kind == "string":
        return _day(common) if entry.get("format") == "date" else _text(common, entry)
    raise SchemaError("a property must be a string, enum, integer, number or boolean", where=where, hint=_HINT)


def _category(common: dict[str, Any], values: list[Any], where: str) -> Field:
    present = [value for value in values if value is not None]
    if any(isinstance(value, (dict, list, float)) for value in present):
        raise SchemaError("the values of an enum must be text", where=where, hint=_HINT)
    common["optional"] = common["optional"] or len(present) < len(values)
    texts = tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in present)
    return CategoryField(**common, values=texts)


def _integer(common: dict[str, Any], entry: Mapping[str, Any]) -> Field:
    low = entry.get("minimum", _above(entry.get("exclusiveMinimum"), 1))
    high = entry.get("maximum", _above(entry.get("exclusiveMaximum"), -1))
    return IntegerField(
        **common,
        confirmed=low is not None and high is not None,
        min=-WIDE if low is None else int(low),
        max=WIDE if high is None else int(high),
        step=int(entry.get("multipleOf", 1)),
    )


def _real(common: dict[str, Any], entry: Mapping[str, Any]) -> Field:
    step = exact_decimal(entry.get("multipleOf", "0.01")) or Decimal("0.01")
    low = entry.get("minimum", _above(entry.get("exclusiveMinimum"), step))
    high = entry.get("maximum", _above(entry.get("exclusiveMaximum"), -step))
    return NumberField(
        **common,
        confirmed=low is not None and high is not None,
        min=Decimal(-WIDE) if low is None else Decimal(str(low)),
        max=Decimal(WIDE) if high is None else Decimal(str(high)),
        step=step,
    )


def _above(bound: Any, step: int | Decimal) -> Any:
    """The first value inside an exclusive bound."""
    return None if bound is None else Decimal(str(bound)) + step


def _day(common: dict[str, Any]) -> Field:
    return DateField(**common, confirmed=False, min=date(1900, 1, 1), max=date(2099, 12, 31))


def _text(common: dict[str, Any], entry: Mapping[str, Any]) -> Field:
    longest = entry.get("maxLength")
    pattern = entry.get("pattern")
    return TextField(
        **common,
        confirmed=longest is not None,
        min_length=int(entry.get("minLength", 1 if longest != 0 else 0)),
        max_length=MAX_LENGTH if longest is None else int(longest),
        pattern=None if pattern is None else _whole(str(pattern)),
    )


def _whole(pattern: str) -> str:
    """JSON Schema searches; our patterns match the whole text."""
    start = "" if pattern.startswith("^") else ".*"
    end = "" if re.search(r"(?<!\\)\$$", pattern) else ".*"
    body = pattern.removeprefix("^")
    body = body if end else body[:-1]
    return f"{start}(?:{body}){end}" if start or end else body
