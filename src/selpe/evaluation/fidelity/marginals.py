"""One field at a time: how far its values are spread in the synthetic table from how they are among real rows.

Choices are compared by total variation, with 'missing' as a value of its own. Numbers and days are compared by the
Wasserstein distance over present values in the field's unit, and as a share of the range that the schema allows, to
which a difference in missing values is added. Text has a module of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.fidelity.columns import choices, is_choice, is_numeric, known, mean_known, numbers, options, span
from selpe.evaluation.fidelity.distances import relative, total_variation, wasserstein, with_missing
from selpe.schema import DateField, Field, IntegerField, NumberField, Record, Schema

BARS = 20  # bins of a histogram, and the most values of a category that get a bar of their own
MISSING, REST = "(missing)", "(other)"


@dataclass(frozen=True, slots=True)
class Marginal:
    """One field of both tables, with histograms over the same bars."""

    kind: str
    measure: Literal["total variation", "wasserstein"]
    value: float  # total variation in [0, 1]; Wasserstein in the field's unit (days for dates)
    normalised: float  # in [0, 1]: total variation as it is; Wasserstein over the domain's width, and missing values
    unit: str
    values: tuple[str, ...] | None  # what the bars stand for, for choices
    edges: tuple[float | str, ...] | None  # where the bars begin and end, for numbers and days
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    missing_real: float
    missing_synthetic: float


def compare_fields(schema: Schema, synthetic: Sequence[Record], real: Sequence[Record]) -> dict[str, Marginal]:
    """Every field that is not text. Without real rows the synthetic histograms stand alone, and values are NaN."""
    found = {}
    for field in schema.fields:
        if is_choice(schema, field):
            found[field.name] = _of_choices(schema, field, synthetic, real)
        elif is_numeric(schema, field):
            found[field.name] = _of_numbers(field, synthetic, real)
    return found


def mean(fields: Mapping[str, Marginal]) -> float:
    """The mean normalised distance over fields."""
    return mean_known([marginal.normalised for marginal in fields.values()])


def _of_choices(schema: Schema, field: Field, synthetic: Sequence[Record], real: Sequence[Record]) -> Marginal:
    listed = options(schema, field)
    counts = [_counted(choices(field, rows), frozenset(listed)) for rows in (real, synthetic)]
    extra = tuple(name for name in (REST, MISSING) if any(count[name] for count in counts))
    values = listed + tuple(name for name in extra if name not in listed)
    shares = [[count[value] / max(1, count.total()) for value in values] for count in counts]
    distance = total_variation(*shares)
    bars, drawn = _bars(values, shares)
    missing = [count[MISSING] / max(1, count.total()) for count in counts]
    return Marginal(
        field.kind, "total variation", distance, distance, "", bars, None, *drawn, missing[0], missing[1]
    )  # fmt: skip


def _counted(values: Sequence[str | None], listed: frozenset[str]) -> Counter[str]:
    return Counter(MISSING if value is None else value if value in listed else REST for value in values)


def _bars(
    values: tuple[str, ...], shares: list[list[float]]
) -> tuple[tuple[str, ...], tuple[tuple[float, ...], tuple[float, ...]]]:
    """The values that are drawn, in their order, and their shares; small ones are put together."""
    if len(values) <= BARS:
        return values, (tuple(shares[0]), tuple(shares[1]))
    weight = [left + right for left, right in zip(*shares, strict=True)]
    kept = sorted(sorted(range(len(values)), key=lambda i: (-weight[i], i))[: BARS - 1])
    drawn = [(*(each[i] for i in kept), max(0.0, sum(each) - sum(each[i] for i in kept))) for each in shares]
    rest = f"({len(values) - len(kept)} more)"
    return (*(values[i] for i in kept), rest), (drawn[0], drawn[1])


def _of_numbers(field: Field, synthetic: Sequence[Record], real: Sequence[Record]) -> Marginal:
    columns = [numbers(field, rows) for rows in (real, synthetic)]
    present = [known(column) for column in columns]
    distance, width = wasserstein(present[0], present[1]), span(field)
    edges = bin_edges(np.concatenate(present), _step(field))
    missing = [
        1 - len(have) / len(column) if len(column) else 0.0 for have, column in zip(present, columns, strict=True)
    ]
    return Marginal(
        field.kind,
        "wasserstein",
        distance,
        with_missing(relative(distance, width), *missing) if len(real) and len(synthetic) else math.nan,
        _unit(field),
        None,
        tuple(_edge(field, edge) for edge in edges.tolist()),
        histogram(present[0], edges),
        histogram(present[1], edges),
        missing[0],
        missing[1],
    )


def _unit(field: Field) -> str:
    if isinstance(field, DateField):
        return "days"
    return field.unit if isinstance(field, (IntegerField, NumberField)) else ""


def _edge(field: Field, edge: float) -> float | str:
    if not isinstance(field, DateField):
        return edge
    return date.fromordinal(min(max(round(edge), 1), date.max.toordinal())).isoformat()


def _step(field: Field) -> float:
    return float(field.step) if isinstance(field, (IntegerField, NumberField)) else 1.0


def bin_edges(values: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """The edges of at most `BARS` equal bins over the values, as many steps of the field's grid wide each.

    If bins are not a multiple of the grid, some hold more values than others, and a smooth field looks like a comb.
    """
    if not len(values):
        return np.zeros(0)
    low, high = float(values.min()), float(values.max())
    width = step * math.ceil(round((high - low) / step + 1, 6) / BARS)
    count = min(BARS, int(round((high - low) / width, 6)) + 1)
    return np.asarray(low + width * np.arange(count + 1))


def histogram(values: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[float, ...]:
    """The share of the values in each bin; zeros where there are none."""
    bins = max(0, len(edges) - 1)
    if not bins or not len(values):
        return (0.0,) * bins
    # A value of the grid that stands on an edge must not fall into the bin before its own by a rounding.
    lifted = values + 1e-6 * (edges[1] - edges[0])
    place = np.clip(np.searchsorted(edges, lifted, side="right") - 1, 0, bins - 1)
    return tuple((np.bincount(place, minlength=bins) / len(values)).tolist())
