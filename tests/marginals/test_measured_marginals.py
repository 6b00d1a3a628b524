"""What OpenDP's AIM and MST measure, what that costs, and the model that is fitted to it.

Each measurement compiles its fits anew, which takes seconds: there are few of them, on few small columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from opendp import domains, measurements, measures, metrics
from scipy import stats

from counting_world import Cut
from selpe.baselines.graphical import GraphicalModel
from selpe.privacy.marginals import (
    CHOOSING,
    Marginal,
    MarginalQuery,
    Measured,
    PricedMarginalNoise,
    cost_of,
    exact_counts,
)
from selpe.privacy.mechanisms import MarginalAlgorithm

FLAKE = 1e-7  # a correct sampler fails a test at this level once in ten million runs
SHAPE = (2, 40, 30)


def query(algorithm: MarginalAlgorithm, shape: tuple[int, ...] = SHAPE) -> MarginalQuery:
    return MarginalQuery(algorithm, tuple(Cut(f"c{i}", size, lambda row: 0) for i, size in enumerate(shape)))


def lines(count: int, shape: tuple[int, ...] = SHAPE) -> NDArray[np.int64]:
    """Lines in which the second column goes with the first, and the third with the second."""
    chance = np.random.default_rng(3)
    found = np.zeros((count, len(shape)), dtype=np.int64)
    found[:, 0] = chance.integers(shape[0], size=count)
    for column in range(1, len(shape)):
        found[:, column] = (found[:, column - 1] * 3 + chance.integers(2, size=count)) % shape[column]
    return found


def measured(
    algorithm: MarginalAlgorithm, noise: PricedMarginalNoise, codes: NDArray[np.int64], shape: tuple[int, ...] = SHAPE
) -> list[Marginal]:
    made = noise.measurement(query(algorithm, shape))
    assert isinstance(made, Measured)
    cost = cost_of(noise)
    assert made.by.loss <= cost.loss  # what OpenDP's map says is what is charged, or less
    assert made.by.loss >= cost.loss * (1 - 1e-6)
    return made.measure(codes, "marginals")


@pytest.mark.parametrize(("algorithm", "delta"), [("mst", 1e-5), ("mst", 0.0), ("aim", 1e-5)])
def test_noise_has_the_stated_size_and_leaves_to_choices_what_the_price_says(
    algorithm: MarginalAlgorithm, delta: float
) -> None:
    noise, codes = PricedMarginalNoise(2.0, delta=delta), lines(200)
    tables = measured(algorithm, noise, codes)
    loss = cost_of(noise).loss
    spent = sum(math.sqrt(2) / one.deviation if delta == 0 else 0.5 / one.deviation**2 for one in tables)
    assert spent <= (1 - CHOOSING) * loss * (1 + 1e-9)
    if algorithm == "mst":
        assert spent >= (1 - CHOOSING) * loss * (1 - 1e-6)
        assert len(tables) == 5
    assert {(0,), (1,), (2,)} <= {one.axes for one in tables}
    scaled = [(one.counts - exact_counts(codes, one.axes, SHAPE)) / one.deviation for one in tables]
    cut = stats.norm if delta else stats.laplace(scale=math.sqrt(0.5))
    assert stats.kstest(np.concatenate(scaled), cut.cdf).pvalue > FLAKE


def test_what_a_replaced_row_costs_follows_from_opendps_own_maps() -> None:
    """PROOF.md, step 33: choices cost the square of how far scores move, Gaussian counts that of their L2 norm."""
    scores = domains.vector_domain(domains.atom_domain(T="f64", nan=False)), metrics.linf_distance(T="f64")
    for measure, factor in ((measures.zero_concentrated_divergence(), 4.0), (measures.max_divergence(), 2.0)):
        choice = measurements.make_noisy_max(*scores, measure, scale=3.0)
        assert choice.map(2.0) == pytest.approx(factor * choice.map(1.0))
    counts = domains.vector_domain(domains.atom_domain(T="i32")), metrics.l2_distance(T="f64")
    noise = measurements.make_gaussian(*counts, scale=5.0)
    assert noise.map(math.sqrt(2)) == pytest.approx(2 * noise.map(1.0))


def test_without_noise_the_model_has_the_marginals_of_the_table_in_every_class() -> None:
    shape, count = (2, 4, 3), 600
    codes = lines(count, shape)
    tables = measured("mst", PricedMarginalNoise(math.inf), codes, shape)
    assert all(np.abs(one.counts - exact_counts(codes, one.axes, shape)).max() < 1 for one in tables)
    model = GraphicalModel.fitted(shape, tables)
    drawn = 20_000
    for first in range(shape[0]):
        made = model.draw(drawn, np.random.default_rng(1), first)
        assert (made[:, 0] == first).all()
        real = codes[codes[:, 0] == first]
        for axes in [(1,), (1, 2)]:
            found = exact_counts(made, axes, shape) / drawn
            assert found == pytest.approx(exact_counts(real, axes, shape) / len(real), abs=0.03)


def test_a_model_of_nothing_draws_everything_as_often() -> None:
    made = GraphicalModel.fitted((2, 5, 3), []).draw(6000, np.random.default_rng(2))
    for axis, size in enumerate((2, 5, 3)):
        assert stats.chisquare(np.bincount(made[:, axis], minlength=size)).pvalue > FLAKE


def test_what_cannot_be_measured_is_noticed_on_no_rows_before_anything_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenDP 0.16 can miss by a rounding what it has divided among many choices, and fails in the middle."""
    from selpe.privacy import mechanisms

    real, tried = mechanisms._coded, list[int]()

    def coded(codes: NDArray[np.int64]) -> Any:
        tried.append(len(codes))
        if len(tried) < 3:
            raise mechanisms.OpenDPException("FailedFunction", "insufficient budget")
        return real(codes)

    monkeypatch.setattr(mechanisms, "_coded", coded)
    noise = PricedMarginalNoise(2.0)
    made = noise.measurement(query("mst", (2, 2)))
    assert tried == [0, 0, 0]
    assert isinstance(made, Measured)
    assert made.by.loss < cost_of(noise).loss
