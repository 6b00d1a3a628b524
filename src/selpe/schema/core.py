"""The schema object: fields in order, at most one label, rules, and made-up example records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from json.encoder import encode_basestring
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import SchemaError, UnconfirmedSchemaError, did_you_mean
from selpe.owner_only import write_text
from selpe.schema.fields import (
    BooleanField,
    CategoryField,
    Field,
    IntegerField,
    NumberField,
    Record,
    Span,
    Value,
    Violation,
    exact_decimal,
    first_multiple,
    plain,
)
from selpe.schema.rules import Rule

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_LABELS = 100


@dataclass(frozen=True, repr=False)
class Schema:
    """The paper's 𝒮 = (𝒞, 𝒱, 𝓡). It is public: what comes from private rows must be confirmed by a person."""

    name: str
    fields: tuple[Field, ...]
    label: str | None = None
    rules: tuple[Rule, ...] = ()
    description: str = ""
    examples: tuple[Record, ...] = ()

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaError("a schema must have at least one field", where=self.name)
        if len(self._by_name) != len(self.fields):
            raise SchemaError("field names must be distinct", where=self.name)
        self._check_label()
        self._check_examples()

    def __repr__(self) -> str:
        """Short, and without a bound or a value: a draft has them from private rows."""
        parts = [f"{len(self.fields)} field{'' if len(self.fields) == 1 else 's'}"]
        parts += [f"label {self.label!r}"] if self.label is not None else []
        parts += [f"{len(self.rules)} rule{'' if len(self.rules) == 1 else 's'}"] if self.rules else []
        parts += [f"{len(self.unconfirmed)} not confirmed"] if self.unconfirmed else []
        return f"<Schema {self.name!r}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        from selpe.schema.view import schema_view

        return schema_view(self)

    # -- what it holds -------------------------------------------------------------------------------------------

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    @property
    def names(self) -> tuple[str, ...]:
        """The field labels 𝒞, in order."""
        return tuple(self._by_name)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the fields that every record must have."""
        return tuple(field.name for field in self.fields if not field.optional)

    def field(self, name: str) -> Field:
        """The field of that name."""
        try:
            return self._by_name[name]
        except KeyError:
            raise SchemaError(
                f"there is no field '{name}'",
                where=self.name,
                hint=f"{did_you_mean(name, self.names)}The fields are {', '.join(self.names)}.",
            ) from None

    @property
    def label_field(self) -> Field | None:
        """The field that says a record's class, if there is one."""
        return None if self.label is None else self._by_name[self.label]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The classes as text, in the schema's order; empty without a label."""
        field = self.label_field
        if isinstance(field, CategoryField):
            return field.values
        if isinstance(field, BooleanField):
            return ("false", "true")
        if isinstance(field, IntegerField):
            return tuple(
                str(value) for value in range(int(first_multiple(field.min, field.step)), field.max + 1, field.step)
            )
        return ()

    def label_of(self, record: Mapping[str, Value]) -> str | None:
        """A record's class as text."""
        value = None if self.label is None else record.get(self.label)
        if value is None:
            return None
        return str(value).lower() if isinstance(value, bool) else str(value)

    def label_value(self, label: str) -> Value:
        """The value that the label field has in records of a class: the inverse of `label_of`."""
        if label not in self.labels:
            raise SchemaError(f"'{label}' is not a class of this schema", where=self.name)
        field = self.label_field
        if isinstance(field, BooleanField):
            return label == "true"
        return int(label) if isinstance(field, IntegerField) else label

    def within(self, spans: Mapping[str, Span]) -> Schema:
        """The same schema with some fields narrowed; its examples, which may lie outside, are left out."""
        fields = tuple(field.within(spans[field.name]) if field.name in spans else field for field in self.fields)
        return replace(self, fields=fields, examples=()) if spans else self

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """The names of drafted fields that no person has confirmed as public."""
        return tuple(field.name for field in self.fields if not field.confirmed)

    def require_confirmed(self) -> None:
        """Raises UnconfirmedSchemaError while any field is an unconfirmed draft."""
        if self.unconfirmed:
            raise UnconfirmedSchemaError(
                f"these drafted fields are not confirmed as public yet: {', '.join(self.unconfirmed)}",
                where=self.name,
                hint="look at each field's bounds and categories, replace what only the private table could tell, "
                "and remove its 'confirmed: false' line (in Python: `schema.change(…)`, then `schema.confirm(…)`)",
            )

    def confirm(self, *names: str) -> Schema:
        """The same schema with these drafted fields confirmed by you as public, or all of them where none is named.

        A schema stands in the release and the guarantee does not cover it. Confirm a field when its bounds and values
        are what anybody could know (a scale, a form's options), and not what the private table happens to hold.

        >>> draft = Schema.from_dict({"name": "visits", "fields": {"age": {"kind": "integer", "min": 19, "max": 87,
        ...                                                                "confirmed": False}}})
        >>> draft.change("age", min=0, max=110).confirm("age")
        <Schema 'visits': 1 field>
        """
        chosen = {self.field(name).name for name in names} or set(self.unconfirmed)
        fields = tuple(replace(field, confirmed=True) if field.name in chosen else field for field in self.fields)
        return replace(self, fields=fields)

    def change(self, name: str, **settings: Any) -> Schema:
        """The same schema with one field stated anew, in the words of the YAML file; it stays as confirmed as it was.

        With another `kind`, everything that belongs to the old one is dropped. None takes a setting away.

        >>> schema = Schema.from_dict({"name": "visits", "fields": {"pain": {"kind": "integer", "min": 0, "max": 9}}})
        >>> schema.change("pain", max=10, description="From none to worst").field("pain").expected
        'an integer from 0 to 10'
        """
        content, field = self.to_dict(), self.field(name)
        entry = content["fields"][name]
        if settings.get("kind", field.kind) != field.kind:
            entry = {key: entry[key] for key in ("description", "optional", "confirmed") if key in entry}
        entry = {key: value for key, value in (entry | settings).items() if value is not None}
        return Schema.from_dict(content | {"fields": content["fields"] | {name: entry}}, where=self.name)

    def without(self, *names: str) -> Schema:
        """The same schema without these fields, which are then not synthesised."""
        content, left_out = self.to_dict(), {self.field(name).name for name in names}
        content["fields"] = {name: entry for name, entry in content["fields"].items() if name not in left_out}
        for example in content.get("examples", ()):
            for name in left_out:
                example.pop(name, None)
        return Schema.from_dict(content, where=self.name)

    # -- judging records -----------------------------------------------------------------------------------------

    def check(self, record: Mapping[str, object]) -> list[Violation]:
        """Every violation of a record: keys and types, then domains, then rules. Empty means valid."""
        found = [
            Violation(name, "syntax", "absent: the schema has no such field")
            for name in record
            if name not in self._by_name
        ]
        for field in self.fields:
            value = record.get(field.name)
            if value is None:
                if not field.optional:
                    found.append(Violation(field.name, "syntax", f"present: {field.expected}"))
            elif (level := field.check(value)) is not None:
                found.append(Violation(field.name, level, field.expected))
        broken = {violation.field for violation in found}
        for rule in self.rules:
            # A rule about a value outside its domain adds no information.
            if broken.isdisjoint(rule.fields) and not rule.holds(record):  # type: ignore[arg-type]
                found.append(Violation(rule.fields[0], "rule", "consistent with the other fields", rule.text))
        return found

    # -- text ----------------------------------------------------------------------------------------------------

    def lexicalise(self, name: str, value: Value) -> str:
        """ℓ(c, ξ): a field–value pair as text."""
        return self.field(name).lexicalise(value)

    def linearise(self, record: Mapping[str, Value], *, without: Sequence[str] = ()) -> str:
        """The canonical linearisation of a record: ℓ of every field in schema order, missing ones included."""
        return "; ".join(field.lexicalise(record.get(field.name)) for field in self.fields if field.name not in without)

    def dumps(self, record: Mapping[str, Value]) -> str:
        """The canonical JSON text of a record: schema order, every key, decimals at the field's precision."""
        return "{" + ", ".join([key + _written(record.get(name), number) for name, key, number in self._keys]) + "}"

    @cached_property
    def _keys(self) -> tuple[tuple[str, str, bool], ...]:
        """What `dumps` needs to know of each field: its name, how it stands in JSON, and whether it is a decimal."""
        return tuple(
            (field.name, f"{json.dumps(field.name, ensure_ascii=False)}: ", isinstance(field, NumberField))
            for field in self.fields
        )

    def fingerprint(self) -> str:
        """A hash of what the schema says; confirmation marks do not change it."""
        content = self.to_dict()
        for entry in content["fields"].values():
            entry.pop("confirmed", None)
        text = json.dumps(content, ensure_ascii=False, sort_keys=False, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    # -- in and out ----------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """The schema in a YAML file, or in a JSON Schema file when its name ends in .json."""
        from selpe.schema.read import load_schema

        return load_schema(Path(path))

    @classmethod
    def from_yaml(cls, text: str, *, where: str = "schema") -> Schema:
        """The schema that a YAML text states."""
        from selpe.schema.read import read_yaml

        return read_yaml(text, where=where)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, where: str = "schema") -> Schema:
        """The schema that plain data states, in the shape of the YAML file."""
        from selpe.schema.read import read_dict

        return read_dict(content, where=where)

    @classmethod
    def from_json_schema(cls, content: Mapping[str, Any], *, label: str | None = None) -> Schema:
        """The schema that a JSON Schema (2020-12) object states, as far as records can have it."""
        from selpe.schema.interchange import from_json_schema

        return from_json_schema(content, label=label)

    @classmethod
    def from_pydantic(cls, model: type[BaseModel], *, label: str | None = None) -> Schema:
        """The schema of a pydantic model."""
        from selpe.schema.interchange import from_json_schema

        return from_json_schema(model.model_json_schema(), label=label)

    def to_json_schema(self, fixed: Mapping[str, Value] | None = None) -> dict[str, Any]:
        """JSON Schema that LLGuidance accepts; fields in `fixed` become constants."""
        from selpe.schema.interchange import to_json_schema

        return to_json_schema(self, fixed or {})

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain data, in the shape of the YAML file."""
        from selpe.schema.write import to_dict

        return to_dict(self)

    def to_yaml(self) -> str:
        """The schema as YAML text."""
        from selpe.schema.write import to_yaml

        return to_yaml(self)

    def save(self, path: str | Path) -> None:
        """Writes the schema as a YAML file."""
        write_text(Path(path), self.to_yaml())

    # -- its own consistency -------------------------------------------------------------------------------------

    def _check_label(self) -> None:
        if self.label is None:
            return
        field = self.field(self.label)
        if field.kind not in ("category", "boolean", "integer"):
            raise SchemaError("the label must be a category, a boolean or an integer", where=f"field '{self.label}'")
        if field.optional:
            raise SchemaError("the label must not be optional", where=f"field '{self.label}'")
        if isinstance(field, IntegerField) and (field.max - field.min) // field.step >= MAX_LABELS:
            raise SchemaError(
                f"an integer label must have at most {MAX_LABELS} values",
                where=f"field '{self.label}'",
                hint="make it a category, or set min and max to the classes that exist",
            )

    def _check_examples(self) -> None:
        for field in self.fields:
            if any(field.check(example) is not None for example in field.examples):
                raise SchemaError(f"an example must be {field.expected}", where=f"field '{field.name}'")
        for number, record in enumerate(self.examples, 1):
            if violations := self.check(record):
                raise SchemaError(violations[0].message, where=f"example record {number}")


def _written(value: Value, number: bool) -> str:
    """A value as JSON text; decimals without exponent and trailing zeros."""
    # json.dumps would write the same, but takes long to see what it has before it.
    if type(value) is str:
        return encode_basestring(value)
    if value is None or type(value) is bool:
        return "null" if value is None else "true" if value else "false"
    if type(value) is int and not number:
        return str(value)
    exact = exact_decimal(value) if number else None
    return json.dumps(value, ensure_ascii=False) if exact is None else plain(exact)
