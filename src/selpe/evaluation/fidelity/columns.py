"""Columns of records as numbers or as choices. A value that is none of its kind counts as missing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from selpe.schema import BooleanField, CategoryField, DateField, Field, IntegerField, NumberField, Record, Schema
from selpe.schema.fields import Value, parse_date


def is_numeric(schema: Schema, field: Field) -> bool:
    """Whether values lie on a line: numbers and days. A label is a choice even where its classes are integers."""
    return isinstance(field, (IntegerField, NumberField, DateField)) and field.name != schema.label


def is_choice(schema: Schema, field: Field) -> bool:
    """Whether values are one of a few: categories, booleans, and the label."""
    return isinstance(field, (CategoryField, BooleanField)) or field.name == schema.label


def numbers(field: Field, records: Sequence[Record]) -> NDArray[np.float64]:
    """Numbers as they are, days as ordinals, NaN where a value is missing."""
    return np.array([_number(field, record.get(field.name)) for record in records], dtype=np.float64)


def _number(field: Field, value: Value) -> float:
    if isinstance(field, DateField):
        day = parse_date(value) if isinstance(value, str) else None
        return math.nan if day is None else float(day.toordinal())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def choices(field: Field, records: Sequence[Record]) -> list[str | None]:
    """Choices as text, None where a value is missing."""
    values = (record.get(field.name) for record in records)
    return [None if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in values]


def options(schema: Schema, field: Field) -> tuple[str, ...]:
    """What a choice can be, in the schema's order."""
    if field.name == schema.label:
        return schema.labels
    return field.values if isinstance(field, CategoryField) else ("false", "true")


def span(field: Field) -> float:
    """The width of a numeric field's domain; days for dates."""
    if isinstance(field, DateField):
        return float((field.max - field.min).days)
    return float(field.max - field.min) if isinstance(field, (IntegerField, NumberField)) else math.nan


def known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values that are not missing."""
    return values[~np.isnan(values)]


def mean_known(values: Sequence[float] | NDArray[np.float64]) -> float:
    """The mean of the values that are not missing; NaN where there is none."""
    present = known(np.asarray(values, dtype=np.float64))
    return float(present.mean()) if len(present) else math.nan
