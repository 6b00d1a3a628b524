from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from selpe.errors import ModelError
from selpe.method.effort import Effort
from selpe.method.generation import (
    CONTEXT_TOKENS,
    Generator,
    Proposal,
    context_tokens,
    record_tokens,
    without_exemplars,
)
from selpe.method.guides import Guide, builtin_guides, family_of, user_guides, written_guides
from selpe.method.phrases import repetitive
from selpe.method.record_forms import Fact, written
from selpe.models import Answer, Capabilities, Request
from selpe.models.base import Finish, Place
from selpe.models.fake import FakeModel, Faults
from selpe.schema import Record, Schema, Span
from small_world import SCHEMA, UNLABELLED, drawn

DOCUMENT, CHAT = Guide("doc"), Guide("chat", family="chat")


def proposals(count: int, guide: Guide = DOCUMENT, **more: Any) -> list[Proposal]:
    return [Proposal(guide, seed, label=SCHEMA.labels[seed % 2], **more) for seed in range(count)]


class Recorder(FakeModel):
    """A fake model that keeps every request it was asked."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.asked: list[Request] = []

    def generate(self, requests: Any, **more: Any) -> Iterator[Answer]:
        follow = more.pop("follow", None)

        def keep(answer: Answer) -> Any:
            further = list(follow(answer)) if follow else []
            self.asked.extend(further)
            return further

        def noted() -> Iterator[Request]:
            for request in requests:
                self.asked.append(request)
                yield request

        yield from super().generate(noted(), follow=keep, **more)


@pytest.mark.parametrize("guide", [DOCUMENT, CHAT, Guide("seeded", hints=2)])
@pytest.mark.parametrize("stages", [1, 2])
def test_every_candidate_is_valid_distinct_and_of_its_class(guide: Guide, stages: int) -> None:
    made = Generator(FakeModel(), SCHEMA, stages=stages).generate(proposals(40, guide))
    found = [candidate for candidate in made.candidates if candidate is not None]
    assert len(found) == 40
    assert all(SCHEMA.check(candidate.record) == [] for candidate in found)
    assert len({SCHEMA.dumps(candidate.record) for candidate in found}) == 40
    assert [SCHEMA.label_of(candidate.record) for candidate in found] == [SCHEMA.labels[i % 2] for i in range(40)]
    assert all(bool(candidate.context) == (stages == 2) for candidate in found)


def test_a_context_has_room_for_all_that_an_example_says() -> None:
    long = {**SCHEMA.examples[0], "topic": "the line is dead since noon, " * 14}
    wide = Schema.from_yaml(SCHEMA.to_yaml().replace("max_length: 60", "max_length: 600"))
    wide = replace(wide, examples=(long,))
    room = {}
    for schema in (SCHEMA, wide):
        model = Recorder()
        Generator(model, schema).generate(proposals(2))
        room[schema.fingerprint()] = {request.max_tokens for request in model.asked if request.key.startswith("I:")}
    assert room[SCHEMA.fingerprint()] == {CONTEXT_TOKENS}
    assert room[wide.fingerprint()] == {context_tokens(wide)}
    assert len(str(long)) / 3 < context_tokens(wide) < record_tokens(wide)
    without = replace(wide, examples=())
    assert CONTEXT_TOKENS < context_tokens(without) < record_tokens(without)


def test_faults_are_retried_within_the_budget_and_counted_by_reason() -> None:
    faults = Faults(invalid_json=0.15, truncated=0.1, wrong_enum=0.1, timeout=0.1, rate_limited=0.05)
    made = Generator(FakeModel(faults=faults), SCHEMA, attempts=8).generate(proposals(80))
    assert sum(candidate is not None for candidate in made.candidates) >= 78
    assert {"not a record", "truncated", "invalid", "model error"} <= set(made.effort.retries)


def test_what_never_works_is_given_up_and_counted() -> None:
    made = Generator(FakeModel(faults=Faults(invalid_json=1.0)), SCHEMA, attempts=3).generate(proposals(5))
    assert made.candidates == (None,) * 5
    assert made.effort.given_up == {"not a record": 5}
    assert made.effort.answers == 25  # of each: a context and two records, then another context and its record


def test_every_token_that_is_written_is_in_a_candidate_or_thrown_away_for_a_reason() -> None:
    answers: list[Answer] = []
    faults = Faults(invalid_json=0.2, truncated=0.1, wrong_enum=0.1)
    asked = proposals(60)
    first = Generator(FakeModel(faults=faults), SCHEMA, attempts=3).generate(asked)
    again = [made.record for made in first.candidates[:10] if made is not None]
    made = Generator(FakeModel(faults=faults), SCHEMA, attempts=3).generate(asked, taken=again, watch=answers.append)
    written = {(one.place.stage, one.place.number, one.place.attempt): one.completion_tokens for one in answers}
    kept = 0
    for number, candidate in enumerate(made.candidates):
        if candidate is not None:
            attempt = candidate.attempts - 1
            opened = max(at for stage, of, at in written if (stage, of) == ("I", number) and at <= attempt)
            kept += written["I", number, opened] + written["II", number, attempt]
    assert kept + made.effort.thrown.total() == made.effort.completion_tokens == sum(written.values())
    assert set(made.effort.thrown) == set(made.effort.retries) | set(made.effort.given_up)
    assert {"duplicate", "not a record"} <= set(made.effort.thrown)


def test_answers_from_the_disk_are_not_thrown_away() -> None:
    effort = Effort()
    for attempt, replayed in ((0, True), (1, False), (2, False)):
        request = Request(prompt="x", place=Place("II", 0, attempt))
        effort.note(Answer(request, "", "stop", completion_tokens=30, replayed=replayed))
    effort.settle([None], {(0, 0): "rule", (0, 1): "rule"})
    assert effort.thrown == {"rule": 30, "spare": 30}
    assert effort.completion_tokens == 90


def test_an_engine_is_told_what_it_wrote_itself() -> None:
    model = Recorder()
    Generator(model, SCHEMA).generate(proposals(3))
    for request in model.asked:
        assert bool(request.own) == (request.stage == "II")
        assert request.own in request.prompt


def test_a_record_that_fails_is_written_once_more_from_its_context_and_then_from_another() -> None:
    model = Recorder(faults=Faults(invalid_json=1.0))
    Generator(model, SCHEMA, attempts=4).generate(proposals(1, Guide("seeded", hints=2)))
    assert [request.key for request in model.asked] == ["I:0:0", "II:0:0", "II:0:1", "I:0:2", "II:0:2", "II:0:3"]
    first, again, _, other, last = (request for request in model.asked[1:])
    assert first.prompt == again.prompt
    assert first.seed != again.seed
    assert (first.grammar, first.json_schema) == (again.grammar, again.json_schema)  # the same seeded values
    assert other.prompt == last.prompt != first.prompt


def test_an_error_that_cannot_pass_stops_the_generation() -> None:
    class Broken(FakeModel):
        def generate(self, requests: Any, **more: Any) -> Iterator[Answer]:
            for request in requests:
                yield Answer(request, "", "error", error=ModelError("no weights"))

    with pytest.raises(ModelError, match="no weights"):
        Generator(Broken(), SCHEMA).generate(proposals(3))


class Deaf(FakeModel):
    """Does not answer some requests the first few times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.asked: Counter[int] = Counter()

    def _answer(self, request: Request) -> Answer:
        self.asked[request.seed] += 1
        if request.seed % 3 == 0 and self.asked[request.seed] <= self.times:
            return Answer(request, "", "error", error=ModelError("no answer came", retryable=True))
        return super()._answer(request)


def test_an_answer_that_never_came_is_asked_for_again_as_it_was() -> None:
    deaf = Deaf(times=2)
    made = Generator(deaf, SCHEMA).generate(proposals(20))
    assert made.candidates == Generator(FakeModel(), SCHEMA).generate(proposals(20)).candidates
    assert made.effort.retries["model error"] > 10


def test_a_request_that_is_never_answered_is_given_up_for_another() -> None:
    made = Generator(Deaf(times=10**6), SCHEMA, attempts=12).generate(proposals(20))
    assert all(candidate is not None for candidate in made.candidates)
    assert max(candidate.attempts for candidate in made.candidates if candidate) > 1


def test_when_a_proposal_is_never_answered_at_all_the_model_is_at_fault_and_not_the_proposal() -> None:
    class Silent(FakeModel):
        def _answer(self, request: Request) -> Answer:
            return Answer(request, "", "error", error=ModelError("no answer came", retryable=True))

    with pytest.raises(ModelError, match="no answer came"):
        Generator(Silent(), SCHEMA).generate(proposals(3))


def test_the_pool_does_not_depend_on_the_order_in_which_answers_arrive() -> None:
    class Backwards(FakeModel):
        def generate(self, requests: Any, **more: Any) -> Iterator[Answer]:
            yield from super().generate(reversed(list(requests)), **more)

    texts = [
        [SCHEMA.dumps(c.record) for c in Generator(model, SCHEMA).generate(proposals(30)).candidates if c]
        for model in (FakeModel(), Backwards())
    ]
    assert texts[0] == texts[1]


def test_duplicates_of_earlier_records_are_refused() -> None:
    first = Generator(FakeModel(), SCHEMA).generate(proposals(10)).candidates
    taken = [candidate.record for candidate in first if candidate]
    again = Generator(FakeModel(), SCHEMA).generate(proposals(10), taken=taken)
    assert again.effort.retries["duplicate"] == 10
    assert not {SCHEMA.dumps(c.record) for c in again.candidates if c} & {SCHEMA.dumps(record) for record in taken}


def test_seeded_values_are_kept_by_the_record() -> None:
    model = Recorder()
    made = Generator(model, SCHEMA).generate(proposals(12, Guide("seeded", hints=2)))
    for candidate, request in zip(made.candidates, [r for r in model.asked if r.json_schema], strict=False):
        assert candidate is not None
        assert request.json_schema is not None
        fixed = {k: v["const"] for k, v in request.json_schema["properties"].items() if "const" in v}
        assert len(fixed) == 3


@pytest.mark.parametrize("guide", [DOCUMENT, CHAT])
def test_prompts_hold_the_schema_the_guide_and_the_exemplars_and_nothing_else(guide: Guide) -> None:
    model = Recorder()
    good, bad = drawn(2, offset=500)
    good["topic"], bad["topic"] = "GOODMARK", "BADMARK"
    shown = [Proposal(guide, 1, label="low", positives=(good,), negatives=(bad,))]
    Generator(model, SCHEMA).generate(shown)
    first = model.asked[0].prompt or model.asked[0].messages[0].content
    assert "GOODMARK" in first
    assert "BADMARK" in first
    assert SCHEMA.description in first
    Generator(model, SCHEMA).generate([without_exemplars(proposal) for proposal in shown])
    bare = model.asked[2].prompt or model.asked[2].messages[0].content
    assert "MARK" not in bare


def test_records_are_data_in_a_prompt_never_templates() -> None:
    hostile = dict(drawn(1)[0])
    hostile["topic"] = "{{ 7 * 7 }} {% raw %} {# x #}"
    model = Recorder()
    Generator(model, SCHEMA).generate([Proposal(DOCUMENT, 1, label="low", positives=(hostile,))])
    assert "{{ 7 * 7 }}" in model.asked[0].prompt


def test_a_schema_without_label_is_generated_too() -> None:
    made = Generator(FakeModel(), UNLABELLED).generate([Proposal(DOCUMENT, seed) for seed in range(6)])
    assert all(candidate is not None for candidate in made.candidates)


def test_cancelling_returns_what_is_there() -> None:
    cancel = threading.Event()
    cancel.set()
    made = Generator(FakeModel(), SCHEMA, cancel=cancel).generate(proposals(4))
    assert made.candidates == (None,) * 4


def test_small_models_continue_documents_and_larger_ones_follow_instructions() -> None:
    able = Capabilities(chat_template=True)
    assert family_of("local:SmolLM2-135M-Instruct", able) == "document"
    assert family_of("qwen2.5-7b-instruct", able) == "chat"
    assert family_of("some-base-model", Capabilities(chat_template=False)) == "document"


def test_guides_really_differ_and_names_are_distinct() -> None:
    model = FakeModel()
    guides = builtin_guides(SCHEMA, model.name, model.capabilities()) + user_guides(
        ["be brief"], model.name, model.capabilities()
    )
    assert len({guide.name for guide in guides}) == len(guides) >= 6
    assert len(set(guides)) == len(guides)
    assert guides[-1].text == "be brief"
    assert len(written_guides(SCHEMA, model, count=2, seed=5)) == 2


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


def test_the_prompt_holds_no_record_that_is_not_public() -> None:
    """Every text in a prompt comes from schema, guide or an earlier answer: take those away, and no word is left."""
    model = Recorder()
    Generator(model, SCHEMA).generate(proposals(6))
    public = words(json.dumps(SCHEMA.to_dict()))
    for record in SCHEMA.examples:
        public |= words(SCHEMA.linearise(record)) | words(SCHEMA.dumps(record))
    for answer in FakeModel().generate(request for request in model.asked if request.json_schema is None):
        public |= words(answer.text)
    for request in model.asked:
        assert words(request.prompt) - public <= {"typical", "entries", "notes", "record"}


def test_a_text_that_goes_in_circles_is_not_taken() -> None:
    assert repetitive("no hair: 2, no hair: 2, no hair: 2, no hair: 2, no hair: 2,")
    assert not repetitive("Since last night, shakes on and off. Sclera yellow. Stones known.")
    assert not repetitive("")

    class Circling(FakeModel):
        def _answer(self, request: Request) -> Answer:
            record = json.loads(super()._answer(request).text) | {"topic": "on and " * 8 + "on"}
            return Answer(request, json.dumps(record), "stop")

    made = Generator(Circling(), SCHEMA, stages=1, attempts=2).generate(proposals(3))
    assert made.candidates == (None,) * 3
    assert (made.effort.retries["repetitive"], made.effort.given_up["repetitive"]) == (3, 3)


# -- facts -------------------------------------------------------------------------------------------------------------

FACTS: tuple[tuple[str, Fact], ...] = (
    ("topic", "lost key"),
    ("channel", "mail"),
    ("minutes", Span(20, 30)),
    ("waited", None),
)


@pytest.mark.parametrize("guide", [DOCUMENT, CHAT, Guide("seeded", hints=2)])
@pytest.mark.parametrize("stages", [1, 2])
def test_a_candidate_has_the_facts_of_its_proposal(guide: Guide, stages: int) -> None:
    made = Generator(FakeModel(), SCHEMA, stages=stages).generate(proposals(30, guide, facts=FACTS))
    for candidate in made.candidates:
        assert candidate is not None
        assert candidate.proposal.facts == FACTS
        record = candidate.record
        assert (record["topic"], record["channel"], record["waited"]) == ("lost key", "mail", None)
        assert 20 <= int(record["minutes"]) <= 30  # type: ignore[arg-type]
    assert len({candidate.record["minutes"] for candidate in made.candidates if candidate}) > 3


def test_facts_are_asked_for_in_the_prompt_and_stand_above_the_examples_of_the_class() -> None:
    model = Recorder()
    Generator(model, SCHEMA).generate([Proposal(DOCUMENT, 1, label="low", facts=FACTS)])
    first = model.asked[0].prompt
    asked = "urgency low (can wait), topic lost key, channel mail (by letter), minutes 20 to 30, waited unknown:"
    # What stands above an example: the same fields in the same order, with its own values.
    own = "urgency low (can wait), topic lost password, channel phone (by telephone), minutes 5 min, waited 2:"
    assert own in first
    assert first.endswith(f"{asked}\nNotes:")


def test_chat_prompts_say_that_the_facts_must_be_there() -> None:
    model = Recorder()
    Generator(model, SCHEMA).generate([Proposal(CHAT, 1, label="low", facts=FACTS)])
    assert "topic lost key and channel mail (by letter) and minutes 20 to 30" in model.asked[0].messages[0].content


def test_facts_take_the_place_of_seeded_values() -> None:
    model = Recorder()
    Generator(model, SCHEMA).generate([Proposal(Guide("seeded", hints=2), 1, label="low", facts=FACTS[:1])])
    record = next(request for request in model.asked if request.json_schema)
    assert record.json_schema is not None
    assert {name for name, domain in record.json_schema["properties"].items() if "const" in domain} == {
        "topic",
        "urgency",
    }


WRITTEN: Record = {"topic": "a broken chair", "channel": "phone", "minutes": 44, "waited": 3, "score": 2.5,
                   "solved": False, "day": "2024-11-12", "urgency": "low"}  # fmt: skip


class Noting(Recorder):
    """Writes these notes, and of `WRITTEN` the lines that it is asked for."""

    def __init__(self, *notes: str, finish: Finish = "stop") -> None:
        super().__init__()
        self.notes, self.finish = notes, finish

    def _answer(self, request: Request) -> Answer:
        answer = super()._answer(request)
        if request.place is not None and request.stage == "I":
            return replace(answer, text=self.notes[request.place.attempt % len(self.notes)], finish=self.finish)
        if request.grammar is None:
            return answer
        lines = written(SCHEMA, WRITTEN | {"channel": "visit", "minutes": 60}, "lines").split("\n")
        asked = [line for line in lines if f'"{line.partition(":")[0]}: "' in request.grammar]
        return replace(answer, text="\n".join([*asked, ""]), finish="stop")


LINES = Guide("lines", form="lines")
NOTES = "topic: dead line at home; channel: mail; minutes: 30 min; waited: 12; score: 7.5; solved: yes; day: 2024-03-05"
SAID: Record = {"topic": "dead line at home", "channel": "mail", "minutes": 30, "waited": 12, "score": 7.5,
                "solved": True, "day": "2024-03-05", "urgency": "low"}  # fmt: skip


def test_what_notes_say_in_full_is_taken_over_and_not_written_again() -> None:
    model, seen = Noting(NOTES), list[Answer]()
    made = Generator(model, SCHEMA).generate([Proposal(LINES, 1, label="low")], watch=seen.append)
    (candidate,) = made.candidates
    assert candidate is not None
    assert candidate.record == SAID
    assert candidate.raw == SCHEMA.dumps(SAID)
    assert [request.stage for request in model.asked] == ["I"]
    assert [answer.place.stage for answer in seen] == ["I", "II"]  # who counts candidates still sees one
    assert sum(answer.completion_tokens for answer in seen) == made.effort.completion_tokens


@pytest.mark.parametrize(
    ("notes", "open_fields"),
    [
        (NOTES.replace("minutes: 30 min", "minutes: 300 min"), {"minutes"}),
        (NOTES.replace("minutes: 30 min", "minutes: 1 min"), {"solved"}),  # a rule allows only one of them
        (NOTES.replace("topic: dead line at home; ", ""), {"topic"}),
        (NOTES.replace("dead line at home", "on and on and " * 7), {"topic"}),  # in circles
    ],
)
def test_stage_two_writes_what_notes_leave_open(notes: str, open_fields: set[str]) -> None:
    model = Noting(notes)
    (candidate,) = Generator(model, SCHEMA).generate([Proposal(LINES, 1, label="low")]).candidates
    assert candidate is not None
    assert SCHEMA.check(candidate.record) == []
    assert {name for name in SCHEMA.names if candidate.record[name] != SAID[name]} <= open_fields | {"minutes"}
    (asked,) = (request for request in model.asked if request.stage == "II")
    assert asked.grammar is not None
    assert {name for name in SCHEMA.names if f'"{name}: "' in asked.grammar} == open_fields | {"urgency"}


def test_facts_are_written_whatever_the_notes_say() -> None:
    model = Noting(NOTES)
    fact: tuple[tuple[str, Fact], ...] = (("channel", "visit"), ("minutes", Span(60, 90)))
    (candidate,) = Generator(model, SCHEMA).generate([Proposal(LINES, 1, label="low", facts=fact)]).candidates
    assert candidate is not None
    assert candidate.record["channel"] == "visit"
    assert 60 <= int(str(candidate.record["minutes"])) <= 90
    assert candidate.record["topic"] == SAID["topic"]


def test_the_last_value_of_notes_that_were_cut_short_is_written() -> None:
    model = Noting(NOTES, finish="length")
    Generator(model, SCHEMA).generate([Proposal(LINES, 1, label="low")])
    (asked,) = (request for request in model.asked if request.stage == "II")
    assert asked.grammar is not None
    assert '"day: "' in asked.grammar
    assert '"score: "' not in asked.grammar


def test_notes_that_say_all_of_a_record_there_is_are_followed_by_other_notes() -> None:
    other = NOTES.replace("minutes: 30", "minutes: 31")
    model = Noting(NOTES, other)
    made = Generator(model, SCHEMA).generate([Proposal(LINES, 1, label="low")], taken=[SAID])
    (candidate,) = made.candidates
    assert candidate is not None
    assert candidate.record == {**SAID, "minutes": 31}
    assert made.effort.retries == {"duplicate": 1}


@pytest.mark.parametrize("guide", [DOCUMENT, CHAT])
def test_a_json_object_is_written_whole(guide: Guide) -> None:
    model = Noting(NOTES)
    Generator(model, SCHEMA).generate([Proposal(guide, 1, label="low")])
    (asked,) = (request for request in model.asked if request.stage == "II")
    assert asked.json_schema is not None
    assert set(asked.json_schema["properties"]) == set(SCHEMA.names)


class Repeating(FakeModel):
    """Says the same in the topic of so many attempts of each proposal, and then something of its own."""

    def __init__(self, times: int, alike: int = 10**6, **settings: Any) -> None:
        super().__init__(**settings)
        self.times, self.alike = times, alike

    def _answer(self, request: Request) -> Answer:
        answer = super()._answer(request)
        place = request.place
        if place is None or place.stage == "I":
            return answer
        own = f"matter {place.number} of attempt {place.attempt}"
        topic = "the line is dead" if place.attempt < self.times and place.number < self.alike else own
        return replace(answer, text=json.dumps({**json.loads(answer.text), "topic": topic}))


def test_long_texts_that_come_again_are_written_anew() -> None:
    made = Generator(Repeating(times=1), SCHEMA).generate(proposals(20))
    assert [one.attempts for one in made.candidates if one] == [1] + [2] * 19
    assert made.effort.retries == {"repeated": 19}
    assert set(made.effort.thrown) == {"repeated"}
    assert not made.effort.given_up


def test_what_says_the_same_whatever_is_tried_is_kept() -> None:
    made = Generator(Repeating(times=9), SCHEMA, attempts=4).generate(proposals(20))
    found = [one for one in made.candidates if one]
    assert len(found) == 20
    assert {one.record["topic"] for one in found} == {"the line is dead"}
    assert max(one.attempts for one in found) == 3  # two more tries, and it is taken as it is
    assert not made.effort.given_up


def test_a_few_long_texts_that_come_again_are_left_as_they_are() -> None:
    made = Generator(Repeating(times=1, alike=2), SCHEMA).generate(proposals(60))
    assert not made.effort.retries


def test_a_long_text_that_a_fact_says_may_come_again() -> None:
    fact: tuple[tuple[str, Fact], ...] = (("topic", "the line is dead"),)
    made = Generator(Repeating(times=9), SCHEMA).generate(proposals(20, facts=fact))
    assert not made.effort.retries


def test_what_comes_again_does_not_hang_on_the_order_of_answers() -> None:
    class Backwards(Repeating):
        def generate(self, requests: Any, **more: Any) -> Iterator[Answer]:
            yield from super().generate(reversed(list(requests)), **more)

    found = [Generator(kind(times=1), SCHEMA).generate(proposals(30)).candidates for kind in (Repeating, Backwards)]
    pools = [[(SCHEMA.dumps(one.record), one.attempts) for one in candidates if one] for candidates in found]
    assert pools[0] == pools[1]
    assert [attempts for _, attempts in pools[0]] == [1] + [2] * 29


def test_what_was_taken_back_is_given_back_where_nothing_else_came() -> None:
    class Once(Repeating):
        def _answer(self, request: Request) -> Answer:
            answer = super()._answer(request)
            later = request.place is not None and request.stage == "II" and request.place.attempt > 0
            return replace(answer, text="no record") if later else answer

    made = Generator(Once(times=9), SCHEMA, attempts=3).generate(proposals(3))
    assert [one.record["topic"] for one in made.candidates if one] == ["the line is dead"] * 3
    assert not made.effort.given_up
