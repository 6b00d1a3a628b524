"""Properties of R-CFG and S-CFG on drawn schemas, records, mutations and random text."""

from __future__ import annotations

import json

import jsonschema
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from selpe.evaluation.validity import extract, rough, strict
from selpe.schema import Schema
from strategies import Mutation, loose_records, mutations, raw_text, records, schemas, texts

lean = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
FIXED = Schema.from_yaml("""
name: fixed
fields:
  complaint: {kind: text, min_length: 0}
  acuity: {kind: category, values: ["1", "2"]}
  pain: {kind: integer, min: 0, max: 10}
  temperature: {kind: number, min: 33, max: 42, step: 0.1, optional: true}
  injury: {kind: boolean}
  arrived: {kind: date, min: 2024-01-01, max: 2025-12-31}
rules: [if injury == true then pain >= 1]
""")


@st.composite
def valid_outputs(draw: st.DrawFn) -> tuple[Schema, dict[str, object], str]:
    schema = draw(schemas())
    record = draw(records(schema))
    return schema, dict(record), draw(raw_text(record))


@st.composite
def spoilt_outputs(draw: st.DrawFn) -> tuple[Schema, list[Mutation]]:
    schema = draw(schemas())
    return schema, draw(mutations(schema, draw(records(schema))))


@lean
@given(valid_outputs())
def test_a_drawn_record_passes_strict_and_rough_and_reads_back(drawn: tuple[Schema, dict[str, object], str]) -> None:
    schema, record, raw = drawn
    verdict = strict(raw, schema)
    assert verdict.ok, [violation.message for violation in verdict.violations]
    assert verdict.record == record
    assert rough(raw, schema).ok
    assert extract(raw, schema) == {name: record.get(name) for name in schema.names}


@lean
@given(spoilt_outputs())
def test_each_mutation_fails_at_its_level(drawn: tuple[Schema, list[Mutation]]) -> None:
    schema, spoilt = drawn
    for mutation in spoilt:
        verdict = strict(mutation.raw, schema)
        reached = (verdict.syntax, verdict.domain, verdict.rules)
        assert reached == (mutation.fails != "syntax", False, False), mutation.name
        assert mutation.fails in {violation.level for violation in verdict.violations}
        if mutation.rough is not None:
            assert rough(mutation.raw, schema).ok == mutation.rough, mutation.name


@lean
@given(st.data())
def test_a_broken_rule_fails_at_the_last_level_only(data: st.DataObject) -> None:
    schema = data.draw(schemas().filter(lambda schema: bool(schema.rules)))
    record = data.draw(loose_records(schema))
    broken = [rule.text for rule in schema.rules if not rule.holds(record)]
    verdict = strict(data.draw(raw_text(record)), schema)
    assert (verdict.syntax, verdict.domain, verdict.rules) == (True, True, not broken)
    assert [violation.rule for violation in verdict.violations] == broken


def survives(raw: str, schema: Schema = FIXED) -> None:
    """Judging an output raises nothing, and strict validity implies rough validity."""
    loose, exact = rough(raw, schema), strict(raw, schema)
    assert exact.syntax >= exact.domain >= exact.rules
    assert loose.ok or not exact.ok
    assert set(loose.found) <= set(schema.names)
    assert set(extract(raw, schema)) == set(schema.names)
    assert all(isinstance(violation.message, str) for violation in exact.violations)


@settings(lean, max_examples=300)
@given(st.text() | st.text(st.sampled_from("{}[]\":,=|\\'*`-\n \tnulltruefalse0123456789.eE+pain acuity“”\ud800\x00")))
@example("pain: 1" * 5000)
@example('"pain":' * 5000)
@example('{"pain": ' + "[" * 50_000)
def test_random_text_raises_nothing(raw: str) -> None:
    survives(raw)


keys = st.sampled_from(FIXED.names) | st.text(max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1", "2024-05-06"])
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=6))


@settings(lean, max_examples=200)
@given(trees | st.dictionaries(keys, scalars, max_size=8), st.booleans())
def test_random_json_raises_nothing(tree: object, ascii_only: bool) -> None:
    survives(json.dumps(tree, ensure_ascii=ascii_only))


MARKS, ENDS = ("", '"', "**", "| ", "- "), (":", " = ", '":', " |")
VALUES = ("37.5", "7", "yes", '"text"', "'it's'", "2024-01-31", "March 9, 2024", "null", "1,2", "“a", "\\")
pieces = st.sampled_from(
    [f"{mark}{name}{end}" for name in FIXED.names for mark in MARKS for end in ENDS]
    + [*VALUES, ",", ";", "\n", "}", "{"]
)


@settings(lean, max_examples=300)
@given(st.lists(pieces | st.text(max_size=5), max_size=40).map(" ".join))
def test_random_fragments_raise_nothing(raw: str) -> None:
    survives(raw)


@lean
@given(valid_outputs(), st.data())
def test_valid_outputs_with_random_edits_raise_nothing(
    drawn: tuple[Schema, dict[str, object], str], data: st.DataObject
) -> None:
    schema, _, raw = drawn
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        stop = data.draw(st.integers(start, min(len(raw), start + 6)))
        raw = raw[:start] + data.draw(st.text(max_size=4) | st.sampled_from(['"', "{", "\\", ",", "'"])) + raw[stop:]
    survives(raw, schema)


@lean
@given(schemas(rules=False), st.text(texts, max_size=8))
def test_strict_agrees_with_a_json_schema_validator(schema: Schema, text: str) -> None:
    """An independent implementation accepts the same objects. It steps in floats, so decimals are left out."""
    fields = tuple(field for field in schema.fields if field.kind != "number")
    assume(fields)
    plain = Schema(schema.name, fields)
    judge = jsonschema.Draft202012Validator(plain.to_json_schema())
    for value in (text, 7, True, None, "2024-05-06"):
        content = dict.fromkeys(plain.names, value)
        assert strict(json.dumps(content), plain).ok == judge.is_valid(content)
