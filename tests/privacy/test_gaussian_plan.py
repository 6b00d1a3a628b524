"""Plans of Gaussian looks: exactly (ε, δ) together, and a ledger that counts them so."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.config import Adjacency
from selpe.errors import BudgetError, ConfigError
from selpe.privacy.accounting import Gaussian, Pure, gaussian_delta, gaussian_sigma, pure_and_gaussian
from selpe.privacy.gaussian_plan import GaussianPlan, Look, gaussian_plan, square_of
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Budget, Charge, spent, spent_by
from selpe.privacy.noise import GaussianNoise, SeededNoise, Sensitivity

ONE = Sensitivity(1.0, math.sqrt(2.0))
TRAINING = Sensitivity(1.0, 2.0)


def plan(
    epsilon: float = 2.0, rounds: int = 5, delta: float = 1e-5, adjacency: Adjacency = "add-remove"
) -> GaussianPlan:
    looks = [Look(f"round-{t}", ONE) for t in range(1, rounds + 1)]
    return gaussian_plan("augpe", looks, units=100, records=50, epsilon=epsilon, delta=delta, adjacency=adjacency)


@pytest.mark.parametrize(
    ("rounds", "epsilon", "sigma"),
    [(5, 1, 8.342), (5, 2, 4.458), (5, 4, 2.418), (10, 1, 11.797), (10, 2, 6.305), (10, 4, 3.419)],
)
def test_the_noise_is_what_the_exact_formula_says(rounds: int, epsilon: float, sigma: float) -> None:
    made = plan(epsilon, rounds)
    assert made.look("round-1").sigma("add-remove") == pytest.approx(sigma, abs=6e-4)
    replaced = plan(epsilon, rounds, adjacency="replace-one")
    assert replaced.look("round-1").sigma("replace-one") == pytest.approx(math.sqrt(2) * sigma, abs=9e-4)


@given(st.floats(0.05, 20), st.floats(1e-9, 1e-2), st.integers(1, 30), st.sampled_from(["add-remove", "replace-one"]))
def test_a_plan_never_exceeds_its_epsilon_and_hardly_stays_below(
    epsilon: float, delta: float, rounds: int, adjacency: Adjacency
) -> None:
    cost = plan(epsilon, rounds, delta, adjacency).guarantee.under(adjacency)
    assert epsilon * (1 - 1e-5) <= cost <= epsilon * (1 + 3e-9)


def test_looks_of_different_sensitivity_share_one_budget() -> None:
    looks = [Look("topics", ONE), Look("training", TRAINING, count=50)]
    made = gaussian_plan(
        "ctcl", looks, units=100, records=50, epsilon=2.0, delta=1e-5, adjacency="add-remove", shares=(1, 3)
    )
    square = (1 / made.look("topics").sigma("add-remove")) ** 2 + 50 / made.look("training").sigma("add-remove") ** 2
    assert gaussian_delta(2.0, math.sqrt(square)) == pytest.approx(1e-5, rel=1e-4)
    assert made.look("training").price == pytest.approx(3 * made.look("topics").price)
    assert made.guarantee.replace_one > made.guarantee.add_remove
    assert made.steps() == [
        f"topics (σ {made.look('topics').sigma('add-remove'):.4g})",
        f"training, 50 steps (σ {made.look('training').sigma('add-remove'):.4g})",
    ]


def test_controls_have_no_noise_or_nothing_but_noise() -> None:
    free, endless = plan(0.0), plan(math.inf)
    assert free.noise("round-1") == GaussianNoise(math.inf, 1e-5)
    assert endless.noise("round-1") == GaussianNoise(0.0, 1e-5)
    assert (free.guarantee.replace_one, endless.guarantee.replace_one) == (0.0, math.inf)
    assert endless.to_dict()["epsilon"] == "inf"


def test_seeded_noise_comes_only_where_a_test_asks_for_it() -> None:
    assert isinstance(plan().noise("round-1"), GaussianNoise)
    assert isinstance(plan().noise("round-1", test_seed=3), SeededNoise)


def test_a_plan_at_other_prices_has_other_noise() -> None:
    made = plan()
    half = made.at({name: price / 4 for name, price in made.prices().items()})
    assert half.look("round-2").sigma("add-remove") == pytest.approx(2 * made.look("round-2").sigma("add-remove"))
    assert half.guarantee.add_remove < made.guarantee.add_remove / 1.5


@pytest.mark.parametrize("shares", [(), (1.0,), (1.0, 0.0), (1.0, math.inf)])
def test_shares_that_do_not_fit_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="share"):
        gaussian_plan(
            "m", [Look("a", ONE), Look("b", ONE)], units=1, records=1, epsilon=1, delta=1e-5,
            adjacency="add-remove", shares=shares,
        )  # fmt: skip


def test_gaussian_noise_needs_a_delta() -> None:
    with pytest.raises(ConfigError, match="delta"):
        GaussianNoise(1.0, 0.0)


# -- the ledger ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open("clinic", root=tmp_path / "ledgers")


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_all_looks_of_a_plan_fit_the_cap_exactly_and_one_more_does_not(ledger: Ledger, adjacency: Adjacency) -> None:
    ledger.set_budget(2.0, adjacency, 1e-5, composition="gaussian")
    made = plan(adjacency=adjacency)
    charges = made.charges("run")
    for charge in charges:
        ledger.charge(charge)
    total = ledger.spent()
    assert total.epsilon(adjacency) == pytest.approx(2.0, rel=1e-5)
    assert total.epsilon(adjacency) <= 2.0 * (1 + 1e-8)
    assert total.delta == 1e-5
    other: Adjacency = "replace-one" if adjacency == "add-remove" else "add-remove"
    assert total.epsilon(other) == pytest.approx(made.guarantee.under(other))
    cap = ledger.budget
    assert cap is not None
    assert cap.used(ledger.charges())[0] == pytest.approx(2.0, rel=1e-5)
    with pytest.raises(BudgetError):
        ledger.charge(Charge("run", "one more", "gaussian", 0.01, 0.01, 1e-5,
                             event_add_remove=Gaussian(100.0), event_replace_one=Gaussian(100.0)))  # fmt: skip


def test_pure_and_gaussian_charges_share_a_cap(ledger: Ledger) -> None:
    ledger.set_budget(3.0, "add-remove", 1e-5, composition="gaussian")
    ledger.charge(Charge("ours", "round-1", "permute-and-flip", 1.0, 2.0))
    for charge in plan().charges("theirs"):
        ledger.charge(charge)
    assert ledger.spent().epsilon_add_remove == pytest.approx(3.0, rel=1e-5)
    assert spent_by(ledger.charges())["ours"]["epsilon_replace_one"] == 2.0
    assert spent_by(ledger.charges())["theirs"]["epsilon_add_remove"] == pytest.approx(2.0, rel=1e-5)
    with pytest.raises(BudgetError):
        ledger.charge(Charge("ours", "round-2", "permute-and-flip", 0.001, 0.002))


def test_two_runs_of_gaussian_looks_cost_less_than_their_sum_and_more_than_one() -> None:
    charges = [*plan().charges("first"), *plan().charges("second")]
    total = spent(charges)
    assert 2.0 * math.sqrt(2) * 0.95 < total.epsilon_add_remove < 4.0
    assert total.epsilon_add_remove == pytest.approx(pure_and_gaussian([Gaussian(4.458, 10)], 1e-5), rel=1e-3)


def test_a_gaussian_cap_refuses_what_it_cannot_count() -> None:
    cap = Budget(2.0, "replace-one", 1e-5, "gaussian")
    with pytest.raises(BudgetError, match="what happened"):
        cap.require_room([], [Charge("r", "s", "unknown", 0.1, 0.1, 1e-6)], dataset="d")
    with pytest.raises(ConfigError, match="delta"):
        Budget(2.0, "replace-one", 0.0, "gaussian")


def test_the_square_of_a_budget_is_the_noise_of_one_look() -> None:
    assert 1 / math.sqrt(square_of(2.0, 1e-5)) == pytest.approx(gaussian_sigma(2.0, 1e-5))
    assert pure_and_gaussian([Pure(1.0), Gaussian(gaussian_sigma(2.0, 1e-5))], 1e-5) == pytest.approx(3.0, rel=1e-5)
