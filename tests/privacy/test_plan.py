from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_world import exponential, permute_and_flip
from selpe.errors import ConfigError
from selpe.privacy.plan import Plan, make_plan, round_quotas, split_epsilon
from selpe.privacy.simulation import paper_outlook, record_outlook, set_outlook, winner_law

CLASSES = ("1", "2", "3", "4", "5")


def plan(**settings: Any) -> Plan:
    given: dict[str, Any] = {"units": 100, "labels": CLASSES, "epsilon": 2.0, "records": 200}
    return make_plan(**(given | settings))


# -- quotas -----------------------------------------------------------------------------------------------------------


@given(
    records=st.integers(1, 10_000),
    classes=st.integers(0, 12),
    rounds=st.integers(1, 20),
    shape=st.sampled_from(["progressive", "uniform"]),
)
def test_quotas_add_up_to_the_records_asked_for(records: int, classes: int, rounds: int, shape: Any) -> None:
    labels = [f"c{i}" for i in range(classes)]
    quotas = round_quotas(records, labels, rounds, shape)
    assert len(quotas) == rounds
    assert sum(sum(part.values()) for part in quotas) == records
    totals = [sum(part[name] for part in quotas) for name in labels or [""]]
    assert max(totals) - min(totals) <= 1
    assert all(count >= 0 for part in quotas for count in part.values())


@given(shares=st.lists(st.floats(0, 1e6), min_size=1, max_size=8), records=st.integers(1, 1000))
def test_each_class_gets_its_share_to_less_than_one_record(shares: list[float], records: int) -> None:
    if not sum(shares):
        return
    labels = [f"c{i}" for i in range(len(shares))]
    quotas = round_quotas(records, labels, 3, shares=dict(zip(labels, shares, strict=True)))
    for label, share in zip(labels, shares, strict=True):
        total = sum(part[label] for part in quotas)
        assert abs(total - records * share / sum(shares)) < 1 + 1e-6 * records


def test_the_papers_two_thousand_records_stay_two_thousand() -> None:
    quotas = round_quotas(2000, CLASSES, 5)
    assert sum(sum(part.values()) for part in quotas) == 2000
    assert [part["1"] for part in quotas] == [27, 53, 80, 107, 133]


def test_uniform_quotas_are_level() -> None:
    assert [part["a"] for part in round_quotas(100, ["a"], 5, "uniform")] == [20] * 5


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"a": 1.0}, "every class"),
        ({"a": 1.0, "b": 1.0, "x": 1.0}, "not a class"),
        ({"a": -1.0, "b": 1.0}, "0 or more"),
        ({"a": math.nan, "b": 1.0}, "0 or more"),
        ({"a": 0.0, "b": 0.0}, "above 0"),
    ],
)
def test_shares_that_make_no_sense_are_refused(shares: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        round_quotas(10, ["a", "b"], 2, shares=shares)


# -- the law ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("scores", [[0, 1], [3, 3, 3], [0, 1, 2, 5, 5], list(range(12))])
def test_the_law_agrees_with_the_exact_one(scores: list[int], rate: float) -> None:
    values = np.array(scores, dtype=np.float64)
    assert np.allclose(winner_law(values, rate), permute_and_flip(values, 1 / rate), atol=1e-7)
    assert np.allclose(winner_law(values, rate, "exponential"), exponential(values, 1 / rate), atol=1e-12)


def test_equal_candidates_can_be_counted_instead_of_listed() -> None:
    listed = winner_law(np.array([0.0, 1.0, 1.0, 1.0, 2.0]), 0.7)
    counted = winner_law(np.array([0.0, 1.0, 2.0]), 0.7, counts=np.array([1.0, 3.0, 1.0]))
    assert np.allclose(counted, [listed[0], listed[1:4].sum(), listed[4]], atol=1e-12)


def test_without_noise_the_best_wins_and_scores_nobody_has_do_not_count() -> None:
    counts = np.array([2.0, 1.0, 0.0])
    assert winner_law(np.array([0.0, 1.0, 9.0]), math.inf, counts=counts).tolist() == [0.0, 1.0, 0.0]


# -- the outlook ------------------------------------------------------------------------------------------------------


def test_more_epsilon_is_never_worse() -> None:
    rates = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0]
    for alpha in (None, 0.25, 0.5):
        found = [record_outlook(rows=20, candidates=60, rate=rate, alpha=alpha).percentile for rate in rates]
        assert found[0] == 0.5
        assert all(b >= a - 0.002 for a, b in pairwise(found))
    found = [set_outlook(rows=93, options=6, rate=rate).percentile for rate in rates]
    assert all(b >= a - 0.002 for a, b in pairwise(found))


def test_more_rows_are_never_worse() -> None:
    for rate in (0.1, 0.4):
        found = [record_outlook(rows=n, candidates=60, rate=rate).percentile for n in (2, 5, 10, 20, 40, 80, 400, 5000)]
        assert all(b >= a - 0.01 for a, b in pairwise(found))
        assert found[-1] > 0.95


def test_more_batches_are_never_better() -> None:
    found = [record_outlook(rows=40, candidates=60, rate=0.4, batches=b).percentile for b in (1, 2, 4, 8, 40, 80, 4000)]
    assert all(b <= a + 0.01 for a, b in pairwise(found))
    assert found[-1] == pytest.approx(0.5, abs=0.01)


def test_the_papers_rule_stays_at_chance_at_any_epsilon_that_protects() -> None:
    for epsilon in (0.2, 1.0, 4.0):
        assert paper_outlook(rows=20, candidates=60, epsilon=epsilon).percentile == pytest.approx(0.5, abs=0.04)


def test_votes_on_guides_come_near_what_was_measured() -> None:
    # 93 rows, six guides: at ε = 0.5, 1 and 2 the choice had 79, 92 and 96 % of the gain of one without noise.
    best = set_outlook(rows=93, options=6, rate=1e9).percentile - 0.5
    for epsilon, share in ((0.5, 0.79), (1.0, 0.92), (2.0, 0.96)):
        gain = set_outlook(rows=93, options=6, rate=epsilon / 2).percentile - 0.5
        assert gain / best == pytest.approx(share, abs=0.07)


@pytest.mark.parametrize(
    ("epsilon", "low", "high"),
    [(0.2, 0.589, 0.629), (0.4, 0.667, 0.735), (0.8, 0.777, 0.856), (1.0, 0.818, 0.891), (2.0, 0.922, 0.956)],
)
def test_the_prediction_lies_within_what_real_tables_gave(epsilon: float, low: float, high: float) -> None:
    # The range over three real tables and two encoders, 20 rows and 60 candidates a class (docs/planning.md).
    made = plan(units=20, labels=(), epsilon=epsilon, records=60, multiplicity=1, rounds=1, batches=1)
    assert high - 0.05 <= made.percentile <= low + 0.05 or low <= made.percentile <= high


# -- the plan ---------------------------------------------------------------------------------------------------------


def test_a_plan_is_the_same_every_time() -> None:
    first = plan(guides=6, bundles=32)
    record_outlook.cache_clear()
    set_outlook.cache_clear()
    assert plan(guides=6, bundles=32) == first
    assert json.loads(json.dumps(first.to_dict()))["rounds"][0]["epsilon"] == first.rounds[0].epsilon


def test_every_selection_meets_the_aim_where_it_can_be_met() -> None:
    for units, epsilon in ((100, 2.0), (300, 2.0), (1000, 1.0), (5000, 1.0)):
        made = plan(units=units, epsilon=epsilon, records=2000)
        assert min(part.weakest for part in made.rounds) >= 0.78


def test_more_rows_buy_more_rounds_and_batches() -> None:
    sizes = [len(made.rounds) * made.batches for made in (plan(units=n, records=2000) for n in (50, 200, 1000, 5000))]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] == 20


def test_more_epsilon_never_lowers_what_one_round_finds() -> None:
    found = [plan(epsilon=e, rounds=1, batches=1).percentile for e in (0.1, 0.3, 1.0, 3.0, 10.0)]
    assert found == sorted(found)


def test_what_cannot_steer_is_said_plainly() -> None:
    made = plan(units=8, labels=("a", "b"), epsilon=0.5)
    assert made.verdict == "With 8 records and ε = 0.5 the private data will steer almost nothing."
    assert (len(made.rounds), made.batches) == (1, 1)
    assert any("below the 80th percentile" in warning for warning in made.warnings)


def test_what_is_fixed_by_hand_is_kept() -> None:
    made = plan(units=8, rounds=7, batches=3, alpha=0.1)
    assert (len(made.rounds), made.batches, made.alpha) == (7, 3, 0.1)
    assert any("fewer rounds" in warning for warning in made.warnings)


def test_the_parts_never_add_up_to_more_than_epsilon() -> None:
    for epsilon in (0.1, 0.7, 1.0, 2.0, math.pi, 17.3):
        for schedule in ("uniform", "increasing"):
            made = plan(epsilon=epsilon, rounds=7, guides=6, bundles=32, schedule=schedule)
            parts = [part.epsilon for part in made.rounds] + [made.guide_epsilon or 0.0, made.bundle_epsilon or 0.0]
            assert math.fsum(parts) <= epsilon
            assert math.fsum(parts) == pytest.approx(epsilon, rel=1e-12)


def test_the_increasing_schedule_grows() -> None:
    prices = [part.epsilon for part in plan(rounds=4, schedule="increasing").rounds]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]


def test_both_relations_are_stated_as_the_mechanism_states_them() -> None:
    replaced = plan(epsilon=2.0).guarantee
    assert (replaced.replace_one, replaced.add_remove) == pytest.approx((2.0, 1.0))
    added = plan(epsilon=2.0, adjacency="add-remove")
    assert (added.guarantee.replace_one, added.guarantee.add_remove) == pytest.approx((4.0, 2.0))


def test_off_gives_everything_to_records() -> None:
    made = plan(guides=0, bundles=0)
    assert made.guide_epsilon is None
    assert made.bundle_epsilon is None
    assert made.record_epsilon == pytest.approx(2.0)


def test_guides_and_candidate_releases_take_no_more_than_they_can_use() -> None:
    assert split_epsilon(100.0, guides=True, bundles=True) == pytest.approx((0.25, 96.75, 3.0))
    assert split_epsilon(1.0, guides=True, bundles=True) == pytest.approx((0.15, 0.2, 0.65))
    assert split_epsilon(1.0, guides=False, bundles=True) == pytest.approx((0.0, 0.2, 0.8))


def test_without_privacy_budget_every_choice_is_chance() -> None:
    made = plan(epsilon=0.0, guides=6, bundles=32)
    assert {part.epsilon for part in made.rounds} == {0.0}
    assert made.percentile == 0.5
    assert made.guide is not None
    assert made.guide.percentile == 0.5
    assert "no private row takes part" in made.verdict


def test_without_noise_the_plan_says_that_nobody_is_protected() -> None:
    made = plan(epsilon=math.inf, guides=6)
    assert made.guarantee.replace_one == math.inf
    assert "no privacy" in made.verdict
    assert json.loads(json.dumps(made.to_dict(), allow_nan=False))["epsilon"] == "inf"


@pytest.mark.parametrize("labels", [(), ("only",)])
@pytest.mark.parametrize("units", [1, 2, 5000])
def test_one_class_and_no_label_and_one_row_are_planned(labels: tuple[str, ...], units: int) -> None:
    made = plan(units=units, labels=labels, records=1)
    assert sum(sum(part.quota.values()) for part in made.rounds) == 1
    assert list(made.rows) == list(labels or ("",))


def test_a_million_records_are_planned_from_small_simulations() -> None:
    made = plan(units=5000, records=1_000_000, guides=6, bundles=32)
    assert sum(sum(part.quota.values()) for part in made.rounds) == 1_000_000
    assert made.percentile >= 0.78


def test_stated_class_sizes_are_used_and_named_as_public() -> None:
    sizes = {"1": 2, "2": 300, "3": 300, "4": 300, "5": 98}
    made = plan(units=1000, class_sizes=sizes, records=2000)
    assert made.rows == {label: float(size) for label, size in sizes.items()}
    assert any("treated as public" in warning for warning in made.warnings)
    assert any(warning.startswith("In class 1 winners") for warning in made.warnings)
    assert len(made.rounds) > 1  # the small class does not hold the others back


def test_the_papers_rule_is_planned_but_warned_about() -> None:
    made = plan(vote="prototype")
    assert len(made.rounds) == 5
    assert made.percentile == pytest.approx(0.5, abs=0.02)
    assert any("paper's rule" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": 0}, "units must be 1 or more"),
        ({"records": 0}, "records must be 1 or more"),
        ({"rounds": 0}, "rounds must be 1 or more"),
        ({"batches": -1}, "batches must be 1 or more"),
        ({"alpha": 0.0}, "alpha must lie"),
        ({"alpha": 1.0}, "alpha must lie"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"adjacency": "both"}, "adjacency must be one of"),
        ({"schedule": "falling"}, "schedule must be one of"),
        ({"vote": "majority"}, "vote must be one of"),
        ({"mechanism": "laplace"}, "mechanism must be one of"),
        ({"guides": -1}, "guides and bundles"),
        ({"class_sizes": {"1": 3}}, "every class"),
        ({"class_sizes": {"9": 3}}, "not a class"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(**settings)
