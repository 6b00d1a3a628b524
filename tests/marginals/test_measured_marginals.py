"""The model that Private-PGM fits to noisy marginals, and AIM and MST with it.

Each fit of another structure is compiled anew, which takes seconds: there are few of them, on few small columns.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from counting_world import Cut
from selpe.baselines.graphical import GraphicalModel
from selpe.privacy.marginal_algorithms import NoisyMarginal, exact_counts
from selpe.privacy.marginals import MarginalAlgorithm, MarginalQuery, PricedMarginalNoise, measure
from selpe.schema import Record

FLAKE = 1e-7  # a correct sampler fails a test at this level once in ten million runs
SHAPE = (2, 4, 3)


def lines(count: int) -> NDArray[np.int64]:
    """Lines in which the second column goes with the first, and the third with the second."""
    chance = np.random.default_rng(3)
    found = np.zeros((count, len(SHAPE)), dtype=np.int64)
    found[:, 0] = chance.integers(SHAPE[0], size=count)
    for column in range(1, len(SHAPE)):
        found[:, column] = (found[:, column - 1] * 3 + chance.integers(2, size=count)) % SHAPE[column]
    return found


def measured(algorithm: MarginalAlgorithm, noise: PricedMarginalNoise, codes: NDArray[np.int64]) -> list[NoisyMarginal]:
    axes = tuple(Cut(str(i), size, lambda row, i=i: row[str(i)]) for i, size in enumerate(SHAPE))  # type: ignore[misc]
    rows: list[Record] = [{str(i): int(code) for i, code in enumerate(line)} for line in codes]
    return measure(MarginalQuery(algorithm, axes), rows, noise, lambda t: GraphicalModel.fitted(SHAPE, t), key="m")


@pytest.mark.parametrize("algorithm", ["mst", "aim"])
def test_without_noise_the_model_has_the_marginals_of_the_table_in_every_class(algorithm: MarginalAlgorithm) -> None:
    codes = lines(600)
    tables = measured(algorithm, PricedMarginalNoise(math.inf), codes)
    assert all(np.abs(one.counts - exact_counts(codes, one.axes, SHAPE)).max() < 1 for one in tables)
    model = GraphicalModel.fitted(SHAPE, tables)
    drawn = 20_000
    for first in range(SHAPE[0]):
        made = model.draw(drawn, np.random.default_rng(1), first)
        assert (made[:, 0] == first).all()
        real = codes[codes[:, 0] == first]
        for axes in [(1,), (1, 2)]:
            found = exact_counts(made, axes, SHAPE) / drawn
            assert found == pytest.approx(exact_counts(real, axes, SHAPE) / len(real), abs=0.03)
    for axes in [(0,), (0, 1), (0, 2)]:  # what AIM and MST ask the model for between their steps
        assert model.expected(axes) == pytest.approx(exact_counts(codes, axes, SHAPE), abs=12)


def test_with_noise_the_model_adds_up_and_a_larger_marginal_makes_a_larger_model() -> None:
    model = GraphicalModel.fitted(SHAPE, measured("mst", PricedMarginalNoise(2.0, delta=1e-5), lines(100)))
    assert model.expected((0, 2)).sum() == pytest.approx(model.total)
    assert (model.expected((1, 2)) >= 0).all()
    assert 0 < model.megabytes_with((0,)) < model.megabytes_with((0, 1, 2)) < 1


def test_a_model_of_nothing_draws_everything_as_often() -> None:
    made = GraphicalModel.fitted((2, 5, 3), []).draw(6000, np.random.default_rng(2))
    for axis, size in enumerate((2, 5, 3)):
        assert stats.chisquare(np.bincount(made[:, axis], minlength=size)).pvalue > FLAKE
