"""Grammars on a vocabulary of bytes: what they force, what they allow, and how they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from selpe.errors import ModelError
from selpe.models.base import Request
from selpe.models.engine.grammar import GrammarGuide, Grammars, _Matcher
from toy_engine import END, ToyVocabulary

LEVEL = {"type": "object", "properties": {"level": {"enum": ["low", "high"]}}, "required": ["level"]}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(ToyVocabulary())


def started(grammars: Grammars, **constraint: Any) -> GrammarGuide:
    guide = grammars.guide(Request(prompt="x", **constraint))
    assert guide is not None
    return guide


def allowed(guide: GrammarGuide) -> set[int]:
    mask = np.zeros(36, np.uint8)
    guide.write_mask(mask)
    return set(np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist())


def test_a_request_without_a_grammar_has_no_guide(grammars: Grammars) -> None:
    assert grammars.guide(Request(prompt="x")) is None


def test_what_has_no_alternative_is_forced_and_the_rest_is_masked(grammars: Grammars) -> None:
    schema = {**LEVEL, "additionalProperties": False}
    guide = started(grammars, json_schema=schema)
    assert bytes(guide.forced()) == b'{"level": "'
    assert allowed(guide) == set(b"lh")
    guide.accept(ord("h"))
    assert bytes(guide.forced()) == b'igh"}'
    assert guide.stopped


def test_the_end_is_allowed_only_where_the_grammar_is_satisfied(grammars: Grammars) -> None:
    guide = started(grammars, grammar="start: /[ab]{1,3}/")
    assert allowed(guide) == set(b"ab")
    guide.accept(ord("a"))
    assert allowed(guide) == {*b"ab", END}
    guide.accept(END)
    assert guide.stopped


def test_requests_with_one_schema_do_not_disturb_each_other(grammars: Grammars) -> None:
    first, second = (started(grammars, grammar='start: "ab" | "cd"') for _ in range(2))
    first.accept(ord("a"))
    assert allowed(second) == set(b"ac")


def test_a_grammar_is_compiled_once_and_the_oldest_is_dropped() -> None:
    few = Grammars(ToyVocabulary(), keep=2)
    compiled: list[str] = []
    compile_one = few._compile

    def counted(text: str, *, json_schema: bool = False) -> Any:
        compiled.append(text)
        return compile_one(text, json_schema=json_schema)

    few._compile = counted  # type: ignore[method-assign]
    for letter in "aabaccab":
        few.guide(Request(prompt="x", grammar=f'start: "{letter}"'))
    assert [source[-2] for source in compiled] == ["a", "b", "c", "b"]


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ({"grammar": "start: ((("}, "the grammar cannot be compiled"),
        ({"json_schema": {"type": "no such type"}}, "the JSON schema cannot be compiled"),
        ({"json_schema": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, "the JSON schema cannot be compiled"),
    ],
)
def test_a_faulty_grammar_is_named(grammars: Grammars, constraint: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        grammars.guide(Request(prompt="x", **constraint))


def test_a_matcher_that_fails_midway_is_an_error_and_never_an_end() -> None:
    class Failed:
        def is_stopped(self) -> bool:
            return True

        def is_error(self) -> bool:
            return True

        def consume_token(self, _: int) -> bool:
            return False

        def get_error(self) -> str:
            return "lexer too complex\nmore"

    guide = _Matcher(Failed())
    with pytest.raises(ModelError, match="stopped working midway: lexer too complex"):
        _ = guide.stopped
    with pytest.raises(ModelError, match="midway"):
        guide.accept(END)


class Counting:
    """Steps that ask for one letter more each time: 'a', then 'bb', then nothing."""

    def after(self, text: str) -> str | None:
        return {"": 'start: /[a-c]/ ":"', "a:": 'start: "bb"'}.get(text)


def test_one_stretch_follows_another_and_what_is_forced_runs_on_over_the_border(grammars: Grammars) -> None:
    guide = started(grammars, steps=Counting())
    assert allowed(guide) == set(b"abc")
    guide.accept(ord("a"))
    assert bytes(guide.forced()) == b":bb"
    assert guide.stopped


def test_steps_may_end_an_answer_early_and_go_on_from_what_has_begun(grammars: Grammars) -> None:
    guide = started(grammars, steps=Counting())
    guide.accept(ord("c"))
    assert bytes(guide.forced()) == b":"
    assert guide.stopped
    rest = started(grammars, steps=Counting(), begun="a:")
    assert bytes(rest.forced()) == b"bb"
    assert rest.stopped


def test_no_more_stretches_are_kept_than_wanted() -> None:
    few = Grammars(ToyVocabulary(), keep_stretches=1)
    for _ in range(2):
        guide = started(few, steps=Counting())
        guide.accept(ord("a"))
    assert len(few._stretches._compiled) == 1
