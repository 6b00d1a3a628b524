"""A run reserves its ε before its first look: what does not fit beside other runs is refused before it begins."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selpe.errors import BudgetError
from selpe.privacy.accounting import Gaussian
from selpe.privacy.ledger import Budget, Charge, Ledger


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def charge(run: str, selection: str, epsilon: float) -> Charge:
    return Charge(run, selection, "permute-and-flip", epsilon / 2, epsilon)


def wanted(run: str, *parts: float) -> list[Charge]:
    return [charge(run, f"round-{number}", part) for number, part in enumerate(parts, 1)]


def opened(epsilon: float) -> Ledger:
    ledger = Ledger.open("clinic")
    ledger.set_budget(epsilon)
    return ledger


def free(ledger: Ledger) -> float:
    cap = ledger.budget
    assert cap is not None
    return cap.epsilon - cap.used([*ledger.charges(), *ledger.reserved()])[0]


def test_a_second_run_that_does_not_fit_is_refused_before_anything_is_spent() -> None:
    ledger = opened(1.0)
    ledger.reserve("first", wanted("first", 0.4, 0.4))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetError) as refused:
        ledger.reserve("second", wanted("second", 0.3))
    assert refused.value.message == (
        "this run would cost ε 0.3, but only ε 0.2 of 1 is left (replace-one); 1 other run(s) have ε 0.8 reserved. "
        "Nothing was spent on it"
    )
    assert ledger.path.read_bytes() == before
    assert ledger.spent().charges == 0
    ledger.reserve("third", wanted("third", 0.2))


def test_what_another_run_has_reserved_cannot_be_charged() -> None:
    ledger = opened(1.0)
    ledger.reserve("first", wanted("first", 0.8))
    with pytest.raises(BudgetError, match="It was not made"):
        ledger.charge(charge("stranger", "round-1", 0.3))
    ledger.charge(charge("first", "round-1", 0.8))
    ledger.charge(charge("stranger", "round-1", 0.2))


def test_a_reservation_shrinks_with_every_charge_and_ends_with_its_run() -> None:
    ledger = opened(2.0)
    ledger.reserve("mine", wanted("mine", 0.5, 0.7), folder="/runs/mine")
    assert free(ledger) == pytest.approx(0.8)
    ledger.charge(charge("mine", "round-1", 0.5))
    held = ledger.reservations()["mine"]
    assert ([one.selection for one in held.charges], held.folder) == (["round-2"], "/runs/mine")
    assert free(ledger) == pytest.approx(0.8)
    settled = ledger.settle("mine", "given up")
    assert settled is not None
    assert [one.selection for one in settled.charges] == ["round-2"]
    assert ledger.reservations() == {}
    assert free(ledger) == pytest.approx(1.5)
    assert ledger.spent().epsilon_replace_one == 0.5  # what was drawn is never freed
    assert ledger.settle("mine", "done") is None


def test_reserving_again_stands_for_what_was_reserved_before_and_needs_nothing_for_what_is_stored() -> None:
    ledger = opened(1.0)
    ledger.reserve("mine", wanted("mine", 0.5, 0.5))
    entries = len(ledger.entries())
    ledger.reserve("mine", wanted("mine", 0.5, 0.5))
    assert len(ledger.entries()) == entries  # a resumed run adds no line
    ledger.store(ledger.charge(charge("mine", "round-1", 0.5)), {"winner": 1})
    ledger.reserve("mine", wanted("mine", 0.5, 0.25))
    assert [(one.selection, one.epsilon_replace_one) for one in ledger.reserved()] == [("round-2", 0.25)]
    assert free(ledger) == pytest.approx(0.25)


def test_a_draw_that_was_lost_is_paid_beside_what_is_reserved_for_the_rest() -> None:
    ledger = opened(2.0)
    ledger.reserve("other", wanted("other", 1.0))
    ledger.reserve("mine", wanted("mine", 0.5, 0.5))
    ledger.charge(charge("mine", "round-1", 0.5))  # and its result is lost
    with pytest.raises(BudgetError):
        ledger.reserve("mine", wanted("mine", 0.5, 0.5))
    ledger.reserve("mine", wanted("mine", 0.25, 0.25))
    for part in wanted("mine", 0.25, 0.25) + wanted("other", 1.0):
        ledger.charge(part)
    assert ledger.spent().epsilon_replace_one == pytest.approx(2.0)


def test_the_first_reservation_sets_the_cap_and_controls_need_none() -> None:
    ledger = Ledger.open("clinic")
    ledger.reserve("free", [charge("free", "round-1", 0.0)])
    assert not ledger.exists
    with pytest.raises(BudgetError, match="no budget yet"):
        ledger.reserve("mine", wanted("mine", 0.5))
    ledger.reserve("mine", wanted("mine", 0.5), cap=Budget(1.0))
    assert ledger.budget == Budget(1.0)
    with pytest.raises(BudgetError):
        ledger.reserve("next", wanted("next", 0.6), cap=Budget(9.0))


def test_gaussian_noise_is_reserved_as_the_cap_counts_it() -> None:
    ledger = Ledger.open("clinic")
    ledger.set_budget(1.0, delta=1e-5, composition="gaussian")

    def look(run: str, name: str, sigma: float) -> Charge:
        event = Gaussian(sigma)
        return Charge(run, name, "gaussian", 0.1, 0.1, 1e-5, event_add_remove=event, event_replace_one=event)

    ledger.reserve("mine", [look("mine", "a", 8.0), look("mine", "b", 8.0)])
    left = free(ledger)
    assert 0 < left < 1
    ledger.charge(look("mine", "a", 8.0))
    assert free(ledger) == pytest.approx(left)
    with pytest.raises(BudgetError, match="reserved"):
        ledger.reserve("other", [look("other", "a", 4.0)])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whoever_reserved_can_draw_all_of_it_whatever_others_do(tmp_path: Path, data: st.DataObject) -> None:
    ledger = Ledger("clinic", Path(mkdtemp(dir=tmp_path)))
    ledger.set_budget(2.0)
    to_draw: dict[str, list[Charge]] = {}
    for step in range(data.draw(st.integers(1, 12))):
        runs = sorted(run for run, rest in to_draw.items() if rest)
        draws: bool = data.draw(st.booleans())
        if runs and draws:
            run: str = data.draw(st.sampled_from(runs))
            if data.draw(st.integers(0, 5)):
                ledger.charge(to_draw[run].pop(0))
            else:
                ledger.settle(run, "freed")
                del to_draw[run]
            continue
        parts = data.draw(st.lists(st.sampled_from((0.1, 0.25, 0.5)), min_size=1, max_size=3))
        try:
            ledger.reserve(f"run-{step}", wanted(f"run-{step}", *parts))
        except BudgetError:
            continue
        to_draw[f"run-{step}"] = wanted(f"run-{step}", *parts)
    for rest in to_draw.values():
        for one in rest:
            ledger.charge(one)
    assert ledger.spent().epsilon_replace_one <= 2.0 * (1 + 1e-9)
