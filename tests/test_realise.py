from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from selpe.realise import constraint, line_grammar, parse, written
from selpe.schema import Schema
from small_world import SCHEMA, drawn


def test_the_last_line_ends_in_a_line_break_as_every_other() -> None:
    schema = Schema.from_yaml(
        "name: note\nfields:\n  day: {kind: integer, min: 1, max: 31}\n  said: {kind: text, max_length: 9}\n"
    )
    assert line_grammar(schema, {}).splitlines()[0].rstrip().endswith('"\\n"')
    assert parse(schema, "day: 3\nsaid: none\n", "lines") == {"day": 3, "said": "none"}


@pytest.mark.parametrize("form", ["json", "lines"])
def test_a_written_record_reads_back_as_itself(form: str) -> None:
    for record in drawn(40):
        assert parse(SCHEMA, written(SCHEMA, record, form), form) == record  # type: ignore[arg-type]


def test_the_line_grammar_is_one_that_llguidance_takes() -> None:
    for fixed in ({}, {"urgency": "low", "channel": "mail"}, {"solved": True}):
        assert LLMatcher.validate_grammar(line_grammar(SCHEMA, fixed)) == ""


@pytest.mark.parametrize("path", ["triage", "credit"])
def test_the_shipped_examples_have_line_grammars(path: str) -> None:
    from pathlib import Path

    schema = Schema.load(Path(__file__).resolve().parents[1] / "examples" / path / "schema.yaml")
    assert LLMatcher.validate_grammar(line_grammar(schema, {schema.label or "": schema.labels[0]})) == ""


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
