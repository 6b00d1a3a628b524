"""Histogram queries: bounded whatever the rows say, paid before a row is looked at, noisy, and stored."""

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

from private_world import LineKernel, LinePool, MemoryAccount, Points, line_schema
from selpe.errors import BudgetError, ConfigError, ModelError, PrivacyError
from selpe.privacy import histograms
from selpe.privacy.accounting import Gaussian, gaussian_epsilon
from selpe.privacy.histograms import Histogram, NearestVotes, NearFarVotes, near_far_sensitivity
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.noise import GaussianNoise, Noise, SeededNoise, Sensitivity
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

SCHEMA = line_schema("A", "B")
SPOTS = (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
EXACT = GaussianNoise(0.0, 1e-5)
ROWS: list[Record] = [{"x": 1, "label": "A"}, {"x": 42, "label": "A"}, {"x": 99, "label": "B"}]
Row = tuple[int, str]


def table(rows: Sequence[Record] = ROWS, **more: Any) -> PrivateTable:
    more.setdefault("account", MemoryAccount())
    return PrivateTable(rows, SCHEMA, **more)


def ask(
    private: PrivateTable, votes: int | None = None, noise: Noise = EXACT, kernel: Any = None, **more: Any
) -> Histogram:
    kernel = kernel or LineKernel()
    pools = more.pop("pools", {label: kernel.pool(*SPOTS) for label in "AB"})
    query = NearestVotes(kernel, pools) if votes is None else NearFarVotes(kernel, pools, votes)
    return private.histogram(query, noise=noise, selection=more.pop("selection", "look-1"), **more)


# -- the votes -------------------------------------------------------------------------------------------------------


def test_a_row_votes_for_the_nearest_sample_of_its_class_and_the_first_of_equals() -> None:
    found = ask(table([*ROWS, {"x": 50, "label": "B"}]))
    assert found.counts["A"].tolist() == [[1, 0, 1, 0, 0, 0]]
    assert found.counts["B"].tolist() == [[0, 0, 1, 0, 0, 1]]


def test_near_and_far_votes_halve_with_the_rank() -> None:
    found = ask(table([{"x": 1, "label": "A"}]), votes=3)
    assert found.counts["A"].tolist() == [[1, 0.5, 0.25, 0, 0, 0], [0, 0, 0, 0.25, 0.5, 1]]
    assert not found.counts["B"].any()


def test_a_pool_smaller_than_the_number_of_votes_takes_as_many_as_there_are() -> None:
    kernel = LineKernel()
    found = ask(table([{"x": 1, "label": "A"}]), votes=8, pools={"A": kernel.pool(0.0, 9.0)}, kernel=kernel)
    assert found.counts["A"].tolist() == [[1, 0.5], [0.5, 1]]


class OddPool(LinePool):
    """A pool whose distances are whatever a test says, for any row."""

    def distances(self, rows: Points) -> NDArray[np.float32]:
        return np.tile(np.array(ODD, dtype=np.float32), (len(rows), 1))


ODD: list[float] = []


@pytest.mark.parametrize("odd", [[math.nan] * 3, [math.inf, -math.inf, math.nan], [math.nan, 0.5, math.inf]])
def test_a_distance_that_is_no_number_earns_no_vote_and_raises_nothing(
    odd: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ODD", odd)
    pool = OddPool(Points(np.zeros(3)), 1.0)
    found = ask(table([{"x": 1, "label": "A"}]), votes=2, pools={"A": pool})
    known = [math.isfinite(value) for value in odd]
    assert (found.counts["A"] > 0).tolist() == [known, known]


def test_counts_do_not_depend_on_how_rows_are_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Record] = [{"x": x, "label": "AB"[x % 2]} for x in range(0, 100, 3)]
    whole = ask(table(rows), votes=4)
    monkeypatch.setattr(histograms, "CELLS_AT_ONCE", 13)
    cut = ask(table(rows), votes=4)
    assert all((whole.counts[label] == cut.counts[label]).all() for label in "AB")


def test_only_one_row_of_a_person_votes() -> None:
    rows: list[Record] = [{"x": x, "label": "A", "who": "ann"} for x in (0, 20, 40)]
    rows.append({"x": 100, "label": "A", "who": "bob"})
    private = table(rows, unit="who")
    seen = set()
    for number in range(40):
        counts = ask(private, selection=f"look-{number}").counts["A"][0]
        assert counts.sum() == 2
        assert counts[5] == 1
        seen.add(int(counts[:3].argmax()))
    assert seen == {0, 1, 2}


# -- sensitivity -----------------------------------------------------------------------------------------------------

points = st.tuples(st.integers(0, 100), st.sampled_from("AB"))
spots = st.lists(st.integers(0, 100).map(float), min_size=1, max_size=9)


def vector(rows: Sequence[Row], samples: Sequence[float], votes: int | None) -> NDArray[np.float64]:
    kernel = LineKernel()
    records: list[Record] = [{"x": x, "label": label} for x, label in rows]
    found = ask(table(records), votes, pools={label: kernel.pool(*samples) for label in "AB"}, kernel=kernel)
    return np.concatenate([found.counts[label].ravel() for label in "AB"])


def bound(votes: int | None) -> Sensitivity:
    return NearestVotes.sensitivity if votes is None else near_far_sensitivity(votes)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(points, min_size=1, max_size=6),
    other=points,
    place=st.integers(0, 5),
    samples=spots,
    votes=st.none() | st.integers(1, 10),
)
def test_a_neighbouring_table_moves_the_counts_by_at_most_the_bound(
    rows: list[Row], other: Row, place: int, samples: list[float], votes: int | None
) -> None:
    place %= len(rows)
    here = vector(rows, samples, votes)
    removed = vector(rows[:place] + rows[place + 1 :], samples, votes)
    replaced = vector([*rows[:place], other, *rows[place + 1 :]], samples, votes)
    assert np.linalg.norm(here - removed) <= bound(votes).add_remove * (1 + 1e-12)
    assert np.linalg.norm(here - replaced) <= bound(votes).replace_one * (1 + 1e-12)


@pytest.mark.parametrize("votes", [None, 1, 8])
def test_the_bounds_are_met_so_that_no_smaller_ones_hold(votes: int | None) -> None:
    samples = [float(x) for x in range(0, 100, 2)]
    nothing, one = vector([], samples, votes), vector([(0, "A")], samples, votes)
    other_class = vector([(0, "B")], samples, votes)
    assert np.linalg.norm(one - nothing) == pytest.approx(bound(votes).add_remove)
    assert np.linalg.norm(one - other_class) == pytest.approx(bound(votes).replace_one)


def test_the_published_figures_of_near_and_far_votes() -> None:
    both = near_far_sensitivity(8)
    assert both.add_remove == pytest.approx(1.633, abs=5e-4)
    assert both.replace_one == pytest.approx(2.309, abs=5e-4)


@pytest.mark.parametrize("votes", [0, 33])
def test_a_number_of_votes_out_of_range_is_refused(votes: int) -> None:
    with pytest.raises(ConfigError, match="votes"):
        NearFarVotes(LineKernel(), {}, votes)


# -- paying ----------------------------------------------------------------------------------------------------------


class Watched(MemoryAccount):
    """An account that notes what had happened when it was asked."""

    def __init__(self, kernel: LineKernel) -> None:
        super().__init__()
        self.kernel, self.looks_at_charge, self.looks_at_store = kernel, -1, -1

    def charge(self, charge: Charge) -> Receipt:
        self.looks_at_charge = self.kernel.looks
        return super().charge(charge)

    def store(self, receipt: Receipt, result: Any) -> None:
        self.looks_at_store = self.kernel.looks
        super().store(receipt, result)


def test_a_look_is_charged_before_a_row_is_read_and_stored_before_it_is_returned() -> None:
    kernel = LineKernel()
    account = Watched(kernel)
    found = ask(table(account=account), noise=GaussianNoise(4.458, 1e-5), kernel=kernel)
    assert (account.looks_at_charge, account.looks_at_store) == (0, 1)
    (charge,) = account.charges
    assert charge.mechanism == "gaussian"
    assert charge.delta == 1e-5
    assert charge.event_add_remove == Gaussian(4.458)
    assert charge.event_replace_one == Gaussian(4.458 / NearestVotes.sensitivity.replace_one)
    assert charge.epsilon_add_remove == gaussian_epsilon(4.458, 1e-5)
    assert charge.epsilon_replace_one == pytest.approx(gaussian_epsilon(4.458, 1e-5, math.sqrt(2)))
    assert charge.epsilon_replace_one == found.guarantee.replace_one
    assert account.results["look-1"]["counts"]["A"] == found.counts["A"].tolist()


def test_a_stored_look_is_returned_again_without_a_row_a_draw_or_a_charge() -> None:
    kernel, account, noise = LineKernel(), MemoryAccount(), GaussianNoise(3.0, 1e-5)
    first = ask(table(account=account), 4, noise, kernel)
    again = ask(table(account=account), 4, noise, kernel)
    assert all((first.counts[label] == again.counts[label]).all() for label in "AB")
    assert (again.replayed, kernel.looks, len(account.charges)) == (True, 1, 1)


def test_a_stored_look_is_not_taken_for_another_request() -> None:
    account = MemoryAccount()
    ask(table(account=account), 4, GaussianNoise(3.0, 1e-5))
    for changed in ({"votes": 5}, {"noise": GaussianNoise(2.0, 1e-5)}, {"context": "other samples"}):
        with pytest.raises(PrivacyError, match="other settings"):
            ask(table(account=account), **{"votes": 4, "noise": GaussianNoise(3.0, 1e-5), **changed})  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open("line", root=tmp_path / "ledgers")


def test_overspending_raises_before_any_row_is_looked_at(ledger: Ledger) -> None:
    ledger.set_budget(1.0, delta=1e-5, composition="gaussian")
    kernel = LineKernel()
    with pytest.raises(BudgetError):
        ask(table(account=ledger.account("run")), noise=GaussianNoise(2.0, 1e-5), kernel=kernel)
    assert (kernel.looks, ledger.spent().charges) == (0, 0)


# -- noise and controls ----------------------------------------------------------------------------------------------


def test_every_count_gets_noise_of_the_stated_size() -> None:
    kernel = LineKernel()
    pools = {label: kernel.pool(*np.linspace(0, 100, 2500)) for label in "AB"}
    found = ask(table(), noise=GaussianNoise(8.342, 1e-5), pools=pools, kernel=kernel)
    noise = np.concatenate([found.counts[label].ravel() for label in "AB"])
    assert noise.std() == pytest.approx(8.342, rel=0.05)
    assert abs(noise.mean()) < 0.6
    assert len(set(noise.tolist())) > 4900


def test_epsilon_zero_looks_at_no_row_and_costs_nothing() -> None:
    kernel, account = LineKernel(), MemoryAccount()
    found = ask(table(account=account), noise=GaussianNoise(math.inf, 1e-5), kernel=kernel)
    assert (kernel.looks, found.private, account.charges[0].free) == (0, True, True)
    assert found.counts["A"].any()


def test_counts_without_noise_and_seeded_noise_are_stamped() -> None:
    for noise in (EXACT, SeededNoise(3.0, 1e-5, 7, test_only=True)):
        account = MemoryAccount()
        found = ask(table(account=account), noise=noise)
        assert not found.private
        assert "not private" in found.mechanism
        assert account.charges[0].note == "not private"
    assert math.isinf(ask(table()).guarantee.add_remove)
    with pytest.raises(PrivacyError, match="protects nobody"):
        SeededNoise(3.0, 1e-5, 7)


def test_seeded_noise_repeats_and_differs_by_look() -> None:
    noise = SeededNoise(3.0, 1e-5, 7, test_only=True)
    one, same = (ask(table(), noise=noise).counts["A"] for _ in range(2))
    other = ask(table(), noise=noise, selection="look-2").counts["A"]
    assert (one == same).all()
    assert (one != other).all()


def test_queries_and_noise_of_unknown_size_are_refused() -> None:
    class Loud(NearestVotes):
        pass

    class Quiet(GaussianNoise):
        pass

    kernel = LineKernel()
    pools = {"A": kernel.pool(1.0)}
    with pytest.raises(PrivacyError, match="query"):
        table().histogram(Loud(kernel, pools), noise=EXACT, selection="s")
    with pytest.raises(PrivacyError, match="noise"):
        table().histogram(NearestVotes(kernel, pools), noise=Quiet(1.0, 1e-5), selection="s")
    with pytest.raises(ConfigError, match="class"):
        table().histogram(NearestVotes(kernel, {"C": kernel.pool(1.0)}), noise=EXACT, selection="s")


def test_a_kernel_of_another_host_is_refused_before_anything_is_charged() -> None:
    account = MemoryAccount()
    with pytest.raises(PrivacyError, match="private text"):
        ask(table(account=account), kernel=LineKernel(remote="https://elsewhere.example"))
    assert not account.charges


def test_an_error_on_private_rows_says_nothing_of_them() -> None:
    class Quoting(LineKernel):
        def represent(self, records: Sequence[Record]) -> Points:
            raise ValueError(str(records))

    with pytest.raises(ModelError) as caught:
        ask(table(), kernel=Quoting())
    assert "42" not in str(caught.value)
    assert caught.value.__context__ is None
