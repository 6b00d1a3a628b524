"""Precision and recall of embeddings by nearest neighbours (Kynkäänniemi et al., 2019), and a map of both tables.

A table's manifold is the union of balls around its records, each as wide as the distance to the record's k-th nearest
neighbour in the same table. Precision is the share of synthetic records within the manifold of the real ones: what is
written is realistic. Recall is the share of real records within the manifold of the synthetic ones: what is real is
covered. Manifolds grow with the number of records, so both are laid over equally many, as in the original.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

K = 3
CHUNK = 256
SLACK = 1e-9  # squared distances of equal vectors are this far from 0 at most
POINTS = 1_000  # of each table on the map
SEED = 20_260_401

Vectors = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Neighbourhoods:
    """How much of each table lies within the manifold of the other; NaN where a manifold has no ball."""

    precision: float
    recall: float
    k: int


@dataclass(frozen=True, slots=True)
class Map:
    """Both tables in two dimensions: the first principal components of all embeddings, both tables of equal weight."""

    real: tuple[tuple[float, float], ...]
    synthetic: tuple[tuple[float, float], ...]
    real_labels: tuple[str | None, ...]
    synthetic_labels: tuple[str | None, ...]
    explained: tuple[float, float]


def precision_and_recall(synthetic: Vectors, real: Vectors, k: int = K) -> Neighbourhoods:
    """Precision and recall of synthetic against real vectors."""
    size = min(len(synthetic), len(real))
    if size < 2:
        return Neighbourhoods(math.nan, math.nan, k)
    k = min(k, size - 1)
    return Neighbourhoods(
        _share_within(synthetic, real[drawn(len(real), size)], k),
        _share_within(real, synthetic[drawn(len(synthetic), size)], k),
        k,
    )


def drawn(rows: int, size: int) -> NDArray[np.intp]:
    """`size` of `rows` positions, in order: all of them, or a fixed random draw."""
    if size >= rows:
        return np.arange(rows)
    return np.sort(np.random.default_rng(SEED).choice(rows, size, replace=False))


def _share_within(queries: Vectors, centres: Vectors, k: int) -> float:
    radii = _radii(centres, k)
    inside = 0
    for start in range(0, len(queries), CHUNK):
        distances = squared(queries[start : start + CHUNK], centres)
        inside += int((distances <= radii + SLACK).any(axis=1).sum())
    return inside / len(queries)


def _radii(vectors: Vectors, k: int) -> NDArray[np.float64]:
    """The squared distance of every vector to its k-th nearest neighbour, itself not counted."""
    radii = np.empty(len(vectors))
    for start in range(0, len(vectors), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(vectors)))
        distances = squared(vectors[rows], vectors)
        distances[np.arange(len(rows)), rows] = np.inf
        radii[rows] = np.partition(distances, k - 1, axis=1)[:, k - 1]
    return radii


def squared(left: Vectors, right: Vectors) -> Vectors:
    """Squared Euclidean distances between all rows of two tables."""
    lengths = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :]
    return np.asarray(np.maximum(lengths - 2.0 * (left @ right.T), 0.0))


def draw_map(
    synthetic: Vectors, real: Vectors, synthetic_labels: list[str | None], real_labels: list[str | None]
) -> Map:
    """Where the records of both tables lie, seen from the side that shows most."""
    sides = [side for side in (real, synthetic) if len(side)]
    if not sides:
        return Map((), (), (), (), (math.nan, math.nan))
    centre = np.mean([side.mean(axis=0) for side in sides], axis=0)
    spread = np.mean([(side - centre).T @ (side - centre) / len(side) for side in sides], axis=0)
    values, vectors = np.linalg.eigh(spread)
    axes = vectors[:, [-1, -2]]
    # An eigenvector has no sign: fix one, so that the same tables always give the same map.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    shown = [drawn(len(side), POINTS) for side in (real, synthetic)]
    points = [np.round((side[rows] - centre) @ axes, 4) for side, rows in zip((real, synthetic), shown, strict=True)]
    total = float(values.sum())
    share = [float(values[-1] / total), float(values[-2] / total)] if total > 1e-12 else [0.0, 0.0]
    return Map(
        tuple((float(x), float(y)) for x, y in points[0]),
        tuple((float(x), float(y)) for x, y in points[1]),
        tuple(real_labels[row] for row in shown[0]),
        tuple(synthetic_labels[row] for row in shown[1]),
        (share[0], share[1]),
    )
