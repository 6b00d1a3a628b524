"""The audit of training in small: whole stretches on neighbours, by the statistic that tells them best apart."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from private_world import MemoryAccount, line_schema
from selpe.config import Adjacency
from selpe.privacy.accounting import gaussian_sigma
from selpe.privacy.learning import Training
from selpe.privacy.noise import GaussianNoise
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "audit_looks.py"
ALMOST_SURE = 1 - 1e-6
STEPS, CLIP = 3, 2.0
ROWS: list[Record] = [{"x": 50}, {"x": 50}, {"x": 100}]
NEIGHBOURS: dict[str, list[Record]] = {"add-remove": ROWS[:2], "replace-one": [*ROWS[:2], {"x": 0}]}


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("learning_audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["learning_audit"] = module
    spec.loader.exec_module(module)
    return module


class Summing:
    """A learner whose gradient points up for large x and down for small, far beyond the clipping norm."""

    size, remote = 1, None

    def __init__(self) -> None:
        self.total = 0.0

    def gradients(self, records: Sequence[Record]) -> Iterator[NDArray[np.float64]]:
        for record in records:
            yield np.array([1e6 * (float(record["x"]) - 50.0)])  # type: ignore[arg-type]

    def step(self, total: NDArray[np.float64]) -> None:
        self.total += float(total[0])

    def keep(self) -> str:
        return "state"


def outcomes(rows: Sequence[Record], sigma: float, delta: float, runs: int) -> NDArray[np.float64]:
    """The sum over the steps of many trainings: by rotation all that a training gives away."""
    account = MemoryAccount(remember=False)
    table = PrivateTable(rows, line_schema(), account=account)
    found = []
    for _ in range(runs):
        learner = Summing()
        table.learn(lambda: learner, Training(STEPS, CLIP), noise=GaussianNoise(sigma, delta), selection="t")  # noqa: B023
        found.append(learner.total)
    return np.array(found)


def bound(audit: Any, adjacency: Adjacency, runs: int, *, share: float = 1.0, confidence: float) -> float:
    sensitivity = Training(STEPS, CLIP).sensitivity.under(adjacency)
    sigma = share * gaussian_sigma(audit.EPSILON, audit.DELTA, sensitivity, STEPS)
    one, other = (
        tuple(outcomes(rows, sigma, audit.DELTA, count) for count in (runs // 4, runs))
        for rows in (ROWS, NEIGHBOURS[adjacency])
    )
    found: float = audit.lower_bound((one[0], other[0]), (one[1], other[1]), confidence=confidence)
    return found


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_whole_trainings_on_neighbours_give_away_no_more_than_claimed(audit: Any, adjacency: Adjacency) -> None:
    assert bound(audit, adjacency, 800, confidence=ALMOST_SURE) <= audit.EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_same_audit_catches_a_training_with_half_the_noise(audit: Any, adjacency: Adjacency) -> None:
    assert bound(audit, adjacency, 2500, share=0.5, confidence=0.95) > audit.EPSILON
