"""Steps on public records before the private ones: what they teach, the form of a record above all, costs nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from selpe.baselines.train.learner import TorchLearner
from selpe.errors import StoppedError
from selpe.schema import Record

BATCH = 4


def practise(
    learner: TorchLearner,
    records: Sequence[Record],
    *,
    steps: int,
    rate: float,
    seed: int,
    cancel: threading.Event | None,
) -> None:
    """Takes steps on small batches of public records, at a rate of their own, and makes the optimiser forget them."""
    chance = random.Random(f"practice:{seed}")
    learner.restart(rate)
    for _ in range(steps if records else 0):
        learner.practise(chance.sample(list(records), min(BATCH, len(records))))
        if cancel is not None and cancel.is_set():
            raise StoppedError("stopped as asked; these steps were public, and cost nothing")
    learner.restart()
