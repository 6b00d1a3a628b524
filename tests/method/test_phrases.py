from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from llguidance import LLMatcher, LLTokenizer

import selpe.method
from selpe.errors import ModelError, StoppedError
from selpe.method.codebooks import Phrase
from selpe.method.phrases import MOST_TOKENS, SHOWN_ALIKE, PhraseWriter, of_pool
from selpe.models import Answer, Capabilities, Request
from selpe.models.fake import FakeModel, Faults
from selpe.schema import Schema, TextField
from small_world import SCHEMA, UNLABELLED

TOPIC = cast(TextField, SCHEMA.field("topic"))
PROMPTS = Path(selpe.method.__file__).with_name("prompts")


class Recorder(FakeModel):
    """A fake model that keeps every request it was asked."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.asked: list[Request] = []

    def _answer(self, request: Request) -> Answer:
        self.asked.append(request)
        return super()._answer(request)


class Lines(Recorder):
    """A small model that is decoded under grammars: it writes a line, as the grammar asks."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), grammar=True)

    def _answer(self, request: Request) -> Answer:
        answer = super()._answer(request)
        return replace(answer, text=f" {answer.text[:40].strip()}\n")


class Chat(Recorder):
    """A model that follows instructions."""

    name = "large-instruct"


class Backwards(FakeModel):
    """Finishes the last request first."""

    def generate(self, requests: Any, **more: Any) -> Iterator[Answer]:
        yield from super().generate(reversed(list(requests)), **more)


def texts(phrases: list[Phrase]) -> list[str]:
    return [phrase.text for phrase in phrases]


def prompt_of(request: Request) -> str:
    return request.prompt or request.messages[0].content


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


@pytest.mark.parametrize("model", [Recorder, Lines, Chat])
def test_phrases_are_valid_distinct_and_of_every_class_and_none(model: type[Recorder]) -> None:
    found = PhraseWriter(model(), SCHEMA, 1).write(TOPIC, 120)
    assert 80 < len(found) <= 120
    assert len(set(found)) == len(found)
    assert all(TOPIC.check(text) is None for text in texts(found))
    assert {phrase.label for phrase in found} == {"low", "high", None}


def test_a_small_model_writes_lines_under_a_grammar_and_others_json_under_a_schema() -> None:
    for model, form in ((Recorder(), "json"), (Lines(), "lines"), (Chat(), "json")):
        PhraseWriter(model, SCHEMA, 1).write(TOPIC, 12)
        assert all((request.grammar is not None) == (form == "lines") for request in model.asked)
        assert all((request.json_schema is not None) == (form == "json") for request in model.asked)
        assert all(request.max_tokens == MOST_TOKENS for request in model.asked)
    assert all(request.messages and not request.prompt for request in model.asked)


def taken(grammar: str, text: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), grammar)
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


@pytest.mark.parametrize("optional", [False, True])
def test_the_grammar_takes_a_phrase_on_its_line_and_never_the_sign_for_missing(optional: bool) -> None:
    model = Lines()
    PhraseWriter(model, SCHEMA, 1).write(replace(TOPIC, min_length=1, optional=optional), 1)
    grammar = model.asked[0].grammar
    assert grammar is not None
    assert LLMatcher.validate_grammar(grammar) == ""
    assert taken(grammar, " lost password\n")
    for wrong in (" -\n", "lost password\n", " two\nlines\n", " \n", " " + "x" * 61 + "\n"):
        assert not taken(grammar, wrong)


def test_an_optional_field_is_asked_for_as_if_it_were_always_there() -> None:
    model = Recorder()
    found = PhraseWriter(model, SCHEMA, 1).write(replace(TOPIC, optional=True), 60)
    assert all("anyOf" not in (request.json_schema or {})["properties"]["topic"] for request in model.asked)
    assert len(found) > 40


def by_frame(model: Recorder, frames: int) -> dict[int, list[str]]:
    """The prompts of each frame, in the order in which frames take turns."""
    found: dict[int, list[str]] = defaultdict(list)
    for request in model.asked:
        assert request.place is not None
        found[request.place.number // len(SCHEMA.labels) % frames].append(prompt_of(request))
    return dict(sorted(found.items()))


@pytest.mark.parametrize("model", [Recorder, Lines])
def test_requests_of_a_frame_share_what_they_begin_with(model: type[Recorder]) -> None:
    asked = model()
    PhraseWriter(asked, SCHEMA, 1).write(TOPIC, 80)
    prompts = by_frame(asked, 4)
    assert len(prompts) == 4  # all classes, own class, no class, most common
    for shown in prompts.values():
        assert len(set(shown)) <= len(SCHEMA.labels)  # one prompt for each class at most
    every, own, none, common = prompts.values()
    beginning = every[0][: int(0.8 * len(every[0]))]
    assert all(prompt.startswith(beginning) for prompt in every)  # only the class at its end differs
    assert len(set(none)) == 1
    for number in (0, 1):
        example = SCHEMA.examples[number]["topic"]
        assert all(str(example) in prompt for prompt in [*every, *none])
        assert sum(str(example) in prompt for prompt in own) == len(own) / 2  # those of its own class
        assert all(str(example) not in prompt for prompt in common)
    assert len({request.seed for request in asked.asked}) == 80
    sent = [prompt_of(request) for request in asked.asked]
    assert sum(one != other for one, other in pairwise(sent)) + 1 == len(set(sent))  # those alike stand together


def test_without_a_label_there_is_one_prompt_for_each_of_two_frames() -> None:
    model = Recorder()
    found = PhraseWriter(model, UNLABELLED, 1).write(TOPIC, 30)
    assert len({prompt_of(request) for request in model.asked}) == 2
    assert {phrase.label for phrase in found} == {None}


def test_commonest_values_are_asked_for_only_where_examples_are_that_short() -> None:
    example = SCHEMA.examples[0] | {"topic": "I cannot find the letter with my new password"}
    model = Recorder()
    PhraseWriter(model, replace(SCHEMA, examples=(example,)), 1).write(TOPIC, 24)
    assert not any("most common" in prompt_of(request) for request in model.asked)
    PhraseWriter(model, SCHEMA, 1).write(TOPIC, 24)
    assert any("most common" in prompt_of(request) for request in model.asked)


def test_the_same_seed_gives_the_same_phrases_in_the_same_order_whatever_order_answers_come_in() -> None:
    one = PhraseWriter(FakeModel(), SCHEMA, 1).write(TOPIC, 60)
    assert PhraseWriter(Backwards(), SCHEMA, 1).write(TOPIC, 60) == one
    assert PhraseWriter(FakeModel(), SCHEMA, 2).write(TOPIC, 60) != one
    longer = PhraseWriter(FakeModel(), SCHEMA, 1).write(TOPIC, 90)
    assert longer[: len(one)] == one


class Fixed(FakeModel):
    """Says what it is told to, in turn."""

    def __init__(self, *said: str) -> None:
        super().__init__()
        self.said = said

    def _answer(self, request: Request) -> Answer:
        assert request.place is not None
        return Answer(request, self.said[request.place.number % len(self.said)], "stop")


def test_answers_that_are_no_value_of_the_field_are_left_out_and_equal_ones_dropped() -> None:
    good = json.dumps({"topic": "lost key"})
    wrong = ["", "lost key", "[]", "null", '{"topic": 3}', '{"topic": null}', '{"other": "key"}', '{"topic": "ab"}',
             json.dumps({"topic": "x" * 61}), json.dumps({"topic": "a\x00b c"}), '{"topic": "on and on and on and o',
             json.dumps({"topic": "on and on and on and on and on and on"})]  # fmt: skip
    found = PhraseWriter(Fixed(good, *wrong), SCHEMA, 1).write(TOPIC, 13 * 12)
    assert {phrase.text for phrase in found} == {"lost key"}
    assert len(found) == len(set(found)) <= 3  # one for each class, and one for none


def test_what_was_cut_short_is_left_out() -> None:
    found = PhraseWriter(FakeModel(faults=Faults(truncated=0.5, invalid_json=0.2)), SCHEMA, 1).write(TOPIC, 100)
    assert 15 < len(found) < 50

    class Cut(FakeModel):
        def _answer(self, request: Request) -> Answer:
            return replace(super()._answer(request), finish="length")

    assert PhraseWriter(Cut(), SCHEMA, 1).write(TOPIC, 10) == []


def test_an_answer_that_never_came_is_asked_for_again_and_at_last_with_another_seed() -> None:
    model = FakeModel(faults=Faults(timeout=0.3))
    found = PhraseWriter(model, SCHEMA, 1).write(TOPIC, 100)
    assert len(found) > 80
    assert model.requests_served > 100
    assert found == PhraseWriter(FakeModel(faults=Faults(timeout=0.3)), SCHEMA, 1).write(TOPIC, 100)


def test_an_error_that_stays_is_raised_and_not_left_out() -> None:
    """A codebook with a phrase less would be another one than that of the resumed run."""
    with pytest.raises(ModelError, match="took too long"):
        PhraseWriter(FakeModel(faults=Faults(timeout=1.0)), SCHEMA, 1).write(TOPIC, 10)


def test_stopping_raises_and_gives_no_half_codebook() -> None:
    cancel = threading.Event()
    answers: list[Answer] = []

    def watch(answer: Answer) -> None:
        answers.append(answer)
        if len(answers) == 5:
            cancel.set()

    with pytest.raises(StoppedError):
        PhraseWriter(FakeModel(), SCHEMA, 1, cancel, watch).write(TOPIC, 40)
    assert sum(answer.finish == "stop" for answer in answers) == 5


def test_every_answer_is_watched() -> None:
    seen: list[Answer] = []
    PhraseWriter(FakeModel(), SCHEMA, 1, watch=seen.append).write(TOPIC, 20)
    assert sorted(answer.place.number for answer in seen) == list(range(20))
    assert {answer.request.stage for answer in seen} == {"phrases"}


def test_phrases_alike_are_asked_for_group_by_group_beside_some_of_the_group() -> None:
    model = Recorder()
    groups = [([f"lost key {i}" for i in range(20)], 12), (["line is dead"], 3), (["rent"], 0)]
    found = PhraseWriter(model, SCHEMA, 1).alike(TOPIC, groups)
    prompts = [prompt_of(request) for request in model.asked]
    assert len(prompts) == 15
    assert all(prompt.count("lost key") == SHOWN_ALIKE for prompt in prompts[:12])
    assert all("line is dead" in prompt for prompt in prompts[12:])
    assert not any("rent" in words(prompt) for prompt in prompts)
    assert {phrase.label for phrase in found} == {None}
    assert found == PhraseWriter(Backwards(), SCHEMA, 1).alike(TOPIC, groups)
    assert {request.stage for request in model.asked} == {"alike"}


@pytest.mark.parametrize(("model", "family"), [(Recorder, "document"), (Lines, "document"), (Chat, "chat")])
def test_prompts_hold_the_schema_and_what_the_model_wrote_and_nothing_else(model: type[Recorder], family: str) -> None:
    asked = model()
    writer = PhraseWriter(asked, SCHEMA, 1)
    found = writer.write(TOPIC, 24)
    writer.alike(TOPIC, [(texts(found), 6)])
    public = words(json.dumps(SCHEMA.to_dict())) | words((PROMPTS / f"{family}_phrase.j2").read_text())
    for example in SCHEMA.examples:
        public |= words(SCHEMA.dumps(example))
    public |= {"entry", "an"} | words(" ".join(texts(found)))
    for request in asked.asked:
        assert words(prompt_of(request)) <= public


def test_records_are_data_in_a_prompt_never_templates() -> None:
    model = Recorder()
    PhraseWriter(model, SCHEMA, 1).alike(TOPIC, [(["{{ 7 * 7 }} {% raw %}"], 1)])
    assert "{{ 7 * 7 }} {% raw %}" in prompt_of(model.asked[0])


def test_a_pattern_binds_phrases_too() -> None:
    coded = Schema.from_yaml(
        "name: parts\nfields:\n  part: {kind: text, max_length: 6, pattern: '[A-Z]{2}-[0-9]{3}'}\n"
    )
    field = coded.field("part")
    assert isinstance(field, TextField)
    found = PhraseWriter(FakeModel(), coded, 1).write(field, 40)
    assert len(found) > 30
    assert all(field.check(text) is None for text in texts(found))


def test_the_values_of_whole_records_are_phrases_with_their_classes_each_once() -> None:
    records = [({"topic": "lost key"}, "low"), ({"topic": None}, "low"), ({"topic": "lost key"}, "low"),
               ({"topic": "lost key"}, "high"), ({}, None)]  # fmt: skip
    assert of_pool(TOPIC, records) == [Phrase("lost key", "low"), Phrase("lost key", "high")]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said", ["[" * 100_000, "[]", '{"topic": 5}', '{"topic": "\\ud800 half"}', '{"topic": "a\\u0000b"}', "9" * 5000]
)
def test_an_answer_that_is_no_phrase_is_left_out(said: str) -> None:
    class Strange(Recorder):
        def _answer(self, request: Request) -> Answer:
            answer = super()._answer(request)
            return replace(answer, text=said) if len(self.asked) % 2 else answer

    written = PhraseWriter(Strange(), SCHEMA).write(TOPIC, 40)
    assert written
    assert len(written) <= 20 + 1
    assert all(TOPIC.check(phrase.text) is None for phrase in written)
