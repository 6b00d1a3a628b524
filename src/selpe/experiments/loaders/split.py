"""Private, validation and test rows, and a reserve, by class; rows of one group stay on one side."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

SIDES = ("private", "validation", "test", "reserve")
RESERVE = 400  # rows a class that no side needs: what a model learns from as many real rows
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Targets:
    """How many rows of each class each side is to have."""

    by_side: Mapping[str, Mapping[str, int]]
    short: tuple[str, ...]  # classes with fewer rows than were asked for

    @classmethod
    def of(
        cls,
        there: Mapping[str, int],
        *,
        private: Mapping[str, int],
        validation: Mapping[str, int],
        test: Mapping[str, int],
    ) -> Targets:
        """What the rows that are there allow.

        Where a class has too few, at most half of it becomes private, and the rest goes to validation and test in the
        proportion that was asked for, an odd one to the test rows.
        """
        by_side: dict[str, dict[str, int]] = {side: {} for side in SIDES}
        short = []
        for label, count in there.items():
            wanted = (private.get(label, 0), validation.get(label, 0), test.get(label, 0))
            if sum(wanted) > count:
                short.append(label)
                held = min(wanted[0], count // 2)
                rest, both = count - held, wanted[1] + wanted[2]
                few = rest * wanted[1] // both if both else 0
                wanted = (held, few, rest - few)
            shares = (*wanted, min(RESERVE, count - sum(wanted)))
            for side, share in zip(SIDES, shares, strict=True):
                by_side[side][label] = share
        return cls(by_side, tuple(short))


def apportioned(per_class: int, labels: Iterable[str], shares: Mapping[str, float]) -> dict[str, int]:
    """How many rows of each class stand for 'so many a class': as many of each, or by shares with as many in all."""
    if not shares:
        return dict.fromkeys(labels, per_class)
    return {label: max(1, round(per_class * len(shares) * share)) for label, share in shares.items()}


def split(
    rows: Sequence[T], *, label: Callable[[T], str], group: Callable[[T], str], targets: Targets, seed: str
) -> dict[str, list[T]]:
    """The rows of each side, shuffled. A row whose side is full already is left out.

    The side of a group is drawn when its first row comes, in proportion to what the sides still lack of that row's
    class, so that no side gets the large groups for being the first. Classes that are short of rows come first, as long
    as groups are free.
    """
    chance = random.Random(seed)
    order = list(rows)
    chance.shuffle(order)
    order.sort(key=lambda row: label(row) not in targets.short)  # stable: shuffled within each part
    left = {side: Counter(dict(counts)) for side, counts in targets.by_side.items()}
    sides: dict[str, str] = {}
    found: dict[str, list[T]] = {side: [] for side in SIDES}
    for row in order:
        mine, whose = label(row), group(row)
        side = sides.get(whose)
        if side is None:
            lacking = [left[each][mine] for each in SIDES]
            if not any(lacking):
                continue
            side = sides[whose] = chance.choices(SIDES, lacking)[0]
        if left[side][mine] > 0:
            left[side][mine] -= 1
            found[side].append(row)
    _fill_private(found, left["private"], label, group)
    for part in found.values():
        chance.shuffle(part)
    return found


def _fill_private(
    found: dict[str, list[T]], lacking: Counter[str], label: Callable[[T], str], group: Callable[[T], str]
) -> None:
    """Moves groups to the private side, where groups left it short: a split without private rows is useless."""
    for side in ("reserve", "validation"):
        for row in list(found[side]):
            if lacking[label(row)] <= 0:
                continue
            whose = group(row)
            moved = [each for each in found[side] if group(each) == whose]
            found[side] = [each for each in found[side] if group(each) != whose]
            for each in moved:
                if lacking[label(each)] > 0:
                    lacking[label(each)] -= 1
                    found["private"].append(each)
