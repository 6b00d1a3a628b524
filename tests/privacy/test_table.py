"""The private table: pays before it looks, releases winners only, and never says what is in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from private_world import LineKernel, MemoryAccount, Points, line_schema
from selpe.errors import BudgetError, ConfigError, DataError, ModelError, PrivacyError, UnconfirmedSchemaError
from selpe.privacy import table as private_table_module
from selpe.privacy.batches import one_row_each
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.mechanisms import Guarantee, NoisyMax, SeededMechanism
from selpe.privacy.table import PrivateTable, Selection
from selpe.privacy.votes import Approval, Coverage, Predictive
from selpe.schema import Record, Schema

BEST = NoisyMax(math.inf)
ROWS: list[Record] = [{"x": 3, "label": "A"}, {"x": 4, "label": "A"}, {"x": 90, "label": "B"}]
SCHEMA = line_schema("A", "B")


def table(rows: Sequence[Record] = ROWS, schema: Schema = SCHEMA, **settings: Any) -> PrivateTable:
    settings.setdefault("account", MemoryAccount())
    return PrivateTable(rows, schema, **settings)


def select(private_table: PrivateTable, kernel: LineKernel, **settings: Any) -> Selection:
    settings = {"mechanism": BEST, "selection": "round-1", "vote": Approval(0.3), **settings}
    pools = settings.pop("pools", {"A": kernel.pool(50, 3, 90), "B": kernel.pool(3, 50, 90)})
    return private_table.select(pools, kernel=kernel, **settings)


class Likes:
    """A judge of sets that likes one of them for every row."""

    views, remote = 1, None

    def __init__(self, *scores: float) -> None:
        self.scores, self.options = scores, len(scores)

    def read(self, rows: Sequence[Record]) -> Sequence[Record]:
        return rows

    def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
        return np.tile(self.scores, (1, len(rows), 1))


# -- building --------------------------------------------------------------------------------------------------------


def test_an_unconfirmed_schema_is_refused() -> None:
    fields = {"x": {"kind": "integer", "min": 0, "max": 100, "confirmed": False}}
    with pytest.raises(UnconfirmedSchemaError, match="x"):
        table([], Schema.from_dict({"name": "draft", "fields": fields}))


@pytest.mark.parametrize(
    ("bad", "field"),
    [({"x": 987654, "label": "A"}, "x"), ({"x": 1, "label": "987654"}, "label"), ({"label": "A"}, "x")],
)
def test_a_row_that_does_not_fit_is_named_by_row_and_field_never_by_value(bad: Record, field: str) -> None:
    with pytest.raises(DataError) as caught:
        table([*ROWS, bad])
    assert caught.value.where == f"row 4, field '{field}'"
    assert "987654" not in str(caught.value) + caught.value.hint


def test_rows_are_copied_so_that_a_later_change_changes_nothing() -> None:
    rows = [dict(row) for row in ROWS]
    kept = table(rows)
    for row in rows:
        row["x"] = 50
    kernel = LineKernel()
    assert select(kept, kernel).winners == {"A": (1,), "B": (2,)}


def test_the_length_is_the_number_of_units() -> None:
    rows: list[Record] = [{**row, "person": p} for row, p in zip(ROWS, ["u1", " U1 ", "u2"], strict=True)]
    assert len(table()) == 3
    kept = table(rows, unit="person")
    assert (len(kept), kept.unit) == (2, "person")
    assert repr(kept) == "<PrivateTable: 2 units of 'person', fields x, label>"


@pytest.mark.parametrize("names", [(7, 7.0), ("7", 7), ("Ann ", "ann")])
def test_spellings_that_may_mean_one_person_count_as_one(names: tuple[Any, Any]) -> None:
    rows: list[Record] = [{"x": 1, "label": "A", "person": name} for name in names]
    assert len(table(rows, unit="person")) == 1


@pytest.mark.parametrize("name", [None, "", "  "])
def test_a_row_without_its_unit_is_refused(name: str | None) -> None:
    rows: list[Record] = [{**ROWS[0], "person": "a"}, {**ROWS[1], "person": name}]
    with pytest.raises(DataError) as caught:
        table(rows, unit="person")
    assert caught.value.where == "row 2, field 'person'"


# -- selecting -------------------------------------------------------------------------------------------------------


def test_each_class_votes_on_its_own_pool_and_the_round_is_one_charge() -> None:
    account, kernel = MemoryAccount(), LineKernel()
    result = select(table(account=account), kernel, mechanism=NoisyMax(200.0), batches=1)
    assert result.winners == {"A": (1,), "B": (2,)}
    assert result.private
    assert result.guarantee == Guarantee(100.0, 200.0)
    (charge,) = account.charges
    assert (charge.run, charge.selection, charge.mechanism, charge.unit) == (
        "test", "round-1", "permute-and-flip", "record",
    )  # fmt: skip
    assert (charge.epsilon_add_remove, charge.epsilon_replace_one) == (100.0, 200.0)


def test_every_batch_gives_one_winner() -> None:
    assert [len(won) for won in select(table(), LineKernel(), batches=4).winners.values()] == [4, 4]


def test_a_class_without_rows_is_chosen_from_uniformly_and_silently() -> None:
    kernel = LineKernel()
    kept = table([row for row in ROWS if row["label"] == "A"], account=MemoryAccount(remember=False))
    won = [select(kept, kernel, mechanism=NoisyMax(50.0)).winners["B"][0] for _ in range(300)]
    assert set(won) == {0, 1, 2}
    assert set(select(kept, kernel, mechanism=NoisyMax(50.0)).winners) == {"A", "B"}


def test_only_one_row_of_a_person_takes_part_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def spy(units: Any, below: Any) -> Any:
        rows = one_row_each(units, below)
        taken.extend(rows.tolist())
        return rows

    monkeypatch.setattr(private_table_module, "one_row_each", spy)
    rows: list[Record] = [{"x": x, "person": p} for x, p in ((1, "a"), (2, "a"), (3, "a"), (4, "b"))]
    kept = table(rows, line_schema(), unit="person", account=MemoryAccount(remember=False))
    kernel = LineKernel()
    for _ in range(200):
        select(kept, kernel, pools={"": kernel.pool(0, 1)})
    assert len(taken) == 400
    assert sorted(set(taken)) == [0, 1, 2, 3], "each row of a person has its turn"
    assert taken[1::2] == [3] * 200


def test_overspending_raises_before_any_row_is_looked_at() -> None:
    class Empty(MemoryAccount):
        def charge(self, charge: Charge) -> Receipt:
            raise BudgetError("nothing is left")

    kernel = LineKernel()
    with pytest.raises(BudgetError):
        select(table(account=Empty()), kernel, mechanism=NoisyMax(1.0))
    assert kernel.looks == 0


def test_epsilon_zero_looks_at_no_row_and_costs_nothing() -> None:
    account, kernel = MemoryAccount(), LineKernel()
    result = select(table(account=account), kernel, mechanism=NoisyMax(0.0), batches=2)
    assert kernel.looks == 0
    assert account.charges[0].free
    assert all(0 <= index < 3 for won in result.winners.values() for index in won)


def test_epsilon_infinity_is_stamped_in_the_result_and_in_the_charge() -> None:
    account = MemoryAccount()
    result = select(table(account=account), LineKernel())
    assert not result.private
    assert "not private" in result.mechanism
    assert account.charges[0].note == "not private"
    assert not account.charges[0].private


def test_a_stored_result_is_returned_again_without_a_look_or_a_charge() -> None:
    account, kernel = MemoryAccount(), LineKernel()
    first = select(table(account=account), kernel, mechanism=NoisyMax(0.5), context="pool-hash")
    later = LineKernel()
    again = select(table(account=account), later, mechanism=NoisyMax(0.5), context="pool-hash")
    assert again.replayed
    assert (again.winners, again.guarantee) == (first.winners, first.guarantee)
    assert (later.looks, len(account.charges)) == (0, 1)


@pytest.mark.parametrize(
    "change", [{"context": "other"}, {"batches": 2}, {"mechanism": NoisyMax(0.6)}, {"vote": Approval(0.5)}]
)
def test_a_stored_result_is_not_taken_for_another_request(change: dict[str, Any]) -> None:
    account = MemoryAccount()
    select(table(account=account), LineKernel(), mechanism=NoisyMax(0.5))
    with pytest.raises(PrivacyError, match="drawn earlier"):
        select(table(account=account), LineKernel(), **{"mechanism": NoisyMax(0.5), **change})


def test_the_charge_is_on_the_account_before_a_row_is_looked_at_and_the_result_before_it_is_returned() -> None:
    order: list[str] = []

    class Noting(MemoryAccount):
        def charge(self, charge: Charge) -> Receipt:
            order.append("charge")
            return super().charge(charge)

        def store(self, receipt: Receipt, result: Any) -> None:
            order.append("store")
            super().store(receipt, result)

    class Looking(LineKernel):
        def represent(self, records: Sequence[Record]) -> Points:
            order.append("look")
            return super().represent(records)

    select(table(account=Noting()), Looking())
    assert order == ["charge", "look", "store"]


def test_a_selection_that_failed_stays_paid_for_and_costs_again_when_repeated() -> None:
    class Broken(LineKernel):
        def represent(self, records: Sequence[Record]) -> Points:
            raise RuntimeError("out of order")

    account = MemoryAccount()
    kept = table(account=account)
    with pytest.raises(ModelError, match="RuntimeError"):
        select(kept, Broken(), mechanism=NoisyMax(0.5))
    select(kept, LineKernel(), mechanism=NoisyMax(0.5))
    assert len(account.charges) == 2


def test_rows_are_encoded_once_per_kernel() -> None:
    kernel, kept = LineKernel(), table()
    for number in range(3):
        select(kept, kernel, selection=f"round-{number}")
    assert kernel.looks == 1


def test_a_seeded_selection_repeats_with_its_batches_and_is_stamped() -> None:
    seeded = SeededMechanism(1.0, seed=9, test_only=True)
    runs = [select(table(), LineKernel(), mechanism=seeded, batches=5) for _ in range(3)]
    assert len({str(run.winners) for run in runs}) == 1
    assert not any(run.private for run in runs)


def test_the_exponential_mechanism_tells_the_ledger_what_composes_better() -> None:
    account = MemoryAccount()
    select(table(account=account), LineKernel(), mechanism=NoisyMax(1.0, law="exponential"))
    select(table(account=account), LineKernel(), mechanism=NoisyMax(1.0), selection="round-2")
    assert [type(c.event_replace_one).__name__ for c in account.charges] == ["BoundedRange", "NoneType"]


@pytest.mark.parametrize("pools", [{}, {"": 1}, {"A": 3, "C": 3}, {"A": 0}])
def test_pools_that_are_not_those_of_the_schema_are_refused(pools: dict[str, int]) -> None:
    kernel = LineKernel()
    with pytest.raises(ConfigError):
        select(table(), kernel, pools={label: kernel.pool(*range(size)) for label, size in pools.items()})


def test_votes_and_mechanisms_of_unknown_bounds_are_refused() -> None:
    class Loud(Approval):
        step = 1000

    class Quiet(NoisyMax):
        pass

    with pytest.raises(PrivacyError, match="vote"):
        select(table(), LineKernel(), vote=Loud(0.5))
    with pytest.raises(PrivacyError, match="mechanism"):
        select(table(), LineKernel(), mechanism=Quiet(1.0))
    with pytest.raises(PrivacyError, match="sets"):
        table().choose(Approval(), mechanism=BEST, selection="bundle")  # type: ignore[arg-type]


# -- choosing among sets ---------------------------------------------------------------------------------------------


def test_all_rows_choose_among_sets_by_prediction() -> None:
    chosen = table().choose(Predictive(Likes(0.1, 0.9, 0.2)), mechanism=BEST, selection="bundle")
    assert chosen.winner == 1


def test_all_rows_choose_among_sets_by_coverage() -> None:
    kernel = LineKernel()
    vote = Coverage(kernel, kernel.pool(50, 60, 3, 4), ((0, 1), (2, 3)), nearest=1)
    assert table().choose(vote, mechanism=BEST, selection="guide").winner == 1


def test_a_choice_charges_by_the_number_of_views() -> None:
    account = MemoryAccount()
    table(account=account).choose(Predictive(Likes(0.1, 0.9)), mechanism=NoisyMax(0.5, "add-remove"), selection="g")
    assert (account.charges[0].epsilon_add_remove, account.charges[0].epsilon_replace_one) == (0.5, 1.0)


# -- where private text may go ---------------------------------------------------------------------------------------


def test_private_text_is_not_sent_to_a_host_that_was_not_allowed() -> None:
    account, kernel = MemoryAccount(), LineKernel(remote="http://gpu.example:8080/v1")
    with pytest.raises(PrivacyError, match=r"gpu\.example:8080") as caught:
        select(table(account=account), kernel)
    assert "allow_private_text_to" in caught.value.hint
    assert (kernel.looks, account.charges) == (0, [])


@pytest.mark.parametrize(
    "allowed", ["http://gpu.example:8080", "https://GPU.example:8080/v1", ["x", "gpu.example:8080"]]
)
def test_private_text_may_go_where_its_owner_allows(allowed: str | list[str]) -> None:
    kernel = LineKernel(remote="http://gpu.example:8080/v1")
    select(table(allow_private_text_to=allowed), kernel)
    assert kernel.looks == 1


def test_another_port_is_another_host() -> None:
    with pytest.raises(PrivacyError):
        select(table(allow_private_text_to="http://gpu.example"), LineKernel(remote="http://gpu.example:8080"))


# -- with the real ledger --------------------------------------------------------------------------------------------


def test_a_table_pays_from_the_ledger_until_nothing_is_left(tmp_path: Path) -> None:
    ledger = Ledger.open("line", root=tmp_path / "ledgers")
    ledger.set_budget(1.0)
    kept, kernel = table(account=ledger.account("run-1")), LineKernel()
    first = select(kept, kernel, mechanism=NoisyMax(0.6), selection="round-1")
    with pytest.raises(BudgetError):
        select(kept, kernel, mechanism=NoisyMax(0.6), selection="round-2")
    assert ledger.spent().epsilon_replace_one == pytest.approx(0.6)
    later = table(account=Ledger.open("line", root=tmp_path / "ledgers").account("run-1"))
    assert select(later, kernel, mechanism=NoisyMax(0.6), selection="round-1").winners == first.winners
