"""A regular expression for exactly the days between two dates, leap years included, short enough for a grammar."""

from __future__ import annotations

from calendar import isleap, monthrange
from datetime import date
from functools import lru_cache

_COMMON = (
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)


@lru_cache(maxsize=256)
def days_pattern(first: date, last: date) -> str:
    """A pattern without look-around that matches YYYY-MM-DD for the days from `first` to `last`, and nothing else."""
    whole = [
        year for year in range(first.year, last.year + 1) if date(year, 1, 1) >= first and date(year, 12, 31) <= last
    ]
    parts = [_year(year, first, last) for year in range(first.year, last.year + 1) if year not in whole]
    if whole:
        parts.append(f"{_either(_years(whole))}-(?:{_COMMON})")
    if leap := [year for year in whole if isleap(year)]:
        parts.append(f"{_either([f'{year:04d}' for year in leap])}-02-29")
    return "|".join(parts)


def _year(year: int, first: date, last: date) -> str:
    """The days of one year that lie between the bounds, month by month."""
    months = []
    for month in range(1, 13):
        low, high = date(year, month, 1), date(year, month, monthrange(year, month)[1])
        if high < first or low > last:
            continue
        days = range(max(low, first).day, min(high, last).day + 1)
        months.append(f"{month:02d}-{_days(days)}")
    return f"{year:04d}-{_either(months)}"


def _days(days: range) -> str:
    """A run of days of one month; whole tens folded into digit classes."""
    folded, rest = [], set(days)
    for ten in range(4):
        block = set(range(max(1, 10 * ten), 10 * ten + 10))
        if block <= rest:
            folded.append(f"{ten}[{'1' if ten == 0 else '0'}-9]")
            rest -= block
    return _either(folded + [f"{day:02d}" for day in sorted(rest)])


def _years(years: list[int]) -> list[str]:
    """Consecutive years, whole decades and centuries folded into digit classes."""
    folded, rest = [], set(years)
    for size, tail in ((100, "[0-9][0-9]"), (10, "[0-9]")):
        for start in range(0, 10_000, size):
            block = set(range(start, start + size))
            if block <= rest:
                folded.append(f"{start // size:0{4 - len(str(size - 1))}d}{tail}")
                rest -= block
    return folded + [f"{year:04d}" for year in sorted(rest)]


def _either(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
