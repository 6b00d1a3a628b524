"""The attacks as a whole: copies are caught by every one of them, fresh records by none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from private_world import MARKER
from selpe.errors import PrivacyError
from selpe.evaluation import attack as package
from selpe.evaluation.attack import attack
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record, Schema
from small_world import SCHEMA, UNLABELLED, drawn
from strategies import loose_records, schemas
from written_world import NOTES, written

ENCODER = HashingEncoder(64)
PRIVATE, HOLDOUT = written(60, 1), written(200, 2)


def attacked(
    schema: Schema, synthetic: Sequence[Record], private: Sequence[Record], holdout: Sequence[Record] | None
) -> dict[str, Any]:
    """The findings as they are written to a file."""
    found = attack(schema, synthetic, private, holdout, encoder=ENCODER).as_dict()
    content: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return content


# -- what is caught --------------------------------------------------------------------------------------------------


def test_a_copy_of_the_private_table_is_caught_by_every_attack() -> None:
    found = attacked(NOTES, PRIVATE * 3, PRIVATE, HOLDOUT)
    assert (found["nrs"]["value"], found["nrs"]["holdout_records"], found["nrs"]["to_holdout"]) == (0, 1, 1)
    assert found["dcr"]["value"] == 0
    assert found["dcr"]["holdout_records"]["value"] > 1
    assert found["dcr"]["closer_to_private"] == 1
    for way in ("text", "kernel"):
        assert (found["membership"][way]["tpr"], found["membership"][way]["auc"]) == (1, 1)
    assert (found["copies"]["private_touched"], found["copies"]["holdout_touched"]) == (60, 0)
    for words in (
        "exact copies",
        "too close",
        "by their words",
        "by the kernel",
        "8 words or more",
        "20 words or more",
    ):
        assert any(words in alarm for alarm in found["alarms"]), words


def test_a_fresh_sample_of_the_same_distribution_raises_no_alarm() -> None:
    for seed in range(3, 8):
        found = attacked(NOTES, written(180, seed), PRIVATE, HOLDOUT)
        assert found["alarms"] == []
        assert found["nrs"]["value"] == 1
        assert abs(found["dcr"]["closer_to_private"] - found["dcr"]["expected"]) < 0.2
        assert found["dcr"]["value"] == pytest.approx(found["dcr"]["to_holdout"]["value"], rel=0.1)


def test_a_fresh_sample_raises_no_alarm_where_classes_are_balanced_in_the_private_table_alone() -> None:
    pool = written(600, 4)
    low, high = ([row for row in pool if row["level"] == level] for level in ("low", "high"))
    assert attacked(NOTES, low[:60] + high[:60], low[60:90] + high[60:90], HOLDOUT)["alarms"] == []


def test_records_with_a_few_changed_words_are_caught_without_an_exact_copy() -> None:
    changed: list[Record] = [record | {"note": f"{record['note']} indeed", "age": 50} for record in PRIVATE]
    found = attacked(NOTES, changed, PRIVATE, HOLDOUT)
    assert found["nrs"]["value"] == 1
    assert not any("exact copies" in alarm for alarm in found["alarms"])
    for words in ("too close", "by their words", "8 words or more"):
        assert any(words in alarm for alarm in found["alarms"]), words


def test_a_tenth_of_copies_among_fresh_records_is_caught() -> None:
    found = attacked(NOTES, written(270, 3) + PRIVATE[:30], PRIVATE, HOLDOUT)
    assert found["nrs"]["value"] == pytest.approx(0.9)
    for words in ("exact copies", "8 words or more"):
        assert any(words in alarm for alarm in found["alarms"]), words


def test_one_long_passage_of_one_record_is_caught_and_found() -> None:
    place = next(i for i, record in enumerate(PRIVATE) if len(str(record["note"]).split()) >= 25)
    leaked = written(100, 3)
    leaked[42] = leaked[42] | {"note": f"well {PRIVATE[place]['note']}"}
    found = attacked(NOTES, leaked, PRIVATE, HOLDOUT)
    assert len(found["alarms"]) == 1
    assert "20 words or more" in found["alarms"][0]
    assert found["copies"]["found"] == [{"synthetic": 42, "private": place, "words": found["copies"]["longest"]}]


def test_records_that_real_rows_repeat_by_themselves_are_no_alarm() -> None:
    schema = Schema.from_yaml(
        "name: coins\nfields:\n  side: {kind: category, values: [left, right]}\n  t: {kind: text, max_length: 99}\n"
    )
    common: list[Record] = [
        {"side": side, "t": "one two three four five six seven eight nine"} for side in ("left", "right")
    ]
    found = attacked(schema, common * 20, common * 10, common * 10)
    assert found["nrs"]["value"] == found["nrs"]["holdout_records"] == 0
    assert found["alarms"] == []


# -- without held-out rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("holdout", [None, []], ids=["none", "empty"])
def test_without_held_out_rows_a_copy_is_still_caught_and_the_lack_is_said(holdout: list[Record] | None) -> None:
    found = attacked(NOTES, PRIVATE, PRIVATE, holdout)
    assert found["membership"] == {"text": None, "kernel": None}
    assert found["nrs"]["p_value"] is found["nrs"]["holdout_records"] is None
    assert found["dcr"]["closer_than_private"] == 1
    for words in ("exact copies", "too close", "8 words or more"):
        assert any(words in alarm for alarm in found["alarms"]), words
    assert any("nothing to compare with" in note for note in found["notes"])
    assert attacked(NOTES, written(180, 3), PRIVATE, holdout)["alarms"] == []


def test_held_out_rows_of_other_classes_only_are_no_comparison() -> None:
    low, high = ([row for row in HOLDOUT if row["level"] == level] for level in ("low", "high"))
    found = attacked(NOTES, written(50, 3), low[:20], high)
    assert (found["counts"]["holdout"], found["counts"]["compared"]) == (len(high), 0)
    assert any("nothing to compare with" in note for note in found["notes"])
    assert found["tests"] == {"count": 0}


# -- what it tells ---------------------------------------------------------------------------------------------------


def test_no_private_cell_stands_in_the_findings() -> None:
    marked: list[Record] = [record | {"note": f"{MARKER} {record['note']}", "ward": MARKER} for record in PRIVATE]
    assert MARKER not in json.dumps(attacked(NOTES, marked, marked, HOLDOUT))


def test_findings_say_that_they_are_not_for_release_and_from_where_on_they_alarm() -> None:
    found = attacked(NOTES, written(20, 3), PRIVATE, HOLDOUT)
    assert "not for release" in found["notes"][0]
    assert found["thresholds"]["significance"] == 0.001
    assert found["thresholds"]["false_positive_rate"] == 0.01
    tests = found["tests"]
    assert tests["count"] == 7
    assert tests["by_chance"] == min(1.0, tests["count"] * tests["smallest"])
    assert found["counts"] == {"synthetic": 20, "private": 60, "holdout": 200, "compared": 60}


def test_short_texts_are_said_to_escape_the_search() -> None:
    short: list[Record] = [record | {"note": "well"} for record in PRIVATE]
    assert any(
        "60 of 60 private rows have no text of 8 words" in n for n in attacked(NOTES, short, short, None)["notes"]
    )


def test_progress_goes_from_nothing_to_all() -> None:
    heard: list[tuple[str, float]] = []
    attack(NOTES, written(20, 3), PRIVATE, HOLDOUT, encoder=ENCODER, progress=lambda what, at: heard.append((what, at)))
    told = [share for _, share in heard]
    assert (told[0], told[-1]) == (0, 1)
    assert told == sorted(told)


def test_private_rows_are_not_sent_to_a_host_that_is_not_allowed() -> None:
    class Away(HashingEncoder):
        @property
        def remote(self) -> str | None:
            return "embed.example"

        def encode(self, texts: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
            raise AssertionError("a text was sent")

    with pytest.raises(PrivacyError, match=r"embed\.example"):
        attack(NOTES, written(5, 3), PRIVATE, HOLDOUT, encoder=Away(16))


# -- what it bears ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [SCHEMA, UNLABELLED], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize(
    "make",
    [
        lambda rows: ([], rows[:2], rows[2:]),
        lambda rows: (rows, [], rows),
        lambda rows: ([], [], []),
        lambda rows: (rows[:1], rows[1:2], rows[2:3]),
        lambda rows: ([{}], [{}], [{}]),
        lambda rows: (rows[:3], [dict.fromkeys(rows[0])] * 3, rows[3:]),
        lambda rows: (rows[:1] * 4, rows[:1] * 4, rows[:1] * 4),
    ],
    ids=["no record", "no private row", "nothing", "one row", "no value", "all missing", "constant"],
)
def test_poor_tables_do_not_break_it(
    schema: Schema, make: Callable[[list[Record]], tuple[list[Record], list[Record], list[Record]]]
) -> None:
    attacked(schema, *make(drawn(8)))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_any_schema_and_any_records_give_plain_figures_within_bounds(data: st.DataObject) -> None:
    schema = data.draw(schemas(rules=False))
    synthetic, private, holdout = (data.draw(st.lists(loose_records(schema), max_size=5)) for _ in range(3))
    found = attacked(schema, synthetic, private, holdout)
    assert found["nrs"]["value"] is None or 0 <= found["nrs"]["value"] <= 1
    for way in ("text", "kernel"):
        figures = found["membership"][way]
        if figures is not None:
            assert 0 <= figures["low"] <= figures["tpr"] <= figures["high"] <= 1
            assert 0 <= figures["auc"] <= 1
            assert 0 < figures["p_value"] <= 1
    assert found["copies"]["private_touched"] <= found["copies"]["private_rows"] <= len(private)
    assert found["alarms"] == [] or found["counts"]["compared"] == 0  # five rows a side cannot be significant


def test_a_large_table_is_represented_by_a_draw_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MOST", 50)
    found = attacked(NOTES, written(120, 3), PRIVATE, HOLDOUT)
    assert any("50 synthetic records, drawn at random" in note for note in found["notes"])
    assert found["counts"]["synthetic"] == 120
