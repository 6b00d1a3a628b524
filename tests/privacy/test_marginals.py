"""Marginals by AIM and MST: what rows count for, what each step and all of it costs, paid before rows are looked at.

The model that is fitted between steps is a simple one here; Private-PGM is tried in tests/marginals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from counting_world import Cut, by_class, by_third
from private_world import MemoryAccount, line_schema, permute_and_flip
from selpe.config import Adjacency
from selpe.errors import BudgetError, ConfigError, PrivacyError
from selpe.privacy.accounting import Concentrated, concentrated_epsilon, concentrated_rho
from selpe.privacy.ledger.charges import Budget
from selpe.privacy.marginal_algorithms import (
    GRID,
    Axes,
    Counter,
    NoisyMarginal,
    exact_counts,
    measure_aim,
    measure_mst,
    workload,
)
from selpe.privacy.marginal_plan import STEP, MarginalPlan
from selpe.privacy.marginals import (
    CHOICES_REPLACED,
    CHOOSING,
    COUNTS_REPLACED,
    MarginalAlgorithm,
    MarginalNoise,
    MarginalQuery,
    Marginals,
    OpenDPDraws,
    PricedMarginalNoise,
    SeededMarginalNoise,
    codes_of,
    cost_of,
    marginal_charge,
)
from selpe.privacy.mechanisms import ADJACENCIES, Law, _measurement, choice_scale, gaussian_integers, laplace_cost
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


@dataclass
class Apart:
    """A model of columns that have nothing to do with each other, from their noisy counts alone."""

    shape: Sequence[int]
    tables: Sequence[NoisyMarginal]

    def expected(self, axes: Axes) -> NDArray[np.float64]:
        found, total = np.ones(1), max(1.0, float(self.tables[0].counts.sum()))
        for axis in axes:
            counts = next(np.maximum(one.counts, 0.5) for one in self.tables if one.axes == (axis,))
            found = np.outer(found, counts / counts.sum()).ravel()
        return found * total

    def megabytes_with(self, axes: Axes) -> float:
        return 0.0


def measure(private: PrivateTable, noise: MarginalNoise, asked: MarginalQuery | None = None, **more: Any) -> Marginals:
    asked = asked or query()
    return private.marginals(asked, lambda t: Apart(asked.shape, t), noise=noise, selection=STEP, **more)


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


# -- the algorithms --------------------------------------------------------------------------------------------------

SHAPE = (2, 3, 2, 4)


@dataclass
class Noting:
    """OpenDP's draws, which note what each step costs under both relations by the maps of its measurements."""

    by: OpenDPDraws
    costs: list[tuple[str, float, float]] = field(default_factory=list)

    def counts(self, exact: NDArray[np.int64], loss: float) -> tuple[NDArray[np.int64], float]:
        scale = self.by.scale(loss)
        one = laplace_cost(scale, 1) if self.by.pure else 0.5 / scale**2
        other = laplace_cost(scale, 2) if self.by.pure else 0.5 * 2 / scale**2
        self.costs.append(("counts", one, other))
        return self.by.counts(exact, loss)

    def choose(self, scores: NDArray[np.int64], step: int, loss: float) -> int:
        law: Law = "permute-and-flip" if self.by.pure else "exponential"
        made = _measurement(law, choice_scale(loss, step, pure=self.by.pure), False)
        self.costs.append(("choice", made.map(step), made.map(2 * step)))
        return self.by.choose(scores, step, loss)

    def spread(self, loss: float) -> float:
        return self.by.spread(loss)


def lines(count: int, shape: Sequence[int] = SHAPE) -> NDArray[np.int64]:
    chance = np.random.default_rng(3)
    found = np.stack([chance.integers(size, size=count) for size in shape], axis=1)
    found[:, 2] = found[:, 0]  # one pair that goes together
    return found


def run(algorithm: MarginalAlgorithm, counter: Counter, loss: float) -> list[NoisyMarginal]:
    def fit(tables: Sequence[NoisyMarginal]) -> Apart:
        return Apart(counter.shape, list(tables))

    if algorithm == "mst":
        return measure_mst(counter, loss, fit)
    return measure_aim(counter, loss, fit, asked=workload(len(counter.shape), 2))


@pytest.mark.parametrize("algorithm", ["mst", "aim"])
@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_all_steps_together_cost_what_is_charged_by_opendps_own_maps(
    algorithm: MarginalAlgorithm, delta: float
) -> None:
    cost = cost_of(PricedMarginalNoise(2.0, delta=delta))
    draws = Noting(OpenDPDraws(cost.pure))
    run(algorithm, Counter(lines(50), SHAPE, draws), cost.loss * (1 - 1e-9))
    one, other = math.fsum(step[1] for step in draws.costs), math.fsum(step[2] for step in draws.costs)
    replaced = 2.0 * cost.loss if cost.pure else cost.loss * (2 * (1 - CHOOSING) + 4 * CHOOSING)
    assert cost.loss * (1 - 1e-6) <= one <= cost.loss
    assert replaced * (1 - 1e-6) <= other <= replaced * (1 + 1e-12)
    choices = math.fsum(step[1] for step in draws.costs if step[0] == "choice")
    assert choices <= CHOOSING * cost.loss * (1 + 1e-9)


def test_mst_counts_every_column_and_pairs_that_make_a_tree_and_finds_what_goes_together() -> None:
    tables = run("mst", Counter(lines(400), SHAPE, OpenDPDraws(True)), 200.0)
    assert [one.axes for one in tables[:4]] == [(0,), (1,), (2,), (3,)]
    pairs = [one.axes for one in tables[4:]]
    assert len(pairs) == 3
    assert {axis for pair in pairs for axis in pair} == {0, 1, 2, 3}
    assert (0, 2) in pairs
    for one in tables:
        assert np.abs(one.counts - exact_counts(lines(400), one.axes, SHAPE)).max() <= 3


def test_aim_counts_first_what_the_model_has_worst_and_learns_in_larger_steps_where_it_learns_nothing() -> None:
    tables = run("aim", Counter(lines(400), SHAPE, OpenDPDraws(False)), 2000.0)
    assert tables[4].axes == (0, 2)
    nothing = run("aim", Counter(lines(0), SHAPE, OpenDPDraws(False)), 0.02)
    deviations = [one.deviation for one in nothing[4:]]
    assert len(deviations) < 8
    assert deviations == sorted(deviations, reverse=True)


def test_no_pair_of_neighbours_exceeds_the_claim_on_any_path() -> None:
    """Exact: the law of every choice along every path, and what noise on the counts adds at most."""
    shape, epsilon = (2, 2, 2), 2.0
    loss = cost_of(PricedMarginalNoise(epsilon)).loss
    everything = list(itertools.product(range(2), repeat=3))
    model = Apart(shape, [NoisyMarginal((axis,), np.ones(2), 1.0) for axis in range(3)])
    pairs = list(itertools.combinations(range(3), 2))
    scale = choice_scale(0.1 * 0.25 * loss, GRID, pure=True)
    worst = 0.0
    for rows in itertools.combinations_with_replacement(everything, 2):
        for other in everything:
            here, there = (
                Counter(np.array(one).reshape(-1, 3), shape, OpenDPDraws(True)) for one in (rows, (other, rows[1]))
            )
            for first in range(3):
                ratio = 0.0
                for able in (pairs, [pair for pair in pairs if pair != pairs[first]]):
                    laws = [permute_and_flip([one.distance(p, model) for p in able], scale) for one in (here, there)]
                    ratios = np.abs(np.log(laws[0] / laws[1]))
                    ratio += float(ratios[first] if len(able) == 3 else ratios.max())
                counted: list[tuple[Axes, float]] = [((axis,), 0.5 * loss / 3) for axis in range(3)]
                counted += [(pair, 0.9 * 0.25 * loss) for pair in pairs[:2]]
                for axes, price in counted:
                    moved = np.abs(here.exact(axes) - there.exact(axes)).sum()
                    ratio += float(moved) / OpenDPDraws(True).scale(price)
                worst = max(worst, ratio)
    assert worst <= epsilon * (1 + 1e-9)
    assert worst > 0.9 * epsilon  # counts, nine tenths and more of the price, are met exactly


def test_noise_on_counts_has_the_stated_size() -> None:
    exact = np.zeros(4000, dtype=np.int64)
    for pure in (True, False):
        noisy, deviation = OpenDPDraws(pure).counts(exact, 0.02)
        assert noisy.std() == pytest.approx(deviation, rel=0.1)
        assert np.abs(noisy).mean() == pytest.approx(OpenDPDraws(pure).spread(0.02), rel=0.1)
    found = gaussian_integers(exact, OpenDPDraws(False).scale(0.02)) / OpenDPDraws(False).scale(0.02)
    assert stats.kstest(found + np.random.default_rng(1).uniform(-0.1, 0.1, 4000), stats.norm.cdf).pvalue > 1e-7


def test_weights_say_how_much_a_marginal_has_in_common_with_all_that_are_asked_for() -> None:
    assert workload(3, 2) == {(0,): 2, (1,): 2, (2,): 2, (0, 1): 4, (0, 2): 4, (1, 2): 4}
    assert workload(2, 3) == {(0,): 1, (1,): 1, (0, 1): 2}
    assert workload(3, 2, target=True) == {(0,): 2, (1,): 1, (2,): 1, (0, 1): 3, (0, 2): 3}


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
    assert measure(table(), seeded(), MarginalQuery("aim", (by_class(), by_third()))).tables[0].axes == (0,)
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
