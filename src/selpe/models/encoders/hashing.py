"""A sentence encoder without weights: hashed words and letter triples. Fast, deterministic, and blind to meaning."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from selpe.models.encoders.base import EncoderBase

_WORD = re.compile(r"\w+", re.UNICODE)


class HashingEncoder(EncoderBase):
    """Unit vectors in which texts that share words and letter triples lie close together."""

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 8:
            raise ValueError("dimension must be at least 8")
        super().__init__(f"hash-{dimension}", dimension, remote=None, rowwise=True)  # each text is hashed by itself

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text. A text without a single word gets the first axis, so that no row is zero."""
        rows = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for feature, count in Counter(_features(text)).items():
                # crc32, unlike hash(), is the same in every process.
                code = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
                row[code % self._dimension] += np.sqrt(count) * (1 if code & 0x8000_0000 else -1)
            norm = float(np.linalg.norm(row))
            if norm > 0:
                row /= norm
            else:
                row[0] = 1.0
        return rows


def _features(text: str) -> Iterator[str]:
    """Words, and letter triples within words."""
    for word in _WORD.findall(text.lower()):
        yield word
        padded = f"<{word}>"
        yield from (padded[start : start + 3] for start in range(len(padded) - 2))
