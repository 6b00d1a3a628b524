"""Grades: one rule for every figure that is judged, and the bounds of each.

A figure has two bounds: on the better side of the first it is good, up to the second it is fair, beyond that poor. A
question has the grade of its worst figure, and a table that of its worst question. So a better figure never has a worse
grade, and nothing that gets worse makes a verdict better. What was not measured is unknown, and lowers nothing.

docs/evaluation.md has the bounds as a table; a test compares it with this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Grade = Literal["good", "fair", "poor", "alarm", "unknown"]
ORDER: tuple[Grade, ...] = ("good", "fair", "poor", "alarm")
LEAST = 0.1  # below this share nothing is fair, however little real rows reach among themselves
_ABOVE_0 = math.nextafter(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The last figure that is good, and the last one that is fair. `fair` is never on the better side of `good`."""

    good: float
    fair: float
    larger: bool = False  # whether larger figures are better

    def grade(self, figure: float | None) -> Grade:
        """The grade of a figure; unknown where there is none."""
        if figure is None or math.isnan(figure):
            return "unknown"
        if self._reaches(figure, self.good):
            return "good"
        return "fair" if self._reaches(figure, self.fair) else "poor"

    def beside(self, reference: float | None) -> Bounds:
        """The bounds where two halves of the real rows have this figure: a table is not asked to do better than they.

        A distance may be half as large again (good) or twice as large (fair); a share may be three quarters of theirs
        (good) or two fifths (fair).
        """
        if reference is None or math.isnan(reference):
            return self
        if not self.larger:
            return replace(self, good=max(self.good, 1.5 * reference), fair=max(self.fair, 2 * reference))
        fair = max(LEAST, min(self.fair, 0.4 * reference))
        return replace(self, good=max(fair, min(self.good, 0.75 * reference)), fair=fair)

    def _reaches(self, figure: float, bound: float) -> bool:
        return figure >= bound if self.larger else figure <= bound


BOUNDS = {
    # is it useful?
    "reached": Bounds(0.85, 0.5, larger=True),  # of the way from chance to what real rows reach
    "above_chance": Bounds(_ABOVE_0, _ABOVE_0, larger=True),  # the lower end of the interval, in points above 50
    "over_examples": Bounds(_ABOVE_0, -math.inf, larger=True),  # points of AUC
    "over_control": Bounds(_ABOVE_0, -math.inf, larger=True),
    "missing_classes": Bounds(0.0, math.inf),
    # is it faithful?
    "validity": Bounds(0.95, 0.8, larger=True),
    "distinct": Bounds(50, 20, larger=True),  # records
    "marginals": Bounds(0.15, 0.3),
    "associations": Bounds(0.1, 0.2),
    "precision": Bounds(0.5, 0.2, larger=True),
    "recall": Bounds(0.5, 0.2, larger=True),
    "echoes": Bounds(0.01, 0.05),  # share of records
    "near_echoes": Bounds(0.05, 0.2),
    "repeated": Bounds(0.02, 0.1),  # share of records beyond that of real ones
    "repeated_alone": Bounds(0.1, 0.5),  # the same where there are no real ones
    "near": Bounds(0.1, 0.3),
    "near_alone": Bounds(0.3, 0.8),
    "effective": Bounds(0.5, 1 / 3, larger=True),  # of what as many real records are worth
    # is it private?
    "chance_of_p": Bounds(0.05, 0.0, larger=True),  # how often a clean table has so small a p in one of its tests
}


def worst(grades: Iterable[Grade]) -> Grade:
    """The worst of some grades; unknown where none is known."""
    known = [ORDER.index(grade) for grade in grades if grade != "unknown"]
    return ORDER[max(known)] if known else "unknown"
