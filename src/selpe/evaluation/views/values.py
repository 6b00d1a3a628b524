"""Values as the structured views read them: what is not a value of its field counts as missing."""

from __future__ import annotations

import math

from selpe.schema import Value
from selpe.schema.fields import parse_date


def number_of(value: Value) -> float:
    """A finite number, or NaN."""
    try:
        number = math.nan if value is None else float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def day_of(value: Value) -> tuple[float, float, float]:
    """A day as its number, its month and its day of the week, or three NaN."""
    day = parse_date(value) if isinstance(value, str) else None
    if day is None:
        return math.nan, math.nan, math.nan
    return float(day.toordinal()), float(day.month), float(day.weekday())
