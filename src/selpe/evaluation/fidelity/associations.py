"""Pairs of fields: how strongly they are associated, among real rows and in the synthetic table.

Numbers and days: Spearman's rank correlation (and Pearson's beside it). Two choices: Cramér's V. A choice and a
number: the correlation ratio η. V and η of unrelated fields grow as rows get fewer, and the two tables have different
sizes; so both are corrected for that bias (Bergsma's correction for V, Kelley's for η²). A field without variation
is associated with nothing: 0. If fewer than three rows have both values, the result is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from selpe.evaluation.fidelity.columns import choices, is_choice, is_numeric, mean_known, numbers
from selpe.schema import Record, Schema

FEWEST = 3
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pearson:
    """Pearson's correlations of the numeric fields."""

    fields: tuple[str, ...]
    real: Matrix
    synthetic: Matrix
    difference: float


@dataclass(frozen=True, slots=True)
class Associations:
    """The association of every two fields that are not text, in both tables, and the mean absolute difference."""

    fields: tuple[str, ...]
    kinds: tuple[Literal["number", "choice"], ...]
    real: Matrix
    synthetic: Matrix
    difference: float
    pearson: Pearson


@dataclass(frozen=True, slots=True)
class _Column:
    """Numbers, or the codes of choices; NaN where missing."""

    numeric: bool
    values: NDArray[np.float64]


def compare_pairs(schema: Schema, synthetic: Sequence[Record], real: Sequence[Record]) -> Associations:
    """Both matrices of associations, side by side."""
    fields = [field for field in schema.fields if is_numeric(schema, field) or is_choice(schema, field)]
    numeric = tuple(is_numeric(schema, field) for field in fields)
    tables = [_columns(schema, rows) for rows in (real, synthetic)]
    here, there = (_matrix(columns, spearman=True) for columns in tables)
    straight = [_matrix([column for column in columns if column.numeric], spearman=False) for columns in tables]
    return Associations(
        tuple(field.name for field in fields),
        tuple("number" if flag else "choice" for flag in numeric),
        here,
        there,
        mean_difference(here, there),
        Pearson(
            tuple(field.name for field, flag in zip(fields, numeric, strict=True) if flag),
            straight[0],
            straight[1],
            mean_difference(straight[0], straight[1]),
        ),
    )


def mean_difference(left: Matrix, right: Matrix) -> float:
    """The mean absolute difference over pairs that both tables can speak of; NaN where there is none."""
    upper = np.triu_indices(len(left), 1)
    return mean_known(np.abs(left[upper] - right[upper]))


def _columns(schema: Schema, rows: Sequence[Record]) -> list[_Column]:
    found = []
    for field in schema.fields:
        if is_choice(schema, field):
            found.append(_Column(False, _codes(choices(field, rows))))
        elif is_numeric(schema, field):
            found.append(_Column(True, numbers(field, rows)))
    return found


def _codes(values: Sequence[str | None]) -> NDArray[np.float64]:
    place = {value: number for number, value in enumerate(sorted({value for value in values if value is not None}))}
    return np.array([math.nan if value is None else place[value] for value in values], dtype=np.float64)


def _matrix(columns: Sequence[_Column], *, spearman: bool) -> Matrix:
    matrix = np.eye(len(columns))
    for i, j in combinations(range(len(columns)), 2):
        matrix[i, j] = matrix[j, i] = _association(columns[i], columns[j], spearman=spearman)
    return matrix


def _association(left: _Column, right: _Column, *, spearman: bool) -> float:
    both = ~np.isnan(left.values) & ~np.isnan(right.values)
    if both.sum() < FEWEST:
        return math.nan
    x, y = left.values[both], right.values[both]
    if left.numeric and right.numeric:
        return correlation(rankdata(x), rankdata(y)) if spearman else correlation(x, y)
    if left.numeric or right.numeric:
        return correlation_ratio(y, x) if left.numeric else correlation_ratio(x, y)
    return cramers_v(x, y)


def correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson's correlation, 0 where one of the two does not vary."""
    a, b = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    if np.ptp(x) == 0 or np.ptp(y) == 0 or scale == 0:
        return 0.0
    return float(np.clip(float(a @ b) / scale, -1.0, 1.0))


def cramers_v(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Cramér's V with Bergsma's correction: 0 for unrelated choices, 1 where one tells the other."""
    rows, i = np.unique(x, return_inverse=True)
    columns, j = np.unique(y, return_inverse=True)
    r, c, n = len(rows), len(columns), len(x)
    observed = np.bincount(i * c + j, minlength=r * c).reshape(r, c).astype(np.float64)
    expected = observed.sum(axis=1, keepdims=True) * observed.sum(axis=0, keepdims=True) / n
    phi = float(((observed - expected) ** 2 / expected).sum()) / n
    phi = max(0.0, phi - (r - 1) * (c - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    return min(1.0, math.sqrt(phi / least)) if least > 1e-12 else 0.0


def correlation_ratio(groups: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """η, the share of a number's spread that its group explains (as a root), with Kelley's correction."""
    names, i = np.unique(groups, return_inverse=True)
    n, k = len(y), len(names)
    if n <= k:
        return math.nan  # every row is a group of its own
    if np.ptp(y) == 0 or k == 1:
        return 0.0
    sizes = np.bincount(i)
    means = np.bincount(i, weights=y) / sizes
    within = float(((y - means[i]) ** 2).sum()) / (n - k)
    total = float(((y - y.mean()) ** 2).sum()) / (n - 1)
    return math.sqrt(min(1.0, max(0.0, 1 - within / total))) if total > 0 else 0.0
