"""Distances between distributions on a line or over a few values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray


def total_variation(left: Sequence[float], right: Sequence[float]) -> float:
    """Half the sum of absolute differences of two lists of shares; NaN where one of them is empty."""
    if not sum(left) or not sum(right):
        return math.nan
    return min(1.0, 0.5 * float(np.abs(np.asarray(left) - np.asarray(right)).sum()))


def relative(distance: float, width: float) -> float:
    """A distance as a share of a domain's width, at most 1: values outside their domain are as far as can be."""
    if width > 0:
        return min(1.0, distance / width) if not math.isnan(distance) else math.nan
    return distance if distance == 0 or math.isnan(distance) else 1.0


def with_missing(distance: float, left: float, right: float) -> float:
    """A distance in [0, 1] between present values, extended to tables that miss these shares of them.

    A missing value equals a missing one, and is at distance 1 from every value: what both have moves as it did, and
    the difference in missing values comes on top.
    """
    present = 1 - max(left, right)
    return abs(left - right) + (present * distance if present > 0 else 0.0)


def wasserstein(left: NDArray[np.float64], right: NDArray[np.float64], order: Literal[1, 2] = 1) -> float:
    """The exact Wasserstein distance of that order between two samples on a line; NaN where one of them is empty.

    Mass moves between equal quantiles. Quantiles are counted in whole numbers of 1 / (n · m), so nothing is rounded.
    """
    n, m = len(left), len(right)
    if not n or not m:
        return math.nan
    a, b = np.sort(left), np.sort(right)
    cuts = np.sort(np.concatenate([np.arange(n, dtype=np.int64) * m, np.arange(m, dtype=np.int64) * n]))
    widths = np.diff(np.append(cuts, n * m))
    gaps = np.abs(a[cuts // m] - b[cuts // n])
    cost = float((widths * gaps**order).sum()) / (n * m)
    return math.sqrt(cost) if order == 2 else cost
