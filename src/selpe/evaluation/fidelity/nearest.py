"""How near a synthetic table comes to real records, by the kernel that the method itself compares records with."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from selpe.evaluation.embedding import require_local
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.base import Encoder
from selpe.schema import Record, Schema


def mean_distance(
    schema: Schema,
    synthetic: Sequence[Record],
    real: Sequence[Record],
    *,
    encoder: Encoder,
    allow_private_text_to: str | Collection[str] = (),
) -> float:
    """The mean distance from real records to the nearest synthetic one of their class; classes count alike.

    Distances are normalised over the real records: over the synthetic ones, a table of much the same records would
    stretch them, and two tables would be measured with two rulers. A class that only one side has is left out.
    """
    require_local(encoder, allow_private_text_to)
    kernel = MultiChannelKernel(schema, encoder)
    found = []
    for label in schema.labels or (None,):
        mine, theirs = ([row for row in rows if schema.label_of(row) == label] for rows in (synthetic, real))
        if mine and theirs:
            ruler = kernel.over(kernel.represent_pool(theirs))
            found.append(float(ruler.distances(kernel.represent_pool(mine)).min(axis=0).mean()))
    return float(np.mean(found)) if found else float("nan")
