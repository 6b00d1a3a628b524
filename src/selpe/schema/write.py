"""Writing a schema as plain data or YAML: only what differs from the defaults."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from selpe.schema.fields import CategoryField, DateField, Field, IntegerField, NumberField, TextField

if TYPE_CHECKING:
    from selpe.schema.core import Schema


def to_dict(schema: Schema) -> dict[str, Any]:
    """The schema as plain data, in the shape of the YAML file."""
    content: dict[str, Any] = {"name": schema.name}
    if schema.description:
        content["description"] = schema.description
    if schema.label is not None:
        content["label"] = schema.label
    content["fields"] = {field.name: _entry(field) for field in schema.fields}
    if schema.rules:
        content["rules"] = [rule.text for rule in schema.rules]
    if schema.examples:
        content["examples"] = [dict(record) for record in schema.examples]
    return content


def to_yaml(schema: Schema) -> str:
    """The schema as YAML text that reads back as the same schema."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 110
    stream = io.StringIO()
    yaml.dump(to_dict(schema), stream)
    return stream.getvalue()


def _entry(field: Field) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": field.kind}
    if field.description:
        entry["description"] = field.description
    entry |= _domain(field)
    if field.optional:
        entry["optional"] = True
    if field.examples:
        entry["examples"] = list(field.examples)
    if not field.confirmed:
        entry["confirmed"] = False
    return entry


def _domain(field: Field) -> dict[str, Any]:
    if isinstance(field, TextField):
        lengths: dict[str, Any] = {"min_length": field.min_length, "max_length": field.max_length}
        return lengths | ({"pattern": field.pattern} if field.pattern is not None else {})
    if isinstance(field, CategoryField):
        if field.descriptions:
            return {"values": {value: field.descriptions.get(value) for value in field.values}}
        return {"values": list(field.values)}
    if isinstance(field, IntegerField):
        return _range(field.min, field.max, field.step, field.unit)
    if isinstance(field, NumberField):
        low, high, step = (_number(bound) for bound in (field.min, field.max, field.step))
        return _range(low, high, step, field.unit)
    if isinstance(field, DateField):
        return {"min": field.min.isoformat(), "max": field.max.isoformat()}
    return {}


def _range(low: float, high: float, step: float, unit: str) -> dict[str, Any]:
    return {"min": low, "max": high, "step": step} | ({"unit": unit} if unit else {})


def _number(exact: Decimal) -> int | float:
    return int(exact) if exact == exact.to_integral_value() else float(exact)
