"""Training on private rows: bounded whatever a learner says, paid before a row is read, noisy, and stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from private_world import MARKER, MemoryAccount, line_schema
from selpe.errors import BudgetError, ConfigError, ModelError, PrivacyError
from selpe.privacy import learning
from selpe.privacy.accounting import Gaussian, gaussian_epsilon, gaussian_sigma
from selpe.privacy.learning import STEPS_PER_CLIP, Learned, Training, add_clipped, noisy_sum
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.mechanisms import gaussian_integers
from selpe.privacy.noise import GaussianNoise, Noise, SeededNoise
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

SCHEMA = line_schema("A", "B")
ROWS: list[Record] = [{"x": 3, "label": "A"}, {"x": 40, "label": "A"}, {"x": 90, "label": "B"}]
EXACT = GaussianNoise(0.0, 1e-5)


@dataclass(slots=True)
class LineLearner:
    """Learns the mean of the points: a row's gradient is (x, 1), whatever the parameters."""

    size: int = 2
    remote: str | None = None
    looks: int = 0
    totals: list[list[float]] = field(default_factory=list)

    def gradients(self, records: Sequence[Record]) -> Iterator[NDArray[np.float32]]:
        self.looks += 1
        for record in records:
            yield np.array([float(record["x"]), 1.0], dtype=np.float32)  # type: ignore[arg-type]

    def step(self, total: NDArray[np.float64]) -> None:
        self.totals.append(total.tolist())

    def keep(self) -> str:
        return f"state-{len(self.totals)}"


def table(rows: Sequence[Record] = ROWS, **more: Any) -> PrivateTable:
    more.setdefault("account", MemoryAccount())
    return PrivateTable(rows, SCHEMA, **more)


def learn(private: PrivateTable, learner: Any, noise: Noise = EXACT, **more: Any) -> Learned:
    asked = Training(more.pop("steps", 1), more.pop("clip", 10.0))
    return private.learn(lambda: learner, asked, noise=noise, selection=more.pop("selection", "training-1"), **more)


# -- the sum ---------------------------------------------------------------------------------------------------------


def test_gradients_are_clipped_one_by_one_and_then_added_up() -> None:
    learner = LineLearner()
    learn(table(), learner, clip=10.0)
    expected = np.zeros(2)
    for x in (3.0, 40.0, 90.0):
        gradient = np.array([x, 1.0])
        expected += gradient * min(1.0, 10.0 / float(np.linalg.norm(gradient)))
    assert np.allclose(learner.totals[0], expected, rtol=1e-6)


values = arrays(np.float32, 5, elements=st.floats(width=32, allow_nan=True, allow_infinity=True))


@settings(max_examples=300, deadline=None)
@given(values, st.sampled_from([1e-3, 1.0, 10.0]))
def test_whatever_a_gradient_is_it_moves_the_sum_by_at_most_the_clipping_norm(
    gradient: NDArray[np.float32], clip: float
) -> None:
    total = np.zeros(5, dtype=np.int64)
    add_clipped(total, gradient, clip)
    # In whole numbers, so that nothing is rounded in the comparison either.
    assert sum(int(value) ** 2 for value in total) <= STEPS_PER_CLIP**2
    if not np.isfinite(gradient).all():
        assert not total.any()


@settings(max_examples=60, deadline=None)
@given(st.lists(values, max_size=4), values, values)
def test_neighbouring_tables_move_the_sum_by_at_most_its_sensitivity(
    common: list[NDArray[np.float32]], one: NDArray[np.float32], other: NDArray[np.float32]
) -> None:
    def total(gradients: Sequence[NDArray[np.float32]]) -> NDArray[np.int64]:
        found = np.zeros(5, dtype=np.int64)
        for gradient in gradients:
            add_clipped(found, gradient, 1.0)
        return found

    bounds = Training(1, 1.0).sensitivity
    removed = total([*common, one]) - total(common)
    replaced = total([*common, one]) - total([other, *common])  # also in another order
    for gap, bound in ((removed, bounds.add_remove), (replaced, bounds.replace_one)):
        assert sum(int(value) ** 2 for value in gap) <= (int(bound) * STEPS_PER_CLIP) ** 2


def test_the_bounds_are_met_so_that_the_noise_is_not_larger_than_it_must_be() -> None:
    total = np.zeros(2, dtype=np.int64)
    add_clipped(total, np.array([3e6, 4e6], dtype=np.float32), 1.0)
    assert math.hypot(*total.tolist()) == pytest.approx(STEPS_PER_CLIP, rel=1e-6)


def test_long_gradients_are_clipped_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    whole, cut = np.zeros(1000, dtype=np.int64), np.zeros(1000, dtype=np.int64)
    add_clipped(whole, gradient, 1.0)
    monkeypatch.setattr(learning, "_AT_ONCE", 7)
    add_clipped(cut, gradient, 1.0)
    assert np.abs(whole - cut).max() <= STEPS_PER_CLIP * 1e-12
    assert math.sqrt(sum(int(v) ** 2 for v in cut)) <= STEPS_PER_CLIP


def test_only_one_row_of_a_person_takes_part_in_a_step_and_each_step_draws_anew() -> None:
    rows: list[Record] = [{"x": x, "label": "A", "who": "ann"} for x in (1, 2, 3)]
    learner = LineLearner()
    learn(table(rows, unit="who"), learner, steps=40, clip=100.0)
    assert {round(total[0]) for total in learner.totals} == {1, 2, 3}
    assert all(round(total[1]) == 1 for total in learner.totals)


# -- the noise -------------------------------------------------------------------------------------------------------


def test_the_noise_of_a_step_has_the_planned_deviation() -> None:
    class Wide(LineLearner):
        def gradients(self, records: Sequence[Record]) -> Iterator[NDArray[np.float32]]:
            for _ in records:
                yield np.zeros(self.size, dtype=np.float32)

    sigma, size = gaussian_sigma(2.0, 1e-5, 0.5, 50), 30_000
    drawn = noisy_sum(Wide(size=size), ROWS, 0.5, GaussianNoise(sigma, 1e-5), "step")
    # The sample deviation of 30,000 draws is within 2 % of the true one but for one time in a million.
    assert float(drawn.std()) == pytest.approx(sigma, rel=0.02)
    assert abs(float(drawn.mean())) < 5 * sigma / math.sqrt(size)
    assert (drawn % (0.5 / STEPS_PER_CLIP) == 0).all()  # on the grid that the proof speaks of


def test_noise_on_whole_numbers_keeps_shape_and_order_and_its_draws_are_independent() -> None:
    start = np.arange(40_000, dtype=np.int64).reshape(4, -1) * 2**40
    noisy = gaussian_integers(start, 100.0)
    noise = (noisy - start).ravel().astype(np.float64)
    assert noisy.shape == start.shape
    assert noise.std() == pytest.approx(100.0, rel=0.02)
    assert abs(float(np.corrcoef(noise[:-1], noise[1:])[0, 1])) < 0.03
    assert abs(float(np.corrcoef(noise[:16_384], noise[16_384:32_768])[0, 1])) < 0.04  # two threads' parts
    assert len(np.unique(gaussian_integers(np.zeros(50, dtype=np.int64), 1e12))) == 50


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_noise_on_whole_numbers_needs_a_deviation(scale: float) -> None:
    with pytest.raises(ConfigError):
        gaussian_integers(np.zeros(3, dtype=np.int64), scale)


def test_noise_that_would_not_fit_is_refused_before_a_row_is_read() -> None:
    learner = LineLearner()
    with pytest.raises(PrivacyError, match="grid"):
        learn(table(), learner, GaussianNoise(1e9, 1e-5), clip=1.0)
    assert not learner.looks
    with pytest.raises(PrivacyError):
        gaussian_integers(np.zeros(3, dtype=np.int64), 2.0**60)


# -- the charge ------------------------------------------------------------------------------------------------------


def test_the_charge_states_the_exact_price_of_all_steps_under_both_relations() -> None:
    account = MemoryAccount()
    sigma = gaussian_sigma(2.0, 1e-5, 1.0, 50)
    made = learn(table(account=account), LineLearner(), GaussianNoise(sigma, 1e-5), steps=50, clip=1.0)
    (charge,) = account.charges
    assert charge.epsilon_add_remove == pytest.approx(2.0, abs=1e-6)
    assert charge.epsilon_replace_one == pytest.approx(gaussian_epsilon(sigma, 1e-5, 2.0, 50))
    assert charge.event_add_remove == Gaussian(sigma, 50)
    assert charge.event_replace_one == Gaussian(sigma / 2, 50)
    assert (charge.delta, charge.mechanism, made.steps) == (1e-5, "gaussian", 50)
    assert made.guarantee.replace_one == charge.epsilon_replace_one


def test_a_row_is_read_after_the_charge_and_the_state_is_stored_before_it_is_used() -> None:
    order: list[str] = []

    class Account(MemoryAccount):
        def charge(self, charge: Charge) -> Receipt:
            order.append("charge")
            return MemoryAccount.charge(self, charge)

        def store(self, receipt: Receipt, result: Any) -> None:
            order.append(f"store {result['state']}")
            MemoryAccount.store(self, receipt, result)

    class Watching(LineLearner):
        def gradients(self, records: Sequence[Record]) -> Iterator[NDArray[np.float32]]:
            order.append("look")
            return LineLearner.gradients(self, records)

        def keep(self) -> str:
            order.append("keep")
            return LineLearner.keep(self)

    learn(table(account=Account()), Watching(), steps=2)
    assert order == ["charge", "look", "look", "keep", "store state-2"]


def test_overspending_raises_before_any_row_is_read(tmp_path: Path) -> None:
    ledger = Ledger.open("line", root=tmp_path)
    ledger.set_budget(1.0, "replace-one", 1e-5, composition="gaussian")
    learner = LineLearner()
    sigma = gaussian_sigma(1.0, 1e-5, 2.0, 10)
    with pytest.raises(BudgetError):
        learn(table(account=ledger.account("run")), learner, GaussianNoise(sigma, 1e-5), steps=11, clip=1.0)
    assert not learner.looks
    made = learn(table(account=ledger.account("run")), learner, GaussianNoise(sigma, 1e-5), steps=10, clip=1.0)
    assert (made.steps, learner.looks) == (10, 10)


def test_a_stored_result_is_returned_again_without_a_learner_a_look_or_a_charge() -> None:
    account = MemoryAccount()
    first = learn(table(account=account), LineLearner(), steps=3)

    def begin() -> Any:
        raise AssertionError("no learner is needed")

    again = table(account=account).learn(begin, Training(3, 10.0), noise=EXACT, selection="training-1")
    assert (again.state, again.steps, again.replayed) == (first.state, 3, True)
    assert len(account.charges) == 1


def test_a_stored_result_is_not_taken_for_another_training() -> None:
    account = MemoryAccount()
    learn(table(account=account), LineLearner(), steps=3)
    for other in ({"steps": 4}, {"steps": 3, "clip": 1.0}, {"steps": 3, "context": "another model"}):
        with pytest.raises(PrivacyError, match="other settings"):
            learn(table(account=account), LineLearner(), **other)


def test_stopping_keeps_what_was_done_and_gives_up_the_rest() -> None:
    account, learner = MemoryAccount(), LineLearner()
    made = learn(table(account=account), learner, steps=5, watch=lambda step: step == 2)
    assert (made.steps, made.state, len(learner.totals)) == (2, "state-2", 2)
    assert account.results["training-1"]["steps"] == 2
    assert len(account.charges) == 1


# -- controls --------------------------------------------------------------------------------------------------------


def test_epsilon_zero_trains_nothing_reads_no_row_and_is_free() -> None:
    account, learner = MemoryAccount(), LineLearner()
    made = learn(table(account=account), learner, GaussianNoise(math.inf, 1e-5), steps=5)
    assert (made.steps, made.state, made.private) == (0, "", True)
    assert not learner.looks
    assert account.charges[0].free


def test_epsilon_infinity_is_stamped_in_the_result_and_in_the_charge() -> None:
    account = MemoryAccount()
    made = learn(table(account=account), LineLearner())
    assert not made.private
    assert not account.charges[0].private
    assert "not private" in account.charges[0].note


def test_seeded_noise_repeats_and_is_stamped() -> None:
    first, again = LineLearner(), LineLearner()
    noise = SeededNoise(1.0, 1e-5, 7, test_only=True)
    made = learn(table(), first, noise, steps=3)
    learn(table(), again, noise, steps=3)
    assert first.totals == again.totals
    assert first.totals[0] != first.totals[1]  # every step has its own noise
    assert not made.private


# -- what does not come out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RuntimeError, ModelError, KeyError, KeyboardInterrupt])
def test_an_error_of_a_learner_that_quotes_a_row_is_replaced(kind: type[BaseException]) -> None:
    class Quoting(LineLearner):
        def gradients(self, records: Sequence[Record]) -> Iterator[NDArray[np.float32]]:
            raise kind(f"{MARKER} {records}")

    with pytest.raises(KeyboardInterrupt if kind is KeyboardInterrupt else ModelError) as caught:
        learn(table(), Quoting())
    assert MARKER not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_learner_that_skips_or_invents_rows_is_refused(count: int) -> None:
    class Odd(LineLearner):
        def gradients(self, records: Sequence[Record]) -> Iterator[NDArray[np.float32]]:
            return iter([np.ones(2, dtype=np.float32)] * count)

    with pytest.raises(ModelError):
        learn(table(), Odd())


def test_a_gradient_of_another_length_is_refused() -> None:
    with pytest.raises(ModelError):
        learn(table(), LineLearner(size=3))


def test_noise_of_unknown_size_is_refused() -> None:
    class Loud(GaussianNoise):
        pass

    with pytest.raises(PrivacyError):
        learn(table(), LineLearner(), Loud(1.0, 1e-5))


def test_private_text_goes_to_no_other_host() -> None:
    learner = LineLearner(remote="https://elsewhere.example/v1")
    with pytest.raises(PrivacyError, match=r"elsewhere\.example"):
        learn(table(), learner)
    assert not learner.looks
    learn(table(allow_private_text_to="elsewhere.example"), learner)


@pytest.mark.parametrize(("steps", "clip"), [(0, 1.0), (1, 0.0), (1, math.inf), (1, math.nan)])
def test_a_training_needs_steps_and_a_clipping_norm(steps: int, clip: float) -> None:
    with pytest.raises(ConfigError):
        Training(steps, clip)
