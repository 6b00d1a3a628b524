from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from selpe.method.kernel import MultiChannelKernel
from selpe.method.set_scores import SetJudge, principal
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record
from small_world import SCHEMA, drawn

WORDS = {"low": "colour of the new brochure", "high": "server room is on fire"}


def labelled(count: int, offset: int, *, honest: bool = True) -> list[Record]:
    """Records whose topic and minutes agree with their class, or contradict it."""
    made = []
    for record in drawn(count, offset=offset):
        other = {"low": "high", "high": "low"}[str(record["urgency"])]
        meant = str(record["urgency"]) if honest else other
        made.append(record | {"topic": WORDS[meant], "minutes": 5 if meant == "low" else 80, "solved": meant == "low"})
    return made


def judge_of(sets: Sequence[Sequence[Record]], public: Sequence[Record]) -> SetJudge:
    encoder = HashingEncoder()
    return SetJudge(SCHEMA, encoder, MultiChannelKernel(SCHEMA, encoder), sets, public)


def test_a_set_that_teaches_the_classes_beats_one_that_teaches_the_opposite_in_every_view() -> None:
    good, bad = labelled(40, 0), labelled(40, 1000, honest=False)
    judge = judge_of([good, bad], good + bad)
    scores = judge.score(labelled(20, 3000))
    assert scores.shape == (3, 20, 2)
    better = scores[:, :, 0] > scores[:, :, 1]
    assert (better.mean(axis=1) >= 0.7).all()
    assert (scores[:2, :, 0].mean(axis=1) > scores[:2, :, 1].mean(axis=1) + 0.2).all()


def test_nearness_is_minus_the_mean_distance_to_the_three_nearest_records_of_the_rows_class() -> None:
    sets = [labelled(20, 0), labelled(20, 300)]
    row = labelled(30, 900)[3]
    kernel = MultiChannelKernel(SCHEMA, HashingEncoder())
    mine = [[r for r in one if r["urgency"] == row["urgency"]] for one in sets]
    distances = kernel.over(kernel.represent_pool(mine[0] + mine[1])).distances(kernel.represent([row]))[0]
    wanted = [-np.sort(part)[:3].mean() for part in (distances[: len(mine[0])], distances[len(mine[0]) :])]
    assert judge_of(sets, sets[0]).score([row])[2, 0] == pytest.approx(wanted)


def test_a_set_that_holds_the_row_itself_is_nearest() -> None:
    row = labelled(30, 900)[0]
    sets = [labelled(20, 0), [*labelled(19, 300), row]]
    assert np.argmax(judge_of(sets, sets[0]).score([row])[2, 0]) == 1


def test_scores_are_percentiles_and_a_rows_score_is_its_own() -> None:
    sets = [labelled(20, 100 * i) for i in range(4)]
    judge = judge_of(sets, [record for one in sets for record in one])
    rows = drawn(12, offset=7000)
    together = judge.score(rows)
    assert ((together[:2] >= 0) & (together[:2] <= 1)).all()
    assert ((together[2] >= -1) & (together[2] <= 0)).all()
    for number, row in enumerate(rows):
        assert np.array_equal(judge.score([row])[:, 0], together[:, number])


def test_a_set_without_a_class_serves_no_row_of_that_class() -> None:
    low = [record for record in labelled(60, 0) if record["urgency"] == "low"]
    both = labelled(40, 500)
    judge = judge_of([low, both], both)
    high = [record for record in labelled(30, 900) if record["urgency"] == "high"]
    assert (judge.score(high)[:2, :, 0] == 0).all()
    assert np.isnan(judge.score(high)[2, :, 0]).all()


def test_missing_values_and_values_never_seen_do_not_break_it() -> None:
    sets = [labelled(20, 0), labelled(20, 300)]
    judge = judge_of(sets, sets[0])
    row = drawn(1, offset=42)[0] | {"waited": None, "score": None, "minutes": 90}
    assert np.isfinite(judge.score([row])).all()


@pytest.mark.parametrize("shape", [(30, 80), (80, 30)])
def test_axes_are_the_right_singular_vectors_up_to_their_sign(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).standard_normal(shape) * np.linspace(1.0, 0.1, shape[1])
    rows -= rows.mean(axis=0)
    axes = principal(rows, 10)
    assert np.allclose(np.abs(axes @ np.linalg.svd(rows)[2][:10].T), np.eye(10), atol=1e-6)
    assert len(principal(rows, 1000)) == np.linalg.matrix_rank(rows)


def test_public_records_that_are_all_the_same_do_not_break_it() -> None:
    one, other = labelled(20, 0)[0], labelled(20, 0)[1]
    sets = [[one | {"urgency": label} for label in ("low", "high")] for _ in range(2)]
    made = judge_of(sets, [one] * 4)
    assert np.isfinite(made.score([one, other])).all()
