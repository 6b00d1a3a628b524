"""From a file into the private table: who abstains, who counts, and that nobody else is moved by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from private_world import LineKernel, MemoryAccount, line_schema
from selpe.config import RunConfig, check_config
from selpe.errors import DataError
from selpe.intake import read_table
from selpe.intake.options import ReadingOptions
from selpe.privacy import table as private_table_module
from selpe.privacy.histograms import NearestVotes
from selpe.privacy.learning import Training
from selpe.privacy.ledger import Ledger, Recognition
from selpe.privacy.load import count_units, load_private
from selpe.privacy.mechanisms import NoisyMax, OpenDPSelector
from selpe.privacy.noise import GaussianNoise
from selpe.privacy.table import PrivateTable
from selpe.privacy.units import grouped, public_figure, unit_name, units_in
from selpe.privacy.votes import Approval, Coverage, Predictive
from selpe.run.methods import recipe_of
from selpe.schema import Record

SCHEMA = line_schema("A", "B", top=10)
GOOD = ["0,A,ann", "5,A,bob", "10,B,cid", "3,B,dan", "7,A,eve"]
# Out of bounds, no number, no class, no class of ours, too few cells, too many, the header again, next to nothing.
HOSTILE = ["11,A,{who}", "x,B,{who}", "1,,{who}", "1,C,{who}", "1", "1,A,{who},more", "x,label,person", ",,"]
NOISELESS = GaussianNoise(0.0, 1e-5)


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., RunConfig]:

    def build(lines: Sequence[str], name: str = "table.csv", head: str = "x,label,person", **more: Any) -> RunConfig:
        (tmp_path / name).write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
        given = {"dataset": "line", "data": str(tmp_path / name), "skip_bad_rows": True, "epsilon": 2.0}
        return check_config({**given, **more}, where="test")

    return build


class Free:
    """A ledger that lets everything be spent and remembers nothing."""

    def account(self, run: str) -> MemoryAccount:
        return MemoryAccount(run, remember=False)

    def recognise(self, *_: object, **__: object) -> Recognition:
        return Recognition(None)


FREE: Any = Free()


def loaded(config: RunConfig) -> PrivateTable:
    return load_private(config, SCHEMA, FREE, run="r").table


def scores_of(table: PrivateTable, monkeypatch: pytest.MonkeyPatch, batch: Sequence[int]) -> list[list[int]]:
    """The score vectors that the mechanism would see, one per class and batch, for these batches of the units."""
    seen: list[list[int]] = []
    kernel = LineKernel(span=10.0)

    def draw(_: OpenDPSelector, scores: NDArray[np.int64]) -> int:
        seen.append(scores.tolist())
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(private_table_module, "assign", lambda units, *_: np.array(batch[:units], dtype=np.intp))
        patch.setattr(OpenDPSelector, "draw", draw)
        pools = {"A": kernel.pool(0, 4, 6, 9), "B": kernel.pool(1, 2, 8, 10)}
        table.select(pools, kernel=kernel, mechanism=NoisyMax(1.0), selection="round", vote=Approval(0.3), batches=2)
    return seen


# -- abstaining ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [None, "person"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_row_that_does_not_fit_changes_n_the_plan_and_every_other_vote_by_nothing(
    hostile: str,
    unit: str | None,
    settings: Callable[..., RunConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = (0, 1, 1, 0, 0)
    before = settings(GOOD, unit=unit)
    whole = np.array(scores_of(loaded(before), monkeypatch, batch))
    for place, line in enumerate(GOOD):
        own = np.array(scores_of(loaded(settings([line], unit=unit)), monkeypatch, batch[place:]))
        lines = [*GOOD[:place], hostile.format(who=line.split(",")[2]), *GOOD[place + 1 :]]
        after = settings(lines, unit=unit)
        table = loaded(after)
        assert len(table) == count_units(after) == count_units(before) == len(GOOD)
        plan = recipe_of("selpe").plan
        assert plan(after, SCHEMA, len(table)) == plan(before, SCHEMA, len(GOOD))
        assert own.any()
        assert np.array_equal(np.array(scores_of(table, monkeypatch, batch)), whole - own)


class Likes:
    """A judge of two sets that likes the first for every row, and counts the rows it was asked about."""

    views, options, remote = 1, 2, None

    def __init__(self) -> None:
        self.asked = 0

    def read(self, rows: Sequence[Record]) -> Sequence[Record]:
        return rows

    def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
        self.asked += len(rows)
        return np.tile((1.0, 0.0), (1, len(rows), 1))


class Sum:
    """A learner whose gradient is 1 for every row."""

    size, remote = 1, None

    def __init__(self) -> None:
        self.totals: list[float] = []

    def gradients(self, records: Sequence[Record]) -> list[NDArray[np.float32]]:
        return [np.ones(1, dtype=np.float32) for _ in records]

    def step(self, total: NDArray[np.float64]) -> None:
        self.totals.append(round(float(total[0]), 6))

    def keep(self) -> str:
        return "state"


@pytest.mark.parametrize(
    ("rows", "voting"),
    [
        ([{"x": 1, "label": "A"}, None, {"x": 9, "label": "B"}], (1, 1)),
        ([{"x": 1, "label": "A"}, None, None], (1, 0)),  # all of a class abstain
    ],
)
def test_abstaining_rows_add_nothing_to_any_private_step(rows: list[Record | None], voting: tuple[int, int]) -> None:
    table, kernel, judge, learner = PrivateTable(rows, SCHEMA, account=MemoryAccount()), LineKernel(), Likes(), Sum()
    assert len(table) == 3
    pools = {"A": kernel.pool(0, 5), "B": kernel.pool(0, 5)}
    looked = table.histogram(NearestVotes(kernel, pools), noise=NOISELESS, selection="h")
    assert tuple(int(looked.counts[label].sum()) for label in "AB") == voting
    assert table.choose(Predictive(judge), mechanism=NoisyMax(1000.0), selection="c").winner == 0
    assert judge.asked == sum(voting)
    table.choose(Coverage(kernel, pools["A"], ((0,), (1,))), mechanism=NoisyMax(1.0), selection="d")
    table.learn(lambda: learner, Training(1, 1.0), noise=NOISELESS, selection="l")
    assert learner.totals == [pytest.approx(sum(voting))]
    assert {k: len(v) for k, v in table.select(
        pools, kernel=kernel, mechanism=NoisyMax(1.0), selection="s", batches=2
    ).winners.items()} == {"A": 2, "B": 2}  # fmt: skip


def test_a_persons_bad_row_takes_its_turn_and_then_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Record | None] = [{"x": 1, "label": "A"}, None]
    table = PrivateTable(rows, SCHEMA, account=MemoryAccount(), unit="person", whose=["ann", "Ann"])
    assert len(table) == 1
    for turn, votes in ((0, 1), (1, 0)):  # the second time nobody at all takes part
        judge = Likes()
        monkeypatch.setattr(OpenDPSelector, "below", lambda *_, turn=turn: turn)
        table.choose(Predictive(judge), mechanism=NoisyMax(1.0), selection=f"c{turn}")
        assert judge.asked == votes


def test_a_bad_row_belongs_to_its_person_and_one_without_a_name_to_nobody(settings: Callable[..., RunConfig]) -> None:
    lines = ["1,A,ann", "x,A,ANN", "2,B,bob", "x,B,", "x,B,", "1", "5,A,-"]
    config = settings(lines, unit="person")
    assert len(loaded(config)) == count_units(config) == 2 + 4


def test_without_the_setting_all_problems_are_listed_and_nothing_is_spent(settings: Callable[..., RunConfig]) -> None:
    config = settings([*GOOD, "11,A,x", "1,C,x", "1"], skip_bad_rows=False)
    ledger = Ledger.open("line")
    with pytest.raises(DataError, match="3 of 8 rows do not fit") as caught:
        load_private(config, SCHEMA, ledger, run="r")
    assert not ledger.exists
    assert all(part in str(caught.value) for part in ("'x'", "'label'", "must have 3 cells"))


def test_a_table_in_which_no_row_fits_is_refused(settings: Callable[..., RunConfig]) -> None:
    with pytest.raises(DataError, match="no row fits"):
        loaded(settings(["11,A,x", "12,A,x"]))


def test_cells_that_do_not_fit_are_read_as_missing_where_the_setting_says_so(tmp_path: Path) -> None:
    """Then the row fits and votes; nothing else about it changes."""
    (tmp_path / "t.csv").write_text("x,label\n1,A\n99,A\n", encoding="utf-8")
    given = {"dataset": "line", "data": str(tmp_path / "t.csv"), "blank_bad_cells": True, "skip_bad_rows": True}
    fields = {"x": {"kind": "integer", "min": 0, "max": 10, "optional": True}, "label": {"kind": "text"}}
    schema = type(SCHEMA).from_dict({"name": "line", "fields": fields})
    config = check_config(given, where="test")
    table = load_private(config, schema, FREE, run="r").table
    judge = Likes()
    table.choose(Predictive(judge), mechanism=NoisyMax(0.1), selection="c")
    assert (len(table), judge.asked) == (2, 2)


# -- whose record it is ----------------------------------------------------------------------------------------------

SPELLINGS = [
    ("7", "7.0"), (7, 7.0), ("Ann ", "ann"), ("１２", "12"), ("ann  lee", "Ann Lee"),
    ("ann\u00a0lee", "ann lee"), ("ann\tlee", "ann lee"), ("ﬁnn", "FINN"), ("STRASSE", "straße"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_spellings_are_joined_by_one_rule_for_counting_and_for_admitting(
    one: Any, other: Any, settings: Callable[..., RunConfig]
) -> None:
    assert unit_name(one) == unit_name(other)
    rows: list[Record] = [{"x": 1, "label": "A", "person": who} for who in (one, other, "somebody else")]
    assert len(PrivateTable(rows, SCHEMA, account=MemoryAccount(), unit="person")) == 2
    assert units_in(read_table(rows), "person") == 2
    config = settings([f'1,A,"{who}"' for who in (one, other, "somebody else")], unit="person")
    assert len(loaded(config)) == count_units(config) == 2


def test_a_unit_that_is_also_a_field_counts_by_the_same_rule(settings: Callable[..., RunConfig]) -> None:
    """The cells are compared, not what the field makes of them: counting knows no schema."""
    config = settings(["007,A,a", "7,A,b", "7.0,B,c", "99,A,d"], unit="x")
    assert len(loaded(config)) == count_units(config) == 3


def test_who_names_nobody_is_a_unit_of_its_own() -> None:
    assert grouped(["a", "", "a", ""]) == ((0, 2), (1,), (3,))
    assert {unit_name(cell) for cell in (None, "", "  ", "n/a", "NULL", float("nan"), b"", ["a"])} == {""}


@pytest.mark.parametrize(
    ("units", "figure"), [(1, 10), (12, 10), (93, 90), (150, 150), (1234, 1200), (1250, 1300), (98_765, 99_000)]
)
def test_a_public_figure_has_two_digits_and_is_never_exact_to_the_row(units: int, figure: int) -> None:
    assert public_figure(units) == figure


# -- settings reach the reader ---------------------------------------------------------------------------------------


def test_the_delimiter_of_the_settings_is_used(settings: Callable[..., RunConfig]) -> None:
    config = settings(["1:A:ann", "2:B:bob"], head="x:label:person", delimiter=":")
    assert len(loaded(config)) == count_units(config) == 2


def test_columns_whose_types_came_from_all_rows_are_handed_on(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(GOOD)
    real = ReadingOptions.reading

    class Told:
        def __init__(self, reading: Any) -> None:
            self.records, self.kept, self.problems, self.inferred = reading.records, reading.kept, (), ("x",)

    monkeypatch.setattr(ReadingOptions, "reading", lambda self, *args: Told(real(self, *args)))
    assert load_private(config, SCHEMA, FREE, run="r").inferred == ("x",)
