"""Texts as vectors for the embedded views: each distinct text once, and the test records' texts kept for every set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.views.base import Tick
from selpe.models.encoders.base import Encoder

_BLOCK = 256  # texts encoded between two reports of progress


class Embeddings:
    """An encoder that remembers what it is told to keep; memory grows with the kept texts alone."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._kept: dict[str, NDArray[np.float32]] = {}

    def of(self, texts: Sequence[str], *, keep: bool = False, tick: Tick = lambda _: None) -> NDArray[np.float64]:
        """One row per text, in order."""
        distinct = list(dict.fromkeys(texts))
        new = [text for text in distinct if text not in self._kept]
        fresh: dict[str, NDArray[np.float32]] = {}
        for start in range(0, len(new), _BLOCK):
            block = new[start : start + _BLOCK]
            fresh.update(zip(block, self.encoder.encode(block), strict=True))
            tick(min(1.0, (start + _BLOCK) / len(new)))
        if keep:
            self._kept.update(fresh)
        rows = np.empty((len(texts), self.encoder.dimension))
        for row, text in zip(rows, texts, strict=True):
            row[:] = fresh[text] if text in fresh else self._kept[text]
        return rows


def leading_axes(rows: NDArray[np.float64], most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean of some vectors and, as columns, the directions in which they differ most (none for equal vectors)."""
    from sklearn.utils.extmath import randomized_svd

    if len(rows) < 2:
        return np.zeros(rows.shape[1]), np.zeros((rows.shape[1], 0))
    centre = rows.mean(axis=0)
    _, spread, axes = randomized_svd(rows - centre, min(most, *rows.shape), random_state=0)
    return centre, np.asarray(axes[spread > 1e-9 * len(rows)].T)
