from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from selpe.method.echoes import EchoCheck
from selpe.method.generation import Generator, Proposal
from selpe.method.guides import Guide
from selpe.models import Answer, Request
from selpe.models.fake import FakeModel
from small_world import SCHEMA

LONG = "the line is dead since noon and nobody calls back"
EXAMPLE = {**SCHEMA.examples[0], "topic": LONG}
WITH_LONG = replace(SCHEMA, examples=(EXAMPLE, SCHEMA.examples[1]))
ECHOES = EchoCheck(WITH_LONG)


@pytest.mark.parametrize(
    ("topic", "echo"),
    [
        (LONG, True),
        ("Yesterday, the LINE is dead since noon.", True),
        ("the line is dead since yesterday", False),  # five words
        ("line dead", False),
        ("lost password", False),  # a short text of an example may coincide
    ],
)
def test_six_words_in_a_row_are_an_echo(topic: str, echo: bool) -> None:
    record = {**SCHEMA.examples[1], "topic": topic, "minutes": 7}
    assert ECHOES.is_echo(record, ECHOES.texts(()), ()) is echo


def test_a_whole_example_is_an_echo_even_with_short_texts_only() -> None:
    assert ECHOES.is_echo(dict(SCHEMA.examples[1]), (), ())
    assert not ECHOES.is_echo({**SCHEMA.examples[1], "minutes": 31}, (), ())


def test_what_a_fact_says_is_no_echo() -> None:
    record = {**SCHEMA.examples[1], "topic": LONG, "minutes": 7}
    assert not ECHOES.is_echo(record, ECHOES.texts(()), {"topic"})


def test_exemplars_are_not_to_be_copied_either() -> None:
    shown = {**SCHEMA.examples[1], "topic": "cannot open the door of the garage"}
    assert ECHOES.texts([shown]) == (LONG, shown["topic"])


class Parrot(FakeModel):
    """Repeats an example: in the first so many contexts or records of a proposal."""

    def __init__(self, stage: str, times: int) -> None:
        super().__init__()
        self.stage, self.times = stage, times
        self.asked: list[Request] = []

    def _answer(self, request: Request) -> Answer:
        self.asked.append(request)
        answer = super()._answer(request)
        if request.stage != self.stage or request.place is None or request.place.attempt >= self.times:
            return answer
        if self.stage == "I":
            return replace(answer, text=f"Someone says that {LONG}.")
        return replace(answer, text=json.dumps({**json.loads(answer.text), "topic": LONG}))


@pytest.mark.parametrize("stage", ["I", "II"])
def test_echoes_are_counted_and_written_anew(stage: str) -> None:
    model = Parrot(stage, times=2)
    proposals = [Proposal(Guide("plain"), seed, label="low") for seed in range(5)]
    made = Generator(model, WITH_LONG).generate(proposals)
    assert made.effort.retries == {"echo": 10}
    assert [one.attempts for one in made.candidates if one] == [3] * 5
    if stage == "I":  # noticed before a record is written of it
        written = [request.place.attempt for request in model.asked if request.stage == "II" and request.place]
        assert min(written) == 2


def test_an_echo_to_the_end_is_given_up() -> None:
    made = Generator(Parrot("II", times=9), WITH_LONG, attempts=3).generate([Proposal(Guide("plain"), 1, label="low")])
    assert made.candidates == (None,)
    assert made.effort.given_up == {"echo": 1}


def test_engines_are_told_what_not_to_copy() -> None:
    model: Any = Parrot("none", times=0)
    exemplar = {**SCHEMA.examples[1], "topic": "cannot open the door of the garage"}
    Generator(model, WITH_LONG).generate([Proposal(Guide("plain"), 1, label="low", positives=(exemplar,))])
    assert {request.unlike for request in model.asked} == {(LONG, exemplar["topic"])}
