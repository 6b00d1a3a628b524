"""Which records there are already, in 8 bytes for each: sorted arrays of 64-bit hashes.

Of a million records two have the same hash with a chance of 3 in 100 million, and then one is merely written anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


class KnownTexts:
    """A set of texts that can be asked and added to, but not read."""

    def __init__(self) -> None:
        self._levels: list[Hashes] = []  # each more than twice as long as the next: few to search, cheap to merge

    def __len__(self) -> int:
        return sum(len(level) for level in self._levels)

    def among(self, texts: Sequence[str]) -> set[str]:
        """Those of these texts that were added before."""
        hashes = hashes_of(texts)
        known = np.zeros(len(hashes), dtype=np.bool_)
        for level in self._levels:
            places = np.minimum(np.searchsorted(level, hashes), len(level) - 1)
            known |= level[places] == hashes
        return {texts[place] for place in np.flatnonzero(known).tolist()}

    def add(self, hashes: Hashes) -> None:
        """Takes texts in, by their hashes."""
        fresh = np.sort(hashes)
        while self._levels and len(self._levels[-1]) < 2 * len(fresh):
            fresh = np.sort(np.concatenate([self._levels.pop(), fresh]), kind="stable")
        if len(fresh):
            self._levels.append(fresh)


def hashes_of(texts: Iterable[str]) -> Hashes:
    """The 64-bit hash of each text."""
    raw = b"".join(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64)
