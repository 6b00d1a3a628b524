"""Finished chunks on disk: whole or not there, whatever is left of a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selpe.errors import RunError
from selpe.models.base import Answer, Place, Request
from selpe.run.large.answers import ChunkAnswers
from selpe.run.large.known import hashes_of
from selpe.run.large.parts import JOURNAL, Part, PartFolder


def kept(folder: PartFolder, count: int) -> list[Part]:
    parts = []
    for number in range(count):
        texts = [f'{{"x": {number}}}', '{"ü": "\u2028"}']
        parts.append(Part(number, {"a": 2, "b": 1}, {"a": 2}, {"I": (2, 30, 4)}, {"rule": 1}, {"duplicate": 1}))
        folder.keep(parts[-1], texts, hashes_of(texts))
    return parts


def test_parts_are_read_as_they_were_kept(tmp_path: Path) -> None:
    folder = PartFolder(tmp_path)
    parts = kept(folder, 3)
    again = PartFolder(tmp_path)
    assert again.finished() == parts
    assert again.texts(2) == ['{"x": 2}', '{"ü": "\u2028"}']
    assert list(again.hashes(1)) == list(hashes_of(again.texts(1)))
    assert (parts[0].records, parts[0].short) == (2, frozenset({"b"}))


def test_a_torn_line_is_cut_off_and_its_part_does_not_count(tmp_path: Path) -> None:
    parts = kept(PartFolder(tmp_path), 3)
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole[:-9])
    folder = PartFolder(tmp_path)
    assert folder.finished() == parts[:2]
    folder.keep(parts[2], ["{}"], hashes_of(["{}"]))
    assert folder.finished() == parts
    assert (tmp_path / JOURNAL).read_bytes() == whole


def test_a_part_that_is_gone_ends_what_is_finished(tmp_path: Path) -> None:
    parts = kept(PartFolder(tmp_path), 3)
    (tmp_path / "part-000001.parquet").unlink()
    assert PartFolder(tmp_path).finished() == parts[:1]


def test_a_spoilt_part_says_what_to_do(tmp_path: Path) -> None:
    folder = PartFolder(tmp_path)
    kept(folder, 1)
    (tmp_path / "part-000000.parquet").write_bytes(b"nothing")
    with pytest.raises(RunError, match="cannot be read") as caught:
        folder.texts(0)
    assert "resume" in caught.value.hint


def answered(seed: int, prompt: str = "p") -> Answer:
    return Answer(Request(prompt=prompt, seed=seed, place=Place("I", seed)), f"text {seed}", "stop", 5, 0, 2, 0.1)


def test_answers_of_a_chunk_are_found_after_a_cut_and_gone_after_its_end(tmp_path: Path) -> None:
    path, first = tmp_path / "answers.jsonl", ChunkAnswers()
    first.begin(path)
    for seed in (1, 2):
        first.put("m", answered(seed))
        first.put("m", answered(seed))
    first.close()
    path.write_bytes(path.read_bytes() + b'["torn')
    second = ChunkAnswers()
    second.begin(path)
    found = second.get("m", answered(2).request)
    assert found is not None
    assert (found.text, found.finish, found.prompt_tokens, found.completion_tokens) == ("text 2", "stop", 5, 2)
    assert second.get("m", answered(2, prompt="another").request) is None
    assert second.get("m", answered(3).request) is None
    second.put("m", answered(3))
    second.sync()
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["text 1", "text 2", "text 3"]
    second.end()
    assert not path.exists()
    assert second.get("m", answered(2).request) is None


def test_answers_that_failed_are_not_kept(tmp_path: Path) -> None:
    answers = ChunkAnswers()
    answers.begin(tmp_path / "answers.jsonl")
    answers.put("m", Answer(Request(prompt="p"), "", "cancelled"))
    answers.close()
    assert (tmp_path / "answers.jsonl").read_bytes() == b""


def test_lines_of_an_earlier_layout_are_passed_over(tmp_path: Path) -> None:
    path, answers = tmp_path / "answers.jsonl", ChunkAnswers()
    path.write_text('[":1:00000000", "text 1", "stop", 5, 2]\n')
    answers.begin(path)
    assert answers.get("m", answered(1).request) is None
    answers.put("m", answered(1))
    answers.close()
    answers.begin(path)
    assert answers.get("m", answered(1).request) is not None
    answers.end()


def test_a_disk_that_takes_no_answer_of_a_chunk_is_an_error_that_says_where(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path, answers = tmp_path / "answers.jsonl", ChunkAnswers()
    answers.begin(path)
    answers.put("m", answered(1))
    answers.sync()
    whole = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 20, hard))
    try:
        with pytest.raises(RunError, match="larger than the system allows") as caught:
            answers.put("m", answered(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in str(caught.value.where)
    assert path.stat().st_size == whole
    answers.close()
