"""Tables of counts: bounded whatever a coder says, paid before a row is looked at, noisy, and stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from counting_world import Cut, by_class, by_third, class_and_third, discrete_laplace, thirds
from private_world import MemoryAccount, line_schema
from selpe.config import Adjacency
from selpe.errors import BudgetError, ConfigError, ModelError, PrivacyError
from selpe.privacy.accounting import Gaussian, gaussian_epsilon, gaussian_sigma
from selpe.privacy.counts import MOST_CELLS, Counts, CountTable, apart, tally
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.mechanisms import ADJACENCIES, Guarantee, laplace_cost, laplace_integers
from selpe.privacy.noise import (
    CountingNoise,
    CountNoise,
    SeededCountingNoise,
    count_noise_of,
    counting_charge,
    counting_sensitivity,
)
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

SCHEMA = line_schema("A", "B")
EXACT = CountingNoise(math.inf)
ROWS: list[Record | None] = [{"x": 1, "label": "A"}, {"x": 42, "label": "A"}, {"x": 99, "label": "B"}]
# A correct sampler fails a test at this level once in ten million runs.
FLAKE = 1e-7


def table(rows: Sequence[Record | None] = ROWS, **more: Any) -> PrivateTable:
    more.setdefault("account", MemoryAccount())
    return PrivateTable(rows, SCHEMA, **more)


def ask(
    private: PrivateTable,
    tables: Sequence[CountTable] | None = None,
    noise: CountNoise = EXACT,
    selection: str = "counts-1",
    **more: Any,
) -> Counts:
    return private.count([class_and_third()] if tables is None else tables, noise=noise, selection=selection, **more)


# -- what is counted -------------------------------------------------------------------------------------------------


def test_every_row_counts_in_the_one_cell_of_its_codes() -> None:
    found = ask(table(), [class_and_third(), thirds()])
    assert found.tables["label × x"].tolist() == [[1, 1, 0], [0, 0, 1]]
    assert found.tables["x"].tolist() == [1, 1, 1]


def test_a_table_says_its_name_its_shape_and_its_cells() -> None:
    both = class_and_third()
    assert (both.name, both.shape, both.cells) == ("label × x", (2, 3), 6)
    assert both.cell({"x": 99, "label": "B"}) == 5


def test_rows_that_abstain_count_nowhere() -> None:
    found = ask(table([*ROWS, None, None]), [thirds()])
    assert found.tables["x"].tolist() == [1, 1, 1]


def test_only_one_row_of_a_person_counts() -> None:
    rows: list[Record | None] = [{"x": x, "label": "A", "who": "ann"} for x in (0, 50, 99)]
    rows.append({"x": 99, "label": "B", "who": "bob"})
    private = table(rows, unit="who")
    seen = set()
    for number in range(40):
        counts = ask(private, selection=f"counts-{number}").tables["label × x"]
        assert counts.sum() == 2
        assert counts[1].tolist() == [0, 0, 1]
        seen.add(int(counts[0].argmax()))
    assert seen == {0, 1, 2}


ODD = [None, -1, 3, 10**30, math.nan, math.inf, 1.0, "1", [1], np.float64(1), np.array([0, 1]), object()]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{type(odd).__name__}-{str(odd)[:4]}")
def test_what_is_no_code_counts_nowhere_and_raises_nothing(odd: object) -> None:
    found = ask(table(), [CountTable((Cut("odd", 3, lambda _: odd),)), thirds()])
    assert not found.tables["odd"].any()
    assert found.tables["x"].tolist() == [1, 1, 1]
    assert not ask(table(), [CountTable((by_class(), Cut("odd", 3, lambda _: odd)))]).tables["label × odd"].any()


@pytest.mark.parametrize("code", [1, np.int64(1), np.uint8(1), True])
def test_whole_numbers_of_any_type_are_codes(code: object) -> None:
    assert ask(table(), [CountTable((Cut("c", 3, lambda _: code),))]).tables["c"].tolist() == [0, 3, 0]


def test_a_number_that_lies_about_itself_counts_once_at_most() -> None:
    class Liar(int):
        def __lt__(self, other: object) -> bool:
            return True

        __le__ = __gt__ = __ge__ = __lt__

        def __int__(self) -> int:
            return 99

    assert not ask(table(), [CountTable((Cut("c", 3, lambda _: Liar(1)),))]).tables["c"].any()


def test_a_coder_that_changes_its_row_changes_neither_the_table_nor_other_rows() -> None:
    def spoil(row: Record) -> int:
        code = int(row["x"]) // 40  # type: ignore[arg-type]
        row["x"] = 0
        return code

    private = table()
    for selection in ("first", "second"):
        assert ask(private, [CountTable((Cut("x", 3, spoil),))], selection=selection).tables["x"].tolist() == [1, 1, 1]


def test_a_coder_is_asked_about_one_row_at_a_time() -> None:
    asked: list[Record] = []

    def note(row: Record) -> int:
        asked.append(row)
        return 0

    ask(table(), [CountTable((Cut("c", 1, note),))])
    assert [row["x"] for row in asked] == [1, 42, 99]


@pytest.mark.parametrize("sizes", [(), (0,), (3, 0)])
def test_a_table_without_cells_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="axis"):
        CountTable(tuple(Cut("c", size, lambda _: 0) for size in sizes))


def test_tables_that_cannot_be_counted_together_are_refused() -> None:
    account = MemoryAccount()
    for wrong in ([], [thirds(), thirds()], [CountTable((Cut("c", MOST_CELLS + 1, lambda _: 0),))]):
        with pytest.raises(ConfigError):
            ask(table(account=account), wrong)
    assert not account.charges


def test_tables_and_noise_of_unknown_bounds_are_refused() -> None:
    class Loud(CountTable):
        pass

    class Quiet(CountingNoise):
        pass

    with pytest.raises(PrivacyError, match="CountTable"):
        ask(table(), [Loud((by_third(),))])
    with pytest.raises(PrivacyError, match="noise"):
        ask(table(), noise=Quiet(1.0))


# -- sensitivity -----------------------------------------------------------------------------------------------------

codes = st.one_of(
    st.integers(0, 3),
    st.integers(),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=2),
    st.integers(-5, 5).map(np.int64),
)


@settings(max_examples=200, deadline=None)
@given(
    said=st.lists(st.tuples(codes, codes), min_size=1, max_size=6),
    other=st.tuples(codes, codes),
    place=st.integers(0, 5),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    number=st.integers(1, 3),
)
def test_a_row_moves_one_cell_of_each_table_by_one_at_most_whatever_a_coder_says(
    said: list[tuple[Any, Any]], other: tuple[Any, Any], place: int, sizes: tuple[int, int], number: int
) -> None:
    place %= len(said)
    said = [*said, other]
    one, two = (
        Cut(f"c{axis}", sizes[axis], lambda row, axis=axis: said[row["x"]][axis])  # type: ignore[misc]
        for axis in (0, 1)
    )
    tables = [CountTable((one, two)), CountTable((one,)), CountTable((two,))][:number]
    everyone: list[Record] = [{"x": i} for i in range(len(said) - 1)]
    here = tally(tables, everyone)
    moved = here - tally(tables, everyone[:place] + everyone[place + 1 :])
    for part in apart(moved, tables).values():
        assert set(part.ravel().tolist()) <= {0, 1}
        assert part.sum() <= 1
    replaced = here - tally(tables, [*everyone[:place], {"x": len(said) - 1}, *everyone[place + 1 :]])
    assert np.abs(replaced).sum() <= 2 * number
    assert np.linalg.norm(replaced) <= counting_sensitivity(number).replace_one
    assert np.linalg.norm(moved) <= counting_sensitivity(number).add_remove


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 50])
def test_the_bound_of_many_tables_is_rounded_up_and_hardly_more(number: int) -> None:
    bound = counting_sensitivity(number)
    for root, square in ((bound.add_remove, number), (bound.replace_one, 2 * number)):
        assert square <= root * root <= square * (1 + 1e-15)


# -- the noise -------------------------------------------------------------------------------------------------------


def binned(noise: NDArray[np.int64], reach: int) -> NDArray[np.int64]:
    """How often each number was drawn; what is further out than `reach` counts there."""
    return np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1)


def binned_law(scale: float, reach: int) -> NDArray[np.float64]:
    law = discrete_laplace(np.arange(-reach, reach + 1), scale)
    law[[0, -1]] += (1 - law.sum()) / 2
    return np.asarray(law)


@pytest.mark.parametrize(("scale", "reach"), [(0.5, 3), (2.0, 11), (7.3, 40)])
def test_opendp_draws_discrete_laplace_noise_on_whole_numbers(scale: float, reach: int) -> None:
    counts = binned(laplace_integers(np.full(40_000, 9, dtype=np.int64), scale) - 9, reach)
    assert stats.chisquare(counts, 40_000 * binned_law(scale, reach)).pvalue > FLAKE
    # The same test notices a scale that is a tenth off, and Laplace noise that was rounded afterwards.
    assert stats.chisquare(counts, 40_000 * binned_law(1.1 * scale, reach)).pvalue < FLAKE
    if scale == 0.5:
        edges = np.concatenate([[-np.inf], np.arange(-reach + 0.5, reach), [np.inf]])
        assert stats.chisquare(counts, 40_000 * np.diff(stats.laplace.cdf(edges / scale))).pvalue < FLAKE


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 5 / 6, 1.0, 4.0])
@pytest.mark.parametrize("number", [1, 2, 3, 12])
def test_the_scale_follows_from_the_number_of_tables_and_what_neighbours_are(epsilon: float, number: int) -> None:
    for adjacency, moved in (("add-remove", number), ("replace-one", 2 * number)):
        law, scale, cost = count_noise_of(CountingNoise(epsilon, adjacency), number)  # type: ignore[arg-type]
        assert law == "laplace"
        assert scale == pytest.approx(moved / epsilon, rel=1e-12)
        assert epsilon * (1 - 1e-12) <= cost.under(adjacency) <= epsilon  # type: ignore[arg-type]
        assert cost == Guarantee(laplace_cost(scale, number), laplace_cost(scale, 2 * number))
        assert cost.replace_one == pytest.approx(2 * cost.add_remove)


@settings(max_examples=80, deadline=None)
@given(st.floats(1e-3, 100), st.sampled_from(ADJACENCIES), st.integers(1, 500), st.sampled_from([0.0, 1e-9, 1e-5, 0.1]))
def test_no_measurement_is_charged_more_than_was_asked_for(
    epsilon: float, adjacency: Adjacency, number: int, delta: float
) -> None:
    cost = count_noise_of(CountingNoise(epsilon, adjacency, delta), number).guarantee
    assert (1 - 1e-6) * epsilon <= cost.under(adjacency) <= epsilon
    assert cost.replace_one >= cost.add_remove


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_gaussian_noise_is_taken_exactly_where_it_is_the_smaller(epsilon: float, adjacency: Adjacency) -> None:
    laws = []
    for number in range(1, 40):
        fit = count_noise_of(CountingNoise(epsilon, adjacency, 1e-5), number)
        b = (number if adjacency == "add-remove" else 2 * number) / epsilon
        sigma = gaussian_sigma(epsilon, 1e-5, counting_sensitivity(number).under(adjacency))
        variance = {"laplace": 2 * math.exp(-1 / b) / (1 - math.exp(-1 / b)) ** 2, "gaussian": sigma**2 + 1 / 12}
        assert fit.law == min(variance, key=lambda law: variance[law])
        assert fit.deviation**2 == pytest.approx(variance[fit.law], rel=1e-6)
        assert fit.scale == pytest.approx(b if fit.law == "laplace" else sigma, rel=1e-6)
        laws.append(fit.law)
    assert laws == sorted(laws, reverse=True), "few tables get Laplace noise, many Gaussian"
    assert set(laws) == {"laplace", "gaussian"}


@pytest.mark.parametrize(("epsilon", "delta", "number"), [(1.0, 0.0, 1), (0.5, 0.0, 3), (3.0, 0.0, 1), (1.0, 1e-5, 9)])
def test_every_count_gets_noise_of_the_stated_deviation(epsilon: float, delta: float, number: int) -> None:
    for noise in (CountingNoise(epsilon, delta=delta), SeededCountingNoise(epsilon, 5, delta=delta, test_only=True)):
        found = ask(table(), [CountTable((Cut(f"c{i}", 6000, lambda _: 0),)) for i in range(number)], noise)
        drawn = np.concatenate(list(found.tables.values()))
        assert drawn.dtype == np.int64
        assert drawn.std() == pytest.approx(found.deviation, rel=0.1)
        assert abs(drawn.mean()) < 6 * found.deviation / math.sqrt(len(drawn)) + 3 / 6000
        assert found.law == ("gaussian" if delta else "laplace")


def test_seeded_noise_has_the_law_it_stands_in_for() -> None:
    noise = SeededCountingNoise(1.0, 3, test_only=True)
    counts = binned(noise.add(np.zeros(40_000, dtype=np.int64), 1, "key"), 11)
    assert stats.chisquare(counts, 40_000 * binned_law(2.0, 11)).pvalue > FLAKE


@pytest.mark.parametrize("wrong", [{"epsilon": -1.0}, {"epsilon": math.nan}, {"delta": 1.0}, {"delta": -0.1},
                                   {"adjacency": "swap"}])  # fmt: skip
def test_senseless_noise_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        CountingNoise(**{"epsilon": 1.0, **wrong})
    with pytest.raises(ConfigError, match="at least one table"):
        count_noise_of(CountingNoise(1.0), 0)


def test_noise_that_would_not_fit_is_refused() -> None:
    with pytest.raises(PrivacyError, match="64-bit"):
        laplace_integers(np.zeros(1, dtype=np.int64), 1e17)
    with pytest.raises(PrivacyError, match="64-bit"):
        laplace_integers(np.array([-(2**62)]), 1.0)
    with pytest.raises(ConfigError, match="scale"):
        laplace_integers(np.zeros(1, dtype=np.int64), math.nan)


# -- paying ----------------------------------------------------------------------------------------------------------


def test_the_charge_is_on_the_account_before_a_row_is_read_and_the_counts_before_they_are_returned() -> None:
    order: list[str] = []

    class Noting(MemoryAccount):
        def charge(self, charge: Charge) -> Receipt:
            order.append("charge")
            return super().charge(charge)

        def store(self, receipt: Receipt, result: Any) -> None:
            order.append("store")
            super().store(receipt, result)

    def note(_: Record) -> int:
        order.append("look")
        return 0

    account = Noting()
    found = ask(table(account=account), [CountTable((Cut("c", 1, note),)), thirds()], CountingNoise(1.0))
    assert order == ["charge", "look", "look", "look", "store"]
    (charge,) = account.charges
    assert (charge.mechanism, charge.delta, charge.unit, charge.note) == ("discrete laplace", 0.0, "record", "")
    assert (charge.epsilon_add_remove, charge.epsilon_replace_one) == (0.5, 1.0)
    assert charge.event_add_remove is None
    assert charge.event_replace_one is None
    assert account.results["counts-1"]["counts"] == [*found.tables["c"].tolist(), *found.tables["x"].tolist()]


def test_gaussian_noise_tells_the_ledger_what_composes_exactly() -> None:
    noise, bound = CountingNoise(1.0, "add-remove", 1e-5), counting_sensitivity(20)
    charge = counting_charge(noise, 20, run="r", selection="s", unit="record")
    sigma = count_noise_of(noise, 20).scale
    assert (charge.mechanism, charge.delta) == ("rounded gaussian", 1e-5)
    assert charge.event_add_remove == Gaussian(sigma / bound.add_remove)
    assert charge.event_replace_one == Gaussian(sigma / bound.replace_one)
    assert charge.epsilon_add_remove == pytest.approx(1.0)
    assert charge.epsilon_replace_one == gaussian_epsilon(sigma, 1e-5, bound.replace_one)


@pytest.mark.parametrize("noise", [CountingNoise(0.5), CountingNoise(0.5, delta=0.1)], ids=repr)
def test_stored_counts_are_returned_again_without_a_row_a_draw_or_a_charge(noise: CountingNoise) -> None:
    account = MemoryAccount()
    first = ask(table(account=account), noise=noise, context="codes")
    later = Cut("x", 3, lambda _: 0)
    again = ask(table(account=account), [CountTable((by_class(), later))], noise, context="codes")
    assert again.tables["label × x"].tolist() == first.tables["label × x"].tolist()
    assert (again.scale, again.law, again.guarantee) == (first.scale, first.law, first.guarantee)
    assert (first.replayed, again.replayed, later.looks, len(account.charges)) == (False, True, 0, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"tables": [thirds()]},
        {"tables": [CountTable((by_class(), Cut("x", 4, lambda _: 0)))]},
        {"tables": [class_and_third(), thirds()]},
        {"noise": CountingNoise(0.6)},
        {"noise": CountingNoise(0.5, "add-remove")},
        {"context": "other codes"},
    ],
)
def test_stored_counts_are_not_taken_for_another_request(change: dict[str, Any]) -> None:
    account = MemoryAccount()
    ask(table(account=account), noise=CountingNoise(0.5))
    with pytest.raises(PrivacyError, match="other settings"):
        ask(table(account=account), **{"noise": CountingNoise(0.5), **change})


def test_overspending_raises_before_any_row_is_looked_at(tmp_path: Path) -> None:
    ledger = Ledger.open("line", root=tmp_path / "ledgers")
    ledger.set_budget(1.0)
    private, coder = table(account=ledger.account("run")), by_third()
    ask(private, noise=CountingNoise(0.75), selection="first")
    with pytest.raises(BudgetError):
        ask(private, [CountTable((coder,))], CountingNoise(0.75))
    assert (coder.looks, ledger.spent().charges) == (0, 1)
    assert ledger.spent().epsilon_replace_one == 0.75


def test_counts_with_gaussian_noise_share_a_cap_with_what_is_pure(tmp_path: Path) -> None:
    ledger = Ledger.open("line", root=tmp_path / "ledgers")
    ledger.set_budget(2.0, delta=1e-5, composition="gaussian")
    private = table(account=ledger.account("run"))
    many = [CountTable((Cut(f"c{i}", 2, lambda _: 0),)) for i in range(20)]
    assert ask(private, many, CountingNoise(1.0, delta=1e-5), "many").law == "gaussian"
    assert ask(private, noise=CountingNoise(0.9, delta=1e-5), selection="one").law == "laplace"
    with pytest.raises(BudgetError):
        ask(private, noise=CountingNoise(0.2), selection="too much")
    assert ledger.spent().delta == 1e-5


def test_a_measurement_that_failed_stays_paid_for_and_costs_again_when_repeated() -> None:
    def fail(row: Record) -> int:
        raise ValueError(f"cannot code {row}")

    account = MemoryAccount()
    private = table(account=account)
    with pytest.raises(ModelError) as caught:
        ask(private, [CountTable((Cut("c", 2, fail),))], CountingNoise(0.5))
    assert "42" not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    ask(private, [CountTable((Cut("c", 2, lambda _: 0),))], CountingNoise(0.5))
    assert len(account.charges) == 2


# -- controls --------------------------------------------------------------------------------------------------------


def test_epsilon_zero_looks_at_no_row_counts_nothing_and_costs_nothing() -> None:
    account, coder = MemoryAccount(), Cut("x", 3, lambda _: 0, remote="https://elsewhere.example")
    found = ask(table(account=account), [CountTable((coder,))], CountingNoise(0.0))
    assert (coder.looks, found.private, account.charges[0].free) == (0, True, True)
    assert (found.scale, found.deviation, found.guarantee) == (math.inf, math.inf, Guarantee(0.0, 0.0))
    assert found.tables["x"].tolist() == [0, 0, 0]


def test_counts_without_noise_and_seeded_noise_are_stamped() -> None:
    for noise in (EXACT, SeededCountingNoise(1.0, 7, test_only=True)):
        account = MemoryAccount()
        found = ask(table(account=account), noise=noise)
        assert not found.private
        assert "not private" in found.mechanism
        assert account.charges[0].note == "not private"
    exact = ask(table())
    assert (exact.scale, exact.deviation, exact.guarantee.add_remove) == (0.0, 0.0, math.inf)
    with pytest.raises(PrivacyError, match="protects nobody"):
        SeededCountingNoise(1.0, 7)


def test_seeded_noise_repeats_differs_by_measurement_and_is_charged_like_the_real() -> None:
    noise = SeededCountingNoise(0.1, 7, test_only=True)
    one, same = (ask(table(), noise=noise) for _ in range(2))
    other = ask(table(), noise=noise, selection="counts-2")
    assert one.tables["label × x"].tolist() == same.tables["label × x"].tolist() != other.tables["label × x"].tolist()
    assert one.guarantee == count_noise_of(CountingNoise(0.1), 1).guarantee


# -- where private text may go ---------------------------------------------------------------------------------------


def test_a_coder_of_another_host_is_refused_before_anything_is_charged() -> None:
    account, far = MemoryAccount(), Cut("x", 3, lambda _: 0, remote="https://elsewhere.example")
    for tables in ([CountTable((far,))], [thirds(), CountTable((by_class(), far))]):
        with pytest.raises(PrivacyError, match=r"elsewhere\.example"):
            ask(table(account=account), tables)
    assert (far.looks, account.charges) == (0, [])
    ask(table(allow_private_text_to="https://elsewhere.example"), [CountTable((far,))])
    assert far.looks == 3
