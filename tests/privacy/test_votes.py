"""Votes stay within their bounds, whatever a kernel or a judge says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from private_world import LineKernel, MemoryAccount, Points, line_schema
from selpe.errors import ConfigError, PrivacyError
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.hashing import HashingEncoder
from selpe.privacy import votes as module
from selpe.privacy.mechanisms import NoisyMax
from selpe.privacy.table import PrivateTable
from selpe.privacy.votes import (
    ROWS_AT_ONCE,
    Approval,
    Closeness,
    Coverage,
    FieldVote,
    Predictive,
    Prototype,
    lowest,
    sets_approved,
)
from selpe.schema import Record, Schema

KERNEL = LineKernel(span=10.0)
RECORD_VOTES = (Approval(0.4), Closeness(), Prototype())
any_float = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e-45])


@dataclass(frozen=True)
class Matrix:
    """A pool kernel that gives whatever distances it was made of: rows are row numbers."""

    given: NDArray[np.float32]

    def __len__(self) -> int:
        return int(self.given.shape[1])

    def distances(self, rows: Points) -> NDArray[np.float32]:
        return np.asarray(self.given[rows.x.astype(int)])

    def prototype(self, rows: Points) -> NDArray[np.float32]:
        with np.errstate(invalid="ignore"):
            return np.asarray(self.distances(rows).sum(axis=0))

    def among(self, i: Sequence[int]) -> NDArray[np.float32]:
        return np.resize(self.given, (len(i), len(self)))


@dataclass(frozen=True)
class Table:
    """A judge that gives scores of its own choosing: a record says which row of the table is its own."""

    scores: NDArray[np.float64]
    remote: str | None = None

    @property
    def views(self) -> int:
        return int(self.scores.shape[0])

    @property
    def options(self) -> int:
        return int(self.scores.shape[2])

    def read(self, rows: Sequence[Record]) -> Sequence[Record]:
        return rows

    def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
        mine = np.array([row["x"] for row in rows], dtype=np.intp)
        return np.asarray(self.scores[:, mine, :])


def numbered(count: int) -> Points:
    return Points(np.arange(count, dtype=np.float64))


def tally_of_one(vote: Approval | Closeness | Prototype, pool: Any, x: float) -> NDArray[np.int64]:
    return np.asarray(vote.tally(pool, Points(np.array([x])), np.zeros(1, dtype=np.intp), 1)[0])


def by_sorting(costs: Sequence[float], count: int) -> list[bool]:
    """The definition of `lowest`, one row at a time."""
    order = sorted(range(len(costs)), key=lambda i: (math.inf if math.isnan(costs[i]) else costs[i], i))[:count]
    return [i in order and not math.isnan(costs[i]) and costs[i] < math.inf for i in range(len(costs))]


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=any_float),
    st.integers(0, 10),
)
def test_lowest_is_what_sorting_by_value_and_index_gives(costs: NDArray[np.float32], count: int) -> None:
    assert lowest(costs, count).tolist() == [by_sorting(row, count) for row in costs.tolist()]


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=any_float),
    st.sampled_from(RECORD_VOTES),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_a_row_moves_every_score_by_at_most_one_step_whatever_the_kernel_says(
    distances: NDArray[np.float32], vote: Approval | Closeness | Prototype, batches: int, random: Any
) -> None:
    pool, rows = Matrix(distances), numbered(len(distances))
    batch = np.array([random.randrange(batches) for _ in range(len(rows))], dtype=np.intp)
    whole = vote.tally(pool, rows, batch, batches)
    for gone in range(len(rows)):
        rest = np.array([i for i in range(len(rows)) if i != gone], dtype=np.intp)
        moved = whole - vote.tally(pool, rows[rest], batch[rest], batches)
        assert np.abs(moved).max() <= vote.step
        assert not moved[np.arange(batches) != batch[gone]].any(), "only the row's own batch may change"
        assert not vote.monotone or moved.min() >= 0


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 7)), elements=any_float),
)
def test_a_rows_vote_on_a_set_is_an_approval_or_nothing(scores: NDArray[np.float64]) -> None:
    vote = Predictive(Table(scores))
    for row in range(scores.shape[1]):
        cast = vote.tally([{"x": row}])
        assert cast.min() >= 0
        assert cast.max() <= vote.step
        assert cast.sum() <= vote.step * (vote.options // 2)


@pytest.mark.parametrize("ahead", [(1,), (0, 1, 2), (0, -1), (0, 0.5), (0, True), (0, 2**40)])
def test_public_votes_are_whole_numbers_for_each_set(ahead: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="public votes"):
        Predictive(Table(np.zeros((1, 1, 2))), ahead=ahead)


def test_public_votes_stand_in_the_tally_before_the_first_row() -> None:
    vote = Predictive(Table(np.array([[[0.9, 0.1]]])), ahead=(0, 7))
    assert vote.tally([]).tolist() == [0, 7]
    assert vote.tally([{"x": 0}]).tolist() == [1, 7]


@pytest.mark.parametrize(("options", "approved"), [(1, 0), (2, 1), (3, 1), (4, 2), (6, 3), (9, 4), (32, 16)])
def test_a_row_approves_half_of_the_sets(options: int, approved: int) -> None:
    assert sets_approved(options) == approved
    scores = np.arange(options, dtype=np.float64).reshape(1, 1, options)
    assert Predictive(Table(scores)).tally([{"x": 0}]).sum() == approved


def test_a_row_approves_exactly_the_nearest_share_and_the_first_of_equals() -> None:
    pool = KERNEL.pool(5, 3, 7, 5, 9)
    assert tally_of_one(Approval(0.4), pool, 5).tolist() == [1, 0, 0, 1, 0]
    assert tally_of_one(Approval(0.6), pool, 5).tolist() == [1, 1, 0, 1, 0]
    assert tally_of_one(Approval(1.0), pool, 5).tolist() == [1] * 5


@pytest.mark.parametrize(("alpha", "candidates", "approved"), [(0.1, 30, 3), (0.25, 10, 3), (0.5, 1, 1), (0.7, 10, 7)])
def test_the_number_of_approvals_is_counted_in_decimals(alpha: float, candidates: int, approved: int) -> None:
    assert Approval(alpha).approved(candidates) == approved


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha"):
        Approval(alpha)


def test_closeness_spans_the_range_that_is_usual_in_the_pool() -> None:
    pool = KERNEL.pool(*(x / 10 for x in range(40)))  # distances within a tenth to four tenths of the span
    near = tally_of_one(Closeness(), pool, 0.0)
    assert near[0] == Closeness.step
    assert near[-1] == 0
    assert (np.diff(near) <= 0).all()


def test_closeness_over_a_pool_of_one_or_of_equals_is_plain_distance() -> None:
    assert tally_of_one(Closeness(), KERNEL.pool(4.0), 1.0).tolist() == [700]
    assert tally_of_one(Closeness(), KERNEL.pool(4.0, 4.0), 1.0).tolist() == [700, 700]


def test_prototype_is_the_centre_of_a_batch_and_an_empty_batch_prefers_nothing() -> None:
    scores = Prototype().tally(KERNEL.pool(0, 4, 8), Points(np.array([3.0, 5.0])), np.zeros(2, dtype=np.intp), 2)
    assert scores.tolist() == [[600_000, 1_000_000, 600_000], [0, 0, 0]]


@pytest.mark.parametrize("vote", [Approval(0.3), Closeness()], ids=repr)
def test_tallies_do_not_depend_on_how_rows_are_cut_into_parts(
    vote: Approval | Closeness, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    pool, rows = KERNEL.pool(*rng.uniform(0, 10, 17)), Points(rng.uniform(0, 10, 23))
    batch = rng.integers(0, 3, 23).astype(np.intp)
    whole = vote.tally(pool, rows, batch, 3)
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 40)
    assert (vote.tally(pool, rows, batch, 3) == whole).all()
    # A tally is a sum: the same votes, cast one row at a time.
    alone = np.sum([vote.tally(pool, rows[np.array([i])], batch[i : i + 1], 3) for i in range(23)], axis=0)
    assert (alone == whole).all()


def test_a_row_approves_sets_by_all_views_together() -> None:
    # Places: 0 + 0, 3 + 3, 1 + 2, 2 + 1. Of the two equals the first is approved.
    scores = np.array([[[0.9, 0.1, 0.5, 0.2]], [[0.9, 0.1, 0.2, 0.5]]])
    vote = Predictive(Table(scores))
    assert vote.step == 1
    assert vote.tally([{"x": 0}]).tolist() == [1, 0, 1, 0]
    # The second is the best of one view and the last of another; the fourth is second in both.
    mixed = np.array([[[0.1, 0.9, 0.2, 0.8]], [[0.9, 0.1, 0.2, 0.8]]])
    assert Predictive(Table(mixed)).tally([{"x": 0}]).tolist() == [1, 0, 0, 1]


def test_sets_that_are_equal_in_a_view_share_a_place_there() -> None:
    # Were equals placed by index, the first set would gain by the view that knows nothing.
    blank, told = [[0.5, 0.5, 0.5, 0.5]], [[0.1, 0.4, 0.3, 0.2]]
    assert Predictive(Table(np.array([blank, blank, told]))).tally([{"x": 0}]).tolist() == [0, 1, 1, 0]


def test_a_set_that_a_view_cannot_judge_is_last_there() -> None:
    scores = np.array([[[math.nan, 0.1, 0.2, 0.3]], [[0.8, 0.9, 0.1, 0.2]]])
    assert Predictive(Table(scores)).tally([{"x": 0}]).tolist() == [0, 1, 0, 1]


def test_with_an_odd_number_of_sets_the_smaller_half_is_approved() -> None:
    assert Predictive(Table(np.array([[[0.1, 0.2, 0.3, 0.4, 0.5]]]))).tally([{"x": 0}]).tolist() == [0, 0, 0, 1, 1]


def test_a_judge_that_knows_nothing_of_a_row_gives_it_no_vote() -> None:
    assert Predictive(Table(np.full((2, 1, 4), math.nan))).tally([{"x": 0}]).tolist() == [0, 0, 0, 0]


def test_a_judge_is_asked_about_one_row_at_a_time() -> None:
    asked: list[int] = []

    class Counting(Table):
        def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
            asked.append(len(rows))
            return super().score(rows)

    Predictive(Counting(np.zeros((1, 5, 4)))).tally([{"x": i} for i in range(5)])
    assert asked == [1] * 5


def test_rows_are_read_in_parts_and_each_has_one_vote_whatever_the_judge_makes_of_them() -> None:
    read: list[int] = []

    class Doubling(Table):
        def read(self, rows: Sequence[Record]) -> Sequence[Record]:
            read.append(len(rows))
            return [row for row in rows for _ in range(2)]

    count = ROWS_AT_ONCE + 3
    vote = Predictive(Doubling(np.tile([0.9, 0.8, 0.1, 0.2], (1, count, 1))))
    assert vote.tally([{"x": i} for i in range(count)]).tolist() == [count, count, 0, 0]
    assert read == [ROWS_AT_ONCE, 3]


def test_coverage_approves_the_sets_nearest_to_a_row() -> None:
    pool = KERNEL.pool(0, 1, 9, 10, 4, 5)
    vote = Coverage(KERNEL, pool, ((0, 1), (2, 3), (4, 5)), nearest=2)
    assert vote.tally(Points(np.array([0.0]))).tolist() == [1, 0, 0]
    assert vote.tally(Points(np.array([0.0, 10.0, 9.0]))).tolist() == [1, 2, 0]


@pytest.mark.parametrize("sets", [(), ((),), ((0, 99),)])
def test_coverage_of_sets_that_are_none_is_refused(sets: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ConfigError):
        Coverage(KERNEL, KERNEL.pool(0, 1), sets)


@dataclass(frozen=True)
class Says:
    """A judge of fields that says for every row what it was made of: a record says which of its sayings is its own."""

    sayings: Sequence[Any]
    options: int
    remote: str | None = None

    def votes(self, row: Record) -> NDArray[np.float64]:
        return self.sayings[int(row["x"])]  # type: ignore[arg-type, no-any-return]


def test_a_row_votes_for_fields_in_thousandths() -> None:
    vote = FieldVote(Says([np.array([0.0, 0.25, 1.0]), np.array([0.5, 0.1234, 0.9996])], 3))
    assert vote.tally([{"x": 0}]).tolist() == [0, 250, 1000]
    assert vote.tally([{"x": 0}, {"x": 1}]).tolist() == [500, 373, 2000]
    assert (vote.options, vote.step, vote.remote) == (3, 1000, None)


@pytest.mark.parametrize(
    ("said", "cast"),
    [
        ([math.nan, 0.5, -1.0], [0, 500, 0]),
        ([math.inf, -math.inf, 7.0], [1000, 0, 1000]),
        ([None, 0.5, 1], [0, 500, 1000]),
        ([1.0, 1.0], [0, 0, 0]),
        ([[1.0, 1.0, 1.0]], [0, 0, 0]),
        (["much", "more", "most"], [0, 0, 0]),
        ([10**400, 1, 1], [0, 0, 0]),
        (None, [0, 0, 0]),
        (0.7, [0, 0, 0]),
    ],
)
def test_what_is_no_share_is_no_vote_and_raises_nothing(said: Any, cast: list[int]) -> None:
    assert FieldVote(Says([said], 3)).tally([{"x": 0}]).tolist() == cast


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=any_float))
def test_a_row_moves_the_score_of_a_field_up_by_one_step_at_most(sayings: NDArray[np.float64]) -> None:
    vote = FieldVote(Says(list(sayings), sayings.shape[1]))
    rows: list[Record] = [{"x": i} for i in range(len(sayings))]
    whole = vote.tally(rows)
    for gone in range(len(rows)):
        moved = whole - vote.tally(rows[:gone] + rows[gone + 1 :])
        assert moved.min() >= 0
        assert moved.max() <= vote.step


def test_a_private_choice_of_a_field_is_charged_like_any_choice_and_takes_the_most_surprising() -> None:
    account = MemoryAccount()
    private = PrivateTable([{"x": 0}, {"x": 1}], line_schema(), account=account)
    vote = FieldVote(Says([[0.1, 0.9, 0.2], [0.1, 0.4, 0.2]], 3))
    assert private.choose(vote, mechanism=NoisyMax(math.inf), selection="exact").winner == 1
    chosen = private.choose(vote, mechanism=NoisyMax(0.5), selection="field", context="pool")
    assert private.choose(vote, mechanism=NoisyMax(0.5), selection="field", context="pool").replayed
    assert chosen.guarantee.replace_one == 0.5
    assert account.charges[1].epsilon_add_remove == 0.25
    far = FieldVote(Says([[1.0]], 1, remote="https://elsewhere.example"))
    with pytest.raises(PrivacyError, match=r"elsewhere\.example"):
        private.choose(far, mechanism=NoisyMax(0.5), selection="far")
    assert len(account.charges) == 2


HOSTILE = Schema.from_dict(
    {
        "name": "hostile",
        "fields": {
            "note": {"kind": "text", "max_length": 400, "optional": True},
            "level": {"kind": "number", "min": -1000, "max": 1000, "step": 0.1, "optional": True},
        },
    }
)
records = st.fixed_dictionaries(
    {},
    optional={
        "note": st.text(max_size=80)
        | st.sampled_from(["\x00", "�" * 9, "'; DROP TABLE", "{{7*7}}", "\u200b"])
        | st.none(),
        "level": st.integers(-10_000, 10_000).map(lambda tenths: tenths / 10) | st.none(),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(records, min_size=1, max_size=4), st.lists(records, min_size=1, max_size=5), st.sampled_from(RECORD_VOTES)
)
def test_votes_stay_in_bounds_for_any_record_missing_values_and_hostile_text_included(
    private: list[Record], candidates: list[Record], vote: Approval | Closeness | Prototype
) -> None:
    kernel = MultiChannelKernel(HOSTILE, HashingEncoder())
    pool = kernel.over(kernel.represent(candidates))
    for row in private:
        cast = vote.tally(pool, kernel.represent([row]), np.zeros(1, dtype=np.intp), 1)
        assert cast.shape == (1, len(candidates))
        assert cast.min() >= 0
        assert cast.max() <= vote.step
