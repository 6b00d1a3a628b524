"""ROC-AUC by the paper's equation, by hand and against scikit-learn, and its bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from selpe.evaluation.roc import areas, interval, resampled, weighted_areas


def drawn(records: int, classes: int, *, digits: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Records of every class with chances that know something; few digits make ties."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(classes), rng.integers(classes, size=records - classes)]).astype(np.intp)
    chances = rng.dirichlet(np.ones(classes), size=records) + 0.3 * np.eye(classes)[truth]
    return truth, np.round(chances / chances.sum(axis=1, keepdims=True), digits)


def test_the_equation_by_hand() -> None:
    # Classes a, b, c of five records, and p̂ of each. Pairs (of the class, of another) that are in order:
    # a: records 0, 1 at .7, .4 against .4, .1, .2: .7 beats 3; .4 beats 2 and ties one: 5.5 of 6
    # b: records 2, 3 at .3, .8 against .2, .3, .1: .3 beats 2 and ties one; .8 beats 3: 5.5 of 6
    # c: record 4 at .7 against .1, .3, .3, .1: 4 of 4
    truth = np.array([0, 0, 1, 1, 2])
    chances = np.array([[0.7, 0.2, 0.1], [0.4, 0.3, 0.3], [0.4, 0.3, 0.3], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
    assert areas(truth, chances).tolist() == pytest.approx([5.5 / 6, 5.5 / 6, 1.0])
    assert areas(truth, chances).mean() == pytest.approx((11 / 6 + 1) / 3)


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("digits", [1, 2, 9])
def test_it_agrees_with_scikit_learn_ties_included(classes: int, digits: int) -> None:
    truth, chances = drawn(200, classes, digits=digits, seed=classes)
    expected = [roc_auc_score(truth == k, chances[:, k]) for k in range(classes)]
    assert areas(truth, chances).tolist() == pytest.approx(expected)


def test_a_constant_score_is_worth_50_and_rounding_does_not_rank() -> None:
    truth = np.array([0, 1, 0, 1, 1])
    same = np.full((5, 2), 1 / 3)
    same[:, 1] += np.arange(5) * 1e-16
    assert areas(truth, same).tolist() == [0.5, 0.5]


def test_weights_count_records_as_often_as_they_were_drawn() -> None:
    truth, chances = drawn(40, 3, digits=1, seed=4)
    counts = np.random.default_rng(5).integers(1, 4, size=(6, 40)).astype(float)
    for weights, found in zip(counts, weighted_areas(truth, chances, counts), strict=True):
        again = np.repeat(np.arange(40), weights.astype(int))
        assert found.tolist() == pytest.approx(areas(truth[again], chances[again]).tolist())


def test_resamples_spread_as_much_as_fresh_records_do() -> None:
    truth, chances = drawn(300, 3, digits=9, seed=6)
    spread = float(resampled(truth, [chances], times=400).std())
    fresh = [float(areas(*drawn(300, 3, digits=9, seed=seed)).mean()) for seed in range(100, 300)]
    assert spread == pytest.approx(float(np.std(fresh)), rel=0.25)


def test_resamples_repeat_and_come_in_blocks_without_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, chances = drawn(50, 2, digits=9, seed=7)
    first = resampled(truth, [chances], times=20)
    assert first.tolist() == resampled(truth, [chances], times=20).tolist()
    assert len(set(first.tolist())) > 10
    monkeypatch.setattr("selpe.evaluation.roc._CELLS", 150)
    assert len(resampled(truth, [chances], times=20)) == 20


def test_a_class_of_one_record_is_in_every_resample() -> None:
    truth = np.array([0] * 20 + [1])
    chances = np.random.default_rng(8).random((21, 2))
    assert np.isfinite(resampled(truth, [chances], times=100)).all()


def test_trainings_that_differ_widen_the_interval() -> None:
    truth, good = drawn(400, 2, digits=9, seed=9)
    bad = np.random.default_rng(9).random((400, 2))
    alone, both = (interval(resampled(truth, sets, times=300)) for sets in ([good, good], [good, bad]))
    assert both[1] - both[0] > 2 * (alone[1] - alone[0])


def test_no_resamples_are_no_samples() -> None:
    truth, chances = drawn(10, 2, digits=9, seed=10)
    assert resampled(truth, [chances], times=0).size == 0
