"""One token out of a row of logits: temperature, min-p, top-k, top-p, under a grammar's mask.

Every choice is a function of the row and of one uniform number, so a request's text does not depend on who else is
in the batch. Ties go to the token with the lowest id.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Mask = NDArray[np.uint8]  # token i is allowed when bit i % 8 of byte i // 8 is set


@dataclass(frozen=True, slots=True)
class Taste:
    """How to choose among the tokens. Temperature 0 takes the most probable one."""

    temperature: float = 1.0
    min_p: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all of them

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature must be a finite number that is not negative. Got {self.temperature}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be between 0 and 1. Got {self.min_p}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1. Got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 or more. Got {self.top_k}")

    @property
    def greedy(self) -> bool:
        """True when the most probable token is taken: at temperature 0, or so near to it that division overflows."""
        return self.temperature < 1e-6


class Echoes:
    """What an answer must not say next, lest it say a run of `length` tokens a second time.

    Small models go in circles, and then write until they are cut off. Only words are held back: two dates of one year,
    or two numbers alike, are no circle.
    """

    __slots__ = ("_followed", "_length", "_recent")

    def __init__(self, length: int) -> None:
        self._length = length
        self._recent: tuple[int, ...] = ()
        self._followed: dict[tuple[int, ...], list[int]] = {}

    def note(self, token: int) -> None:
        """Takes a token as said."""
        if len(self._recent) == self._length - 1:
            self._followed.setdefault(self._recent, []).append(token)
        self._recent = (*self._recent, token)[-(self._length - 1) :]

    def held_back(self, row: Row, piece: Callable[[int], bytes]) -> Row:
        """The row with such tokens below all others. A grammar that leaves nothing else still gets one."""
        said = [token for token in self._followed.get(self._recent, ()) if _has_letters(piece(token))]
        if not said:
            return row
        row = row.copy()
        row[said] = row.min() - 1000.0
        return row


def _has_letters(piece: bytes) -> bool:
    return any(byte >= 128 for byte in piece) or any(chr(byte).isalpha() for byte in piece)


def generator(seed: int) -> np.random.Generator:
    """The stream of uniform numbers of one request: counter-based, from its seed alone."""
    return np.random.Generator(np.random.Philox(key=seed % 2**128))


def choose(row: Row, taste: Taste, draw: float, mask: Mask | None = None) -> int:
    """The token at quantile `draw` (in [0, 1)) of what `taste` and the mask leave of the distribution."""
    best = int(row.argmax())
    if mask is not None and not _allows(mask, best):
        # Seldom: the grammar forbids what the model wants most. Otherwise the mask need not be unpacked.
        allowed = np.flatnonzero(np.unpackbits(mask, count=len(row), bitorder="little"))
        return int(allowed[_choose(row[allowed], taste, draw)])
    if taste.greedy:
        return best
    if not taste.min_p and mask is None:
        return _choose(row, taste, draw)
    candidates = np.flatnonzero(row >= _floor(row[best], taste))
    if mask is not None:
        candidates = candidates[(mask[candidates >> 3] >> (candidates & 7).astype(np.uint8)) & 1 == 1]
    if len(candidates) == 1:
        return best
    return int(candidates[_choose(row[candidates], taste, draw)])


def _allows(mask: Mask, token: int) -> bool:
    return bool(mask[token >> 3] >> (token & 7) & 1)


def _floor(top: np.float32, taste: Taste) -> float:
    """The logit below which a token has less than `min_p` times the probability of the best one."""
    return float(top) + taste.temperature * math.log(taste.min_p) if taste.min_p else -math.inf


def _choose(row: Row, taste: Taste, draw: float) -> int:
    best = int(row.argmax())
    if taste.greedy or len(row) == 1:
        return best
    if 0 < taste.top_k < len(row):
        kept = _largest(row, taste.top_k)
        return int(kept[_choose(row[kept], taste, draw)])
    # In double precision: differences of a row that is scaled by a small temperature stay exact enough.
    weights = np.exp((row - row[best]).astype(np.float64) / taste.temperature)
    if taste.min_p:
        weights[row < _floor(row[best], taste)] = 0.0
    if taste.top_p < 1:
        _cut(weights, taste.top_p)
    mass = np.cumsum(weights)
    index = int(np.searchsorted(mass, draw * mass[-1], side="right"))
    # Rounding can place the quantile behind the last weight that is not zero.
    return index if index < len(mass) and weights[index] else best


def _largest(row: Row, count: int) -> NDArray[np.intp]:
    """The places of the largest values, in order of place; of equal ones the first."""
    floor = np.partition(row, -count)[-count]
    above, equal = np.flatnonzero(row > floor), np.flatnonzero(row == floor)
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


def _cut(weights: NDArray[np.float64], top_p: float) -> None:
    """Sets to zero all but the fewest tokens that together have `top_p` of the mass."""
    whole = float(weights.sum())
    # Tokens this small have less than 1 − top_p together and are cut anyway: most of a vocabulary needs no sorting.
    weights[weights < 0.5 * (1 - top_p) * whole / len(weights)] = 0.0
    places = np.flatnonzero(weights)
    order = places[np.argsort(-weights[places], kind="stable")]
    kept = int(np.searchsorted(np.cumsum(weights[order]), top_p * whole, side="left")) + 1
    weights[order[kept:]] = 0.0
