from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from selpe.method.kernel import MultiChannelKernel
from selpe.method.set_scores import SetJudge, _Model, _Models, principal
from selpe.models.encoders.hashing import HashingEncoder
from selpe.privacy.votes import ROWS_AT_ONCE, Predictive
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


def scored(judge: SetJudge, rows: Sequence[Record]) -> NDArray[np.float64]:
    return judge.score(judge.read(rows))


def test_a_set_that_teaches_the_classes_beats_one_that_teaches_the_opposite_in_every_view() -> None:
    good, bad = labelled(40, 0), labelled(40, 1000, honest=False)
    judge = judge_of([good, bad], good + bad)
    scores = scored(judge, labelled(20, 3000))
    assert scores.shape == (3, 20, 2)
    better = scores[:, :, 0] > scores[:, :, 1]
    assert (better.mean(axis=1) >= 0.7).all()
    assert (scores[:2, :, 0].mean(axis=1) > scores[:2, :, 1].mean(axis=1) + 0.2).all()


def test_nearness_is_minus_the_mean_distance_to_the_three_nearest_records_of_the_rows_class() -> None:
    sets = [labelled(20, 0), labelled(20, 300)]
    row = labelled(30, 900)[3]
    kernel = MultiChannelKernel(SCHEMA, HashingEncoder())
    mine = [[r for r in one if r["urgency"] == row["urgency"]] for one in sets]
    mine = [one[: min(map(len, mine))] for one in mine]
    distances = kernel.over(kernel.represent_pool(mine[0] + mine[1])).distances(kernel.represent([row]))[0]
    wanted = [-np.sort(part)[:3].mean() for part in (distances[: len(mine[0])], distances[len(mine[0]) :])]
    assert scored(judge_of(sets, sets[0]), [row])[2, 0] == pytest.approx(wanted)


def test_a_set_that_holds_the_row_itself_is_nearest() -> None:
    row = labelled(30, 900)[0]
    sets = [labelled(20, 0), [*labelled(19, 300), row]]
    assert np.argmax(scored(judge_of(sets, sets[0]), [row])[2, 0]) == 1


def test_a_set_is_not_nearer_because_it_has_more_records() -> None:
    rows = labelled(30, 900)
    small, large = labelled(20, 0), [*labelled(20, 0), *rows]
    found = scored(judge_of([small, large], small), rows)[2]
    assert np.array_equal(found[:, 0], found[:, 1])


def test_a_set_is_not_learnt_harder_because_its_records_come_again() -> None:
    small, rows = labelled(16, 0) + labelled(16, 1000, honest=False), labelled(30, 900)
    public = small + labelled(60, 2000) + labelled(60, 3000, honest=False)
    found = scored(judge_of([small, small * 20], public), rows)
    assert found[..., 0] == pytest.approx(found[..., 1], abs=1e-9)


def test_scores_are_percentiles_and_a_rows_score_is_its_own() -> None:
    sets = [labelled(20, 100 * i) for i in range(4)]
    judge = judge_of(sets, [record for one in sets for record in one])
    rows = drawn(12, offset=7000)
    together = scored(judge, rows)
    assert ((together[:2] >= 0) & (together[:2] <= 1)).all()
    assert ((together[2] >= -1) & (together[2] <= 0)).all()
    for number, row in enumerate(rows):
        assert np.array_equal(scored(judge, [row])[:, 0], together[:, number])


def test_a_set_without_a_class_serves_no_row_of_that_class() -> None:
    low = [record for record in labelled(60, 0) if record["urgency"] == "low"]
    both = labelled(40, 500)
    judge = judge_of([low, both], both)
    high = [record for record in labelled(30, 900) if record["urgency"] == "high"]
    assert (scored(judge, high)[:2, :, 0] == 0).all()
    assert np.isnan(scored(judge, high)[2, :, 0]).all()


def test_all_sets_together_give_the_percentiles_of_each_alone_bit_for_bit() -> None:
    chance = np.random.default_rng(3)
    models = []
    for names in (["a", "b", "c"], ["a", "c"], ["a", "b", "c"], ["b"]):
        weights, bias = chance.standard_normal((len(names), 40)), chance.standard_normal(len(names))
        references = {name: np.sort(chance.random(50)) for name in names}
        models.append(_Model(weights, bias, {name: i for i, name in enumerate(names)}, references))
    features = chance.standard_normal((1, 40)) / 6
    for label in ("a", "b", "c", "d"):
        wanted = []
        for model in models:
            if label not in model.rank:
                wanted.append(0.0)
                continue
            own = float(model.chances(features)[0, model.rank[label]])
            below, upto = np.searchsorted(model.references[label], [own, np.nextafter(own, 2.0)])
            wanted.append(float(below + upto) / 100)
        assert _Models(models).percentiles(features, label).tolist() == wanted


def test_how_far_it_is_is_told_set_by_set_and_then_row_by_row() -> None:
    told: list[tuple[str, int, int]] = []
    sets, encoder = [labelled(20, 0), labelled(20, 300)], HashingEncoder()
    kernel = MultiChannelKernel(SCHEMA, encoder)
    judge = SetJudge(SCHEMA, encoder, kernel, sets, sets[0], tell=lambda *said: told.append(said))
    Predictive(judge).tally(labelled(ROWS_AT_ONCE + 5, 900))
    assert told == [
        *(("learning from every table", done, 4) for done in range(4)),
        ("rows vote", ROWS_AT_ONCE, 0),
        ("rows vote", ROWS_AT_ONCE + 5, 0),
    ]


def test_a_text_is_encoded_once_for_both_that_need_it() -> None:
    asked: list[str] = []

    class Noting(HashingEncoder):
        def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
            asked.extend(texts)
            return super().encode(texts)

    encoder, sets = Noting(), [labelled(20, 0), labelled(20, 300)]
    judge = SetJudge(SCHEMA, encoder, MultiChannelKernel(SCHEMA, encoder), sets, sets[0])
    asked.clear()
    judge.read(labelled(12, 900))
    assert asked
    assert len(asked) == len(set(asked))


def test_missing_values_and_values_never_seen_do_not_break_it() -> None:
    sets = [labelled(20, 0), labelled(20, 300)]
    judge = judge_of(sets, sets[0])
    row = drawn(1, offset=42)[0] | {"waited": None, "score": None, "minutes": 90}
    assert np.isfinite(scored(judge, [row])).all()


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
    assert np.isfinite(scored(made, [one, other])).all()
