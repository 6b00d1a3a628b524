"""The protocol that every predictor of utility meets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.schema import Record

ViewKind: TypeAlias = Literal["text", "structured"]
Chances: TypeAlias = NDArray[np.float64]
Tick: TypeAlias = Callable[[float], None]  # told how much of a training set's work is done, from 0 to 1


def within(tick: Tick, before: int, count: int, part: float) -> None:
    """Tells the share of the whole when `before` of `count` equal pieces are done, and `part` of the next."""
    tick((before + part) / count)


class View(Protocol):
    """A way to look at records and to learn their classes: trained on one set, asked about another."""

    @property
    def name(self) -> str:
        """The name under which the registry knows it."""

    @property
    def kind(self) -> ViewKind:
        """Whether it reads a record as one text or as fields."""

    @property
    def remote(self) -> str | None:
        """The host that records are sent to, or None when they stay on this machine."""

    @property
    def seeded(self) -> bool:
        """Whether training leaves anything to chance, so that seeds make a difference."""

    @property
    def note(self) -> str:
        """What a reader of its figures must know, or nothing."""

    def require(self) -> None:
        """Raises ModelError, with what to install, where the view cannot run."""

    def chances(
        self,
        train: Sequence[Record],
        labels: Sequence[str],
        test: Sequence[Record],
        *,
        seeds: Sequence[int],
        tick: Tick,
    ) -> Iterator[Chances]:
        """For each seed, p̂ of every test record: one row a record, one column per class of `sorted(set(labels))`.

        There are at least two classes in `labels`. The label field of a record is never looked at.
        """
