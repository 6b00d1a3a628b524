from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selpe.method.attempts import Attempts, Candidate
from selpe.method.generation import Generation, Generator, Proposal
from selpe.method.guides import Guide
from selpe.models import Answer, Request
from selpe.models.answers import AnswerStore, RememberingModel
from selpe.models.fake import FakeModel, Faults
from selpe.schema import Schema
from small_world import SCHEMA

PLAIN = Guide("plain")
# Twelve records of each class in all: proposals come to the same ones all the time.
SMALL = Schema.from_yaml(
    """
name: lamps
description: One entry per lamp.
label: room
fields:
  colour: {kind: category, values: [red, green, blue]}
  lit: {kind: boolean}
  size: {kind: category, values: [s, l]}
  room: {kind: category, values: [hall, attic]}
"""
)


def candidate(text: str) -> Candidate:
    return Candidate({"text": text}, text, Proposal(PLAIN, 0))


def attempts(count: int, most: int = 4, known: tuple[str, ...] = ()) -> Attempts:
    return Attempts(count, most, lambda record: str(record["text"]), lambda text: text in known)


def held(made: Attempts) -> list[str | None]:
    return [None if one is None else one.raw for one in made.candidates()]


def test_a_failure_asks_for_the_next_attempt_until_there_are_none() -> None:
    made = attempts(1, most=2)
    assert made.note((0, 0), "rule") == [(0, 1)]
    assert not made.settled([0])
    assert made.note((0, 1), "truncated") == []
    assert made.settled([0])
    assert made.failures() == ({"rule": 1}, {"truncated": 1})


def test_the_first_proposal_keeps_a_record_even_if_it_comes_last() -> None:
    made = attempts(2)
    assert made.note((1, 0), candidate("a")) == []
    assert held(made) == [None, "a"]
    assert made.note((0, 0), candidate("a")) == [(1, 1)]
    assert made.note((1, 1), candidate("b")) == []
    assert held(made) == ["a", "b"]
    assert made.failures()[0] == {"duplicate": 1}


def test_records_from_before_are_duplicates() -> None:
    made = attempts(1, known=("old",))
    assert made.note((0, 0), candidate("old")) == [(0, 1)]
    assert made.anew((0, 1))  # its context led to what there is already


def test_who_fails_again_has_a_spare_that_counts_only_when_its_turn_comes() -> None:
    made = attempts(1, most=6)
    made.note((0, 0), "rule")
    assert made.spares((0, 1)) == []  # most second attempts go well
    made.note((0, 1), "rule")
    assert made.spares((0, 2)) == [(0, 4)]
    assert made.spares((0, 2)) == []  # it is on its way
    made.note((0, 4), candidate("spare"))
    made.note((0, 2), "rule")
    assert held(made) == [None]
    made.note((0, 3), "rule")
    assert held(made) == ["spare"]


@pytest.mark.parametrize("how", ["abandoned", "dropped"])
def test_a_spare_that_is_not_needed_is_asked_for_again_if_its_turn_comes(how: str) -> None:
    made = attempts(2, most=6)
    for attempt in range(3):
        made.note((1, attempt), "rule")
    assert made.spares((1, 3)) == [(1, 4)]
    made.note((1, 3), candidate("a"))
    assert not made.wanted((1, 4))
    if how == "abandoned":
        made.abandon([1])
    else:
        made.drop((1, 4))
    assert made.settled([1])
    assert made.note((0, 0), candidate("a")) == [(1, 4)]


class Shuffled(FakeModel):
    """Answers any of the requests that it holds, as a busy server does."""

    def __init__(self, order: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.chance = random.Random(order)
        self.asked: list[str] = []

    def generate(self, requests: Any, **more: Any) -> Iterator[Answer]:
        source, held, follow = iter(requests), list[Request](), more["follow"]
        while True:
            while len(held) < self.chance.randint(1, 16) and (one := next(source, None)) is not None:
                held.append(one)
            if not held:
                return
            request = held.pop(self.chance.randrange(len(held)))
            self.asked.append(request.key)
            answer = self._answer(request)
            held += follow(answer)
            yield answer


@pytest.mark.parametrize("stages", [1, 2])
def test_the_pool_and_what_it_took_are_the_same_whatever_the_timing(stages: int) -> None:
    """Failures, duplicates and spares, in twenty orders of events."""
    labels = SMALL.labels
    proposals = [Proposal(PLAIN, seed, label=labels[seed % 2], facts=(("size", "s"),)) for seed in range(10)]
    made: list[Generation] = []
    asked = set()
    for order in range(20):
        model = Shuffled(order, faults=Faults(invalid_json=0.3))
        made.append(Generator(model, SMALL, stages=stages, attempts=8).generate(proposals))
        asked.add(frozenset(model.asked))
    assert len(asked) > 1  # which spares were asked for is a matter of timing, and nothing else is
    first = made[0]
    assert first.effort.retries["duplicate"] > 0
    assert sum(one is not None for one in first.candidates) >= 8
    for other in made[1:]:
        assert other.candidates == first.candidates
        assert other.effort.retries == first.effort.retries
        assert other.effort.given_up == first.effort.given_up
    assert all(one is None or one.record["size"] == "s" for one in first.candidates)


def test_a_generation_that_was_killed_goes_on_to_the_same_pool(tmp_path: Path) -> None:
    """Any part of its answers may be known again, those of spares too; the model answers in another order then."""
    proposals = [Proposal(PLAIN, seed, label=SMALL.labels[seed % 2]) for seed in range(12)]
    path = tmp_path / "answers.jsonl"
    made: list[Generation] = []
    for order in range(8):
        if made:
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(random.Random(order).sample(lines, len(lines) // 2)))
        model = RememberingModel(Shuffled(order, faults=Faults(invalid_json=0.3)), AnswerStore(path))
        made.append(Generator(model, SMALL, attempts=8).generate(proposals))
        assert model.replayed or not made[:-1]
        model.close()
    assert all(one.candidates == made[0].candidates for one in made)
    assert all(one.effort.retries == made[0].effort.retries for one in made)


def test_when_the_batch_runs_dry_a_failure_is_tried_a_few_times_at_once() -> None:
    model = Shuffled(1, faults=Faults(invalid_json=1.0))
    Generator(model, SCHEMA, attempts=4).generate([Proposal(PLAIN, 0, label="low")])
    assert model.asked.index("I:0:2") < len(model.asked) - 2
    # The context of attempt 2 was asked for together with attempt 1, and not after it.
    assert set(model.asked) == {"I:0:0", "II:0:0", "II:0:1", "I:0:2", "II:0:2", "II:0:3"}


def test_a_full_batch_has_no_spares() -> None:
    model = Shuffled(1, faults=Faults(invalid_json=0.2))
    made = Generator(model, SCHEMA).generate([Proposal(PLAIN, seed, label="low") for seed in range(200)])
    needed = sum(one.attempts for one in made.candidates if one is not None)
    attempts_made = {key.split(":", 1)[1] for key in model.asked}
    assert len(attempts_made) <= needed + 16  # only the last few failures have one


def test_spares_that_nobody_needs_are_not_waited_for() -> None:
    class Endless(FakeModel):
        """Fails twice; of what is asked ahead it never finishes the context."""

        def generate(self, requests: Any, **more: Any) -> Iterator[Answer]:
            held = list(requests)
            while held:
                request = held.pop(0)
                if request.key == "I:0:4":
                    held.append(request)
                    continue
                answer = self._answer(request)
                if request.key in ("II:0:0", "II:0:1"):
                    answer = Answer(request, "no record", "stop")
                held += more["follow"](answer)
                yield answer

    (one,) = Generator(Endless(), SCHEMA).generate([Proposal(PLAIN, 0, label="low")]).candidates
    assert one is not None
    assert one.attempts == 3
