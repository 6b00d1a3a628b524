"""The mechanisms: what they cost, what they draw, and that controls are stamped."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from private_world import LAWS as EXACT
from private_world import permute_and_flip
from selpe.config import Adjacency
from selpe.errors import ConfigError, PrivacyError
from selpe.privacy.mechanisms import (
    ADJACENCIES,
    LAWS,
    Guarantee,
    Influence,
    Law,
    NoisyMax,
    OpenDPSelector,
    SeededMechanism,
    Selector,
    gaussian,
)

VOTES = Influence()
SCORES = ([3, 2, 0, 2], [0, 0, 0], [5, 1, 1, 1, 4, 0, 5])
# A correct sampler fails a test at this level once in ten million runs.
FLAKE = 1e-7


def fit(mechanism: NoisyMax, influence: Influence = VOTES) -> OpenDPSelector:
    selector = mechanism.calibrate(influence)
    assert isinstance(selector, OpenDPSelector)
    return selector


def frequencies(selector: Selector, scores: list[int], draws: int) -> NDArray[np.int64]:
    array = np.array(scores, dtype=np.int64)
    return np.bincount([selector.draw(array) for _ in range(draws)], minlength=len(scores))


def fits(counts: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    return float(stats.chisquare(counts, law * counts.sum()).pvalue)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_opendp_draws_from_the_exact_law(law: Law, scores: list[int]) -> None:
    selector = fit(NoisyMax(2.0, law=law))
    counts = frequencies(selector, scores, 15_000)
    assert fits(counts, EXACT[law](scores, selector.scale)) > FLAKE


def test_the_two_laws_are_told_apart_by_the_same_test() -> None:
    selector = fit(NoisyMax(2.0, law="permute-and-flip"))
    counts = frequencies(selector, [3, 2, 0, 2], 15_000)
    assert fits(counts, EXACT["exponential"]([3, 2, 0, 2], selector.scale)) < FLAKE


def test_the_winner_is_the_highest_score_and_not_the_lowest() -> None:
    selector = fit(NoisyMax(1000.0))
    assert {selector.draw(np.array([1, 9, 5])) for _ in range(50)} == {1}


def test_scores_beyond_32_bits_are_compared_exactly() -> None:
    selector = fit(NoisyMax(1000.0))
    assert {selector.draw(np.array([2**40, 2**40 + 1, 2**40])) for _ in range(50)} == {1}


def test_the_polynomial_form_of_the_law_is_the_sum_over_subsets() -> None:
    w = np.exp(np.array([-1.0, 0.0, -0.5, -2.0]))
    law = [
        w[i] * sum((-1) ** len(s) * np.prod(w[list(s)]) / (len(s) + 1)
                   for k in range(4) for s in itertools.combinations([j for j in range(4) if j != i], k))
        for i in range(4)
    ]  # fmt: skip
    assert permute_and_flip([-1.0, 0.0, -0.5, -2.0], 1.0) == pytest.approx(law, abs=1e-12)
    assert sum(law) == pytest.approx(1.0)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "influence", [VOTES, Influence(2), Influence(1000), Influence(10**6, False, 1), Influence(10**6, False, 5)], ids=str
)
def test_the_guarantee_is_at_most_epsilon_and_hardly_less(law: Law, adjacency: Adjacency, influence: Influence) -> None:
    for epsilon in (0.1, 0.3, 1 / 3, 0.7, 1.0, 5 / 6, 8.0):
        cost = fit(NoisyMax(epsilon, adjacency, law), influence).guarantee.under(adjacency)
        assert epsilon * (1 - 1e-12) <= cost <= epsilon


@pytest.mark.parametrize("law", LAWS)
def test_votes_cost_twice_as_much_under_replace_one(law: Law) -> None:
    guarantee = NoisyMax(1.0, "replace-one", law).calibrate(VOTES).guarantee
    assert (guarantee.add_remove, guarantee.replace_one) == pytest.approx((0.5, 1.0))
    guarantee = NoisyMax(1.0, "add-remove", law).calibrate(VOTES).guarantee
    assert (guarantee.add_remove, guarantee.replace_one) == pytest.approx((1.0, 2.0))


def test_the_vote_step_only_rescales_the_noise() -> None:
    fine, coarse = fit(NoisyMax(1.0), Influence(1000)), fit(NoisyMax(1.0), Influence(1))
    assert fine.scale == pytest.approx(1000 * coarse.scale)


@pytest.mark.parametrize(("pools", "factor"), [(1, 2.0), (2, 4.0), (7, 4.0)])
def test_the_papers_printed_exponent_costs_two_to_four_times_its_claim(pools: int, factor: float) -> None:
    mechanism = NoisyMax(0.2, law="exponential", printed=True)
    selector = fit(mechanism, Influence(10**6, monotone=False, pools=pools))
    assert selector.scale == pytest.approx(10**6 / 0.2)
    assert selector.guarantee.replace_one == pytest.approx(factor * 0.2)


def test_epsilon_zero_is_uniform_free_and_reads_nothing() -> None:
    selector = NoisyMax(0.0).calibrate(VOTES)
    assert not selector.reads_rows
    assert selector.private
    assert selector.guarantee == Guarantee(0.0, 0.0)
    assert fits(frequencies(selector, [100, 0, 0, 0], 8_000), np.full(4, 0.25)) > FLAKE


def test_epsilon_infinity_takes_the_first_of_the_best_and_says_it_is_not_private() -> None:
    selector = NoisyMax(math.inf).calibrate(VOTES)
    assert selector.draw(np.array([1, 7, 7, 2])) == 1
    assert not selector.private
    assert "not private" in selector.name
    assert math.isinf(selector.guarantee.add_remove)


def test_a_seeded_mechanism_is_refused_unless_it_is_for_tests_only() -> None:
    with pytest.raises(PrivacyError, match="protects nobody"):
        SeededMechanism(1.0, seed=3)


def test_a_seeded_selection_repeats_and_is_stamped() -> None:
    mechanism = SeededMechanism(1.0, seed=3, test_only=True)
    scores = np.zeros(1000, dtype=np.int64)
    first, again = mechanism.calibrate(VOTES, "round-1"), mechanism.calibrate(VOTES, "round-1")
    other = mechanism.calibrate(VOTES, "round-2")
    draws = [[s.draw(scores), s.below(1000), s.draw(scores)] for s in (first, again, other)]
    assert draws[0] == draws[1] != draws[2]
    assert not first.private
    assert "not private" in first.name
    assert first.guarantee == NoisyMax(1.0).calibrate(VOTES).guarantee


@pytest.mark.parametrize("law", LAWS)
def test_a_seeded_selection_has_the_law_it_stands_in_for(law: Law) -> None:
    selector = SeededMechanism(2.0, seed=1, law=law, test_only=True).calibrate(VOTES)
    counts = frequencies(selector, [3, 2, 0, 2], 15_000)
    assert fits(counts, EXACT[law]([3, 2, 0, 2], fit(NoisyMax(2.0, law=law)).scale)) > FLAKE


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, 1e-12, 1e9])
def test_a_senseless_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon must be"):
        NoisyMax(epsilon)


@pytest.mark.parametrize("wrong", [{"adjacency": "swap"}, {"law": "laplace"}])
def test_an_unknown_setting_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        NoisyMax(1.0, **wrong)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 100), st.sampled_from(ADJACENCIES), st.sampled_from(LAWS), st.integers(1, 10**6), st.booleans())
def test_no_setting_is_charged_more_than_was_asked_for(
    epsilon: float, adjacency: Adjacency, law: Law, step: int, monotone: bool
) -> None:
    guarantee = NoisyMax(epsilon, adjacency, law).calibrate(Influence(step, monotone, 2)).guarantee
    assert 0.999999 * epsilon <= guarantee.under(adjacency) <= epsilon
    assert guarantee.replace_one >= guarantee.add_remove


def test_gaussian_noise_has_the_asked_spread_and_shape() -> None:
    noisy = gaussian(np.full((50, 40), 7.0), 3.0)
    assert noisy.shape == (50, 40)
    assert stats.kstest((noisy.ravel() - 7.0) / 3.0, "norm").pvalue > FLAKE
    assert len(set(gaussian([0.0] * 5, 1.0))) == 5
    assert gaussian([], 1.0).shape == (0,)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_gaussian_noise_without_a_spread_is_refused(scale: float) -> None:
    with pytest.raises(ConfigError):
        gaussian([1.0], scale)


def test_gaussian_noise_on_what_is_no_number_is_refused_without_quoting_it() -> None:
    with pytest.raises(PrivacyError, match="must be finite"):
        gaussian([math.nan], 1.0)
