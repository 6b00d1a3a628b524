"""A training by plan, in stretches: each is charged as a whole, saved when done, and never drawn twice.

A run that is killed goes on from the last stretch that was saved. The one that was under way is lost: its looks are
paid for, and the stretches to come get a little more noise for it (afford.py). A run that is asked to stop saves what
it has, and gives up the rest of the stretch instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from selpe.baselines.looking import Looks
from selpe.baselines.train.learner import TorchLearner
from selpe.errors import StoppedError
from selpe.events import Trained
from selpe.privacy.gaussian_plan import Look
from selpe.privacy.learning import Learned, Training

NAME = "training"


def stretches_of(steps: int, stretches: int, clip: float) -> list[Look]:
    """The looks of a training: so many stretches of nearly equal length."""
    parts = min(steps, stretches)
    counts = [steps // parts + (place < steps % parts) for place in range(parts)]
    return [
        Look(f"{NAME}-{place}", Training(count, clip).sensitivity, count)
        for place, count in enumerate(counts, 1)
    ]  # fmt: skip


@dataclass(slots=True)
class Course:
    """One training. `begin` makes the learner, when it is first needed; `warm` prepares one that starts afresh."""

    looks: Looks
    begin: Callable[[], TorchLearner]
    clip: float
    context: str = ""  # a hash of everything that the learner starts from
    cancel: threading.Event | None = None
    warm: Callable[[TorchLearner], None] | None = None
    done: list[Learned] = field(default_factory=list)
    _learner: TorchLearner | None = None
    _at: str = ""  # the state that the learner is in
    _last: str = ""  # the state that training has come to

    def run(self) -> TorchLearner:
        """The learner as it is after the last step."""
        total, before = sum(look.count for look in self.stretches), 0
        for look in self.stretches:
            self._stop_if_asked()
            self._stretch(look, before, total)
            before += look.count
        return self._ready()

    @property
    def stretches(self) -> tuple[Look, ...]:
        """The looks that are stretches of this training."""
        return tuple(look for look in self.looks.plan.looks if look.name.startswith(f"{NAME}-"))

    @property
    def state(self) -> str:
        """The hash of the final state; empty for a model that has seen no private row."""
        return self._last

    def _stretch(self, look: Look, before: int, total: int) -> None:
        def watch(step: int) -> bool:
            self.looks.emit(Trained(before + step, total))
            return self.cancel is not None and self.cancel.is_set()

        made = self.looks.table.learn(
            self._ready,
            Training(look.count, self.clip),
            noise=self.looks.plan.noise(look.name, test_seed=self.looks.test_seed),
            selection=look.name,
            context=f"{self.context}:{self._last}",
            watch=watch,
        )
        if made.replayed:
            self.looks.emit(Trained(before + look.count, total))
        elif self._learner is not None and made.state:
            self._at = made.state
            self._learner.forget_all_but(made.state)
        self._last = made.state or self._last
        self.done.append(made)
        self.looks.told(look.name, made.mechanism, made.private, replayed=made.replayed)

    def _ready(self) -> TorchLearner:
        """The learner, in the state that training has come to."""
        if self._learner is None:
            self._learner = self.begin()
            if self.warm is not None and not self._last:
                self.warm(self._learner)
        if self._at != self._last:
            self._learner.load(self._last)
            self._at = self._last
        return self._learner

    def _stop_if_asked(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise StoppedError("stopped as asked; every finished stretch of training is kept")
