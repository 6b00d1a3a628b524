from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic import Field as Setting

from selpe.errors import SchemaError, UnconfirmedSchemaError
from selpe.schema import CategoryField, IntegerField, Record, Schema, TextField

TRIAGE = """
name: triage
description: One record per arrival.
label: acuity
fields:
  complaint: {kind: text, description: In the nurse's words, min_length: 3, max_length: 80, examples: [sore throat]}
  acuity:
    kind: category
    values:
      1: needs immediate care
      "2": can wait
  sbp: {kind: integer, min: 50, max: 260, unit: mmHg}
  dbp: {kind: integer, min: 30, max: 160, optional: true}
  temperature: {kind: number, min: 33, max: 42.5, step: 0.1}
  injury: {kind: boolean}
  arrived: {kind: date, min: 2024-01-01, max: "2025-12-31"}
rules:
  - dbp < sbp
  - if injury == true then sbp > 60
examples:
  - {complaint: sore throat, acuity: "2", sbp: 120, dbp: 80, temperature: 36.6, injury: false, arrived: 2024-05-01}
"""
GOOD: Record = {
    "complaint": "cut finger", "acuity": "1", "sbp": 120, "dbp": 80, "temperature": 36.6, "injury": True,
    "arrived": "2024-02-29",
}  # fmt: skip


@pytest.fixture
def triage() -> Schema:
    return Schema.from_yaml(TRIAGE)


def test_yaml_reads_back_as_the_same_schema(triage: Schema) -> None:
    again = Schema.from_yaml(triage.to_yaml())
    assert again.to_dict() == triage.to_dict()
    assert again.fingerprint() == triage.fingerprint()


def test_a_valid_record_has_no_violation(triage: Schema) -> None:
    assert triage.check(GOOD) == []
    assert triage.check({**GOOD, "dbp": None}) == []
    assert triage.check({key: value for key, value in GOOD.items() if key != "dbp"}) == []


@pytest.mark.parametrize(
    ("change", "field", "level"),
    [
        ({"acuity": "9"}, "acuity", "domain"),
        ({"acuity": 1}, "acuity", "syntax"),
        ({"complaint": None}, "complaint", "syntax"),
        ({"extra": 1}, "extra", "syntax"),
        ({"temperature": 36.65}, "temperature", "domain"),
        ({"dbp": 130}, "sbp", "rule"),
        ({"arrived": "2026-01-01"}, "arrived", "domain"),
    ],
)
def test_each_violation_names_field_and_level(triage: Schema, change: Record, field: str, level: str) -> None:
    (violation,) = triage.check(GOOD | change)
    assert (violation.field, violation.level) == (field, level)


def test_every_violation_is_listed_and_none_shows_a_value(triage: Schema) -> None:
    record = {
        "complaint": "MARKER" * 20,
        "acuity": "MARKER",
        "sbp": "MARKER",
        "injury": "MARKER",
        "MARKER_KEY": "MARKER",
    }
    found = triage.check(record)
    assert len(found) == 7  # five wrong values or keys, and two missing fields
    assert all("MARKER" not in violation.expected for violation in found)


def test_labels_go_there_and_back() -> None:
    for kind, labels in [
        ("{kind: boolean}", ("false", "true")),
        ("{kind: integer, min: 1, max: 3}", ("1", "2", "3")),
        ("{kind: category, values: [a, b]}", ("a", "b")),
    ]:
        schema = Schema.from_yaml(f"label: y\nfields:\n  y: {kind}\n")
        assert schema.labels == labels
        assert [schema.label_of({"y": schema.label_value(label)}) for label in labels] == list(labels)


def test_text_of_a_record_is_canonical(triage: Schema) -> None:
    shuffled = dict(reversed(GOOD.items()))
    assert triage.linearise(shuffled) == triage.linearise(GOOD)
    assert triage.linearise(GOOD, without=["acuity"]).startswith("complaint: cut finger; sbp: 120 mmHg")
    assert json.loads(triage.dumps(shuffled)) == GOOD
    assert list(json.loads(triage.dumps(shuffled))) == list(triage.names)


def test_the_fingerprint_changes_with_meaning_and_not_with_confirmation(triage: Schema) -> None:
    drafted = Schema.from_yaml(TRIAGE.replace("{kind: boolean}", "{kind: boolean, confirmed: false}"))
    changed = Schema.from_yaml(TRIAGE.replace("max: 260", "max: 270"))
    assert drafted.fingerprint() == triage.fingerprint() != changed.fingerprint()


def test_an_unconfirmed_draft_is_refused_with_the_list_of_what_is_open() -> None:
    draft = Schema.from_yaml("fields:\n  a: {kind: boolean, confirmed: false}\n  b: {kind: boolean}\n")
    with pytest.raises(UnconfirmedSchemaError, match=r"public yet: a\n"):
        draft.require_confirmed()


BROKEN = {
    "no fields": "name: x",
    "unknown kind": "fields:\n  a: {kind: prose}",
    "no kind": "fields:\n  a: {min: 3}",
    "unknown setting": "fields:\n  a: {kind: boolean, colour: red}",
    "open number": "fields:\n  a: {kind: number, min: 0}",
    "category of booleans": "fields:\n  a: {kind: category, values: [true, false]}",
    "no values": "fields:\n  a: {kind: category, values: []}",
    "label unknown": "label: b\nfields:\n  a: {kind: boolean}",
    "label is text": "label: a\nfields:\n  a: {kind: text}",
    "label optional": "label: a\nfields:\n  a: {kind: boolean, optional: true}",
    "label too wide": "label: a\nfields:\n  a: {kind: integer, min: 0, max: 5000}",
    "rule on unknown field": "fields:\n  a: {kind: boolean}\nrules: [b == true]",
    "example out of domain": "fields:\n  a: {kind: integer, min: 0, max: 3, examples: [9]}",
    "record example breaks": "fields:\n  a: {kind: integer, min: 0, max: 3}\nexamples: [{a: 9}]",
    "duplicate key": "fields:\n  a: {kind: boolean}\n  a: {kind: boolean}",
    "not YAML": "fields: [",
    "a list": "- a",
    "empty": "",
    "a scalar": "hello",
    "tab": "fields:\n\ta: 3",
    "python tag": "fields: !!python/object/apply:os.system [ls]",
    "back quote in name": "fields:\n  'a`b': {kind: boolean}",
    "impossible date": "fields:\n  a: {kind: date, min: 2024-02-30, max: 2025-01-01}",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_schema_is_refused_with_our_error(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml(text, where="schema.yaml")
    assert "schema.yaml" in str(caught.value)


def test_an_error_names_the_line() -> None:
    with pytest.raises(SchemaError, match=r"schema.yaml:4 \(fields.b.max\)"):
        Schema.from_yaml(
            "fields:\n  a: {kind: boolean}\n  b:\n    max: high\n    min: 0\n    kind: integer\n", where="schema.yaml"
        )


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_no_text_makes_the_reader_raise_anything_but_our_error(text: str) -> None:
    with contextlib.suppress(SchemaError):
        Schema.from_yaml(text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["string", "object", "integer", "number", "date", "#/$defs/a", "a"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "properties", "required", "enum", "const", "anyOf", "$ref", "$defs", "a", "minimum",
                         "maximum", "multipleOf", "maxLength", "minLength", "pattern", "format", "exclusiveMinimum"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["properties", "$defs", "required", "title"]), _json, max_size=4))
def test_no_json_schema_makes_the_reader_raise_anything_but_our_error(content: dict[str, object]) -> None:
    with contextlib.suppress(SchemaError):
        Schema.from_json_schema(content)


def test_json_schema_says_the_same_as_check(triage: Schema) -> None:
    validator = jsonschema.Draft202012Validator(triage.to_json_schema())
    assert validator.is_valid(GOOD)
    for change in ({"acuity": "9"}, {"sbp": 20}, {"arrived": "2024-02-30"}, {"extra": 1}, {"complaint": "x"}):
        assert not validator.is_valid(GOOD | change)
    assert jsonschema.Draft202012Validator(triage.to_json_schema({"acuity": "1"})).is_valid(GOOD)
    assert not jsonschema.Draft202012Validator(triage.to_json_schema({"acuity": "2"})).is_valid(GOOD)


def test_llguidance_accepts_the_json_schema(triage: Schema) -> None:
    from llguidance import LLMatcher

    grammar = LLMatcher.grammar_from_json_schema(json.dumps(triage.to_json_schema({"acuity": "1"})))
    assert LLMatcher.validate_grammar(grammar) == ""


def test_our_own_json_schema_reads_back(triage: Schema) -> None:
    again = Schema.from_json_schema(triage.to_json_schema(), label="acuity")
    assert again.check(GOOD) == []
    assert [field.kind for field in again.fields][:5] == ["text", "category", "integer", "integer", "number"]
    assert again.field("dbp").optional


class Loan(BaseModel):
    """A loan application."""

    purpose: Literal["car", "house"]
    amount: Annotated[int, Setting(ge=0, le=10_000, multiple_of=100)]
    income: float
    note: Annotated[str, Setting(max_length=50)] | None = None


def test_a_pydantic_model_becomes_a_schema_and_what_it_leaves_open_is_unconfirmed() -> None:
    schema = Schema.from_pydantic(Loan, label="purpose")
    assert isinstance(schema.field("purpose"), CategoryField)
    amount, note = schema.field("amount"), schema.field("note")
    assert isinstance(amount, IntegerField)
    assert (amount.max, amount.step) == (10_000, 100)
    assert isinstance(note, TextField)
    assert note.optional
    assert note.max_length == 50
    assert schema.unconfirmed == ("income",)


def test_files_are_read_and_written(tmp_path: Path, triage: Schema) -> None:
    triage.save(tmp_path / "schema.yaml")
    (tmp_path / "schema.json").write_text(json.dumps(triage.to_json_schema()), encoding="utf-8")
    assert Schema.load(tmp_path / "schema.yaml").fingerprint() == triage.fingerprint()
    assert Schema.load(tmp_path / "schema.json").names == triage.names
    for name, content in [
        ("missing.yaml", None),
        ("bad.json", b"{"),
        ("latin.yaml", b"name: \xff\xfe\xfa"),
        ("list.json", b"[]"),
    ]:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(SchemaError, match=name):
            Schema.load(tmp_path / name)


# -- drafts, stated anew and confirmed ---------------------------------------------------------------------------------

DRAFT = Schema.from_yaml(TRIAGE.replace("kind: integer,", "kind: integer, confirmed: false,"))


def test_fields_are_confirmed_by_name_or_all_at_once() -> None:
    assert DRAFT.unconfirmed == ("sbp", "dbp")
    assert DRAFT.confirm("sbp").unconfirmed == ("dbp",)
    assert DRAFT.confirm().unconfirmed == ()
    assert DRAFT.unconfirmed == ("sbp", "dbp"), "a schema does not change"
    assert DRAFT.confirm().fingerprint() == DRAFT.fingerprint()
    with pytest.raises(SchemaError, match="no field 'spb'") as caught:
        DRAFT.confirm("spb")
    assert "Did you mean 'sbp'?" in caught.value.hint


def test_the_error_of_an_unconfirmed_draft_names_both_ways_to_confirm_it() -> None:
    with pytest.raises(UnconfirmedSchemaError, match="sbp, dbp") as caught:
        DRAFT.require_confirmed()
    assert "confirmed: false" in caught.value.hint
    assert "schema.confirm" in caught.value.hint


def test_a_field_is_stated_anew_and_stays_unconfirmed() -> None:
    stated = DRAFT.change("sbp", min=0, max=300, description="Upper pressure")
    field = stated.field("sbp")
    assert isinstance(field, IntegerField)
    assert (field.min, field.max, field.unit, field.description) == (0, 300, "mmHg", "Upper pressure")
    assert stated.unconfirmed == ("sbp", "dbp")
    assert stated.names == DRAFT.names
    assert [rule.text for rule in stated.rules] == [rule.text for rule in DRAFT.rules]
    assert isinstance(DRAFT.change("sbp", unit=None).field("sbp"), IntegerField)
    assert DRAFT.change("sbp", unit=None).to_dict()["fields"]["sbp"].get("unit") is None


def test_another_kind_drops_what_belonged_to_the_old_one() -> None:
    stated = Schema.from_dict(DRAFT.to_dict() | {"rules": [], "examples": []})
    found = stated.change("sbp", kind="category", values=["low", "high"]).field("sbp")
    assert isinstance(found, CategoryField)
    assert (found.values, found.confirmed) == (("low", "high"), False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"min": 300}, "min"), ({"no_such": 1}, "no_such"), ({"max": 100}, "example")],
)
def test_what_contradicts_itself_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        DRAFT.change("sbp", **settings)


def test_fields_are_left_out_with_their_examples() -> None:
    assert DRAFT.without("arrived", "temperature").names == ("complaint", "acuity", "sbp", "dbp", "injury")
    assert "arrived" not in DRAFT.without("arrived").examples[0]
    with pytest.raises(SchemaError, match="dbp"):
        DRAFT.without("dbp")  # a rule needs it
    with pytest.raises(SchemaError, match="no field"):
        DRAFT.without("nobody")


def test_repr_is_short_and_shows_no_bound_or_value() -> None:
    assert repr(DRAFT) == "<Schema 'triage': 7 fields, label 'acuity', 2 rules, 2 not confirmed>"
    assert repr(DRAFT.confirm()) == "<Schema 'triage': 7 fields, label 'acuity', 2 rules>"
