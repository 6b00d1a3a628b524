"""The changes that a person can make to a project, each as one change of one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml.comments import CommentedMap

from selpe.errors import ConfigError, SchemaError
from selpe.schema import Field as SchemaField
from selpe.schema import Record, Rule, Schema
from selpe.schema.fields import parse_date
from selpe.studio.forms import FieldForm, value_of
from selpe.studio.project import Change
from selpe.studio.yaml_edit import assign, remove

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
_WHOLE = ("records", "rows")
_REAL = ("epsilon", "budget")
_TRUTH = ("day_first",)
_WORDS = ("unit", "llm", "test", "encoding", "delimiter", "decimal")
EDITABLE = (*_WHOLE, *_REAL, *_TRUTH, *_WORDS)


# -- the schema ------------------------------------------------------------------------------------------------------


def field_change(name: str, form: FieldForm) -> Change:
    """Sets what the file says of one field; a new one comes last."""
    entry = form.entry(name)

    def change(content: CommentedMap) -> None:
        fields = content["fields"]
        if name not in fields:
            assign(fields, name, entry)
            return
        old = fields[name]
        # A question that `selpe init` put behind 'confirmed: false' keeps its place, now with the answer.
        said = entry if form.confirmed is False or "confirmed" not in old else {**entry, "confirmed": True}
        for key in [key for key in old if key not in said]:
            remove(old, key)
        for key, value in said.items():
            assign(old, key, value, before="confirmed")

    return change


def without_field(name: str, schema: Schema) -> Change:
    """Leaves a field out. Raises SchemaError where something else needs it."""
    schema.field(name)
    if len(schema.fields) == 1:
        raise SchemaError("a schema must have at least one field", where=f"field '{name}'")
    needed = [rule.text for rule in schema.rules if name in rule.fields]
    if needed:
        raise SchemaError(
            f"the rule '{needed[0]}' needs this field", where=f"field '{name}'", hint="remove the rule first"
        )

    def change(content: CommentedMap) -> None:
        remove(content["fields"], name)
        if content.get("label") == name:
            remove(content, "label")
        for record in content.get("examples") or []:
            if name in record:
                remove(record, name)

    return change


def about_change(description: str, label: str | None) -> Change:
    """Sets the description of the whole table, and which field is the class."""

    def change(content: CommentedMap) -> None:
        assign(content, "description", description.strip(), before="fields")
        if label:
            assign(content, "label", label, before="fields")
        elif "label" in content:
            remove(content, "label")

    return change


def with_example(record: Mapping[str, Any]) -> Change:
    """Adds a made-up record."""
    return _listed("examples", {name: value for name, value in record.items() if value is not None})


def with_rule(text: str, schema: Schema) -> Change:
    """Adds a rule. Raises SchemaError where it is none, or an example breaks it."""
    rule = Rule.parse(text, schema.fields)
    if any(known.text == text for known in schema.rules):
        raise SchemaError("this rule is there already", where=f"rule '{text}'")
    for number, record in enumerate(schema.examples, 1):
        if not rule.holds(record):
            raise SchemaError(
                f"example {number} breaks this rule", where=f"rule '{text}'", hint="change one of the two"
            )
    return _listed("rules", text)


def without_item(name: Literal["examples", "rules"], place: int, schema: Schema) -> Change:
    """Takes one example or rule away, counted from 0."""
    if not 0 <= place < len(getattr(schema, name)):
        raise SchemaError("there is no such entry", where=f"{name} {place + 1}")

    def change(content: CommentedMap) -> None:
        if len(content[name]) == 1:
            remove(content, name)
        else:
            remove(content[name], place)

    return change


def _listed(name: str, item: Any) -> Change:
    def change(content: CommentedMap) -> None:
        if content.get(name):
            content[name].append(item)
        else:
            assign(content, name, [item])

    return change


def read_example(schema: Schema, texts: Mapping[str, str], shown: set[str]) -> tuple[Record, dict[str, str]]:
    """The record that a person typed, and what is wrong with it, by field; '' stands for the whole record."""
    record: Record = {}
    problems: dict[str, str] = {}
    for name in texts:
        schema.field(name)
    for field in schema.fields:
        value, problem = value_of(field, texts.get(field.name, ""), shown=field.name in shown)
        record[field.name] = value
        if problem:
            problems[field.name] = problem
    if not problems:
        broken = [violation.rule for violation in schema.check(record) if violation.rule]
        if broken:
            problems[""] = "breaks the rule " + ", ".join(broken)
        elif record in schema.examples:
            problems[""] = "is an example already"
    return record, problems


# -- rules by choosing -----------------------------------------------------------------------------------------------


class Condition(BaseModel):
    """One comparison: a field with another field, or with a value as typed."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    field: str
    comparison: Comparison
    other: str | None = None
    value: str = Field("", max_length=1000)


def rule_text(schema: Schema, then: Condition, given: Condition | None = None) -> str:
    """The rule that chosen fields make: 'a < b', or 'if c == 1 then a < b'."""
    said = _condition(schema, then)
    return said if given is None else f"if {_condition(schema, given)} then {said}"


def _condition(schema: Schema, part: Condition) -> str:
    field = schema.field(part.field)
    right = _name(schema.field(part.other).name) if part.other else _literal(field, part.value)
    return f"{_name(field.name)} {part.comparison} {right}"


def _name(name: str) -> str:
    plain = (
        name.isidentifier() and name.isascii() and name not in ("if", "then", "else", "and", "or", "not", "in", "null")
    )
    return name if plain else f"`{name}`"


def _literal(field: SchemaField, text: str) -> str:
    """A value as rules have it. A bound need not be a value of the field, a category's value must."""
    text = text.strip()
    if field.kind in ("text", "category"):
        return json.dumps(text, ensure_ascii=False)
    if field.kind == "boolean":
        value, problem = value_of(field, text, shown=True)
        if problem:
            raise SchemaError("must be yes or no", where=f"field '{field.name}'")
        return "true" if value else "false"
    if field.kind == "date":
        if parse_date(text) is None:
            raise SchemaError("must be a day written YYYY-MM-DD", where=f"field '{field.name}'")
        return f'd"{text}"'
    try:
        float(text)
    except ValueError:
        raise SchemaError("must be a number", where=f"field '{field.name}'") from None
    return text


# -- the settings ----------------------------------------------------------------------------------------------------


def settings_change(changes: Mapping[str, str]) -> Change:
    """Sets some settings as typed; an empty text takes one away, so that its default holds."""
    read = {name: read_setting(name, text) for name, text in changes.items()}

    def change(content: CommentedMap) -> None:
        for name, value in read.items():
            if value is None:
                if name in content:
                    remove(content, name)
            else:
                assign(content, name, value, before="schema" if name in ("day_first", "decimal") else "")

    return change


def read_setting(name: str, text: str) -> Any:
    """A setting as a person typed it; None for an empty text."""
    if name not in EDITABLE:
        raise ConfigError(f"'{name}' cannot be set here", hint="selpe.yaml holds every setting")
    if not text.strip() and name != "delimiter":
        return None
    if name in _TRUTH:
        if text not in ("yes", "no"):
            raise ConfigError("must be yes or no", where=name)
        return text == "yes"
    if name in _WORDS:
        return (text if name == "delimiter" else text.strip()) or None
    try:
        number = float(text)
        return int(text) if name in _WHOLE else int(number) if number == int(number) else number
    except (ValueError, OverflowError):
        raise ConfigError("must be a whole number" if name in _WHOLE else "must be a number", where=name) from None
