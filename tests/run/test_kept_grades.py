"""Grades that are kept: for which schema, model and way to ask they hold, and what is named as a larger model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selpe.config import RunConfig, check_config
from selpe.evaluation.sample_grade import CandidateSample
from selpe.events import Event, Graded
from selpe.method.from_settings import preview_pool
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.grades import SAMPLE, first_pool_grader, graded, kept_grade, larger_than, sample_of
from small_world import SCHEMA, drawn


def config(tmp_path: Path, **changes: Any) -> RunConfig:
    content = {"dataset": "t", "data": "t.csv", "llm": "some.gguf", "guides": "off", "out": str(tmp_path / "runs")}
    return check_config(content | changes, where="test")


def test_a_grade_is_kept_for_this_schema_model_and_way_to_ask_alone(tmp_path: Path) -> None:
    asked = config(tmp_path)
    assert kept_grade(asked, SCHEMA) is None
    records = drawn(12)
    grade = graded(asked, SCHEMA, CandidateSample(records, 12, 12), HashingEncoder())
    assert kept_grade(asked, SCHEMA) == grade
    assert kept_grade(config(tmp_path, epsilon=1.0, records=77), SCHEMA) == grade  # what does not change the writing
    for other in ({"llm": "other.gguf"}, {"temperature": 0.4}, {"stages": 1}, {"guides": "auto"}):
        assert kept_grade(config(tmp_path, **other), SCHEMA) is None
    assert kept_grade(asked, replace(SCHEMA, description="Another one.")) is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": 1}'])
def test_a_damaged_book_is_no_grade_and_is_written_anew(tmp_path: Path, content: str) -> None:
    asked = config(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "grades.json").write_text(content, encoding="utf-8")
    assert kept_grade(asked, SCHEMA) is None
    grade = graded(asked, SCHEMA, CandidateSample(drawn(6), 6, 6), HashingEncoder())
    assert kept_grade(asked, SCHEMA) == grade


def test_a_sample_is_spread_over_the_pool_and_counts_what_failed(tmp_path: Path) -> None:
    made = preview_pool(config(tmp_path), SCHEMA, FakeModel(), 80)
    found, sample = sample_of(made, attempts=6)
    assert sample.asked == SAMPLE
    assert Counter(SCHEMA.label_of(record) for record in sample.records) == {"low": 16, "high": 16}
    assert sample.tries == sum(one.attempts for one in found)
    assert sample_of(made, 6, 80)[1].records == [one.record for one in made.candidates if one is not None]
    holes = replace(made, candidates=(None,) * 40 + made.candidates[40:])
    half = sample_of(holes, attempts=6)[1]
    assert (len(half.records), half.asked) == (SAMPLE // 2, SAMPLE)
    assert half.tries >= 6 * SAMPLE // 2 + SAMPLE // 2


def test_the_first_pool_is_graded_and_told_of_unless_the_model_is_the_fake_one(tmp_path: Path) -> None:
    told: list[Event] = []
    asked, encoder = config(tmp_path), HashingEncoder()
    grader = first_pool_grader(asked, SCHEMA, encoder, told.append)
    assert grader is not None
    grader(preview_pool(asked, SCHEMA, FakeModel(), 12))
    (event,) = told
    assert isinstance(event, Graded)
    kept = kept_grade(asked, SCHEMA)
    assert kept is not None
    assert (event.grade, event.records, event.steps) == (kept.grade, 12, kept.steps)
    assert first_pool_grader(config(tmp_path, llm="fake"), SCHEMA, encoder, told.append) is None


@pytest.mark.parametrize(
    ("llm", "name"),
    [
        ("smollm2", "qwen2.5-coder-1.5b"),
        ("qwen2.5-1.5b", "qwen2.5-7b"),
        ("llamacpp:gemma-3-1b", "qwen2.5-7b"),
        ("qwen2.5-7b", ""),
        ("http://127.0.0.1:11434/v1#llama3.2:3b", "qwen2.5-7b"),
        ("http://127.0.0.1:8000/v1#tuned", ""),
        ("some.gguf", ""),
    ],
)
def test_a_larger_model_that_is_free_to_use_is_named(llm: str, name: str) -> None:
    assert larger_than(llm).partition(" ")[0] == name
