"""Hypothesis strategies that other tests share: random schemas, valid records, their raw text, and mutations of it."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from selpe.schema import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    Record,
    Rule,
    Schema,
    TextField,
    Value,
)

# -- schemas -------------------------------------------------------------------------------------------------------

WORDS = ("age", "sbp", "dbp", "pain", "pain_location", "chief complaint", "Größe", "名前", "a", "A", "x-1", "unit (mm)")
_ODD = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="`"), min_size=1, max_size=6)
names = st.sampled_from(WORDS) | st.text(string.ascii_letters + "_ -", min_size=1, max_size=12).filter(str.strip) | _ODD

# What may stand in a text: no control characters, no surrogates.
texts = st.characters(exclude_categories=("Cc", "Cs"))
PATTERNS = {"[A-Z]{2}-[0-9]{3}": (6, 6), "[a-z ]+": (1, 30), "(?:yes|no), [0-9]+": (3, 20)}
STEPS = tuple(map(Decimal, ("0.01", "0.1", "0.05", "0.25", "1", "2.5")))


@st.composite
def fields(draw: st.DrawFn, name: str) -> Field:
    """A field of any kind."""
    kind = draw(st.sampled_from(("text", "pattern", "category", "integer", "number", "boolean", "date")))
    optional = draw(st.booleans())
    if kind == "text":
        low = draw(st.integers(0, 5))
        return TextField(name, optional=optional, min_length=low, max_length=low + draw(st.integers(0, 40)))
    if kind == "pattern":
        pattern, (low, high) = draw(st.sampled_from(sorted(PATTERNS.items())))
        return TextField(name, optional=optional, min_length=low, max_length=high, pattern=pattern)
    if kind == "category":
        values = draw(st.lists(st.text(texts, min_size=1, max_size=8), min_size=1, max_size=5, unique=True))
        return CategoryField(name, optional=optional, values=tuple(values))
    if kind == "integer":
        step, first = draw(st.sampled_from((1, 1, 2, 5))), draw(st.integers(-50, 50))
        return IntegerField(name, optional=optional, min=first, max=first + step * draw(st.integers(5, 200)), step=step)
    if kind == "number":
        fine, bottom = draw(st.sampled_from(STEPS)), Decimal(draw(st.integers(-50, 50)))
        top = bottom + fine * draw(st.integers(5, 900))
        return NumberField(name, optional=optional, min=bottom, max=top, step=fine)
    if kind == "boolean":
        return BooleanField(name, optional=optional)
    day = draw(st.dates(date(1950, 1, 1), date(2050, 1, 1)))
    return DateField(name, optional=optional, min=day, max=day + timedelta(days=draw(st.integers(0, 900))))


@st.composite
def schemas(draw: st.DrawFn, *, rules: bool = True) -> Schema:
    """A valid schema of one to six fields, sometimes with rules that some of its records obey and some break."""
    chosen = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    content = tuple(draw(fields(name)) for name in chosen)
    found = [Rule.parse(text, content) for text in _rules(content)] if rules and draw(st.booleans()) else []
    labels = [
        field.name for field in content if isinstance(field, (CategoryField, BooleanField)) and not field.optional
    ]
    label = draw(st.sampled_from([None, *labels]))
    return Schema("drawn", content, label, tuple(found))


def _rules(content: tuple[Field, ...]) -> list[str]:
    numeric = [field for field in content if isinstance(field, (IntegerField, NumberField))]
    yes = [field for field in content if isinstance(field, BooleanField)]
    texts = [f"`{low.name}` <= `{high.name}`" for low, high in pairwise(numeric) if low.min < high.max]
    if yes and numeric:
        middle = (Decimal(numeric[0].min) + Decimal(numeric[0].max)) / 2
        texts.append(f"if `{yes[0].name}` == true then `{numeric[0].name}` >= {middle:f}")
    return texts


# -- records -------------------------------------------------------------------------------------------------------


def values(field: Field) -> st.SearchStrategy[Value]:
    """A value of the field's domain."""
    if isinstance(field, TextField):
        return _text_values(field)
    if isinstance(field, CategoryField):
        return st.sampled_from(field.values)
    if isinstance(field, IntegerField):
        return st.integers(-(-field.min // field.step), field.max // field.step).map(lambda k: k * field.step)
    if isinstance(field, NumberField):
        # Python's Decimal // rounds towards zero, hence the explicit roundings.
        low = (field.min / field.step).to_integral_value(ROUND_CEILING)
        high = (field.max / field.step).to_integral_value(ROUND_FLOOR)
        return st.integers(int(low), int(high)).map(lambda k: float(k * field.step))
    if isinstance(field, DateField):
        return st.dates(field.min, field.max).map(date.isoformat)
    return st.booleans()


def _text_values(field: TextField) -> st.SearchStrategy[Value]:
    if field.pattern is None:
        return st.text(texts, min_size=field.min_length, max_size=field.max_length)
    return st.from_regex(field.pattern, fullmatch=True, alphabet=st.characters(codec="ascii")).filter(
        lambda text: field.check(text) is None
    )


def loose_records(schema: Schema) -> st.SearchStrategy[Record]:
    """A record whose values lie in their domains; rules may be broken, optional fields null or absent."""
    required = {field.name: values(field) for field in schema.fields if not field.optional}
    optional = {field.name: st.none() | values(field) for field in schema.fields if field.optional}
    return st.fixed_dictionaries(required, optional=optional)


def records(schema: Schema) -> st.SearchStrategy[Record]:
    """A valid record, rules included."""
    return loose_records(schema).filter(lambda record: not schema.check(record))


# -- raw text ------------------------------------------------------------------------------------------------------

spaces = st.text(" \t\r\n", max_size=3)


@st.composite
def raw_text(draw: st.DrawFn, record: Mapping[str, Value]) -> str:
    """The record as strict JSON: keys in any order, any white space, characters escaped or not."""
    order = draw(st.permutations(list(record)))
    ascii_only = draw(st.booleans())
    gap = draw(spaces)
    pairs = [
        f"{json.dumps(name, ensure_ascii=ascii_only)}{gap}:{gap}{json.dumps(record[name], ensure_ascii=ascii_only)}"
        for name in order
    ]
    return f"{gap}{{{gap}{f'{gap},{gap}'.join(pairs)}{gap}}}{gap}"


# -- mutations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutation:
    """A valid record spoilt in one way: its text, the level at which S-CFG must fail, whether R-CFG must pass."""

    name: str
    raw: str
    fails: str
    rough: bool | None = None


@st.composite
def mutations(draw: st.DrawFn, schema: Schema, record: Record) -> list[Mutation]:
    """The ways to spoil a valid record that apply to it, each with a drawn wrong value."""
    options = [*_wrappings(record), *_key_changes(schema, record)]
    for field in schema.fields:
        options += _type_changes(field, record) if field.name in record else []
        options += draw(_domain_changes(field, record))
    return options


def _wrappings(record: Record) -> list[Mutation]:
    raw = json.dumps(record, ensure_ascii=False)
    return [
        Mutation("prose before", f"Here it is. {raw}", "syntax", True),
        Mutation("prose after", f"{raw} Done.", "syntax", True),
        Mutation("fence", f"```json\n{raw}\n```", "syntax", True),
        Mutation("array", f"[{raw}]", "syntax", True),
        Mutation("twice", f"{raw}\n{raw}", "syntax", True),
        Mutation("byte order mark", f"\ufeff{raw}", "syntax", True),
        Mutation("trailing comma", f"{raw[:-1]},}}", "syntax", True),
        Mutation("no closing brace", raw[:-1], "syntax", True),
    ]


def _key_changes(schema: Schema, record: Record) -> list[Mutation]:
    raw = json.dumps(record, ensure_ascii=False)
    comma = ", " if record else ""
    found = [Mutation("extra key", f'{raw[:-1]}{comma}"zz extra zz": 1}}', "syntax", True)]
    for name in record:
        again = f"{json.dumps(name)}: {json.dumps(record[name])}"
        found.append(Mutation("duplicate key", f"{{{again}, {raw[1:]}", "syntax", True))
    for name in schema.required:
        rest = {key: value for key, value in record.items() if key != name}
        found.append(Mutation("dropped key", json.dumps(rest), "syntax"))
        found.append(Mutation("null", json.dumps(record | {name: None}), "syntax"))
    return found


def _type_changes(field: Field, record: Record) -> list[Mutation]:
    wrong: list[Any] = [[1], {"a": 1}]
    wrong += [7, True] if field.kind in ("text", "category", "date") else ["no such type"]
    if field.kind == "integer":
        wrong += [2.5, 2.0, False]
    return [Mutation("wrong type", json.dumps(record | {field.name: value}), "syntax") for value in wrong]


@st.composite
def _domain_changes(draw: st.DrawFn, field: Field, record: Record) -> list[Mutation]:
    wrong: list[tuple[str, Any]] = []
    if isinstance(field, TextField):
        wrong.append(("too long", draw(st.text(texts, min_size=field.max_length + 1))))
        if field.min_length > 1:
            wrong.append(("too short", draw(st.text(texts, min_size=1, max_size=field.min_length - 1))))
        if field.pattern is not None:
            wrong.append(("pattern", "#" * field.min_length))
    elif isinstance(field, CategoryField):
        wrong.append(("enum", draw(st.text(texts, min_size=1).filter(lambda text: text not in field.values))))
    elif isinstance(field, (IntegerField, NumberField)):
        whole = isinstance(field, IntegerField)
        far = [field.max + field.step * draw(st.integers(1, 10**30)), field.min - field.step]
        wrong += [("out of range", int(value) if whole else float(value)) for value in far]
        middle = record.get(field.name)
        if not whole and middle is not None:
            wrong.append(("off step", float(Decimal(str(middle)) + Decimal(field.step) / 4)))
        if isinstance(field, IntegerField) and field.step > 1 and middle is not None:
            wrong.append(("off step", int(middle) + 1))
    elif isinstance(field, DateField):
        wrong += [("out of range", (field.max + timedelta(days=1)).isoformat()), ("no such day", "2024-02-30")]
    return [Mutation(name, json.dumps(record | {field.name: value}), "domain", True) for name, value in wrong]
