"""Marginals without OpenDP's part: what rows count for, what a measurement costs, and when it is refused.

What OpenDP measures is tried in tests/marginals, which needs the extra [marginals].
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting_world import Cut, by_class, by_third
from private_world import MemoryAccount, line_schema
from selpe.config import Adjacency
from selpe.errors import BudgetError, ConfigError, PrivacyError
from selpe.privacy.accounting import Concentrated, concentrated_epsilon, concentrated_rho
from selpe.privacy.ledger.charges import Budget
from selpe.privacy.marginal_plan import STEP, MarginalPlan
from selpe.privacy.marginals import (
    CHOICES_REPLACED,
    CHOOSING,
    COUNTS_REPLACED,
    MarginalNoise,
    MarginalQuery,
    Marginals,
    PricedMarginalNoise,
    SeededMarginalNoise,
    codes_of,
    cost_of,
    exact_counts,
    marginal_charge,
)
from selpe.privacy.mechanisms import ADJACENCIES
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

SCHEMA = line_schema("A", "B")
ROWS: list[Record | None] = [{"x": 1, "label": "A"}, {"x": 42, "label": "A"}, {"x": 99, "label": "B"}, None]


def query(**more: Any) -> MarginalQuery:
    return MarginalQuery("mst", (by_class(), by_third()), **more)


def seeded(epsilon: float = 2.0, **more: Any) -> SeededMarginalNoise:
    return SeededMarginalNoise(epsilon, 7, test_only=True, **more)


def table(account: MemoryAccount | None = None, **more: Any) -> PrivateTable:
    return PrivateTable(ROWS, SCHEMA, account=account or MemoryAccount(), **more)


def measure(private: PrivateTable, noise: MarginalNoise, asked: MarginalQuery | None = None, **more: Any) -> Marginals:
    return private.marginals(asked or query(), noise=noise, selection=STEP, **more)


# -- what rows count for ---------------------------------------------------------------------------------------------


def test_a_row_without_a_code_in_some_column_counts_nowhere_and_raises_nothing() -> None:
    for wrong in (-1, 3, "1", None, 1.0, math.nan):
        odd = Cut("odd", 3, lambda row, wrong=wrong: wrong if row["x"] == 42 else 0)  # type: ignore[misc]
        rows = [row for row in ROWS if row is not None]
        assert codes_of((by_class(), odd), rows).tolist() == [[0, 0], [1, 0]]


CODES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(rows=CODES, other=st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)))
def test_neighbours_move_every_marginal_by_the_norms_that_the_price_is_made_from(
    rows: list[tuple[int, int, int]], other: tuple[int, int, int]
) -> None:
    shape = (3, 4, 2)
    here, less, changed = (np.array(list(one)).reshape(-1, 3) for one in (rows, rows[1:], [other, *rows[1:]]))
    for size in (1, 2, 3):
        for axes in itertools.combinations(range(3), size):
            counts = [exact_counts(codes, axes, shape) for codes in (here, less, changed)]
            removed, replaced = counts[0] - counts[1], counts[0] - counts[2]
            assert np.abs(removed).sum() == np.square(removed).sum() == 1
            assert np.square(replaced).sum() <= COUNTS_REPLACED  # Gaussian noise costs by the square of the L2 norm
            assert np.abs(replaced).sum() ** 2 <= CHOICES_REPLACED  # choices by the square of the L1 norm


# -- what it costs ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(0.05, 20), power=st.floats(-9, -3), adjacency=st.sampled_from(ADJACENCIES), pure=st.booleans())
def test_no_measurement_is_charged_more_than_was_asked_for_and_hardly_less(
    epsilon: float, power: float, adjacency: Adjacency, pure: bool
) -> None:
    noise = PricedMarginalNoise(epsilon, adjacency, 0.0 if pure else 10**power)
    charge = marginal_charge("aim", noise, run="r", selection=STEP, unit="record")
    assert epsilon * (1 - 1e-3) <= charge.epsilon(adjacency) <= epsilon
    assert charge.epsilon_add_remove < charge.epsilon_replace_one
    assert charge.delta == noise.delta


def test_a_replaced_row_costs_what_its_counts_and_choices_cost() -> None:
    noise = PricedMarginalNoise(2.0, "add-remove", 1e-5)
    cost = cost_of(noise)
    one, other = cost.events
    assert isinstance(one, Concentrated)
    assert isinstance(other, Concentrated)
    assert one.rho == cost.loss
    assert other.rho / one.rho == pytest.approx((1 - CHOOSING) * 2 + CHOOSING * 4)
    assert cost_of(PricedMarginalNoise(2.0, "add-remove")).guarantee.replace_one == 4.0


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 8.0])
def test_the_rho_of_an_epsilon_just_fits_under_a_cap_of_the_same_epsilon(epsilon: float) -> None:
    delta = 1e-5
    rho = concentrated_rho(epsilon, delta)
    assert concentrated_epsilon(rho, delta) <= epsilon
    assert concentrated_epsilon(rho * 1.001, delta) > epsilon
    # The closed form of Bun and Steinke is weaker, and never smaller than ours.
    assert concentrated_epsilon(rho, delta) <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    cap = Budget(epsilon, "replace-one", delta, "joint")
    charge = marginal_charge("mst", PricedMarginalNoise(epsilon, delta=delta), run="r", selection=STEP, unit="record")
    cap.require_room([], [charge], dataset="desk")
    with pytest.raises(BudgetError):
        cap.require_room([charge], [charge], dataset="desk")


def test_a_cap_that_counts_gaussian_noise_exactly_refuses_what_it_cannot_count() -> None:
    charge = marginal_charge("mst", PricedMarginalNoise(1.0, delta=1e-5), run="r", selection=STEP, unit="record")
    with pytest.raises(BudgetError):
        Budget(100.0, "replace-one", 1e-5, "gaussian").require_room([], [charge], dataset="desk")
    pure = marginal_charge("mst", PricedMarginalNoise(1.0), run="r", selection=STEP, unit="record")
    Budget(100.0, "replace-one", 1e-5, "gaussian").require_room([], [pure], dataset="desk")


def test_a_delta_that_so_small_an_epsilon_cannot_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match="larger"):
        cost_of(PricedMarginalNoise(1e-6, delta=1e-9))


# -- the private step ------------------------------------------------------------------------------------------------


def test_the_charge_is_on_the_account_before_a_row_is_read_and_the_marginals_before_they_are_returned() -> None:
    account, seen = MemoryAccount(), list[int]()
    watching = Cut("watching", 2, lambda row: seen.append(len(account.charges)) or 0)  # type: ignore[func-returns-value]
    made = measure(table(account), seeded(), MarginalQuery("mst", (by_class(), watching)))
    assert seen == [1, 1, 1]
    again = measure(table(account), seeded(), MarginalQuery("mst", (by_class(), watching)))
    assert seen == [1, 1, 1]
    assert (made.replayed, again.replayed) == (False, True)
    assert all(np.array_equal(one.counts, other.counts) for one, other in zip(made.tables, again.tables, strict=True))
    with pytest.raises(PrivacyError, match="drawn earlier"):
        measure(table(account), seeded(), query(degree=1))


def test_overspending_raises_before_any_row_is_looked_at() -> None:
    class Empty(MemoryAccount):
        def charge(self, charge: Any) -> Any:
            raise BudgetError("nothing is left")

    third = by_third()
    with pytest.raises(BudgetError):
        measure(table(Empty()), seeded(), MarginalQuery("aim", (by_class(), third)))
    assert third.looks == 0


def test_epsilon_zero_looks_at_no_row_measures_nothing_and_costs_nothing() -> None:
    account, third = MemoryAccount(), by_third()
    made = measure(table(account), PricedMarginalNoise(0.0), MarginalQuery("aim", (by_class(), third)))
    assert (made.tables, third.looks, made.private) == ((), 0, True)
    assert account.charges[0].free


def test_seeded_noise_is_repeatable_of_the_size_of_its_price_and_stamped() -> None:
    account = MemoryAccount()
    made = measure(table(account), seeded(delta=1e-5))
    assert not made.private
    assert "not private, for tests only" in made.mechanism
    assert account.charges[0].note == "not private"
    assert [one.axes for one in made.tables] == [(0,), (1,), (0, 1)]
    other = measure(table(), seeded(delta=1e-5))
    assert all(np.array_equal(a.counts, b.counts) for a, b in zip(made.tables, other.tables, strict=True))
    near = measure(table(), seeded(1e5))
    assert near.tables[2].counts == pytest.approx([1, 1, 0, 0, 0, 1], abs=0.01)
    with pytest.raises(PrivacyError, match="protects nobody"):
        SeededMarginalNoise(1.0, 7)


def test_noise_of_unknown_size_and_coders_of_another_host_are_refused() -> None:
    with pytest.raises(PrivacyError, match="noise on marginals"):
        measure(table(), object())  # type: ignore[arg-type]
    account, away = MemoryAccount(), Cut("away", 2, lambda row: 0, remote="https://elsewhere:9")
    with pytest.raises(PrivacyError, match="elsewhere"):
        measure(table(account), seeded(), MarginalQuery("mst", (by_class(), away)))
    assert account.charges == []


def test_a_query_has_two_columns_of_a_size_that_can_be_counted() -> None:
    with pytest.raises(ConfigError, match="two columns"):
        MarginalQuery("mst", (by_class(),))
    with pytest.raises(ConfigError, match="cells"):
        MarginalQuery("mst", (Cut("a", 5000, lambda row: 0), Cut("b", 5000, lambda row: 0)))


# -- the plan --------------------------------------------------------------------------------------------------------


def test_a_plan_spends_its_price_and_another_price_spends_another() -> None:
    plan = MarginalPlan("aim", 100, 50, 2.0, 1e-5, "replace-one", 2.0, ("label", "x"))
    (charge,) = plan.charges("run")
    assert charge.epsilon_replace_one == pytest.approx(2.0)
    assert charge.mechanism == "aim, discrete gaussian"
    assert plan.at({STEP: 1.0}).guarantee.replace_one == pytest.approx(1.0)
    assert plan.steps() == ["marginals of 2 columns by aim, discrete gaussian"]
    assert MarginalPlan("mst", 9, 9, math.inf, 0.0, "replace-one", math.inf).to_dict()["price"] == "inf"


def test_a_plan_without_a_measurement_spends_nothing() -> None:
    plan = MarginalPlan(None, 100, 50, 0.0, 0.0, "replace-one", 0.0)
    assert (plan.charges("run"), plan.prices(), plan.at({})) == ([], {}, plan)
    assert plan.guarantee.replace_one == 0
