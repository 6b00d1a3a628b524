"""MST and AIM (McKenna, Miklau and Sheldon 2021; McKenna et al. 2022): which marginals to count, and counting them.

Both count every column alone with half of what they may lose, fit a public model to the noisy counts, and spend the
rest on marginals that the model has worst: MST on pairs that make a spanning tree, AIM on one marginal after another,
in steps that grow while nothing is learned. A tenth of a step is for the choice. All draws are OpenDP's.

A score is how far a marginal is from the model in L1 norm, in whole thousandths of a row: it is a sum of whole numbers,
exact in any order, and one row more or less moves it by at most `GRID` times the marginal's weight.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Axes = tuple[int, ...]

ALONE = 0.5  # of what may be lost: for every column alone
CHOICE = 0.1  # of a step: for the choice among marginals
GRID = 1000  # parts of a row in a score
STEPS = 16  # the first steps of AIM are so small that this number for each column could be taken
GROWTH = 4.0  # of a step of AIM that has taught nothing
MOST_MODEL = 4.0  # megabytes that AIM's model may take in the end


@dataclass(frozen=True, slots=True)
class NoisyMarginal:
    """Noisy counts over some columns, by their numbers; `deviation` is that of the noise on one count."""

    axes: Axes
    counts: NDArray[np.float64]
    deviation: float

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain data, for the ledger."""
        return {"axes": list(self.axes), "counts": self.counts.ravel().tolist(), "deviation": self.deviation}


class FittedModel(Protocol):
    """A model that was fitted to noisy counts. It is public: it has seen nothing else."""

    def expected(self, axes: Axes) -> NDArray[np.float64]:
        """The counts of a marginal by the model, in one line."""

    def megabytes_with(self, axes: Axes) -> float:
        """What the model would take in memory if it were fitted to this marginal, too."""


Fit = Callable[[Sequence[NoisyMarginal]], FittedModel]


class Draws(Protocol):
    """Noise at a price: ε, or ρ, where one row is added or removed."""

    def counts(self, exact: NDArray[np.int64], loss: float) -> tuple[NDArray[np.int64], float]:
        """Counts with noise, and its deviation."""

    def spread(self, loss: float) -> float:
        """The mean of the absolute noise on a count at this price."""

    def choose(self, scores: NDArray[np.int64], step: int, loss: float) -> int:
        """The place of a high score, where a row moves each by at most `step`, either way."""


@dataclass(slots=True)
class Counter:
    """Counts marginals of coded rows with noise, and keeps the noisy counts."""

    codes: NDArray[np.int64]
    shape: Sequence[int]
    draws: Draws
    tables: list[NoisyMarginal] = field(default_factory=list)

    def exact(self, axes: Axes) -> NDArray[np.int64]:
        """How many lines of codes fall into each cell of a marginal, without noise, in one line."""
        return exact_counts(self.codes, axes, self.shape)

    def count(self, axes: Axes, loss: float) -> None:
        """Counts a marginal."""
        noisy, deviation = self.draws.counts(self.exact(axes), loss)
        self.tables.append(NoisyMarginal(axes, noisy.astype(np.float64), deviation))

    def distance(self, axes: Axes, model: FittedModel) -> int:
        """How far a marginal is from the model, in parts of a row."""
        expected = np.rint(GRID * model.expected(axes)).astype(np.int64)
        return int(np.abs(GRID * self.exact(axes) - expected).sum())

    def every_column(self, loss: float) -> None:
        """Counts every column alone."""
        for column in range(len(self.shape)):
            self.count((column,), loss / len(self.shape))


def measure_mst(counter: Counter, loss: float, fit: Fit) -> list[NoisyMarginal]:
    """Every column alone, and pairs that make a spanning tree."""
    columns = len(counter.shape)
    counter.every_column(ALONE * loss)
    model = fit(counter.tables)
    pairs = list(itertools.combinations(range(columns), 2))
    distances = {pair: counter.distance(pair, model) for pair in pairs}
    part = (1 - ALONE) * loss / (columns - 1)
    tree, chosen = list(range(columns)), list[Axes]()  # of each column, the tree that it belongs to
    while len(chosen) < columns - 1:
        apart = [pair for pair in pairs if tree[pair[0]] != tree[pair[1]]]
        scores = np.array([distances[pair] for pair in apart], dtype=np.int64)
        one, other = apart[counter.draws.choose(scores, GRID, CHOICE * part)]
        chosen.append((one, other))
        tree = [tree[one] if at == tree[other] else at for at in tree]
    for pair in chosen:
        counter.count(pair, (1 - CHOICE) * part)
    return counter.tables


def measure_aim(
    counter: Counter, loss: float, fit: Fit, *, asked: Mapping[Axes, int], steps: int | None = None
) -> list[NoisyMarginal]:
    """Every column alone, and marginals one after another, each where the model so far is worst.

    `asked` are the marginals to choose from, each with its weight.
    """
    counter.every_column(ALONE * loss)
    left = (1 - ALONE) * loss
    step = left / (steps or STEPS * len(counter.shape))
    model = fit(counter.tables)
    while left > 0:
        step = left if left < 2 * step else step
        room = MOST_MODEL * (1 - (left - step) / loss)
        able = [axes for axes in asked if model.megabytes_with(axes) <= room]
        if not able:
            break
        noise = counter.draws.spread((1 - CHOICE) * step)
        scores = [asked[axes] * _worth(counter, axes, model, noise) for axes in able]
        step_of_scores = GRID * max(asked[axes] for axes in able)
        axes = able[counter.draws.choose(np.array(scores, dtype=np.int64), step_of_scores, CHOICE * step)]
        counter.count(axes, (1 - CHOICE) * step)
        left = 0.0 if step == left else left - step
        if left > 0:
            before, model = model.expected(axes), fit(counter.tables)
            learned = float(np.abs(model.expected(axes) - before).sum())
            step = GROWTH * step if learned <= noise * len(before) else step
    return counter.tables


def _worth(counter: Counter, axes: Axes, model: FittedModel, noise: float) -> int:
    """How much further a marginal is from the model than its noisy counts would be from it."""
    cells = math.prod(counter.shape[axis] for axis in axes)
    return counter.distance(axes, model) - round(min(GRID * noise * cells, 1e12))


def workload(columns: int, degree: int, *, target: bool = False) -> dict[Axes, int]:
    """Sets of up to so many columns, and how much each has in common with all that are asked for: sets of just so many.

    With a `target` those alone are asked for that have the first column among them.
    """
    whole = [one for one in itertools.combinations(range(columns), min(degree, columns)) if 0 in one or not target]
    parts = {part for one in whole for size in range(1, len(one) + 1) for part in itertools.combinations(one, size)}
    return {part: sum(len({*part} & {*one}) for one in whole) for part in sorted(parts, key=lambda p: (len(p), p))}


def exact_counts(codes: NDArray[np.int64], axes: Sequence[int], shape: Sequence[int]) -> NDArray[np.int64]:
    """How many lines of codes fall into each cell of a marginal, without noise, in one line."""
    sizes = [shape[axis] for axis in axes]
    places = np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), sizes) if len(codes) else np.array([], int)
    return np.bincount(places, minlength=math.prod(sizes)).astype(np.int64)
