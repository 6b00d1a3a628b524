"""Whole texts as vectors: how the baselines compare a private record with what a model wrote.

A record is embedded as its JSON text, a sample as the model wrote it, read or not. Vectors lie on the integer grid of
kernel.py, on which dot products are exact: a row's distances are functions of that row alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selpe.method.kernel import GRID, on_grid
from selpe.models.encoders.alone import encode_alone
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.schema import Record, Schema


@dataclass(frozen=True, slots=True)
class Texts:
    """Vectors of some texts on the grid, one row each."""

    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: NDArray[np.intp]) -> Texts:
        return Texts(self.vectors[rows])


@dataclass(frozen=True, slots=True)
class TextPool:
    """Squared L2 distances to a pool of texts, as a share of the largest that two unit vectors can have."""

    texts: Texts

    def __len__(self) -> int:
        return len(self.texts)

    def distances(self, rows: Texts) -> NDArray[np.float32]:
        """Distances of shape (len(rows), samples), in [0, 1]."""
        mine, theirs = rows.vectors, self.texts.vectors
        dots = (mine @ theirs.T).astype(np.float64)  # whole numbers below 2²⁴, hence exact in single precision
        squares = _squares(mine)[:, None] + _squares(theirs)[None, :] - 2.0 * dots
        return np.asarray(np.clip(squares / (4.0 * GRID * GRID), 0.0, 1.0), dtype=np.float32)

    def prototype(self, rows: Texts) -> NDArray[np.float32]:
        """Distances from the rows' mean to all samples."""
        return np.asarray(self.distances(Texts(np.rint(rows.vectors.mean(axis=0, keepdims=True))))[0])

    def among(self, i: Sequence[int]) -> NDArray[np.float32]:
        """Distances from some samples to all. Public."""
        return self.distances(self.texts[np.asarray(i, dtype=np.intp)])


class TextKernel:
    """A Kernel (privacy/votes.py) that sees records as whole texts.

    `public_encoder` may embed public texts in the encoder's place; private rows go through the encoder itself.
    """

    def __init__(self, schema: Schema, encoder: Encoder, public_encoder: PublicEncoder | None = None) -> None:
        self._schema = schema
        self._encoder = encoder
        self._encode_public = encoder.encode if public_encoder is None else public_encoder.encode_public

    @property
    def remote(self) -> str | None:
        """The host that texts are sent to for encoding, or None."""
        return self._encoder.remote

    def represent(self, records: Sequence[Record]) -> Texts:
        """The records' JSON texts as vectors, each a function of its own record bit for bit: what private rows need.

        An encoder that does not promise as much gets every text in a call of its own (encode/alone.py). A server is
        trusted to answer a text the same each time.
        """
        texts = [self._schema.dumps(record) for record in records]
        if not texts:
            return Texts(np.zeros((0, self._encoder.dimension), dtype=np.float32))
        return Texts(on_grid(encode_alone(self._encoder, texts)))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of public texts, encoded in batches; equal texts once."""
        distinct = sorted(set(texts))
        place = {text: number for number, text in enumerate(distinct)}
        return np.asarray(self._encode_public(distinct)[[place[text] for text in texts]], dtype=np.float32)

    def over(self, pool: Texts) -> TextPool:
        """The distances to a pool."""
        return TextPool(pool)

    def pool(self, vectors: NDArray[np.float32]) -> TextPool:
        """The distances to samples at these vectors, which may be means of unit vectors."""
        return TextPool(Texts(on_grid(vectors)))


def _squares(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(np.square(vectors.astype(np.float64)).sum(axis=1))
