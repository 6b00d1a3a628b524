"""Figures as people read them: few digits, thin gaps, and a dash where there is nothing to say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

NOTHING = "–"
_LONG = 28  # letters of a label that fit beside a bar


def known(value: Any) -> TypeGuard[float]:
    """Whether this is a number that can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def percent(share: Any, digits: int = 1) -> str:
    """A share from 0 to 1 as a percentage. A share below 1 is never shown as 100 %, nor a share above 0 as 0 %."""
    if not known(share):
        return NOTHING
    least = 10.0**-digits
    text = f"{100 * float(share):.{digits}f}"
    if float(text) == 100.0 and share < 1.0:
        text = f"> {100 - least:.{digits}f}"
    elif float(text) == 0.0 and share > 0.0:
        text = f"< {least:.{digits}f}"
    elif digits:
        text = text.removesuffix("." + "0" * digits)
    return f"{text} %"


def figure(value: Any, digits: int = 3) -> str:
    """A number with a fixed number of digits behind the point, so that columns line up."""
    if not known(value):
        return NOTHING
    text = f"{float(value):,.{digits}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) != 0 else f"{0:.{digits}f}"


def compact(value: Any) -> str:
    """A number in as few letters as tell its size: 7, 0.35, 1,250, 12 k, 3.4 M."""
    if not known(value):
        return NOTHING
    size = abs(float(value))
    if size >= 999_500:
        text = f"{value / 1e6:,.1f} M"
    elif size >= 10_000:
        text = f"{value / 1e3:,.0f} k"
    elif size >= 999.5 or float(value).is_integer():
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−")


def count(value: Any) -> str:
    """A whole number with thousands separators."""
    return f"{round(value):,}" if known(value) else NOTHING


def epsilon(value: Any) -> str:
    """An ε: up to three digits, ∞ for a choice without noise."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return NOTHING
    return "∞" if math.isinf(number) else (f"{number:.3g}" if not math.isnan(number) else NOTHING)


def short(text: str, most: int = _LONG) -> str:
    """A text cut to a length that fits."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def listing(items: Sequence[str], *, most: int = 4) -> str:
    """Some words as a phrase: 'a, b and c', or 'a, b, c and 5 more'."""
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1] if items else ""]))


def plural(number: int, noun: str) -> str:
    """A counted noun: '1 record', '80 records', '2 copies'."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"
