"""What a private table is asked for in a round of choices, and what comes out of it: winners by index, at a price."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selpe.privacy.mechanisms import Guarantee, Influence, Mechanism, Selector

Tallies = Callable[[Selector], Mapping[str, NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a round releases: the winners, by index, and what they cost.

    `winners` maps each class (or '' where there are none) to one candidate per batch. `private` is False for controls
    and seeded draws. `replayed` says that the result was stored earlier and nothing was drawn or charged now.
    """

    winners: Mapping[str, tuple[int, ...]]
    guarantee: Guarantee
    mechanism: str
    private: bool
    replayed: bool = False

    @property
    def winner(self) -> int:
        """The one winner of a choice among sets."""
        ((only,),) = self.winners.values()
        return only


@dataclass(frozen=True, slots=True)
class ChoiceAsked:
    """What is asked of the table, all of it public; `sizes` are batches and options per pool."""

    selection: str
    vote: str
    context: str
    influence: Influence
    sizes: Mapping[str, tuple[int, int]]
    remote: str | None

    def digest(self, mechanism: Mechanism) -> str:
        """A hash by which a stored result is known to belong to this very request."""
        sizes = repr(sorted(self.sizes.items()))
        return digest_of(self.vote, self.context, repr(mechanism), repr(self.influence), sizes)


def draw(selector: Selector, sizes: Mapping[str, tuple[int, int]], scores: Tallies) -> dict[str, tuple[int, ...]]:
    """One option per pool and batch. Without a look at any row where the selector needs none."""
    if selector.reads_rows:
        tallies = scores(selector)
    else:
        tallies = {label: np.zeros(shape, dtype=np.int64) for label, shape in sizes.items()}
    return {label: tuple(selector.draw(batch) for batch in tallies[label]) for label in sizes}


def digest_of(*parts: str) -> str:
    """A hash of what was asked, by which a stored result is known again."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
