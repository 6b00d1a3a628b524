"""Training on private rows: what a step releases is a sum of clipped gradients with Gaussian noise, and nothing else.

The bound does not rest on the model that is trained. Whatever vector a learner gives for a row, it is scaled down to
the clipping norm here, and put on a grid of whole numbers by cutting towards 0, which makes no norm larger. Whole
numbers add up exactly in any order, so that one row moves a sum by at most the clipping norm: in the arithmetic that
runs, not only on paper. The noise is OpenDP's, on the same grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ConfigError, PrivacyError
from selpe.privacy.mechanisms import Guarantee, gaussian_integers
from selpe.privacy.noise import Noise, SeededNoise, Sensitivity
from selpe.privacy.withholding import sealed
from selpe.schema import Record

# The grid: a gradient at the clipping norm is 2**40 steps long. On a grid this fine, discrete Gaussian noise cannot be
# told from rounded Gaussian noise (PROOF.md, step 22); and a million gradients still add up in 64 bits.
STEPS_PER_CLIP = 2**40
MOST_UNITS = 2**21
# What a norm computed in floating point may err by; the clipping norm is undercut by as much.
_SHRINK = 1 - 2.0**-24
_AT_ONCE = 1 << 20

Watch = Callable[[int], bool]


class Learner(Protocol):
    """A model in training, as the private table sees it. It is trusted not to keep, send or write what it sees."""

    @property
    def size(self) -> int:
        """The number of values in a gradient."""

    @property
    def remote(self) -> str | None:
        """The host that private text would be sent to, or None when it stays in this process."""

    def gradients(self, records: Sequence[Record]) -> Iterable[NDArray[Any]]:
        """One gradient per record, in order, each made from its own record and the present parameters alone."""

    def step(self, total: NDArray[np.float64]) -> None:
        """Moves the parameters by a noisy sum of clipped gradients."""

    def keep(self) -> str:
        """The hash of the present state, once it is on the disk."""


@dataclass(frozen=True, slots=True)
class Training:
    """A stretch of training that is paid for as a whole: its steps, and the norm that gradients are clipped to."""

    steps: int
    clip: float

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.clip < math.inf:
            raise ConfigError("training needs at least one step, and a clipping norm above 0")

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one unit can move the sum of one step: one clipped gradient, or two where it is replaced."""
        return Sensitivity(self.clip, 2 * self.clip)


@dataclass(frozen=True, slots=True)
class Learned:
    """What a stretch of training leaves: the hash of the learner's state, and what it cost.

    `steps` is how many were done; fewer than were paid for where the owner asked to stop, and none without private
    rows (ε = 0), where `state` is empty. `private` is False for controls and seeded noise.
    """

    state: str
    steps: int
    guarantee: Guarantee
    mechanism: str
    private: bool
    replayed: bool = False


def to_the_end(step: int) -> bool:
    """A watch that never asks to stop."""
    return False


def train(
    draw: Callable[[], Sequence[Record]],
    learner: Learner,
    asked: Training,
    *,
    noise: Noise,
    key: str,
    watch: Watch,
) -> int:
    """Takes the steps and returns how many; `watch` hears of each, and may ask to stop. Rows stay under a seal."""
    for step in range(1, asked.steps + 1):

        def look(name: str = f"{key}:{step}") -> NDArray[np.float64]:
            return noisy_sum(learner, draw(), asked.clip, noise, name)

        learner.step(sealed(look, "a model in training"))
        if watch(step):
            return step
    return asked.steps


def noisy_sum(learner: Learner, rows: Sequence[Record], clip: float, noise: Noise, key: str) -> NDArray[np.float64]:
    """The sum of the rows' clipped gradients, with noise."""
    total = np.zeros(learner.size, dtype=np.int64)
    given = 0
    for gradient in learner.gradients(rows):
        given += 1
        add_clipped(total, gradient, clip)
    if given != len(rows):
        raise ValueError("a learner must give one gradient per record")
    unit = clip / STEPS_PER_CLIP
    exact: NDArray[np.float64] = total.astype(np.float64) * unit
    if isinstance(noise, SeededNoise):
        return noise.add(exact, key)
    if noise.sigma == 0:
        return exact
    drawn = gaussian_integers(total, noise.sigma / unit).astype(np.float64)
    return np.asarray(drawn * unit)


def add_clipped(total: NDArray[np.int64], gradient: NDArray[Any], clip: float) -> None:
    """Adds a gradient to the total, scaled down to the clipping norm, in whole steps of the grid.

    A gradient with NaN in it adds nothing: an error that depends on a private row would itself be a release.
    """
    if gradient.shape != total.shape:
        raise ValueError("a gradient must have one value per trained parameter")
    parts = [slice(start, start + _AT_ONCE) for start in range(0, len(total), _AT_ONCE)]
    norm = math.sqrt(math.fsum(_square(gradient[part]) for part in parts))
    if not math.isfinite(norm):
        return
    factor = STEPS_PER_CLIP * _SHRINK / max(norm, clip)
    for part in parts:
        total[part] += np.trunc(gradient[part].astype(np.float64) * factor).astype(np.int64)


def check_grid(units: int, noise: Noise, clip: float) -> None:
    """Raises before anything is read where so many units, or so much noise, do not fit onto the grid."""
    if units > MOST_UNITS or (math.isfinite(noise.sigma) and 40 * noise.sigma / clip * STEPS_PER_CLIP >= 2**62):
        raise PrivacyError(
            "so many records, or so much noise, do not fit onto the grid that noise is drawn on",
            hint=f"train on at most {MOST_UNITS:,} records, and with a larger epsilon",
        )


def _square(values: NDArray[Any]) -> float:
    exact = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.dot(exact, exact))
    return square if math.isfinite(square) else math.inf
