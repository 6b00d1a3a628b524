from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from selpe.method.guides import Form
from selpe.method.record_forms import Fact, _up_to, agrees, constraint, line_grammar, parse, stated, written
from selpe.schema import Record, Schema, Span
from small_world import SCHEMA, drawn


def test_the_last_line_ends_in_a_line_break_as_every_other() -> None:
    schema = Schema.from_yaml(
        "name: note\nfields:\n  day: {kind: integer, min: 1, max: 31}\n  said: {kind: text, max_length: 9}\n"
    )
    assert line_grammar(schema.fields, {}).splitlines()[0].rstrip().endswith('"\\n"')
    assert parse(schema, "day: 3\nsaid: none\n", "lines") == {"day": 3, "said": "none"}


LOAN = Schema.from_yaml(
    """
name: loan
fields:
  amount: {kind: integer, min: 500, max: 40000}
  income: {kind: number, min: 0, max: 1000000, step: 0.01, optional: true}
  months: {kind: integer, min: 0, max: 60}
"""
)


@cache
def letters() -> LLTokenizer:
    """A tokenizer of single bytes."""
    return LLTokenizer("byte")


def takes(schema: Schema, text: str) -> bool:
    matcher = LLMatcher(letters(), line_grammar(schema.fields, {}))
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


@pytest.mark.parametrize("amount", [500, 999, 1000, 1001, 9999, 10000, 38999, 39999, 40000])
@pytest.mark.parametrize("income", [None, 7.0, 999.99, 59000.0, 101250.5, 999999.99])
def test_thousands_may_have_a_comma(amount: int, income: float | None) -> None:
    record = {"amount": amount, "income": income, "months": 36}
    said = "-" if income is None else f"{income:,.2f}"
    grouped = f"amount: {amount:,}\nincome: {said}\nmonths: 36\n"
    assert parse(LOAN, grouped, "lines") == record
    assert takes(LOAN, grouped) == (amount != 40000)  # the largest has no comma, so that no other is out of range
    assert takes(LOAN, written(LOAN, record, "lines") + "\n")


@pytest.mark.parametrize(
    "amount", ["40,001", "41,000", "0,500", "1,00", "1,0000", "400,000", "499", "40001", "1,000,000"]
)
def test_a_comma_lets_nothing_out_of_range(amount: str) -> None:
    assert not takes(LOAN, f"amount: {amount}\nincome: -\nmonths: 36\n")


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("4,999", False), ("4999", False), ("5,000", True), ("5000", True), ("59,000", True), ("199,999", True),
        ("200,000", False), ("200000", True), ("200001", False), ("59", False), ("1,59", False), (" 59,000", False),
    ],
)  # fmt: skip
def test_thousands_may_have_a_comma_above_a_lower_bound(said: str, fits: bool) -> None:
    schema = Schema.from_yaml("name: pay\nfields:\n  pay: {kind: integer, min: 4801, max: 200000}\n")
    narrowed = schema.within({"pay": Span(5000, 200_000)})
    assert takes(narrowed, f"pay: {said}\n") is fits


@given(st.integers(1, 999))
def test_numbers_up_to_a_limit_are_those_and_no_others(most: int) -> None:
    found = [number for number in range(1200) if re.fullmatch(_up_to(most), str(number))]
    assert found == list(range(1, most + 1))


@pytest.mark.parametrize("form", ["json", "lines"])
def test_a_written_record_reads_back_as_itself(form: str) -> None:
    for record in drawn(40):
        assert parse(SCHEMA, written(SCHEMA, record, form), form) == record  # type: ignore[arg-type]


def test_the_line_grammar_is_one_that_llguidance_takes() -> None:
    for fixed in ({}, {"urgency": "low", "channel": "mail"}, {"solved": True}):
        assert LLMatcher.validate_grammar(line_grammar(SCHEMA.fields, fixed)) == ""


@pytest.mark.parametrize("path", ["triage", "credit", "anliegen", "maintenance"])
def test_the_shipped_examples_have_line_grammars(path: str) -> None:
    from pathlib import Path

    schema = Schema.load(Path(__file__).resolve().parents[2] / "examples" / path / "schema.yaml")
    fixed = {schema.label: schema.labels[0]} if schema.label else {}
    assert LLMatcher.validate_grammar(line_grammar(schema.fields, fixed)) == ""


def test_json_is_constrained_by_schema_and_lines_by_grammar() -> None:
    assert set(constraint(SCHEMA, {}, "json")) == {"json_schema"}
    assert set(constraint(SCHEMA, {}, "lines")) == {"grammar"}


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"a": {"b": 1}}', "null", '{"topic": NaN}'])
def test_json_that_is_no_record_gives_none_or_an_invalid_record(text: str) -> None:
    record = parse(SCHEMA, text, "json")
    assert record is None or SCHEMA.check(record)


@settings(max_examples=200)
@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(SCHEMA.names)).map(lambda names: "\n".join(f"{n}: -" for n in names))
)
def test_no_text_makes_the_parsers_raise(text: str) -> None:
    for form in ("json", "lines"):
        record = parse(SCHEMA, text, form)
        assert record is None or isinstance(record, dict)


def test_a_lines_answer_with_a_line_too_many_is_refused() -> None:
    text = written(SCHEMA, drawn(1)[0], "lines")
    assert parse(SCHEMA, text + "\nextra: 1", "lines") is None
    assert json.loads(SCHEMA.dumps(parse(SCHEMA, text, "lines") or {}))["urgency"] in SCHEMA.labels


@pytest.mark.parametrize("mark", ["; waited: 3", "; minutes: 12; score: 4", "; channel:"])
def test_a_text_that_runs_on_into_other_fields_ends_where_they_begin(mark: str) -> None:
    record = {**drawn(1)[0], "topic": "lost password"}
    lines = written(SCHEMA, record, "lines").replace("lost password", f"lost password{mark}")
    assert parse(SCHEMA, lines, "lines") == record


def test_a_text_may_hold_colons_and_semicolons_of_its_own() -> None:
    record = {**drawn(1)[0], "topic": "two things; first: the door"}
    assert parse(SCHEMA, written(SCHEMA, record, "lines"), "lines") == record


# -- facts -------------------------------------------------------------------------------------------------------------

VISIT: Record = {
    "topic": "lost password", "channel": "mail", "minutes": 30, "waited": 5, "score": 7.5, "solved": True,
    "day": "2024-03-05", "urgency": "low",
}  # fmt: skip
# A fact, and values with and without it.
FACTS: list[tuple[str, Fact, list[Any], list[Any]]] = [
    ("channel", "mail", ["mail"], ["phone", "visit"]),
    ("solved", True, [True], [False]),
    ("topic", "lost password", ["lost password"], ["lost passwords", "line is dead"]),
    ("minutes", Span(20, 30), [20, 25, 30], [19, 31, 3, 90]),
    ("minutes", 25, [25], [24, 2, 250]),
    ("waited", Span(0, 9), [0, 9], [None, 10, 240]),
    ("waited", None, [None], [0, 240]),
    ("score", Span(Decimal("2.5"), Decimal("7.5")), [2.5, 5, 7.5], [2, 8, 7.25, None]),
    ("day", Span(date(2024, 2, 28), date(2024, 3, 1)), ["2024-02-28", "2024-02-29", "2024-03-01"],
     ["2024-02-27", "2024-03-02", "2024-02-30"]),
]  # fmt: skip


def accepted(limits: dict[str, Any], text: str) -> bool:
    grammar = limits.get("grammar") or LLMatcher.grammar_from_json_schema(
        limits["json_schema"], defaults={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    )
    matcher = LLMatcher(letters(), grammar)
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


@pytest.mark.parametrize("form", ["json", "lines"])
@pytest.mark.parametrize(("name", "fact", "inside", "outside"), FACTS, ids=lambda value: str(value)[:20])
def test_a_fact_binds_while_decoding(form: Form, name: str, fact: Fact, inside: list[Any], outside: list[Any]) -> None:
    limits = constraint(SCHEMA, {"urgency": "low", name: fact}, form)
    end = "\n" if form == "lines" else ""
    for value in inside:
        assert accepted(limits, written(SCHEMA, VISIT | {name: value}, form) + end), value
    for value in outside:
        assert not accepted(limits, written(SCHEMA, VISIT | {name: value}, form) + end), value
    assert not accepted(limits, written(SCHEMA, VISIT | {"urgency": "high"}, form) + end)


@pytest.mark.parametrize("form", ["json", "lines"])
def test_several_facts_bind_together_and_leave_the_other_fields_free(form: Form) -> None:
    fixed: dict[str, Fact] = {"urgency": "low", "channel": "mail", "minutes": Span(20, 30), "waited": None}
    limits = constraint(SCHEMA, fixed, form)
    end = "\n" if form == "lines" else ""
    for row in drawn(20):
        fitting = row | {"urgency": "low", "channel": "mail", "minutes": 22, "waited": None}
        assert accepted(limits, written(SCHEMA, fitting, form) + end)
        assert not accepted(limits, written(SCHEMA, fitting | {"minutes": 31}, form) + end)


@pytest.mark.parametrize(
    ("name", "value", "fact", "right"),
    [
        ("amount", 700, Span(500, 999), True),
        ("amount", 1000, Span(500, 999), False),
        ("income", None, Span(Decimal(0), Decimal(5)), False),
        ("income", None, None, True),
        ("months", 36, 36, True),
        ("months", 36, 60, False),
    ],
)
def test_a_record_agrees_with_a_fact_by_its_value_or_its_span(name: str, value: Any, fact: Any, right: bool) -> None:
    assert agrees(LOAN.field(name), value, fact) is right


def test_white_space_in_a_phrase_is_no_difference() -> None:
    topic = SCHEMA.field("topic")
    assert agrees(topic, "lost key", "lost  key")
    assert not agrees(topic, "lost keys", "lost key")


# -- notes -------------------------------------------------------------------------------------------------------------


def test_notes_state_what_they_were_made_of() -> None:
    for record in drawn(40):
        assert stated(SCHEMA, SCHEMA.linearise(record), whole=True) == record


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        ("topic: lost key; minutes: 30 min; waited: unknown", {"topic": "lost key", "minutes": 30, "waited": None}),
        ("Somebody asks about a lost password and waits for 30 min.", {}),
        ("minutes: 91 min; score: 7.25; channel: pigeon; solved: maybe; day: 2024-02-30; waited: soon", {}),
        ("minutes: 30; solved: yes; day: 2024-02-29", {"minutes": 30, "solved": True, "day": "2024-02-29"}),
        ("topic: two things; first the door; minutes: 30 min", {"topic": "two things; first the door", "minutes": 30}),
        ("topic: lost; caller: a man; minutes: 30 min", {"minutes": 30}),  # a field that is none
        ("minutes: 30 min; minutes: 40 min", {}),
        ("topic: ; minutes: unknown", {}),  # a text that must be there, a number that must be there
        ("topic: unknown; waited: -", {"waited": None}),  # the word for what is missing is no text
        ("the minutes: 30 min", {}),
    ],
)  # fmt: skip
def test_notes_state_valid_values_behind_titles_and_nothing_else(notes: str, found: Record) -> None:
    assert stated(SCHEMA, notes, whole=True) == found


def test_the_last_value_of_notes_that_were_cut_short_is_left_open() -> None:
    assert stated(SCHEMA, "minutes: 30 min; topic: lost pass", whole=False) == {"minutes": 30}
    assert stated(SCHEMA, "minutes: 3", whole=False) == {}


def test_lines_can_leave_fields_out() -> None:
    record = drawn(1)[0]
    lines = written(SCHEMA, record, "lines").split("\n")
    left = [line for line in lines if not line.startswith(("topic: ", "day: "))]
    text = "\n".join([*left, ""])
    limits = constraint(SCHEMA, {"urgency": record["urgency"]}, "lines", without=("topic", "day"))
    assert accepted(limits, text)
    assert not accepted(limits, "\n".join([*lines, ""]))
    assert parse(SCHEMA, text, "lines", without=("topic", "day")) == {
        name: value for name, value in record.items() if name not in ("topic", "day")
    }
