from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from counting_world import discrete_laplace
from selpe.method.posterior import Matrix, NoiseLaw, NoiseName, class_sizes, posterior

CLASSES, CODES = 3, 8
PRIOR = np.random.default_rng(1).dirichlet(np.full(CODES, 2.0), CLASSES)
LAWS: tuple[NoiseName, ...] = ("laplace", "gaussian")


def noise_on(law: NoiseLaw, chance: np.random.Generator, shape: tuple[int, ...] = PRIOR.shape) -> Matrix:
    if law.scale == 0:
        return np.zeros(shape)
    if law.law == "gaussian":
        return np.rint(chance.normal(0, law.scale, shape))
    p = -math.expm1(-1 / law.scale)
    return np.asarray(chance.geometric(p, shape) - chance.geometric(p, shape), dtype=np.float64)


def rows_of(truth: Matrix, units: int, chance: np.random.Generator) -> Matrix:
    """The exact counts of so many rows, classes in equal parts on average."""
    sizes = chance.multinomial(units, np.full(len(truth), 1 / len(truth)))
    return np.array([chance.multinomial(size, shares) for size, shares in zip(sizes, truth, strict=True)], dtype=float)


def believed(counts: Matrix, law: NoiseLaw, units: int, prior: Matrix = PRIOR) -> Matrix:
    return posterior(counts, prior, class_sizes([counts], law, units), law).shares


def draws(truth: Matrix | None, law: NoiseLaw, units: int, *, times: int = 60, seed: int = 5) -> NDArray[np.float64]:
    """Posteriors of many tables; rows by the truth, or none at all."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(times):
        exact = np.zeros(PRIOR.shape) if truth is None else rows_of(truth, units, chance)
        found.append(believed(exact + noise_on(law, chance), law, units))
    return np.array(found)


def apart(one: Matrix, other: Matrix) -> float:
    """Total variation, averaged over classes."""
    return float(np.abs(one - other).sum(axis=-1).mean() / 2)


# -- the two ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
def test_where_nothing_was_counted_the_prior_comes_back(law: NoiseName) -> None:
    hidden = NoiseLaw(law, math.inf)
    found = posterior(np.zeros(PRIOR.shape), PRIOR, class_sizes([np.zeros(PRIOR.shape)], hidden, 90), hidden)
    assert np.allclose(found.shares, PRIOR, rtol=0, atol=1e-15)
    assert found.prior_kept == 1.0


def test_many_rows_without_noise_give_their_own_shares_whatever_the_prior() -> None:
    truth = np.roll(PRIOR, 3, axis=1)
    counts = np.round(5_000 * truth)
    found = believed(counts, NoiseLaw("laplace", 0.0), int(counts.sum()))
    assert apart(found, counts / counts.sum(axis=1, keepdims=True)) < 0.002


@pytest.mark.parametrize("law", LAWS)
def test_many_rows_with_little_noise_give_nearly_their_own_shares(law: NoiseName) -> None:
    truth = np.roll(PRIOR, 3, axis=1)
    assert apart(draws(truth, NoiseLaw(law, 2.0), 30_000, times=4), truth) < 0.02


def test_a_value_that_the_model_never_writes_is_found_where_rows_have_it() -> None:
    prior = np.array([[1.0, 0.0, 0.0]])
    found = believed(np.array([[10.0, 90.0, 0.0]]), NoiseLaw("laplace", 1.0), 100, prior)
    assert found[0, 1] > 0.8
    assert found[0, 2] < 0.02


# -- noise alone -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("scale", "most"), [(2.0, 0.02), (8.0, 0.04), (30.0, 0.08), (300.0, 0.04)])
def test_rows_that_are_as_the_model_says_change_nothing_on_average(law: NoiseName, scale: float, most: float) -> None:
    found = draws(PRIOR, NoiseLaw(law, scale), 300)
    assert apart(found, PRIOR) < most
    shift = found.mean(axis=0) - PRIOR
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (np.abs(shift) < np.maximum(5 * error, 0.015)).all()
    assert np.abs(shift).max() < 0.025


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.0, 1.0, 4.0, 100.0])
def test_where_no_row_counts_noise_alone_is_not_taken_for_a_table(law: NoiseName, scale: float) -> None:
    found = draws(None, NoiseLaw(law, scale), 300, times=40)
    assert apart(found, PRIOR) < 0.09
    assert np.abs(found.mean(axis=0) - PRIOR).max() < 0.05


@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_rows_that_do_not_fit_are_missed_by_all_codes_alike(scale: float) -> None:
    chance, law = np.random.default_rng(3), NoiseLaw("laplace", scale)
    half = [believed(rows_of(PRIOR, 150, chance) + noise_on(law, chance), law, 300) for _ in range(40)]
    assert apart(np.array(half), PRIOR) < 0.05


# -- signal ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
def test_more_rows_and_less_noise_come_nearer_to_the_truth_and_go_farther_from_the_prior(law: NoiseName) -> None:
    truth = np.roll(PRIOR, 2, axis=1)
    by_rows = [draws(truth, NoiseLaw(law, 8.0), units, times=30) for units in (60, 300, 1500, 7500)]
    by_noise = [draws(truth, NoiseLaw(law, scale), 300, times=30) for scale in (200.0, 30.0, 8.0, 1.0)]
    for series in (by_rows, by_noise):
        near = [apart(found, truth) for found in series]
        far = [apart(found, PRIOR) for found in series]
        assert near == sorted(near, reverse=True)
        assert all(before < after + 0.01 for before, after in pairwise(far))  # the truth is reached
        assert far[-1] > 3 * far[0]
        assert near[-1] < 0.5 * near[0]


def test_the_belief_left_with_the_prior_falls_as_counts_speak_against_it() -> None:
    law, truth = NoiseLaw("laplace", 2.0), np.roll(PRIOR, 2, axis=1)
    chance = np.random.default_rng(2)
    kept = [
        posterior(counts, PRIOR, class_sizes([counts], law, 600), law).prior_kept
        for counts in (rows_of(shares, 600, chance) + noise_on(law, chance) for shares in (PRIOR, truth))
    ]
    assert kept[0] > 0.2
    assert kept[1] < 1e-6


def test_with_shuffled_labels_the_tables_of_the_classes_fall_together() -> None:
    law, chance = NoiseLaw("laplace", 2.0), np.random.default_rng(4)
    same = np.tile(PRIOR.mean(axis=0), (CLASSES, 1))
    found = believed(rows_of(same, 3000, chance) + noise_on(law, chance), law, 3000)

    def spread(shares: Matrix) -> float:
        return max(apart(shares[a : a + 1], shares[b : b + 1]) for a in range(CLASSES) for b in range(a))

    assert spread(PRIOR) > 0.25
    assert spread(found) < 0.08


# -- always ------------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    law=st.sampled_from(LAWS), scale=st.sampled_from([0.0, 0.3, 1.0, 20.0, 1e4, math.inf]), units=st.integers(1, 500),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 6)), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_shares_are_positive_and_sum_to_one_whatever_the_counts(
    law: NoiseName, scale: float, units: int, shape: tuple[int, int], seed: int
) -> None:
    chance = np.random.default_rng(seed)
    counts = chance.integers(-300 if scale else 0, 900, shape).astype(float)
    prior = chance.dirichlet(np.full(shape[1], 0.2), shape[0])
    noise = NoiseLaw(law, scale)
    found = posterior(counts, prior, class_sizes([counts], noise, units), noise)
    assert found.shares.shape == prior.shape
    assert np.isfinite(found.shares).all()
    assert (found.shares > 0).all()
    assert np.allclose(found.shares.sum(axis=1), 1.0)
    assert 0 <= found.prior_kept <= 1


@pytest.mark.parametrize("law", LAWS)
def test_the_law_of_noise_is_the_one_that_was_drawn(law: NoiseName) -> None:
    noise = NoiseLaw(law, 3.0)
    drawn = noise_on(noise, np.random.default_rng(1), (200_000,))
    assert noise.variance == pytest.approx(drawn.var(), rel=0.03)
    assert (np.abs(drawn) <= noise.half_width).mean() == pytest.approx(0.95, abs=0.02)
    offsets = np.arange(-6.0, 7.0)
    normal: dict[NoiseName, Callable[[Matrix], Matrix]] = {
        "laplace": lambda k: discrete_laplace(k, 3.0),
        "gaussian": lambda k: np.asarray(np.exp(-0.5 * (k / 3.0) ** 2)),
    }
    wanted = np.log(normal[law](offsets))
    said = noise.log_chance(offsets)
    assert np.allclose(said - said[6], wanted - wanted[6])


# -- class sizes -------------------------------------------------------------------------------------------------------


def test_class_sizes_are_the_true_ones_without_noise() -> None:
    table = np.array([[30.0, 20.0], [5.0, 5.0], [40.0, 0.0]])
    assert np.allclose(class_sizes([table], NoiseLaw("laplace", 0.0), 100), [50, 10, 40])


def test_class_sizes_are_equal_where_nothing_was_counted_and_nearly_so_under_much_noise() -> None:
    assert class_sizes([np.zeros((3, 4))], NoiseLaw("laplace", math.inf), 90).tolist() == [30.0] * 3
    law, chance = NoiseLaw("laplace", 300.0), np.random.default_rng(1)
    found = class_sizes([noise_on(law, chance, (3, 8))], law, 90)
    assert np.abs(found - 30).max() < 6


def test_class_sizes_add_up_to_the_units_and_more_tables_tell_them_better() -> None:
    law, chance = NoiseLaw("laplace", 6.0), np.random.default_rng(1)
    exact = np.array([[60.0] * 5, [20.0] * 5, [10.0] * 5])
    errors = []
    for tables in (1, 8):
        found = [
            class_sizes([exact + noise_on(law, chance, (3, 5)) for _ in range(tables)], law, 450) for _ in range(60)
        ]
        assert np.allclose(np.sum(found, axis=1), 450)
        assert (np.array(found) > 0).all()
        errors.append(float(np.abs(np.array(found) - [300, 100, 50]).mean()))
    assert errors[1] < 0.6 * errors[0] < 0.6 * 20


def test_class_sizes_are_fewer_than_the_units_where_clearly_fewer_rows_were_counted() -> None:
    law, chance = NoiseLaw("laplace", 2.0), np.random.default_rng(1)
    exact = np.array([[40.0] * 5, [20.0] * 5])
    found = class_sizes([exact + noise_on(law, chance, exact.shape)], law, 900)
    assert found.sum() == pytest.approx(300, abs=30)
    assert found[0] == pytest.approx(2 * found[1], rel=0.15)
