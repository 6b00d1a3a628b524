"""Bounds for a draft: round numbers outside the bulk of the data, so that no single row's value shows through."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_LENGTHS = (20, 40, 80, 120, 160, 240, 400, 600, 800, 1000, 1500, 2000, 3000, 4000, 6000, 8000)
MOST_DECIMALS = 4
_FENCE = 6.0  # interquartile ranges beyond the quartiles; in a normal distribution no value is that far out
_SKEWED = 10  # a largest value this many times the median is judged on a logarithmic scale


def round_bounds(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """Round numbers at or beyond two values; a range that starts at 0 or above never goes below 0."""
    span = high - low or abs(high) or Decimal(1)
    unit = Decimal(10) ** (span.adjusted())
    floor = (low / unit).to_integral_value(rounding=ROUND_FLOOR) * unit
    ceiling = (high / unit).to_integral_value(rounding=ROUND_CEILING) * unit
    return floor, ceiling if ceiling > floor else floor + unit


def round_days(first: date, last: date) -> tuple[date, date]:
    """The whole years around two days."""
    return date(first.year, 1, 1), date(last.year, 12, 31)


def round_length(longest: int) -> int:
    """A round number of characters that holds the longest text."""
    return next((length for length in _LENGTHS if length >= longest), math.ceil(longest / 10_000) * 10_000)


def decimals(values: Sequence[Decimal]) -> int:
    """How many digits behind the point the values need, within reason."""
    most = 0
    for value in values:
        exponent = value.normalize().as_tuple().exponent
        most = max(most, -exponent if isinstance(exponent, int) else 0)
    return min(most, MOST_DECIMALS)


def bulk(values: Sequence[Decimal]) -> tuple[Decimal, Decimal]:
    """The least and the greatest value that do not lie far away from all others."""
    ordered = sorted(values)
    floats = [float(value) for value in ordered]
    low, high = _fences(floats)
    inside = [value for value, near in zip(ordered, floats, strict=True) if low <= near <= high]
    # When many values are outside, the distribution is unusual and not the rows: keep everything.
    if len(inside) < 0.98 * len(ordered):
        inside = ordered
    return inside[0], inside[-1]


def _fences(ordered: Sequence[float]) -> tuple[float, float]:
    if len(ordered) < 20:
        return -math.inf, math.inf
    middle = ordered[len(ordered) // 2]
    if ordered[0] >= 0 and middle > 0 and ordered[-1] > _SKEWED * middle:
        low, high = _linear([math.log1p(value) for value in ordered])
        return (math.expm1(low) if low < 700 else math.inf), (math.expm1(high) if high < 700 else math.inf)
    return _linear(ordered)


def _linear(ordered: Sequence[float]) -> tuple[float, float]:
    first, third = ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]
    spread = third - first
    return (first - _FENCE * spread, third + _FENCE * spread) if spread else (-math.inf, math.inf)
