from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from selpe.method.echoes import EchoCheck
from selpe.method.generation import Generator, Proposal
from selpe.method.guides import Guide
from selpe.method.phrases import PhraseWriter
from selpe.models import Answer, Request
from selpe.models.fake import FakeModel
from selpe.schema import TextField
from small_world import SCHEMA

LONG = "the line is dead since noon and nobody calls back"
EXAMPLE = {**SCHEMA.examples[0], "topic": LONG}
FEW_WORDS = "no internet since yesterday"  # too few for six in a row, too many for chance
WITH_LONG = replace(SCHEMA, examples=(EXAMPLE, SCHEMA.examples[1], {**EXAMPLE, "topic": FEW_WORDS}))
ECHOES = EchoCheck(WITH_LONG)


@pytest.mark.parametrize(
    ("topic", "echo"),
    [
        (LONG, True),
        ("Yesterday, the LINE is dead since noon.", True),
        ("the line is dead since yesterday", False),  # five words
        ("the line is dead since 5", False),
        ("line dead", False),
        ("lost password", False),  # a short text of an example may coincide
        (f"  {FEW_WORDS.upper()}", True),
        (f"{FEW_WORDS}!", True),
        (f"{FEW_WORDS} evening", False),
        ("since yesterday no internet", False),
    ],
)
def test_six_words_in_a_row_or_a_whole_text_of_four_are_an_echo(topic: str, echo: bool) -> None:
    record = {**SCHEMA.examples[1], "topic": topic, "minutes": 7}
    assert ECHOES.is_echo(record, ECHOES.texts(()), ()) is echo


@pytest.mark.parametrize(
    ("topic", "near"),
    [
        ("the line is dead since yesterday", True),
        ("the line is dead, and nobody calls back", True),
        ("the line is slow since noon and somebody calls", False),  # one of seven runs
        ("line is dead", False),  # too few words
        ("nobody calls back when the bill comes twice a month", False),
    ],
)
def test_most_of_a_text_from_an_example_with_words_changed_is_a_near_copy(topic: str, near: bool) -> None:
    record = {**SCHEMA.examples[1], "topic": topic, "minutes": 7}
    assert ECHOES.is_near(record) is near
    assert not ECHOES.is_echo(record, ECHOES.texts(()), ())
    assert not ECHOES.is_near(record, given={"topic"})


def test_a_form_that_several_examples_share_makes_no_near_copy() -> None:
    form = "A caller from {} has waited since noon and asks for a call back about {}."
    examples = [{**EXAMPLE, "topic": form.format(*words)} for words in (("Oslo", "a bill"), ("Rome", "a line"))]
    topic, *others = SCHEMA.fields
    assert isinstance(topic, TextField)
    schema = replace(SCHEMA, fields=(replace(topic, max_length=200), *others), examples=tuple(examples))
    assert not EchoCheck(schema).is_near({**EXAMPLE, "topic": form.format("Bern", "nothing at all")})


def test_a_whole_example_is_an_echo_even_with_short_texts_only() -> None:
    assert ECHOES.is_echo(dict(SCHEMA.examples[1]), (), ())
    assert not ECHOES.is_echo({**SCHEMA.examples[1], "minutes": 31}, (), ())


def test_what_a_fact_says_is_no_echo() -> None:
    record = {**SCHEMA.examples[1], "topic": LONG, "minutes": 7}
    assert not ECHOES.is_echo(record, ECHOES.texts(()), {"topic"})


def test_exemplars_are_not_to_be_copied_either() -> None:
    shown = {**SCHEMA.examples[1], "topic": "cannot open the door of the garage"}
    assert ECHOES.texts([shown]) == (LONG, FEW_WORDS, shown["topic"])


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


def test_a_near_copy_is_written_again_twice_and_then_taken() -> None:
    class NearParrot(Parrot):
        def _answer(self, request: Request) -> Answer:
            answer = super()._answer(request)
            return replace(answer, text=answer.text.replace(LONG, "the line is dead and nobody calls back"))

    made = Generator(NearParrot("II", times=9), WITH_LONG).generate([Proposal(Guide("plain"), 1, label="low")])
    (candidate,) = made.candidates
    assert candidate is not None
    assert candidate.record["topic"] == "the line is dead and nobody calls back"
    assert (candidate.attempts, made.effort.retries) == (3, {"echo": 2})


def test_an_echo_to_the_end_is_given_up() -> None:
    made = Generator(Parrot("II", times=9), WITH_LONG, attempts=3).generate([Proposal(Guide("plain"), 1, label="low")])
    assert made.candidates == (None,)
    assert made.effort.given_up == {"echo": 1}


def test_engines_are_told_what_not_to_copy() -> None:
    model: Any = Parrot("none", times=0)
    exemplar = {**SCHEMA.examples[1], "topic": "cannot open the door of the garage"}
    Generator(model, WITH_LONG).generate([Proposal(Guide("plain"), 1, label="low", positives=(exemplar,))])
    assert {request.unlike for request in model.asked} == {(LONG, FEW_WORDS, exemplar["topic"], "line is dead")}


def test_a_short_text_of_an_example_may_come_again_in_one_of_three_proposals() -> None:
    model: Any = Parrot("none", times=0)
    Generator(model, WITH_LONG).generate([Proposal(Guide("plain"), seed, label="low") for seed in range(3, 9)])
    told = {request.place.number: "line is dead" in request.unlike for request in model.asked if request.place}
    assert list(dict(sorted(told.items())).values()) == [False, True, True] * 2


def test_examples_of_a_single_field_are_examples_too() -> None:
    topic = SCHEMA.field("topic")
    assert isinstance(topic, TextField)
    with_example = replace(topic, examples=(*topic.examples, LONG))
    fields = tuple(with_example if one is topic else one for one in SCHEMA.fields)
    check = EchoCheck(replace(SCHEMA, fields=fields))
    assert check.texts(()) == (LONG,)
    assert check.is_echo({**SCHEMA.examples[1], "topic": f"since today {LONG}"}, check.texts(()), ())


class Parroting(FakeModel):
    """Says an example's text to every second request for a phrase, and something of its own to the others."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said
        self.asked: list[Request] = []

    def _answer(self, request: Request) -> Answer:
        self.asked.append(request)
        number = request.place.number if request.place else 0
        text = self.said if number % 2 else f"the screen shows number {number}"
        return replace(super()._answer(request), text=json.dumps({"topic": text}))


@pytest.mark.parametrize("said", [f"today {LONG}", FEW_WORDS])
def test_a_phrase_that_copies_an_example_never_becomes_a_fact(said: str) -> None:
    model = Parroting(said)
    topic = WITH_LONG.field("topic")
    assert isinstance(topic, TextField)
    found = PhraseWriter(model, WITH_LONG).write(topic, 8)
    assert sorted(one.text for one in found) == [f"the screen shows number {number}" for number in (0, 2, 4, 6)]
    assert {request.unlike for request in model.asked} == {(LONG, FEW_WORDS)}


def test_a_text_that_is_part_of_another_is_no_form_that_both_share() -> None:
    topic, *others = SCHEMA.fields
    fields = (replace(topic, examples=("the line is dead since noon and nobody", "the line is dead")), *others)
    echoes = EchoCheck(replace(WITH_LONG, fields=fields))
    assert echoes.texts(()) == (LONG, FEW_WORDS, "the line is dead")


def test_notes_with_a_near_copy_are_noticed_before_a_record_is_written_of_them() -> None:
    assert ECHOES.has_near("topic: the line is dead since yesterday; channel: mail")
    assert not ECHOES.has_near("topic: the line is slow since noon and somebody calls; channel: mail")

    class Near(Parrot):
        def _answer(self, request: Request) -> Answer:
            answer = super()._answer(request)
            return replace(answer, text="topic: the line is dead since yesterday") if request.stage == "I" else answer

    model = Near("none", times=0)
    made = Generator(model, WITH_LONG).generate([Proposal(Guide("plain"), 1, label="low")])
    assert made.effort.retries == {"echo": 2}
    taken = {request.place.attempt for request in model.asked if request.stage == "II" and request.place}
    assert min(taken) == 2
