"""Composition: the published figures, agreement with dp-accounting, and bounds that never fall below the truth."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from hypothesis import given, settings
from hypothesis import strategies as st

from selpe.errors import ConfigError
from selpe.privacy.accounting import (
    BoundedRange,
    Event,
    Gaussian,
    Pure,
    event_from_dict,
    event_to_dict,
    filter_order,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    pure_and_gaussian,
    rdp,
    rdp_epsilon,
)

DELTA = 1e-5


@pytest.mark.parametrize(
    ("sensitivity", "rounds", "sigmas", "digits"),
    [
        (1.0, 5, (8.342, 4.458, 2.418), 3),
        (1.0, 10, (11.797, 6.305, 3.419), 3),
        (1.633, 4, (12.18, 6.51, 3.53), 2),
    ],
)
def test_known_noise_levels(sensitivity: float, rounds: int, sigmas: tuple[float, ...], digits: int) -> None:
    found = [round(gaussian_sigma(epsilon, DELTA, sensitivity, rounds), digits) for epsilon in (1, 2, 4)]
    assert found == list(sigmas)


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(0.01, 20), power=st.floats(-10, -2), rounds=st.integers(1, 50))
def test_calibrated_noise_is_enough_and_not_more(epsilon: float, power: float, rounds: int) -> None:
    delta = 10**power
    sigma = gaussian_sigma(epsilon, delta, 1.0, rounds)
    exact = GaussianPrivacyLoss(sigma / math.sqrt(rounds)).get_delta_for_epsilon(epsilon)
    assert exact <= delta * (1 + 1e-7)
    less = GaussianPrivacyLoss(sigma / math.sqrt(rounds) * 0.9999).get_delta_for_epsilon(epsilon)
    assert less > delta
    assert gaussian_epsilon(sigma, delta, 1.0, rounds) == pytest.approx(epsilon, rel=1e-6)


def test_gaussian_delta_survives_extremes() -> None:
    assert gaussian_delta(1000.0, 0.1) < 1e-300
    assert gaussian_delta(1.0, 0.0) == 0
    assert gaussian_delta(0.0, 1e3) == pytest.approx(1.0)
    assert gaussian_epsilon(1e9, 1e-5) == 0
    assert gaussian_sigma(1000.0, 1e-5) < 0.03


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (1.0, 0.0), (1.0, 1.0), (math.nan, 1e-5)])
def test_impossible_targets_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="must be"):
        gaussian_sigma(epsilon, delta)


def test_pure_charges_add_up_without_a_delta() -> None:
    assert pure_and_gaussian([Pure(0.1, 10), BoundedRange(0.5)], 0.0) == pytest.approx(1.5)
    assert pure_and_gaussian([], 0.0) == 0
    assert pure_and_gaussian([Gaussian(1.0)], 0.0) == math.inf


def test_many_small_pure_charges_compose_better_than_their_sum() -> None:
    order = filter_order(7.0, 1e-6)
    joint = rdp_epsilon([Pure(0.05, 400)], order, 1e-6)
    assert joint < 8 < pure_and_gaussian([Pure(0.05, 400)], 1e-6) == pytest.approx(20)
    assert rdp_epsilon([BoundedRange(0.05, 400)], order, 1e-6) < joint


def test_gaussian_looks_compose_exactly() -> None:
    sigma = gaussian_sigma(2.0, DELTA, 1.0, 5)
    split: list[Event] = [Gaussian(sigma, 2), Gaussian(sigma), Gaussian(sigma, 2)]
    assert pure_and_gaussian(split, DELTA) == pytest.approx(2.0, rel=1e-6)
    assert pure_and_gaussian([Pure(1.0), *split], DELTA) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.5, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("order", [1.1, 2, 8, 64])
def test_the_curve_of_a_pure_mechanism_is_that_of_randomised_response(epsilon: float, order: float) -> None:
    p = 1 / (1 + math.exp(-epsilon))
    q = math.exp(-epsilon) * p  # 1 − p would vanish in rounding
    loss = epsilon * (order - 1)
    exact = (loss + math.log(p + q * math.exp(-2 * loss))) / (order - 1)
    assert exact - 1e-12 <= rdp(Pure(epsilon), order) <= epsilon
    assert rdp(Pure(epsilon), order) == pytest.approx(exact, rel=1e-6, abs=1e-12)


def exponential_mechanism(scores: list[int], scale: float) -> list[float]:
    weights = [math.exp(scale * (s - max(scores))) for s in scores]
    return [w / math.fsum(weights) for w in weights]


def permute_and_flip(scores: list[int], scale: float) -> list[float]:
    """Its exact law: P(i) = w_i Σ_k (−1)^k e_k(others) / (k + 1)."""
    weights = [math.exp(scale * (s - max(scores))) for s in scores]
    law = []
    for i, weight in enumerate(weights):
        symmetric = [1.0]
        for other in weights[:i] + weights[i + 1 :]:
            shifted = [0.0, *(other * e for e in symmetric)]
            symmetric = [a + b for a, b in zip([*symmetric, 0.0], shifted, strict=True)]
        law.append(weight * math.fsum((-1) ** k * e / (k + 1) for k, e in enumerate(symmetric)))
    return law


NEIGHBOURS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-1, 0, 1])), min_size=2, max_size=6)


@settings(max_examples=200, deadline=None)
@given(pairs=NEIGHBOURS, scale=st.sampled_from([0.1, 0.5, 1.0, 2.0]), order=st.sampled_from([1.5, 2.0, 8.0, 32.0]))
def test_the_exponential_mechanism_is_bounded_range_and_keeps_its_curve(
    pairs: list[tuple[int, int]], scale: float, order: float
) -> None:
    p = exponential_mechanism([s for s, _ in pairs], scale)
    q = exponential_mechanism([s + d for s, d in pairs], scale)
    logs = [math.log(a / b) for a, b in zip(p, q, strict=True)]
    assert max(logs) - min(logs) <= 2 * scale + 1e-9
    divergence = math.log(math.fsum(b * math.exp(order * r) for b, r in zip(q, logs, strict=True))) / (order - 1)
    assert divergence <= rdp(BoundedRange(2 * scale), order) + 1e-9


@settings(max_examples=200, deadline=None)
@given(pairs=NEIGHBOURS, scale=st.sampled_from([0.1, 0.5, 1.0, 2.0]), order=st.sampled_from([1.5, 2.0, 8.0, 32.0]))
def test_permute_and_flip_keeps_the_curve_of_a_pure_mechanism(
    pairs: list[tuple[int, int]], scale: float, order: float
) -> None:
    p = permute_and_flip([s for s, _ in pairs], scale)
    q = permute_and_flip([s + d for s, d in pairs], scale)
    logs = [math.log(a / b) for a, b in zip(p, q, strict=True)]
    divergence = math.log(math.fsum(b * math.exp(order * r) for b, r in zip(q, logs, strict=True))) / (order - 1)
    assert divergence <= rdp(Pure(2 * scale), order) + 1e-9


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 3.0])
def test_permute_and_flip_is_not_bounded_range(scale: float) -> None:
    # Two equal candidates, one gains a vote: λ-DP, yet the log-ratios are further apart than λ.
    before, after = permute_and_flip([0, 0], scale), permute_and_flip([0, 1], scale)
    logs = [math.log(a / b) for a, b in zip(after, before, strict=True)]
    assert logs == [pytest.approx(-scale), pytest.approx(math.log(2 - math.exp(-scale)))]
    assert max(logs) - min(logs) > scale * 1.1


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(0.05, 10), power=st.floats(-9, -3), scale=st.floats(0.2, 5))
def test_the_order_that_a_cap_fixes_never_promises_more_than_the_truth(
    epsilon: float, power: float, scale: float
) -> None:
    delta = 10**power
    sigma = gaussian_sigma(epsilon, delta) * scale
    claimed = rdp_epsilon([Gaussian(sigma)], filter_order(epsilon, delta), delta)
    assert claimed >= gaussian_epsilon(sigma, delta) * (1 - 1e-6)


def test_the_order_that_a_cap_fixes_is_close_to_the_best_one() -> None:
    for epsilon in (0.5, 1.0, 4.0):
        sigma = gaussian_sigma(epsilon, DELTA)
        fixed = rdp_epsilon([Gaussian(sigma)], filter_order(epsilon, DELTA), DELTA)
        assert fixed <= epsilon * 1.15


@pytest.mark.parametrize("event", [Pure(0.5, 3), BoundedRange(0.25), Gaussian(4.0, 5)])
def test_events_travel_as_plain_data(event: Event) -> None:
    assert event_from_dict(event_to_dict(event)) == event
