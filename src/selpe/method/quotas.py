"""How many records each class contributes in each round: whole numbers whose sum is exactly N."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from selpe.errors import ConfigError

Shape = Literal["progressive", "uniform"]


def round_quotas(
    records: int,
    labels: Sequence[str],
    rounds: int,
    shape: Shape = "progressive",
    shares: Mapping[str, float] | None = None,
) -> list[dict[str, int]]:
    """The quota of each class in each round (Eq. quota: m_t ∝ t); without labels, under the name ''.

    Totals are exact: N over all, each class by largest remainder of its share, each round of a class by largest
    remainder of its part. Rounding up each m_t, as the paper's algorithm does, would make 2,002 records of 2,000.
    """
    if records < 1 or rounds < 1:
        raise ConfigError("records and rounds must be 1 or more")
    names = tuple(labels) or ("",)
    weights = [1 if shares is None else _share(shares, name, names) for name in names]
    if not any(weights):
        raise ConfigError("at least one class must have a share above 0", where="quotas")
    parts = [t if shape == "progressive" else 1 for t in range(1, rounds + 1)]
    table = [apportion(total, parts) for total in apportion(records, weights)]
    return [{name: row[t] for name, row in zip(names, table, strict=True)} for t in range(rounds)]


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to the weights, by largest remainder; of equal remainders the later wins."""
    exact = [Fraction(weight) for weight in weights]
    whole = sum(exact)
    ideal = [total * weight / whole for weight in exact]
    given = [math.floor(part) for part in ideal]
    order = sorted(range(len(ideal)), key=lambda i: (ideal[i] - given[i], i), reverse=True)
    for i in order[: total - sum(given)]:
        given[i] += 1
    return given


def _share(shares: Mapping[str, float], name: str, names: Sequence[str]) -> float:
    if unknown := [label for label in shares if label not in names]:
        raise ConfigError(f"'{unknown[0]}' is not a class of the schema", where="quotas")
    if name not in shares:
        raise ConfigError(f"a share must be given for every class; '{name}' has none", where="quotas")
    share = float(shares[name])
    if not 0 <= share < math.inf:
        raise ConfigError(f"the share of class '{name}' must be a number, 0 or more", where="quotas")
    return share


def class_quotas(records: int, labels: Sequence[str], shares: Mapping[str, float] | None) -> dict[str, int]:
    """How many records each class gets in all: by public shares, never by the private table's own."""
    return round_quotas(records, labels, 1, "uniform", shares)[0]
