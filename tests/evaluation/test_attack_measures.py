"""Each attack on examples that can be worked out by hand, and against slow versions of itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import vstack
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score, roc_curve

from selpe.evaluation.attack.copies import Search, find_copies
from selpe.evaluation.attack.lineup import DEALS, Lineup, summed
from selpe.evaluation.attack.membership import area, interval, kernel_distances, summarised, true_positives
from selpe.evaluation.attack.records import (
    closest,
    copies_of,
    distance_to_closest_record,
    nearest_record_similarity,
    scan,
    vectorised,
)
from selpe.evaluation.normalise import normalised
from selpe.evaluation.words import passages
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record, Schema
from small_world import SCHEMA, drawn

TEXT = Schema.from_yaml("name: text\nfields:\n  t: {kind: text, min_length: 0, max_length: 999}\n")


def texts(*each: str) -> list[Record]:
    return [{"t": text} for text in each]


def lineup(private: Sequence[Record], holdout: Sequence[Record] = (), schema: Schema = TEXT) -> Lineup:
    return Lineup.of(schema, private, holdout)


# -- NRS -------------------------------------------------------------------------------------------------------------


def test_key_wise_normalisation_sees_through_spelling_but_not_through_values() -> None:
    record = drawn(1)[0] | {"topic": "Lost  Password", "score": 8.50, "minutes": 5}
    same = record | {"topic": " lost password", "score": 8.5, "minutes": 5.0}
    assert normalised(SCHEMA, record) == normalised(SCHEMA, dict(reversed(same.items())))
    for change in ({"topic": "lost passwords"}, {"minutes": 6}, {"solved": not record["solved"]}, {"score": None}):
        assert normalised(SCHEMA, record) != normalised(SCHEMA, record | change)


def test_nrs_by_hand() -> None:
    private, holdout = texts("a", "b", "c"), texts("a", "x", "y")
    made = texts("A ", "b", "z", "x")
    found = nearest_record_similarity(TEXT, made, lineup(private, holdout), None)
    assert (found.value, found.duplicates) == (1 - 2 / 4, 2)
    assert found.holdout_records == pytest.approx(1 - 1 / 3)  # 'a' is private too
    assert found.to_holdout == pytest.approx(1 - 2 / 4)  # 'A' and 'x'
    # 'a' is on both sides, so both share its one copy
    assert copies_of(TEXT, made, lineup(private, holdout)).tolist() == [0.125, 0.25, 0, 0.125, 0.25, 0]


# -- DCR -------------------------------------------------------------------------------------------------------------


def tfidf(corpus: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """Unit TF–IDF vectors with smoothed weights, written out."""
    holding = Counter(word for document in corpus for word in set(document))
    found = []
    for document in corpus:
        raw = {w: c * (math.log((1 + len(corpus)) / (1 + holding[w])) + 1) for w, c in Counter(document).items()}
        length = math.sqrt(sum(value**2 for value in raw.values()))
        found.append({word: value / length for word, value in raw.items()})
    return found


def apart(left: dict[str, float], right: dict[str, float]) -> float:
    return sum(abs(left.get(word, 0) - right.get(word, 0)) for word in left.keys() | right.keys())


def test_dcr_by_hand() -> None:
    """The field's name is part of a record's full text, and so is a word of one letter."""
    made, private, holdout = texts("red cap 5", "old lid"), texts("red cap 4", "new"), texts("old cap", "old lid")
    corpus = [["t", *str(record["t"]).split()] for record in (*made, *private, *holdout)]
    a, b, c, d, e, f = tfidf(corpus)
    vectors = vectorised(TEXT, made, private, holdout)
    found = scan(vectors[0], vstack(vectors[1:]).tocsr(), 2, lambda share: None)
    assert found.to_private == pytest.approx([min(apart(a, c), apart(a, d)), min(apart(b, c), apart(b, d))])
    assert found.to_holdout == pytest.approx([min(apart(a, e), apart(a, f)), 0])
    assert found.to_synthetic == pytest.approx([min(apart(row, a), apart(row, b)) for row in (c, d, e, f)])
    assert found.closest.tolist() == [0.5, 0, 0, 0.5]  # 'red cap 4' is closest to the first, 'old lid' to the second
    others = closest(vectors[2], vectors[1])
    assert others == pytest.approx([min(apart(e, c), apart(e, d)), min(apart(f, c), apart(f, d))])
    own = closest(vectors[1], vectors[1], same=True)
    assert own == pytest.approx([apart(c, d)] * 2)
    dcr = distance_to_closest_record(found, others, own, None)
    assert dcr.value == pytest.approx(np.mean(found.to_private))
    assert dcr.holdout_records.value == pytest.approx(np.mean(others))
    assert dcr.to_holdout.value == pytest.approx(np.mean(found.to_holdout))
    assert sum(dcr.synthetic) == pytest.approx(1)


def test_equally_close_records_share_the_claim() -> None:
    vectors = vectorised(TEXT, texts("cap"), texts("cap", "cap"), texts("cap", "lid"))
    found = scan(vectors[0], vstack(vectors[1:]).tocsr(), 2, lambda share: None)
    assert found.closest == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text("ab ", max_size=12), min_size=1, max_size=8))
def test_a_record_is_at_no_distance_from_itself_and_at_most_twice_its_norm_from_others(written: list[str]) -> None:
    vectors = vectorised(TEXT, texts(*written), texts(*written), ())
    found = scan(vectors[0], vectors[1], len(written), lambda share: None)
    assert found.to_private.tolist() == [0] * len(written)
    assert found.to_synthetic.tolist() == [0] * len(written)
    norms = np.asarray(vectors[0].sum(axis=1)).ravel()
    assert np.isinf(found.to_holdout).all()
    assert closest(vectors[0], vectors[1], same=True)[: len(written) > 1].max(initial=0) <= 2 * norms.max() + 1e-9


# -- membership ------------------------------------------------------------------------------------------------------


def members(count: int, total: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    return (np.arange(total) < count)[None, :]


def test_true_positives_and_area_by_hand() -> None:
    distances = np.array([1.0, 2.0, 9.0, 3.0, 4.0, 5.0])  # three members, three others: none of them may be wrong
    assert true_positives(distances, 3)(members(3, 6)).tolist() == [2]
    assert area(distances, 3)(members(3, 6)) == pytest.approx([6 / 9])


def test_at_a_hundred_non_members_one_may_be_wrong() -> None:
    others = np.arange(100) + 0.5
    mine = np.array([0.1, 0.7, 1.4, 1.5, 1.6, 50.0])  # the second non-member stands at 1.5, and ties do not count
    distances = np.concatenate([mine, others])
    assert true_positives(distances, 100)(members(6, 106)).tolist() == [3]


distances_ = st.lists(st.integers(0, 20), min_size=1, max_size=60)


@settings(deadline=None)
@given(distances_, distances_)
def test_the_attack_agrees_with_the_curve_of_scikit_learn(mine: list[int], others: list[int]) -> None:
    distances = np.array(mine + others, dtype=np.float64)
    mask = members(len(mine), len(distances))
    rate, positive, _ = roc_curve(mask[0], -distances, drop_intermediate=False)
    found = true_positives(distances, len(others))(mask)[0] / len(mine)
    assert found == pytest.approx(positive[rate <= 0.01].max())
    assert area(distances, len(mine))(mask)[0] == pytest.approx(roc_auc_score(mask[0], -distances))


@settings(deadline=None)
@given(st.integers(1, 200), st.data())
def test_the_interval_is_that_of_clopper_and_pearson(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    known = binomtest(successes, trials).proportion_ci(method="exact")
    assert interval(successes, trials) == pytest.approx((known.low, known.high))


def test_the_papers_eight_percent_of_a_hundred_members_is_four_to_fifteen() -> None:
    low, high = interval(8, 100)
    assert (round(low, 3), round(high, 3)) == (0.035, 0.152)


def test_the_note_says_how_many_records_a_rate_stands_for() -> None:
    for size, words in ((100, "1 % is one record"), (40, "less than one record"), (500, "1 % is 5 records")):
        rows = lineup(texts(*"ab" * size)[:size], texts(*"cd" * size)[:size])
        distances = np.arange(2.0 * size)
        verdicts = rows.judge({"closer": true_positives(distances, size), "curve": area(distances, size)})
        found = summarised(rows, verdicts["closer"], verdicts["curve"])
        assert words in found.note
        assert (found.tpr, found.auc) == (1, 1)
        assert found.chance == pytest.approx((size // 100 + 1) / (size + 1))


def test_kernel_distances_are_those_of_the_kernel() -> None:
    made, rows = drawn(30), drawn(7, offset=40)
    kernel = MultiChannelKernel(SCHEMA, HashingEncoder(32))
    expected = kernel.over(kernel.represent_pool(made)).distances(kernel.represent_pool(rows)).min(axis=1)
    found = kernel_distances(SCHEMA, made, [*rows, made[3]], HashingEncoder(32), lambda share: None)
    assert found[:-1] == pytest.approx(expected)
    assert found[-1] == pytest.approx(0, abs=1e-3)  # vectors lie on a grid, so that a copy is not quite at 0


# -- the line-up -----------------------------------------------------------------------------------------------------


def test_held_out_rows_are_drawn_to_match_the_classes_of_the_private_ones() -> None:
    rows = drawn(120)
    low, high = ([row for row in rows if row["urgency"] == level] for level in ("low", "high"))
    found = lineup(low[:3] + high[:9], low[3:] + high[9:14], SCHEMA)
    assert Counter(row["urgency"] for row in found.holdout) == {"low": 3, "high": 5}
    assert found.short == 1
    assert len(found.spare) == len(low) - 6
    assert found.members.tolist() == [True] * 12 + [False] * 8


def test_a_p_value_is_the_share_of_all_deals_that_look_as_bad() -> None:
    weights = np.array([5.0, 4.0, 0.0, 1.0, 2.0, 0.0])
    deals = [sum(weights[list(chosen)]) for chosen in combinations(range(6), 3)]
    verdict = lineup(texts("a", "b", "c"), texts("d", "e", "f")).judge({"sum": summed(weights)})["sum"]
    assert verdict.observed == 9
    assert verdict.expected == pytest.approx(np.mean(deals), abs=0.3)
    assert verdict.p_value == pytest.approx(np.mean([deal >= 9 for deal in deals]), abs=0.04)


def test_membership_is_dealt_within_classes() -> None:
    """All weight lies on one class, which is private as a whole: no deal could look better."""
    rows = drawn(80)
    low, high = ([row for row in rows if row["urgency"] == level] for level in ("low", "high"))
    found = lineup(low[:8] + high[:2], high[2:12], SCHEMA)
    weights = np.array([1.0] * 8 + [0.0] * (len(found.rows) - 8))
    assert found.judge({"sum": summed(weights)})["sum"].p_value == 1


def test_without_held_out_rows_there_is_no_verdict() -> None:
    assert lineup(texts("a")).judge({"sum": summed(np.ones(1))}) == {}
    assert lineup([], texts("a")).judge({"sum": summed(np.ones(0))}) == {}


def test_p_values_of_nothing_are_spread_evenly() -> None:
    random = np.random.default_rng(5)
    rows = lineup(texts(*"a" * 25), texts(*"b" * 25))
    figures = {str(number): summed(random.normal(size=50)) for number in range(200)}
    found = sorted(verdict.p_value for verdict in rows.judge(figures).values())
    assert min(found) >= 1 / (1 + DEALS)
    assert np.abs(np.array(found) - np.linspace(0, 1, 200)).max() < 0.12  # Kolmogorov–Smirnov at about one percent


# -- passages --------------------------------------------------------------------------------------------------------


def test_passages_by_hand() -> None:
    passage = "the patient fell from a ladder while painting"  # eight words
    private = texts(f"On Monday {passage} the roof", "nothing of note here at all for once", "short text")
    holdout = texts(
        "another text that nobody has written before or since", "the patient fell from a chair while painting"
    )
    made = texts(f"Suddenly, {passage.upper()}!", "the patient fell from a ladder")
    found, touched = find_copies(TEXT, made, lineup(private, holdout))
    assert touched.tolist() == [True, False, False, False, False]
    assert (found.private_rows, found.private_touched, found.holdout_rows, found.holdout_touched) == (2, 1, 2, 0)
    assert (found.synthetic_touched, found.longest, found.long_private) == (1, 8, 0)
    assert [(each.synthetic, each.private, each.words) for each in found.found] == [(0, 0, 8)]


def test_a_passage_does_not_span_two_texts_or_two_records() -> None:
    two = Schema.from_yaml(
        "name: two\nfields:\n  a: {kind: text, max_length: 99}\n  b: {kind: text, max_length: 99, optional: true}\n"
    )
    private: list[Record] = [{"a": "one two three four", "b": "five six seven eight"}, {"a": "nine ten", "b": None}]
    made: list[Record] = [{"a": "one two three four five six seven eight", "b": "nine ten one two three four five six"}]
    assert find_copies(two, made, lineup(private, (), two))[0].private_touched == 0


def test_what_the_schema_itself_says_is_no_copy() -> None:
    public = "a bottle that keeps water cold for a whole day"
    schema = Schema.from_dict(
        {"name": "public", "fields": {"t": {"kind": "text", "max_length": 99}}, "examples": [{"t": public}]}
    )
    found = find_copies(schema, texts(public), lineup(texts(public), (), schema))[0]
    assert (found.private_touched, found.longest) == (0, 0)


def test_a_long_passage_counts_where_a_single_real_record_has_it() -> None:
    common, own = (" ".join(f"{letter}{number}" for number in range(22)) for letter in "ab")
    private, holdout = texts(common, f"{own} end"), texts(common, "x")
    found = find_copies(TEXT, texts(f"so {common}", f"now {own}"), lineup(private, holdout))[0]
    assert (found.private_touched, found.holdout_touched) == (2, 1)
    assert (found.long_private, found.long_holdout, found.longest) == (1, 0, 22)


def runs(schema: Schema, records: Sequence[Record], n: int) -> list[set[tuple[str, ...]]]:
    """Every record's runs of n words, the slow way."""
    found = []
    for record in records:
        each = list(passages(schema, record))
        found.append({tuple(p[i : i + n]) for p in each for i in range(len(p) - n + 1)})
    return found


sentences = st.lists(st.lists(st.sampled_from("abc"), max_size=14).map(" ".join), max_size=6)


@settings(deadline=None, max_examples=60)
@given(sentences, sentences, sentences, st.integers(1, 6))
def test_the_search_agrees_with_sets_of_runs(left: list[str], middle: list[str], right: list[str], n: int) -> None:
    private, holdout, made = texts(*left), texts(*middle), texts(*right)
    rows = lineup(private, holdout)
    search = Search(TEXT, made, rows)
    real = runs(TEXT, [*rows.rows, *rows.spare], n)
    there = set[tuple[str, ...]]().union(*runs(TEXT, made, n))
    shown = real[: len(rows.rows)]
    assert search.rows(n).tolist() == [bool(mine & there) for mine in shown]
    held = Counter(run for mine in real for run in mine)
    assert search.rows(n, alone=True).tolist() == [any(held[run] == 1 for run in mine & there) for mine in shown]
    assert search.able(n).tolist() == [bool(mine) for mine in shown]
    if any(mine & there for mine in shown[: len(private)]):
        longest = max(k for k in range(1, 15) if _shared(private, made, k))
        assert search.longest(n) == longest
        pairs = search.shared(n)
        assert {s for s, _ in pairs} == {
            s for s, run in enumerate(runs(TEXT, made, n)) if any(run & mine for mine in shown[: len(private)])
        }


def _shared(private: Sequence[Record], made: Sequence[Record], n: int) -> bool:
    return bool(
        set[tuple[str, ...]]().union(*runs(TEXT, private, n)) & set[tuple[str, ...]]().union(*runs(TEXT, made, n))
    )


def test_chunks_of_the_synthetic_table_are_searched_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from selpe.evaluation.attack import copies

    passage = " ".join("abcdefghij")
    made = texts(*("nothing",) * 7, passage, "nothing", f"x {passage}")
    whole = find_copies(TEXT, made, lineup(texts("other", passage)))
    monkeypatch.setattr(copies, "CHUNK", 3)
    parts = find_copies(TEXT, made, lineup(texts("other", passage)))
    assert whole[0].found == parts[0].found
    assert {each.synthetic for each in parts[0].found} == {7, 9}
    assert whole[1].tolist() == parts[1].tolist()
