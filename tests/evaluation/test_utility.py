"""Utility: what the figures are, and that they say what they should about sets whose worth is known."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learnable_world import SHOP, learnable
from selpe.errors import ConfigError, PrivacyError
from selpe.evaluation.utility import Score, Utility, utility
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record, Schema
from small_world import UNLABELLED, drawn

VIEWS = ("minilm", "boosted")
ENCODER = HashingEncoder(128)
TEST = learnable(450, seed=1)


def measured(synthetic: Sequence[Record], test: Sequence[Record] = TEST, **options: Any) -> Utility:
    return utility(SHOP, synthetic, test, encoder=ENCODER, **{"bootstrap": 50, **options})


def got(found: Utility, view: str, trained_on: str = "synthetic") -> Score:
    score = found.of(view, trained_on)
    assert score is not None
    return score


# -- sanity ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain() -> Utility:
    return measured(learnable(600, seed=2), references={"real rows": learnable(600, seed=3)}, bootstrap=200)


@pytest.mark.parametrize("view", VIEWS)
def test_real_records_passed_off_as_synthetic_score_near_the_real_reference(plain: Utility, view: str) -> None:
    mine, real = got(plain, view), got(plain, view, "real rows")
    assert mine.auc > 85
    assert abs(mine.auc - real.auc) < 3
    assert mine.accuracy > 65
    assert mine.macro_f1 > 65


@pytest.mark.parametrize("view", VIEWS)
def test_chance_stands_beside_every_view(plain: Utility, view: str) -> None:
    chance = got(plain, view, "chance")
    assert (chance.auc, chance.low, chance.high, chance.rows) == (50, 50, 50, 0)
    assert chance.accuracy == pytest.approx(100 / 3)
    assert chance.macro_f1 == pytest.approx(100 / 3)  # classes are even in the test set


def test_shuffled_labels_score_chance() -> None:
    # A shuffled set still has its directions of large spread, and a random classifier along one of them may be far
    # from 50 by itself (4 points here); the mean over shuffles is what is 50.
    test = learnable(450, seed=1, clear=0.1)
    found: dict[str, list[float]] = {view: [] for view in VIEWS}
    for seed in range(12):
        records = learnable(100, seed=100 + seed, clear=0.1)
        labels = [record["fault"] for record in records]
        random.Random(seed).shuffle(labels)
        shuffled = [{**record, "fault": label} for record, label in zip(records, labels, strict=True)]
        scores = measured(shuffled, test, bootstrap=0)
        for view in VIEWS:
            found[view].append(got(scores, view).auc)
    for view in VIEWS:
        assert abs(float(np.mean(found[view])) - 50) < 3


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("labels", [["battery"], ["battery", "screen", "sound"], ["battery", "battery", "screen"]])
def test_a_constant_table_scores_50(view: str, labels: list[str]) -> None:
    one = learnable(1, seed=4)[0]
    score = got(measured([{**one, "fault": label} for label in labels * 40]), view)
    assert (score.auc, score.low, score.high) == (50, 50, 50)


def test_the_label_is_never_a_feature() -> None:
    def noise(count: int, seed: int) -> list[Record]:
        rng = random.Random(seed)
        return [{**record, "fault": rng.choice(SHOP.labels)} for record in learnable(count, seed=seed, clear=0.0)]

    # Words and ages of these records say nothing about their classes, which are drawn apart.
    test = noise(600, 11)
    auc = [got(measured(noise(300, seed), test, bootstrap=0), view).auc for view in VIEWS for seed in (12, 13)]
    assert 45 < float(np.mean(auc)) < 55


# -- classes that are absent, sets that are tiny --------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_a_class_that_the_synthetic_set_lacks_is_shown_and_scores_50(view: str) -> None:
    found = measured([record for record in learnable(600, seed=2) if record["fault"] != "sound"])
    score = got(found, view)
    assert score.missing == ("sound",)
    assert score.per_class["sound"] == 50
    assert min(score.per_class["battery"], score.per_class["screen"]) > 70
    assert score.auc == pytest.approx(np.mean(list(score.per_class.values())))
    assert "'synthetic' has no record of class sound: AUC 50 by construction" in found.notes


@pytest.mark.parametrize("view", VIEWS)
def test_a_class_that_only_the_synthetic_set_has_is_not_averaged_over(view: str) -> None:
    two = [record for record in TEST if record["fault"] != "sound"]
    score = got(measured(learnable(600, seed=2), two), view)
    assert set(score.per_class) == {"battery", "screen"}
    assert score.missing == ()
    assert 50 < score.accuracy < 95  # some are taken for 'sound', and that is wrong


def test_a_set_of_one_class_scores_50_and_a_note_says_why() -> None:
    found = measured([record for record in learnable(90, seed=2) if record["fault"] == "screen"])
    for view in VIEWS:
        score = got(found, view)
        assert (score.auc, score.missing, score.rows) == (50, ("battery", "sound"), 30)
        assert score.accuracy == pytest.approx(100 / 3)
    assert any("one class only" in note for note in found.notes)


def test_an_empty_set_scores_as_chance() -> None:
    found = measured([])
    assert got(found, "boosted").auc == 50
    assert got(found, "boosted").missing == ("battery", "screen", "sound")
    assert "'synthetic' has no labelled record: nothing can be learned from it" in found.notes


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_handful_of_rows_is_enough_to_be_scored(view: str, count: int) -> None:
    score = got(measured(learnable(count, seed=5)), view)
    assert 0 <= score.low <= score.auc <= score.high <= 100
    assert score.rows == count


@pytest.mark.parametrize("view", VIEWS)
def test_records_without_any_value_but_the_label_are_scored(view: str) -> None:
    bare: list[Record] = [{"fault": record["fault"]} for record in TEST]
    assert got(measured(bare[:60], bare), view).auc == 50
    assert got(measured(bare[:60]), view).auc == 50
    assert got(measured(learnable(60, seed=2), bare), view).auc == 50


def test_records_without_a_class_are_left_out_and_counted() -> None:
    strange: list[Record] = [{**TEST[0], "fault": None}, {**TEST[1], "fault": "rust"}, {"device": "phone"}]
    found = measured([*learnable(60, seed=2), *strange], [*TEST, *strange[:2]])
    assert got(found, "minilm").rows == 60
    assert "2 test records have no class of the schema and are left out" in found.notes
    assert "3 records of 'synthetic' have no class of the schema and are left out" in found.notes


def test_values_of_the_wrong_kind_are_missing_values() -> None:
    broken: list[Record] = [
        {**record, "age": "old", "price": float("inf"), "bought": "yesterday", "device": "fridge", "complaint": 7}
        for record in learnable(60, seed=2)
    ]
    assert 0 <= got(measured(broken), "boosted").auc <= 100


def test_without_a_label_there_are_no_scores_and_a_note() -> None:
    records = drawn(6, schema=UNLABELLED)
    found = utility(UNLABELLED, records, records, encoder=ENCODER)
    assert found == Utility((), ("no label: utility is not defined",))


@pytest.mark.parametrize("test", [[], TEST[:1], [record for record in TEST if record["fault"] == "sound"]])
def test_without_two_classes_to_tell_apart_there_are_no_scores_and_a_note(test: list[Record]) -> None:
    found = measured(learnable(60, seed=2), test)
    assert found.scores == ()
    assert "utility is not defined: it takes test records of at least two classes" in found.notes


def test_a_schema_of_nothing_but_a_label_scores_50() -> None:
    schema = Schema.from_yaml("name: bare\nlabel: c\nfields:\n  c: {kind: boolean}\n")
    records: list[Record] = [{"c": number % 2 == 0} for number in range(20)]
    found = utility(schema, records, records, encoder=ENCODER)
    assert [score.auc for score in found.scores] == [50] * 4
    assert set(found.scores[0].per_class) == {"false", "true"}


# -- what stands beside a figure ------------------------------------------------------------------------------------


def test_the_interval_holds_the_figure_and_narrows_with_test_records(plain: Utility) -> None:
    for view in VIEWS:
        wide = got(measured(learnable(600, seed=2), TEST[:90], bootstrap=200), view)
        narrow = got(plain, view)
        assert wide.low < wide.auc < wide.high
        assert narrow.high - narrow.low < 0.7 * (wide.high - wide.low)


def test_seeds_are_averaged_where_training_leaves_something_to_chance() -> None:
    records = learnable(150, seed=2)
    several, one = measured(records, seeds=3), measured(records)
    assert (got(several, "boosted").seeds, got(several, "minilm").seeds) == (3, 1)
    assert got(several, "boosted").error > 0
    assert got(several, "minilm").error == got(one, "boosted").error == 0
    assert got(several, "minilm") == got(one, "minilm")
    assert measured(records, seeds=3) == several


def test_few_test_records_of_a_class_are_noted() -> None:
    rare = [record for record in TEST if record["fault"] != "sound"] + [
        record for record in TEST if record["fault"] == "sound"
    ][:3]
    notes = measured(learnable(60, seed=2), rare).notes
    assert "few test records of class sound (3): their figures are unsure" in notes


def test_test_records_among_the_training_records_are_noted() -> None:
    found = measured(learnable(60, seed=2), references={"private rows": TEST[:60]})
    assert "60 of 450 test records stand in 'private rows' too: its figures are flattered" in found.notes
    assert not any("'synthetic'" in note for note in found.notes)


def test_scores_are_plain_data_in_the_order_of_views_and_sets(plain: Utility) -> None:
    content = json.loads(json.dumps(plain.as_dict(), allow_nan=False))
    assert [(score["view"], score["trained_on"]) for score in content["scores"]] == [
        (view, name) for view in VIEWS for name in ("synthetic", "real rows", "chance")
    ]
    assert [score["kind"] for score in content["scores"]] == ["text"] * 3 + ["structured"] * 3
    assert content["notes"] == [
        "view 'minilm' reads records by the encoder hash-128",
        "view 'boosted' reads text fields by the encoder hash-128",
    ]
    assert plain.of("minilm", "nothing of that name") is None


def test_progress_goes_from_0_to_1() -> None:
    told: list[tuple[str, float]] = []
    measured(learnable(60, seed=2), progress=lambda stage, share: told.append((stage, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (told[0], told[-1]) == (("minilm, synthetic", 0.0), ("done", 1.0))
    assert "boosted, synthetic" in {stage for stage, _ in told}


# -- the encoder ----------------------------------------------------------------------------------------------------


class Counting(HashingEncoder):
    """Counts how often it was asked for a text."""

    def __init__(self, host: str | None = None) -> None:
        super().__init__(64)
        self.asked: list[str] = []
        self._host = host

    @property
    def remote(self) -> str | None:
        return self._host

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        return super().encode(texts)


def test_test_records_are_encoded_once_for_all_training_sets() -> None:
    encoder = Counting()
    references = {"private rows": learnable(30, seed=6), "real rows": learnable(60, seed=7)}
    utility(SHOP, learnable(60, seed=2), TEST[:90], encoder=encoder, references=references, bootstrap=0)
    of_test = {SHOP.linearise(record, without=["fault"]) for record in TEST[:90]}
    of_test |= {str(record["complaint"]) for record in TEST[:90]}
    asked = [text for text in encoder.asked if text in of_test]
    assert len(asked) == len(set(asked))
    assert set(asked) == of_test


def test_real_records_do_not_leave_the_machine_unless_allowed() -> None:
    encoder, records = Counting("https://embed.example/v1"), learnable(12, seed=2)
    with pytest.raises(PrivacyError) as caught:
        utility(SHOP, records, TEST, encoder=encoder)
    assert "allow_remote" in caught.value.hint
    assert encoder.asked == []
    assert utility(SHOP, records, TEST[:9], encoder=encoder, allow_remote=True, bootstrap=0).scores


# -- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "minilm:large", ""])
def test_an_unknown_view_is_refused_with_the_list_of_views(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        measured(learnable(6, seed=2), views=[name])
    assert "minilm, boosted, roberta, tabstar" in caught.value.hint


@pytest.mark.parametrize("options", [{"references": {"chance": TEST}}, {"seeds": 0}, {"bootstrap": -1}])
def test_senseless_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        measured(learnable(6, seed=2), **options)
