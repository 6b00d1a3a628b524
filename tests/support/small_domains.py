"""Schemas so small that all their records can be listed, with rules of every kind: what narrowing is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import product

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

OTHER = "xyz"  # what stands for all texts that no rule names

# Each is a rule that can be followed exactly once all but one of its fields are known.
COMPARISONS = (
    "low < high", "low <= rate * 2 - 1", "low + high >= rate", "high - low != 2", "low == high or high > 3",
    "2 * rate == low", "(low + 1) / 2 <= rate", "-low <= high - 6",
    "low * 2 < 5 and high > 1", "low in [0, 2, 3]", "not (low in [1])",
    "low * high <= 6", "first <= last", 'first < d"2024-02-29" or last == d"2024-03-01"', 'last - first <= t"P1D"',
)  # fmt: skip
IMPLICATIONS = (
    "if flag == true then low >= 2", "if flag then high <= 1 else high >= 3", 'if kind == "a" then flag == false',
    'kind != "b" or rate > 0.5', 'if kind in ["a", "c"] then kind2 == "b"', "flag or low > 1", "not flag or rate <= 1",
    "kind == kind2", "kind != kind2", "flag ? low < 2 : low > 1", 'if low > 2 then kind == "c"',
    'if note == "say" then flag == true', 'if flag == true then note == "say"',
    'if low > high then last == d"2024-03-01"',
)  # fmt: skip
MISSING = (
    "high != null", "if flag == true then high == null", "if high == null then low == 0", "high == null or high > low",
    "if note == null then kind == \"a\"",
)  # fmt: skip
# These ask more than can be followed: tried value by value where the domain is small, and checked afterwards.
OPAQUE = ("low * low <= rate + 4", "low % 2 == 0", "first.day <= 28", 'note =~ "s.*"', 'if note =~ "x.*" then low <= 1')
RULES = COMPARISONS + IMPLICATIONS + MISSING


@dataclass(frozen=True)
class SmallWorld:
    """A schema, what is known of a record, and all records that agree with both."""

    schema: Schema
    known: Mapping[str, Value]
    records: tuple[Record, ...]


def values_of(field: Field) -> list[Value]:
    """All values of a small field; texts by the few that rules can tell apart."""
    found: list[Value] = [None] if field.optional else []
    if isinstance(field, TextField):
        return [*found, "say", OTHER]
    if isinstance(field, BooleanField):
        return [*found, False, True]
    if isinstance(field, CategoryField):
        return [*found, *field.values]
    if isinstance(field, DateField):
        days = range(field.min.toordinal(), field.max.toordinal() + 1)
        return [*found, *(date.fromordinal(day).isoformat() for day in days)]
    assert isinstance(field, (IntegerField, NumberField))
    places = range(int(field.min / field.step), int(field.max / field.step) + 1)
    exact = (place * field.step for place in places)
    return [*found, *(int(one) if isinstance(field, IntegerField) else float(one) for one in exact)]


@st.composite
def worlds(draw: st.DrawFn, rules: tuple[str, ...] = RULES, *, most: int = 3) -> SmallWorld:
    """A few rules, the fields that they name in any order, and a part of one of the records that obey them."""
    texts = draw(st.lists(st.sampled_from(rules), min_size=1, max_size=most, unique=True))
    named = {name for text in texts for name in Rule.parse(text, _fields(frozenset())).fields}
    optional = frozenset(draw(st.lists(st.sampled_from(sorted(named)), unique=True)))
    fields = draw(st.permutations([one for one in _fields(optional) if one.name in named]))
    schema = Schema("small", tuple(fields), None, tuple(Rule.parse(text, fields) for text in texts))
    every = [
        dict(zip(schema.names, values, strict=True)) for values in product(*(values_of(one) for one in schema.fields))
    ]
    valid = [record for record in every if not schema.check(record)]
    if not valid:
        return SmallWorld(schema, {}, ())
    facts = draw(st.lists(st.sampled_from(schema.names), unique=True, max_size=len(schema.names) - 1))
    one = draw(st.sampled_from(valid))
    known = {name: one[name] for name in facts}
    return SmallWorld(schema, known, tuple(record for record in valid if record.items() >= known.items()))


def _fields(optional: frozenset[str]) -> tuple[Field, ...]:
    return (
        IntegerField("low", min=0, max=4, optional="low" in optional),
        IntegerField("high", min=0, max=6, step=2, optional="high" in optional),
        NumberField("rate", min=Decimal(0), max=Decimal(2), step=Decimal("0.5"), optional="rate" in optional),
        BooleanField("flag", optional="flag" in optional),
        CategoryField("kind", values=("a", "b", "c"), optional="kind" in optional),
        CategoryField("kind2", values=("b", "c"), optional="kind2" in optional),
        DateField("first", min=date(2024, 2, 28), max=date(2024, 3, 1), optional="first" in optional),
        DateField("last", min=date(2024, 2, 28), max=date(2024, 3, 1), optional="last" in optional),
        TextField("note", min_length=3, max_length=3, optional="note" in optional),
    )
