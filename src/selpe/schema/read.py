"""Reading a schema from YAML or plain data. Pydantic checks the shape; every error names the place, never the input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic import Field as Setting

from selpe.errors import SchemaError
from selpe.schema.core import Schema
from selpe.schema.fields import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    Record,
    TextField,
    Value,
)
from selpe.schema.rules import Rule
from selpe.yaml import parse_yaml, place

MAX_BYTES = 5_000_000


class _Entry(BaseModel):
    """What every field of the file may say."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, strict=True)

    description: str = ""
    optional: bool = False
    confirmed: bool = True

    def common(self, name: str) -> dict[str, Any]:
        """What all kinds of field take."""
        return {
            "name": name,
            "description": self.description,
            "optional": self.optional,
            "confirmed": self.confirmed,
            "examples": tuple(_plain(example) for example in getattr(self, "examples", [])),
        }


class _Text(_Entry):
    kind: Literal["text"]
    min_length: int = 1
    max_length: int = 400
    pattern: str | None = None
    examples: list[str] = []

    def build(self, name: str) -> Field:
        pattern = None if self.pattern is None else unanchored(self.pattern)
        return TextField(**self.common(name), min_length=self.min_length, max_length=self.max_length, pattern=pattern)


class _Category(_Entry):
    kind: Literal["category"]
    values: dict[str | int, str | None] | list[str | int]
    examples: list[str] = []

    def build(self, name: str) -> Field:
        described = self.values if isinstance(self.values, dict) else {}
        return CategoryField(
            **self.common(name),
            values=tuple(str(value) for value in self.values),
            descriptions={str(value): text for value, text in described.items() if text},
        )


class _Integer(_Entry):
    kind: Literal["integer"]
    min: int
    max: int
    step: int = 1
    unit: str = ""
    examples: list[int] = []

    def build(self, name: str) -> Field:
        return IntegerField(**self.common(name), min=self.min, max=self.max, step=self.step, unit=self.unit)


Exact = int | float | Decimal


class _Number(_Entry):
    kind: Literal["number"]
    min: Exact
    max: Exact
    step: Exact = 0.01
    unit: str = ""
    examples: list[Exact] = []

    def build(self, name: str) -> Field:
        low, high, step = (Decimal(str(bound)) for bound in (self.min, self.max, self.step))
        return NumberField(**self.common(name), min=low, max=high, step=step, unit=self.unit)


class _Boolean(_Entry):
    kind: Literal["boolean"]
    examples: list[bool] = []

    def build(self, name: str) -> Field:
        return BooleanField(**self.common(name))


class _Date(_Entry):
    kind: Literal["date"]
    min: date
    max: date
    examples: list[date] = []

    @field_validator("min", "max", mode="before")
    @classmethod
    def _day(cls, value: object) -> object:
        """Takes a quoted day as well as a YAML one."""
        return date.fromisoformat(value) if isinstance(value, str) else value

    @field_validator("examples", mode="before")
    @classmethod
    def _days(cls, value: object) -> object:
        return [cls._day(entry) for entry in value] if isinstance(value, list) else value

    def build(self, name: str) -> Field:
        return DateField(**self.common(name), min=self.min, max=self.max)


_AnyEntry = Annotated[_Text | _Category | _Integer | _Number | _Boolean | _Date, Setting(discriminator="kind")]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, strict=True)

    name: str = "records"
    description: str = ""
    label: str | None = None
    fields: dict[str, _AnyEntry] = Setting(min_length=1)
    rules: list[str] = []
    examples: list[dict[str, Any]] = []


def load_schema(path: Path) -> Schema:
    """The schema in a file: YAML, or JSON Schema when the name ends in .json."""
    text = read_text(path)
    if path.suffix.lower() != ".json":
        return read_yaml(text, where=path.name)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaError("the file must hold JSON", where=path.name) from None
    if not isinstance(content, dict):
        raise SchemaError("the file must hold one JSON object", where=path.name)
    return Schema.from_json_schema(content) if "properties" in content else read_dict(content, where=path.name)


def read_text(path: Path) -> str:
    """The text of a small file, with errors that say what to do."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SchemaError(f"the file must be smaller than {MAX_BYTES // 1_000_000} MB", where=path.name)
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SchemaError("there is no such file", where=str(path), hint="`selpe init data.csv` drafts one") from None
    except UnicodeDecodeError:
        raise SchemaError("the file must be text in UTF-8", where=path.name) from None
    except OSError as error:
        raise SchemaError(f"the file cannot be read ({error.strerror})", where=path.name) from None


@lru_cache(maxsize=16)  # a command reads the same file a few times, and YAML takes its time
def read_yaml(text: str, *, where: str) -> Schema:
    """The schema that a YAML text states."""
    content = parse_yaml(text, where=where, error=SchemaError)
    if not isinstance(content, Mapping):
        raise SchemaError("a schema must be a mapping with 'fields' in it", where=where)
    return read_dict(content, where=where)


def read_dict(content: Mapping[str, Any], *, where: str) -> Schema:
    """The schema that plain data states."""
    try:
        file = _File.model_validate(dict(content))
    except ValidationError as invalid:
        first = invalid.errors(include_input=False, include_url=False)[0]
        path = tuple(part for part in first["loc"] if part not in _KINDS_AND_TAGS)
        raise SchemaError(_said(first), where=place(content, path, where), hint=_hint(first)) from None
    except RecursionError:
        raise SchemaError("the file is nested too deeply", where=where) from None
    return _built(file, content, where)


def _built(file: _File, content: Mapping[str, Any], where: str) -> Schema:
    fields = []
    for name, entry in file.fields.items():
        at = place(content, ("fields", name), where)
        if not name.strip() or "`" in name or not name.isprintable():
            raise SchemaError("a field's name must be plain text without back quotes", where=at)
        try:
            fields.append(entry.build(name))
        except SchemaError as error:
            raise SchemaError(error.message, where=at, hint=error.hint) from None
    rules = tuple(
        Rule.parse(text, fields, where=place(content, ("rules", number), where))
        for number, text in enumerate(file.rules)
    )
    examples = tuple(_example(record) for record in file.examples)
    try:
        return Schema(file.name, tuple(fields), file.label, rules, file.description, examples)
    except SchemaError as error:
        raise SchemaError(error.message, where=f"{where}, {error.where}", hint=error.hint) from None


def unanchored(pattern: str) -> str:
    """A pattern without its outer ^ and $: ours always match the whole text."""
    start = pattern[1:] if pattern.startswith("^") else pattern
    return start[:-1] if start.endswith("$") and not start.endswith(r"\$") else start


def _example(record: Mapping[str, Any]) -> Record:
    return {str(name): _plain(value) for name, value in record.items()}


def _plain(value: Any) -> Value:
    """A YAML value as records hold it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (float, Decimal)):
        return float(value)
    return str(value)


_KINDS_AND_TAGS = {
    "text",
    "category",
    "integer",
    "number",
    "boolean",
    "date",
    "int",
    "float",
    "str",
    "decimal",
}


def _said(error: Any) -> str:
    """A pydantic error in our words, without its input."""
    kind = error["type"]
    if kind == "extra_forbidden":
        return f"there is no setting '{error['loc'][-1]}' here"
    if kind == "missing":
        return f"'{error['loc'][-1]}' must be given"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return "'kind' must be one of text, category, integer, number, boolean, date"
    return str(error["msg"]).replace("Input should", "this must").replace("Value error, ", "")


def _hint(error: Any) -> str:
    if error["type"] == "missing" and error["loc"][-1] in ("min", "max"):
        return "a number needs bounds that are public knowledge; without them a model writes digits for ever"
    if error["type"] in ("string_type", "dict_type", "int_type") and "values" in error["loc"]:
        return 'category values are text: quote true, false and decimals, as in "1.5"'
    return "docs/schema.md lists what a schema may say"
