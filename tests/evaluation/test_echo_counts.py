from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from selpe.evaluation.echoes import EchoCount, echoes
from selpe.method.generation import Generator, Proposal
from selpe.method.guides import Guide
from selpe.models import Answer, Request
from selpe.models.fake import FakeModel
from selpe.schema import TextField
from small_world import SCHEMA

LONG = "the line is dead since noon and nobody calls back"
FOUR_WORDS = "no internet since yesterday"
WITHOUT_SPACES = "回线从中午开始就断了,没有人回电话,我已经打了三次电话,每次都没有人接,请尽快派人来修理。"
SHORT = dict(SCHEMA.examples[1])
WITH_LONG = replace(
    SCHEMA, examples=({**SCHEMA.examples[0], "topic": LONG}, {**SCHEMA.examples[0], "topic": WITHOUT_SPACES}, SHORT)
)


def a_record(topic: str | None) -> dict[str, Any]:
    return {**SHORT, "minutes": 7, "topic": topic}


@pytest.mark.parametrize(
    ("topic", "echo"),
    [
        (LONG, True),
        ("Yesterday, the LINE is dead since noon.", True),
        ("the line is dead since yesterday", False),  # five words
        (str(SHORT["topic"]), False),  # a short text may coincide
        (WITHOUT_SPACES, True),
        (WITHOUT_SPACES[:20], False),
        (None, False),
    ],
)
def test_six_words_in_a_row_or_a_whole_long_text_are_an_echo(topic: str | None, echo: bool) -> None:
    counted = echoes(WITH_LONG, [a_record(topic), a_record("the bill came twice")])
    assert (counted.records, counted.echoed, counted.fields) == (2, int(echo), {"topic": 1} if echo else {})
    assert counted.share == (0.5 if echo else 0.0)


def test_near_copies_are_counted_apart_from_copies() -> None:
    near, copy, own = (a_record(text) for text in ("the line is dead since yesterday", LONG, "the bill came twice"))
    assert echoes(WITH_LONG, [near, copy, own, own]) == EchoCount(4, 1, {"topic": 1}, near=1)
    assert echoes(WITH_LONG, [near, own]).near_share == 0.5
    assert EchoCount(0, 0).near_share == 0.0


def test_words_that_several_examples_share_are_a_form_and_no_copy() -> None:
    form = "A caller from {} has waited since noon and asks for a call back about {}."
    examples = [{**SHORT, "topic": form.format(*words)} for words in (("Oslo", "a bill"), ("Rome", "a dead line"))]
    topic, *others = SCHEMA.fields
    assert isinstance(topic, TextField)
    schema = replace(SCHEMA, fields=(replace(topic, max_length=200), *others), examples=tuple(examples))
    assert echoes(schema, [a_record(form.format("Bern", "nothing much"))]).echoed == 0
    assert echoes(schema, [a_record(form.format("Rome", "a dead line"))]).echoed == 1
    assert echoes(schema, [a_record("caller from Rome has waited since")]).echoed == 1


def test_a_whole_example_is_an_echo_even_with_short_texts_only() -> None:
    assert echoes(WITH_LONG, [SHORT]) == EchoCount(1, 1, {})


def test_a_record_counts_once_and_no_record_is_no_echo() -> None:
    assert echoes(WITH_LONG, [a_record(f"{LONG}, {LONG}")]).echoed == 1
    assert echoes(WITH_LONG, []).share == 0.0
    assert echoes(replace(WITH_LONG, examples=()), [a_record(LONG)]).echoed == 0


class Parrot(FakeModel):
    """Copies an example in every second record: six words of it, or a whole text of four."""

    def _answer(self, request: Request) -> Answer:
        answer = super()._answer(request)
        if request.stage != "II" or request.place is None or request.place.attempt:
            return answer
        topic = (LONG, FOUR_WORDS, "my own words", "others")[request.place.number % 4]
        return replace(answer, text=json.dumps({**json.loads(answer.text), "topic": topic}))


def test_what_generation_takes_has_no_copy_that_the_report_would_count() -> None:
    schema = replace(WITH_LONG, examples=(*WITH_LONG.examples, {**SHORT, "topic": FOUR_WORDS}))
    proposals = [Proposal(Guide("plain"), seed, label="low") for seed in range(12)]
    made = Generator(Parrot(), schema).generate(proposals)
    records = [one.record for one in made.candidates if one is not None]
    assert made.effort.retries["echo"] == 6
    assert len(records) == 12
    assert echoes(schema, records).echoed == 0
