"""Answers that cells share: generated once, kept on disk, timed, with one writer per store."""

from __future__ import annotations

from pathlib import Path

import pytest

from selpe.experiments.shared import SharedAnswers, slug, speed_of
from selpe.models.base import Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel

REQUESTS = [Request(prompt="write something", seed=seed) for seed in range(5)]


def texts(answers: SharedAnswers) -> list[str]:
    return sorted(answer.text for answer in answers.model.generate(REQUESTS))


def test_an_answer_is_generated_once_for_all_cells_and_processes(tmp_path: Path) -> None:
    model = FakeModel()
    answers = SharedAnswers(tmp_path, "a-0-fake", model, HashingEncoder())
    first = texts(answers)
    assert texts(answers) == first
    answers.close()
    later = SharedAnswers(tmp_path, "a-0-fake", model, HashingEncoder())
    assert texts(later) == first
    later.close()
    assert model.requests_served == len(REQUESTS)


def test_the_speed_of_new_answers_is_kept_and_replayed_ones_do_not_count(tmp_path: Path) -> None:
    answers = SharedAnswers(tmp_path, f"a-0-{slug('fake')}", FakeModel(seconds_per_answer=0.02), HashingEncoder())
    assert answers.tokens_per_second is None
    texts(answers)
    tokens, speed = answers.timed.tokens, answers.tokens_per_second
    assert speed is not None
    assert 0 < speed < tokens / (0.02 * len(REQUESTS)) * 1.01
    texts(answers)
    assert answers.timed.tokens == tokens
    answers.close()
    kept = speed_of(tmp_path, "fake")
    assert kept == pytest.approx(answers.tokens_per_second, rel=0.01)
    assert speed_of(tmp_path, "another") is None


def test_a_second_writer_gets_a_store_of_its_own(tmp_path: Path) -> None:
    one, two = (SharedAnswers(tmp_path, "a", FakeModel(), HashingEncoder()) for _ in range(2))
    texts(one)
    texts(two)
    one.close()
    two.close()
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["a.2.jsonl", "a.jsonl"]
    assert all(len(path.read_bytes().splitlines()) == len(REQUESTS) for path in tmp_path.glob("*.jsonl"))


def test_a_second_writer_begins_with_the_whole_answers_of_the_first(tmp_path: Path) -> None:
    model = FakeModel()
    one = SharedAnswers(tmp_path, "a", model, HashingEncoder())
    texts(one)
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b'{"key": "half a li')
    two = SharedAnswers(tmp_path, "a", model, HashingEncoder())
    texts(two)
    assert model.requests_served == len(REQUESTS)
    one.close()
    two.close()


def test_a_text_is_encoded_once_for_all_cells_and_what_that_spares_is_counted(tmp_path: Path) -> None:
    encoder = HashingEncoder()
    answers = SharedAnswers(tmp_path, "a-0-fake", FakeModel(), encoder)
    first = answers.vectors.encode_public(["a chest pain", "a cough", "a cough"])
    assert answers.vectors.timed.texts == 2
    assert answers.vectors.timed.known == 0
    answers.close()
    later = SharedAnswers(tmp_path, "a-0-fake", FakeModel(), encoder)
    again = later.vectors.encode_public(["a chest pain", "a cough", "a cough", "a fall"])
    assert (again[:3] == first).all()
    assert later.vectors.timed.texts == 3
    assert later.vectors.timed.known == 2
    assert later.vectors.timed.pace == pytest.approx(later.vectors.timed.seconds / 3)
    later.close()
