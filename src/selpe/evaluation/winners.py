"""The true rank of each round's winners: how close to the real rows of their class, among all its candidates.

This is what the noise cost, seen without noise, so it belongs to `internal/`. 50 is chance, 100 the closest candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.embedding import embed
from selpe.evaluation.words import unlabelled
from selpe.models.encoders.base import Encoder
from selpe.schema import Record, Schema


def winners_over_rounds(
    schema: Schema,
    making: Mapping[str, Any],
    candidates: Sequence[Record],
    real: Sequence[Record],
    *,
    encoder: Encoder,
) -> list[dict[str, Any]]:
    """One entry per round whose winners are known: its name, what the plan expected, and each winner's percentile."""
    rounds = [choice for choice in making["choices"] if choice["records"]]
    if not rounds or not candidates or not real:
        return []
    scale = {label: _closeness(schema, group, _of_class(schema, real, label), encoder)
             for label, group in _by_class(schema, candidates).items()}  # fmt: skip
    expected = making["expected"]
    found = []
    for place, choice in enumerate(rounds):
        stands = [
            (label or "all", percentile)
            for label, records in choice["records"].items()
            for percentile in _stand(schema, records, _of_class(schema, real, label), encoder, scale.get(label))
        ]
        found.append({"name": choice["name"], "winners": stands,
                      "expected": expected[place] if place < len(expected) else None})  # fmt: skip
    return found


def _by_class(schema: Schema, records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(schema.label_of(record) or "", []).append(record)
    return groups


def _of_class(schema: Schema, records: Sequence[Record], label: str) -> list[Record]:
    return [record for record in records if (schema.label_of(record) or "") == label]


def _closeness(
    schema: Schema, records: Sequence[Record], real: Sequence[Record], encoder: Encoder
) -> NDArray[np.float32] | None:
    """The mean similarity of each record to the real rows of its class; None where there are none."""
    if not records or not real:
        return None
    ours, theirs = (embed(encoder, unlabelled(schema, some)) for some in (records, real))
    return np.asarray(ours @ theirs.mean(axis=0))


def _stand(
    schema: Schema,
    records: Sequence[Record],
    real: Sequence[Record],
    encoder: Encoder,
    scale: NDArray[np.float32] | None,
) -> list[float]:
    """The percentile of each record on the scale of all candidates of its class."""
    at = _closeness(schema, records, real, encoder)
    if at is None or scale is None:
        return []
    slack = 1e-6
    return [float(100 * (np.mean(scale < one - slack) + np.mean(np.abs(scale - one) <= slack) / 2)) for one in at]
