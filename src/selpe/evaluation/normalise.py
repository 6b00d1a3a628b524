"""Key-wise normalisation: when two records are the same record, however they are written."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from decimal import Decimal

from selpe.schema import Field, Record, Schema
from selpe.schema.fields import Value, exact_decimal

Normalised = tuple[str | None, ...]


def normalised(schema: Schema, record: Record | Mapping[str, Value]) -> Normalised:
    """A record's values in the schema's order: text without case and extra spaces, numbers by their value."""
    return tuple(_value(field, record.get(field.name)) for field in schema.fields)


def _value(field: Field, value: Value) -> str | None:
    if value is None:
        return None
    if field.kind in ("integer", "number") and not isinstance(value, bool):
        exact = exact_decimal(value)
        if exact is not None:
            return str(exact.normalize() if exact else Decimal(0))
    return " ".join(unicodedata.normalize("NFKC", str(value)).casefold().split())
