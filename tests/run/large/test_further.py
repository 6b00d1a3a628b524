"""Further records: exact classes, nothing twice, one chunk at a time, and as the core was written."""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from selpe.errors import StoppedError
from selpe.events import Answered, Event, Included, PoolReady, StageStarted
from selpe.method.generation import Candidate, Generator, Proposal
from selpe.method.guides import Guide
from selpe.models.answers import RememberingModel
from selpe.models.base import Answer, ChatModel, Follow, Request
from selpe.models.fake import FakeModel, Faults
from selpe.run.large.answers import ChunkAnswers
from selpe.run.large.composition import Composition
from selpe.run.large.further import Further
from selpe.schema import Record, Schema
from small_world import SCHEMA, drawn

PLAIN, OTHER = Guide("plain"), Guide("other", shots=1)
TINY = Schema.from_yaml("""
name: tiny
label: side
fields:
  number: {kind: integer, min: 1, max: 40}
  side: {kind: category, values: [left, right]}
""")


def composition(schema: Schema = SCHEMA) -> Composition:
    """Of three records of each class one was asked for by another guide, and one with an exemplar."""
    shown = tuple(schema.examples[:1])
    return Composition(
        {
            label: (
                Proposal(PLAIN, 1, label=label),
                Proposal(OTHER, 2, label=label),
                Proposal(PLAIN, 3, label=label, positives=shown),
            )
            for label in schema.labels
        },
        PLAIN,
    )


def further(
    folder: Path, *, model: ChatModel | None = None, schema: Schema = SCHEMA, chunk: int = 30, **more: object
) -> Further:
    answers = ChunkAnswers()
    cancel = more.pop("cancel", None)
    generator = Generator(RememberingModel(model or FakeModel(), answers), schema, cancel=cancel)  # type: ignore[arg-type]
    return Further(schema, generator, answers, composition(schema), folder, chunk=chunk, **more)  # type: ignore[arg-type]


def test_every_class_has_exactly_what_was_asked_and_no_record_comes_twice(tmp_path: Path) -> None:
    core = drawn(10)
    model = FakeModel(faults=Faults(invalid_json=0.1, wrong_enum=0.1, truncated=0.05, timeout=0.05))
    whole = further(tmp_path, model=model).write(core, {"low": 71, "high": 40})
    texts = list(whole)
    assert len(texts) == len(set(texts)) == len(whole) == 121
    assert set(texts) > {SCHEMA.dumps(record) for record in core}
    records = [json.loads(text) for text in texts]
    assert [SCHEMA.check(record) for record in records] == [[]] * 121
    assert [SCHEMA.dumps(record) for record in records] == texts
    made = Counter(record["urgency"] for record in records) - Counter(record["urgency"] for record in core)
    assert made == {"low": 71, "high": 40}
    assert whole.missing == {}
    assert [part.records for part in whole.parts] == [27, 28, 28, 28]
    assert list(whole) == texts


def test_further_records_are_asked_for_as_the_core_was_in_the_same_shares(tmp_path: Path) -> None:
    asked = composition().proposals({"low": 30, "high": 9}, seed=1, name="x", before={"low": 2})
    ways = Counter((one.label, one.guide.name, len(one.positives)) for one in asked)
    assert ways == {
        ("low", "plain", 0): 10, ("low", "other", 0): 10, ("low", "plain", 1): 10,
        ("high", "plain", 0): 3, ("high", "other", 0): 3, ("high", "plain", 1): 3,
    }  # fmt: skip
    assert len({one.seed for one in asked}) == 39
    prompts = [(one.label, one.guide.name, one.positives) for one in asked]
    changes = sum(one != other for one, other in pairwise(prompts))
    assert changes + 1 == len({json.dumps(prompt) for prompt in prompts})  # those that share a prompt stand together


def test_a_class_without_a_record_in_the_core_is_asked_for_plainly() -> None:
    alone = Composition({}, PLAIN).proposals({"low": 2}, seed=0, name="x", before={})
    assert [(one.guide, one.label, one.positives) for one in alone] == [(PLAIN, "low", ())] * 2


def test_a_class_that_has_no_more_to_give_ends_short_and_is_not_asked_again(tmp_path: Path) -> None:
    core: list[Record] = [{"number": 7, "side": "left"}]
    model = FakeModel()
    whole = further(tmp_path, model=model, schema=TINY, chunk=60).write(core, {"left": 100, "right": 20})
    sides = Counter(json.loads(text)["side"] for text in whole)
    assert sides["right"] == 20
    assert 30 <= sides["left"] <= 40
    assert whole.missing == {"left": 101 - sides["left"]}
    assert [part.asked.get("left", 0) for part in whole.parts] == [50, 0]


def test_only_one_chunk_is_in_memory_however_many_there_are(tmp_path: Path) -> None:
    alive: list[int] = []

    def count(event: Event) -> None:
        if isinstance(event, Included):
            gc.collect()
            alive.append(sum(type(one) is Candidate for one in gc.get_objects()))

    gc.collect()
    before = sum(type(one) is Candidate for one in gc.get_objects())
    writer = further(tmp_path, chunk=20, emit=count)
    writer.write([], {"low": 80, "high": 80})
    assert len(alive) == 8
    assert max(alive) - before <= 20
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"part-{number:06d}.parquet" for number in range(8)), "parts.jsonl",
    ]  # fmt: skip


class Counting:
    """A FakeModel that says how many requests it was asked."""

    def __init__(self) -> None:
        self.inner, self.asked = FakeModel(), 0
        self.name, self.capabilities, self.count_tokens = "fake", self.inner.capabilities, self.inner.count_tokens

    def close(self) -> None:
        return

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        for answer in self.inner.generate(requests, follow=follow, cancel=cancel):
            self.asked += answer.finish != "cancelled"
            yield answer


def test_after_a_stop_nothing_is_written_twice_and_the_table_is_the_same(tmp_path: Path) -> None:
    wanted, whole = {"low": 60, "high": 60}, Counting()
    events: list[Event] = []
    expected = list(further(tmp_path / "whole", model=whole, emit=events.append).write([], wanted))
    cancel, heard, first = threading.Event(), [0], Counting()

    def stop(event: Event) -> None:
        heard[0] += event.count if isinstance(event, Answered) else 0
        if heard[0] >= 90:
            cancel.set()

    cut = further(tmp_path / "cut", model=first, emit=stop, cancel=cancel)
    cut._told = float("-inf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("selpe.run.large.further._PERIOD", 0.0)
        with pytest.raises(StoppedError):
            cut.write([], wanted)
    assert 0 < len(list((tmp_path / "cut").glob("part-*"))) < 4
    assert len(list((tmp_path / "cut").glob("answers-*"))) == 1
    second, again = Counting(), list[Event]()
    assert list(further(tmp_path / "cut", model=second, emit=again.append).write([], wanted)) == expected
    assert first.asked + second.asked == whole.asked
    told = [
        [
            sum(e.count for e in heard if isinstance(e, Answered)),
            sum(e.found for e in heard if isinstance(e, PoolReady)),
        ]
        for heard in (events, again)
    ]
    assert told[0] == told[1]
    assert any(isinstance(event, Answered) and event.replayed for event in again)
    assert [event.number for event in again if isinstance(event, StageStarted)] == [1, 2, 3, 4]


def test_a_finished_table_is_found_again_without_the_model(tmp_path: Path) -> None:
    expected = list(further(tmp_path).write([], {"low": 40, "high": 5}))
    model = Counting()
    assert list(further(tmp_path, model=model).write([], {"low": 40, "high": 5})) == expected
    assert model.asked == 0


def test_a_table_that_lacks_nothing_is_its_core(tmp_path: Path) -> None:
    core = drawn(6)
    whole = further(tmp_path).write(core, {"low": 0, "high": 0})
    assert sorted(whole) == sorted(SCHEMA.dumps(record) for record in core)
    assert (len(whole), whole.parts, whole.missing) == (6, (), {})
