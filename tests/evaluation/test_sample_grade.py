"""The grade of a sample: each measure can fall, the rule is monotone, and the steps name what is missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from selpe.evaluation.sample_grade import (
    GRADES,
    RULE,
    CandidateSample,
    SampleGrade,
    flaw,
    grade_sample,
    graded,
    separation,
)
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record, Schema, TextField

ENCODER = HashingEncoder()
SCHEMA = Schema.from_yaml(
    """
name: letters
label: mood
fields:
  note: {kind: text, min_length: 3, max_length: 200, description: What was written}
  written_on: {kind: text, min_length: 1, max_length: 60}
  mood: {kind: category, values: {glad: pleased, angry: not pleased}}
examples:
  - {note: the parcel came on time and the driver was friendly to us, written_on: a card of paper, mood: glad}
"""
)
GLAD = ("thank", "lovely", "perfect", "friendly", "quick", "happy", "great", "warm")
ANGRY = ("broken", "late", "rude", "refund", "awful", "leaking", "never", "worst")
PLAIN = ("door", "river", "lamp", "chair", "letter", "garden", "ticket", "window", "bread", "clock", "stone", "paper")


def written(count: int = 32, *, agreeing: bool = True) -> list[Record]:
    """Records whose words agree with their class, or with none."""
    chance, records = random.Random(0), list[Record]()
    for number in range(count):
        mood = ("glad", "angry")[number % 2]
        telling = (GLAD if mood == "glad" else ANGRY) if agreeing else PLAIN
        note = [word for _ in range(5) for word in (chance.choice(telling), chance.choice(PLAIN))]
        chance.shuffle(note)
        kind = " ".join(chance.sample(PLAIN, 4))
        records.append({"note": " ".join(note), "written_on": kind, "mood": mood})
    return records


def grade(records: Sequence[Record], schema: Schema = SCHEMA, **changes: Any) -> SampleGrade:
    sample = CandidateSample(records, asked=len(records), tries=len(records))
    return grade_sample(schema, replace(sample, **changes), ENCODER, larger="big (selpe models pull big)")


def one(found: SampleGrade, name: str) -> Any:
    return next(measure for measure in found.measures if measure.name == name)


def test_a_sample_without_faults_is_good_and_needs_no_step() -> None:
    found = grade(written())
    assert (found.grade, found.steps, found.weak) == ("good", (), ())
    assert {measure.name for measure in found.measures} == set(RULE)
    assert all(measure.said for measure in found.measures)


def test_a_text_that_comes_again_is_no_matter_where_another_one_is_new() -> None:
    assert one(grade(spoilt("written_on", "the same card of paper")), "distinct").grade == "good"
    assert one(grade(spoilt("note", "")), "distinct").grade == "good"


def spoilt(field: str, text: str, share: float = 1.0) -> list[Record]:
    records = written()
    return [{**one, field: text} if number < share * len(records) else one for number, one in enumerate(records)]


@pytest.mark.parametrize(
    ("records", "changes", "name", "step"),
    [
        (written(20), {"asked": 32}, "valid", "Loosen"),
        (written(), {"tries": 200}, "first try", "Loosen"),
        (spoilt("note", str(SCHEMA.examples[0]["note"]), 0.5), {}, "own words", "unlike each other"),
        (spoilt("note", "the parcel came on time but the driver was friendly", 0.5), {}, "own words", "unlike each"),
        (written(), {"copied": 40}, "own words", "unlike each other"),
        (
            [{**one, "mood": mood} for one in written(8) for mood in ("glad", "angry")],
            {},
            "distinct",
            "unlike each other",
        ),
        (spoilt("written_on", "2024-03-05", 0.5), {}, "readable", "Describe"),
    ],
)
def test_each_measure_can_make_a_sample_poor_and_says_what_to_do(
    records: list[Record], changes: dict[str, Any], name: str, step: str
) -> None:
    found = grade(records, **changes)
    assert one(found, name).grade == "poor"
    assert found.grade == "poor"
    assert any(step in said for said in found.steps)
    assert found.steps[-1] == "Or take a larger model: big (selpe models pull big)."


def test_classes_that_nothing_tells_apart_make_a_sample_fair_and_name_classes_without_an_example() -> None:
    found = grade(written(agreeing=False))
    assert (one(found, "classes").grade, found.grade) == ("fair", "fair")
    assert any("there is none of angry" in said for said in found.steps)


@pytest.mark.parametrize("name", RULE)
def test_a_larger_share_never_has_a_worse_grade(name: str) -> None:
    grades = [GRADES.index(graded(name, share / 50, "").grade or "poor") for share in range(51)]
    assert all(before <= after for before, after in pairwise(grades))
    assert set(grades) == ({1, 2} if name == "classes" else {0, 1, 2})


def test_a_better_measure_never_gives_a_worse_sample() -> None:
    tries = [
        grade(written(agreeing=agreeing), tries=count).grade
        for agreeing, count in product((False, True), (200, 60, 32))
    ]
    worth = [GRADES.index(found) for found in tries]
    assert worth[:3] == sorted(worth[:3])
    assert worth[3:] == sorted(worth[3:])
    assert all(bad <= good for bad, good in zip(worth[:3], worth[3:], strict=True))


def test_what_cannot_be_judged_does_not_count() -> None:
    unlabelled = Schema.from_yaml(SCHEMA.to_yaml().replace("label: mood\n", ""))
    assert one(grade(written(), unlabelled), "classes").grade is None
    assert one(grade(written(4)), "classes").grade is None
    assert one(grade(written(), replace(SCHEMA, examples=())), "own words").grade is None
    bare = replace(SCHEMA, fields=SCHEMA.fields[2:], examples=())
    assert [measure.name for measure in grade(written(), bare).measures if measure.grade] == [
        "valid", "first try", "classes",
    ]  # fmt: skip


def test_classes_are_told_apart_by_what_is_written_and_not_by_chance() -> None:
    apart, chance = (separation(SCHEMA, written(agreeing=agreeing), ENCODER) for agreeing in (True, False))
    assert apart is not None
    assert chance is not None
    assert apart > 0.85
    assert chance < 0.7


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("the driver was late again and nobody called", ""),
        ("2024-03-05", "only a number or a date"),
        ("12/03/2024.", "only a number or a date"),
        ("4711", "only a number or a date"),
        ("written_on", "only the name of a field or a value of another one"),
        ("Glad", "only the name of a field or a value of another one"),
        ("x9$ 8-8 #12 (44) a1", "hardly any letters"),
        ("it is good it is good it is good it is good", "the same words again and again"),
        ("a" * 30 + " " + "b" * 169, "cut off at its greatest length"),
        ("fine", "far shorter than the examples"),
        (" ".join(f"w{chr(97 + k % 26)}{chr(97 + k // 26)}" for k in range(49)), "far longer than the examples"),
        ("荷物は時間通りに届きました、運転手さんも親切でした。", ""),
        (None, ""),
    ],
)
def test_flaws_of_a_text(text: str | None, fault: str) -> None:
    field = SCHEMA.field("note")
    assert isinstance(field, TextField)
    assert flaw(SCHEMA, field, text) == fault


def test_a_grade_is_read_back_as_it_was_written() -> None:
    found = grade(written(agreeing=False), tries=200)
    assert SampleGrade.from_dict(found.as_dict()) == found
    assert found.weak[0].grade == "poor"
