"""Rules that bind while a record is written: random writers under the masks, on a vocabulary of bytes."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selpe.method.generation import Generation, Generator, Proposal
from selpe.method.guides import Guide
from selpe.method.record_forms import agrees, layout, parse, progress, written
from selpe.method.record_steps import RecordSteps, consistent, limits
from selpe.models.answers import key_of_content
from selpe.models.base import Answer, Capabilities, Request
from selpe.models.engine.grammar import GrammarGuide, Grammars
from selpe.models.fake import FakeModel
from selpe.schema import BooleanField, CategoryField, IntegerField, Record, Rule, Schema, Span, TextField, Value
from selpe.schema.narrowing import Narrowing
from small_domains import COMPARISONS, IMPLICATIONS, MISSING, OPAQUE, OTHER, RULES, SmallWorld, worlds
from toy_engine import ToyModel, ToyVocabulary

FORMS: tuple[Literal["lines", "json"], ...] = ("lines", "json")
GRAMMARS = Grammars(ToyVocabulary())
VITALS = (
    IntegerField("sbp", min=40, max=280, optional=True),
    TextField("note", min_length=3, max_length=20),
    IntegerField("dbp", min=20, max=180, optional=True),
    IntegerField("age", min=0, max=110),
)


def vitals(*rules: str) -> Schema:
    return Schema("vitals", VITALS, None, tuple(Rule.parse(text, VITALS) for text in rules))


def guide_of(steps: RecordSteps, begun: str = "") -> GrammarGuide:
    guide = GRAMMARS.guide(Request(prompt="x", steps=steps, begun=begun))
    assert guide is not None
    return guide


def allowed(guide: GrammarGuide) -> list[int]:
    mask = np.zeros(36, np.uint8)
    guide.write_mask(mask)
    return [int(token) for token in np.flatnonzero(np.unpackbits(mask, bitorder="little")) if token < 256]


def random_text(steps: RecordSteps, chance: random.Random, begun: str = "") -> str:
    """What a writer without any preference writes until the guide stops it."""
    guide = guide_of(steps, begun)
    tokens = guide.forced()
    while not guide.stopped:
        # Letters of few kinds: a byte of a longer sign would need its fellows.
        token = chance.choice([one for one in allowed(guide) if one < 128])
        guide.accept(token)
        tokens += [token, *guide.forced()]
    return begun + bytes(tokens).decode()


def takes(steps: RecordSteps, text: str) -> bool:
    """Whether a text can be written to its end."""
    guide = guide_of(steps)
    rest = list(text.encode())
    while True:
        forced = guide.forced()
        if forced != rest[: len(forced)]:
            return False
        rest = rest[len(forced) :]
        if guide.stopped or not rest:
            return guide.stopped and not rest
        if rest[0] not in allowed(guide):
            return False
        guide.accept(rest.pop(0))


def whole(schema: Schema, record: Record, form: Literal["lines", "json"]) -> str:
    return written(schema, record, form) + ("\n" if form == "lines" else "")


@settings(max_examples=60)
@given(worlds(RULES, most=2), st.sampled_from(FORMS), st.integers(0, 10**6))
def test_what_is_finished_obeys_every_rule_and_every_fact(world: SmallWorld, form: str, seed: int) -> None:
    assert form in ("lines", "json")
    steps = RecordSteps(Narrowing(world.schema), world.known, form)  # type: ignore[arg-type]
    text = random_text(steps, random.Random(seed))
    record = parse(world.schema, text, form)  # type: ignore[arg-type]
    if record is not None and "note" not in world.schema.names:
        assert world.schema.check(record) == []
        assert all(agrees(world.schema.field(name), record[name], fact) for name, fact in world.known.items())


@settings(max_examples=60)
@given(worlds(COMPARISONS[:10] + IMPLICATIONS + MISSING, most=1), st.sampled_from(FORMS), st.integers(0, 10**6))
def test_under_one_rule_no_beginning_leads_nowhere(world: SmallWorld, form: str, seed: int) -> None:
    if world.records:
        steps = RecordSteps(Narrowing(world.schema), world.known, form)  # type: ignore[arg-type]
        assert parse(world.schema, random_text(steps, random.Random(seed)), form) is not None  # type: ignore[arg-type]


@settings(max_examples=60)
@given(worlds(RULES + OPAQUE), st.sampled_from(FORMS), st.randoms(use_true_random=False))
def test_every_valid_record_can_be_written(world: SmallWorld, form: str, chance: random.Random) -> None:
    steps = RecordSteps(Narrowing(world.schema), world.known, form)  # type: ignore[arg-type]
    for record in chance.sample(world.records, min(3, len(world.records))):
        assert takes(steps, whole(world.schema, record, form))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_a_later_field_is_bounded_by_what_was_written(form: Literal["lines", "json"]) -> None:
    steps = RecordSteps(Narrowing(vitals("dbp < sbp")), {}, form)
    for dbp, fits in ((117, True), (118, False), (None, True)):
        record: Record = {"sbp": 118, "note": OTHER, "dbp": dbp, "age": 40}
        assert takes(steps, whole(vitals(), record, form)) is fits


@pytest.mark.parametrize("form", FORMS)
def test_an_earlier_field_is_bounded_by_facts_behind_it(form: Literal["lines", "json"]) -> None:
    narrowing = Narrowing(vitals("dbp < sbp"))
    fact: Mapping[str, Value | Span]
    for fact, sbp, fits in (({"dbp": 80}, 80, False), ({"dbp": 80}, 81, True), ({"dbp": Span(60, 99)}, 60, False)):
        record: Record = {"sbp": sbp, "note": OTHER, "dbp": 80, "age": 40}
        steps = RecordSteps(narrowing, fact, form)
        assert takes(steps, whole(narrowing.schema, record, form)) is fits
        assert takes(RecordSteps(narrowing, {}, form), whole(narrowing.schema, record, form)) is (sbp > 80)


@pytest.mark.parametrize("form", FORMS)
def test_a_rule_that_cannot_bind_ends_the_record_where_it_breaks_and_keeps_what_stands_before(
    form: Literal["lines", "json"],
) -> None:
    schema = vitals('note =~ "a.*"')
    steps = RecordSteps(Narrowing(schema), {}, form)
    text = whole(schema, {"sbp": 90, "note": "no such", "dbp": 80, "age": 40}, form)
    early = text[: text.index("age") - (2 if form == "json" else 0)]
    broken = text[: progress(schema, text, form)[1]["dbp"]]
    assert steps.after(broken) is None
    assert steps.kept(broken) == steps.kept(text) == broken[: progress(schema, text, form)[1]["note"]]
    assert early.startswith(broken)
    again = random_text(steps, random.Random(1), steps.kept(broken))
    assert again.startswith(steps.kept(broken))


def test_a_record_without_a_way_on_goes_back_to_the_field_that_closed_it() -> None:
    schema = vitals("dbp * age == sbp", "dbp == 20", "sbp != null", "dbp != null")
    steps = RecordSteps(Narrowing(schema), {}, "lines")
    text = "sbp: 50\nnote: xyz\ndbp: 20\nage:"
    assert steps.after(text) is None
    assert steps.kept(text) == "sbp:"


@pytest.mark.parametrize("form", FORMS)
def test_the_beginning_of_a_record_is_read_as_far_as_it_is_whole(form: Literal["lines", "json"]) -> None:
    schema = vitals()
    record: Record = {"sbp": 90, "note": 'a, "b": 1', "dbp": None, "age": 40}
    text = whole(schema, record, form)
    assert progress(schema, text, form)[0] == record
    for end in range(len(text)):
        read, places = progress(schema, text[:end], form)
        assert record.items() >= read.items()
        heads = layout(schema.fields, form)[: len(places)]
        assert all(text[:place].endswith(head) for place, head in zip(places.values(), heads, strict=True))


def test_steps_are_for_models_that_follow_them_and_for_rules_about_something_open() -> None:
    narrowing = Narrowing(vitals("dbp < sbp"))
    can = Capabilities(steps=True)
    assert "steps" in limits(narrowing, {"sbp": 100}, "lines", can)
    assert "steps" not in limits(narrowing, {"sbp": 100, "dbp": 70}, "lines", can)
    assert "steps" not in limits(narrowing, {}, "lines", Capabilities(grammar=True))


def test_without_steps_what_is_fixed_still_narrows_the_rest() -> None:
    narrowing = Narrowing(vitals("dbp < sbp"))
    found = limits(narrowing, {"sbp": 100}, "json", Capabilities(json_schema=True))
    assert found["json_schema"]["properties"]["dbp"]["anyOf"][0]["maximum"] == 99


def test_an_answer_is_kept_for_the_same_rules_and_the_same_beginning_alone() -> None:
    def key(rule: str, begun: str = "") -> bytes:
        steps = RecordSteps(Narrowing(vitals(rule)), {}, "lines")
        return key_of_content("toy", Request(prompt="x", grammar="start: /a/", steps=steps, begun=begun))

    assert key("dbp < sbp") == key("dbp < sbp")
    assert len({key("dbp < sbp"), key("dbp <= sbp"), key("dbp < sbp", "sbp:")}) == 3


def test_steps_travel_to_another_process() -> None:
    steps = RecordSteps(Narrowing(vitals("dbp < sbp")), {"age": Span(3, 9)}, "json")
    copy = pickle.loads(pickle.dumps(steps))
    assert copy.after("") == steps.after("")
    assert str(copy) == str(steps) == "dbp < sbp"


# -- whole generations -----------------------------------------------------------------------------------------------


def generated(schema: Schema, form: Literal["lines", "json"], *, steps: bool = True) -> tuple[Generation, list[Answer]]:
    answers: list[Answer] = []
    generator = Generator(ToyModel(steps=steps), schema, attempts=8)
    wanted = [Proposal(Guide("toy", form=form), seed) for seed in range(12)]
    return generator.generate(wanted, watch=answers.append), answers


@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_follows_steps_needs_no_second_try_where_another_does(form: Literal["lines", "json"]) -> None:
    schema = vitals("dbp < sbp", "sbp < 60", "sbp != null", "dbp != null", "if age < 100 then dbp > 40")
    bound, _ = generated(schema, form)
    checked, _ = generated(schema, form, steps=False)
    assert all(one is not None and not schema.check(one.record) for one in bound.candidates)
    assert bound.effort.retries["rule"] == 0
    assert checked.effort.retries["rule"] > 0
    again, _ = generated(schema, form)
    assert [one and one.record for one in again.candidates] == [one and one.record for one in bound.candidates]


@pytest.mark.parametrize("form", FORMS)
def test_what_cannot_bind_is_written_again_from_where_it_broke(form: Literal["lines", "json"]) -> None:
    schema = vitals('note =~ "[a-t].*"')
    made, answers = generated(schema, form)
    rests = [answer for answer in answers if answer.request.begun]
    assert made.effort.retries["rule"] >= len(rests) > 0
    for rest in rests:
        assert set(progress(schema, rest.request.begun, form)[0]) == {"sbp"}
    assert all(one is not None and not schema.check(one.record) for one in made.candidates)
    raws = {one.raw for one in made.candidates if one is not None}
    whole_again = [rest.request.begun + rest.text for rest in rests]
    assert form == "lines" or raws & set(whole_again)


def test_seeded_values_never_contradict_the_class() -> None:
    fields = (
        CategoryField("grade", values=("A", "B")),
        BooleanField("late"),
        CategoryField("kind", values=("x", "y")),
    )
    texts = ('if grade == "A" then late == false', 'if late == false then kind == "x"')
    schema = Schema("seeded", fields, "grade", tuple(Rule.parse(text, fields) for text in texts))
    guide = Guide("seeded", hints=2, form="json")
    for seed in range(20):
        made = Generator(FakeModel(), schema).generate([Proposal(guide, seed, "A")])
        assert made.candidates[0] is not None
        assert made.effort.retries["rule"] == 0


@settings(max_examples=60)
@given(worlds(RULES, most=2), st.randoms(use_true_random=False))
def test_with_what_notes_settle_the_rest_obeys_the_rules_too(world: SmallWorld, chance: random.Random) -> None:
    narrowing, schema = Narrowing(world.schema), world.schema
    for record in chance.sample(world.records, min(3, len(world.records))):
        settled = {name: record[name] for name in chance.sample(schema.names, k=len(schema.names) // 2)}
        assert consistent(narrowing, {}, settled) == settled
        steps = pickle.loads(pickle.dumps(RecordSteps(narrowing, {}, "lines", settled)))
        lines = written(schema, record, "lines").split("\n")
        assert takes(steps, "".join(f"{line}\n" for line in lines if line.partition(":")[0] not in settled))
        rest = parse(schema, random_text(steps, chance), "lines", without=settled)
        if rest is not None and "note" not in schema.names:  # a text can end where a rule is broken
            assert rest.keys().isdisjoint(settled)
            assert schema.check({name: (settled | rest)[name] for name in schema.names}) == []


def test_values_that_contradict_each_other_or_a_fact_are_not_all_settled() -> None:
    narrowing = Narrowing(vitals("dbp < sbp", "age > 20"))
    assert consistent(narrowing, {}, {"sbp": 90, "dbp": 100, "age": 30}) == {"sbp": 90, "age": 30}
    assert consistent(narrowing, {}, {"sbp": 90, "age": 12}) == {"sbp": 90}
    assert consistent(narrowing, {"dbp": 80}, {"sbp": 70}) == {}
    assert consistent(narrowing, {"dbp": Span(60, 99)}, {"sbp": 60}) == {}
    assert consistent(narrowing, {"dbp": Span(60, 99)}, {"sbp": 70, "note": "fine"}) == {"sbp": 70, "note": "fine"}


def test_where_something_is_settled_each_field_has_a_grammar_that_other_records_need_too() -> None:
    narrowing = Narrowing(vitals())
    one = RecordSteps(narrowing, {}, "lines", {"sbp": 100})
    other = RecordSteps(narrowing, {}, "lines", {"sbp": 120, "dbp": 70})
    assert one.needed
    assert other.needed
    assert one.after("note: abc\ndbp: 70\nage:") == other.after("note: abc\nage:")
