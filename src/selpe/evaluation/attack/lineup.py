"""Private rows beside held-out rows, and what would be found if the two were exchanged at random.

An attack succeeds if it distinguishes rows that were used from rows that were not. If both are drawn from the same
distribution and the synthetic table learnt nothing of single rows, then within a class any of them could have been
the private ones. So every alarm rests on one test: membership is assigned at random many times, class by class, and
the share of these deals that look at least as bad is the p-value. It is exact for tables of any size, and holds where
classes are balanced in one table and not in the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.schema import Record, Schema

DEALS = 1_999  # the smallest p-value is 1 / (1 + DEALS)
CHUNK = 200
SEED = 20_260_402

Masks: TypeAlias = NDArray[np.bool_]  # one row per deal, one column per real row: who is a member
Statistic: TypeAlias = Callable[[Masks], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class LineupResult:
    """A figure as it is, its mean over random deals, and the share of deals that reach it."""

    observed: float
    expected: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Lineup:
    """Private rows, then as many held-out rows of each class as there are (as in the paper, of equal number)."""

    private: tuple[Record, ...]
    holdout: tuple[Record, ...]
    spare: tuple[Record, ...]  # the other held-out rows
    classes: NDArray[np.intp]  # of all rows but the spare ones
    short: int  # classes with fewer held-out than private rows

    @classmethod
    def of(cls, schema: Schema, private: Sequence[Record], holdout: Sequence[Record]) -> Lineup:
        """The line-up of all private rows and of held-out rows drawn to match them."""
        wanted = Counter(schema.label_of(record) for record in private)
        order = np.random.default_rng(SEED).permutation(len(holdout))
        left, chosen = Counter(wanted), []
        for place in order.tolist():
            label = schema.label_of(holdout[place])
            if left[label] > 0:
                left[label] -= 1
                chosen.append(place)
        others = tuple(holdout[place] for place in sorted(chosen))
        spare = tuple(holdout[place] for place in sorted(set(range(len(holdout))).difference(chosen)))
        names = {label: number for number, label in enumerate(wanted)}
        classes = np.array([names[schema.label_of(record)] for record in (*private, *others)], dtype=np.intp)
        return cls(tuple(private), others, spare, classes, sum(1 for label in wanted if left[label] > 0))

    @property
    def rows(self) -> tuple[Record, ...]:
        """All rows that are compared, private ones first."""
        return self.private + self.holdout

    @property
    def members(self) -> NDArray[np.bool_]:
        """Which rows are private."""
        return np.arange(len(self.classes)) < len(self.private)

    def judge(self, statistics: Mapping[str, Statistic]) -> dict[str, LineupResult]:
        """The verdict on each figure, all from the same deals. Without a held-out row there is none."""
        if not self.holdout or not self.private:
            return {}
        observed = {name: float(figure(self.members[None, :])[0]) for name, figure in statistics.items()}
        reached, total = dict.fromkeys(statistics, 0), dict.fromkeys(statistics, 0.0)
        for masks in self._deals():
            for name, figure in statistics.items():
                values = figure(masks)
                reached[name] += int((values >= observed[name] - 1e-9).sum())
                total[name] += float(values.sum())
        return {
            name: LineupResult(value, total[name] / DEALS, (1 + reached[name]) / (1 + DEALS))
            for name, value in observed.items()
        }

    def _deals(self) -> Iterator[Masks]:
        """Membership dealt out at random within each class, in chunks."""
        random = np.random.default_rng(SEED)
        # Sorted by class and then at random; in that order the first of each class are members, as many as there were.
        by_class = np.sort(self.classes)
        counts = np.bincount(self.classes[: len(self.private)], minlength=int(self.classes.max()) + 1)
        rank = np.arange(len(by_class)) - np.searchsorted(by_class, by_class)
        dealt = rank < counts[by_class]
        for start in range(0, DEALS, CHUNK):
            keys = self.classes + random.random((min(CHUNK, DEALS - start), len(self.classes)))
            masks = np.zeros(keys.shape, dtype=bool)
            np.put_along_axis(masks, np.argsort(keys, axis=1), np.broadcast_to(dealt, keys.shape), axis=1)
            yield masks


def summed(weights: NDArray[np.float64]) -> Statistic:
    """The sum of weights over members."""
    return lambda masks: np.asarray(masks @ weights, dtype=np.float64)
