"""Narrowed domains against brute force: nothing is lost, and where one field is open, nothing is left too much."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given

from selpe.schema import (
    BooleanField,
    CategoryField,
    DateField,
    IntegerField,
    NumberField,
    Rule,
    Schema,
    Span,
    TextField,
    Value,
)
from selpe.schema.narrowing import TRIED, Domain, Known, Narrowing
from small_domains import OPAQUE, OTHER, RULES, SmallWorld, values_of, worlds


def allowed(narrowing: Narrowing, name: str, domain: Domain) -> set[Value]:
    """The values of a small field that a domain leaves."""
    found: set[Value] = set(domain.values)
    for run in narrowing.runs(name, domain) if domain.runs else ():
        found |= {value for value in values_of(run) if value is not None}
    found |= {"say", OTHER} if domain.free else set()
    return found | ({None} if domain.missing else set())


@given(worlds(RULES + OPAQUE))
def test_no_value_of_a_valid_record_is_lost(world: SmallWorld) -> None:
    narrowing = Narrowing(world.schema)
    domains = narrowing.domains(world.known)
    for name in world.schema.names:
        assert {record[name] for record in world.records} <= allowed(narrowing, name, domains[name])


@given(worlds(RULES + OPAQUE[:3]))
def test_where_one_field_is_open_exactly_what_obeys_the_rules_is_left(world: SmallWorld) -> None:
    narrowing = Narrowing(world.schema)
    for record in world.records[:3]:
        for name in world.schema.names:
            known = {other: value for other, value in record.items() if other != name}
            every = [known | {name: value} for value in values_of(world.schema.field(name))]
            valid = {one[name] for one in every if not world.schema.check(one)}
            left = allowed(narrowing, name, narrowing.domains(known)[name])
            # Of all texts but one, none can be named in a grammar: the one is found when the record is checked.
            assert left == valid or (left - valid == {"say"} and OTHER in valid)


FIELDS = (
    IntegerField("amount", min=-1_000_000_000, max=1_000_000_000),
    IntegerField("income", min=0, max=1_000_000_000, step=100),
    NumberField("share", min=Decimal(0), max=Decimal(1), step=Decimal("0.001")),
    DateField("begun", min=date(1900, 1, 1), max=date(2099, 12, 31)),
    DateField("ended", min=date(1900, 1, 1), max=date(2099, 12, 31), optional=True),
    CategoryField("grade", values=("A", "B")),
    BooleanField("late"),
    TextField("note", optional=True),
)


@pytest.mark.parametrize(
    ("rule", "known", "name", "left"),
    [
        ("amount <= income * 2", {"income": 1500}, "amount", Domain(runs=((-(10**9), 3000),))),
        ("amount <= income * 2", {"amount": 1150}, "income", Domain(runs=((6, 10**7),))),
        ("amount <= income * 2", {"income": Span(0, 250)}, "amount", Domain(runs=((-(10**9), 400),))),
        ("amount <= income * 2", {}, "amount", Domain(runs=((-(10**9), 10**9),))),
        ("amount != 3 and amount != 7", {}, "amount", Domain(runs=((-(10**9), 2), (4, 6), (8, 10**9)))),
        ("amount * share >= 10", {"share": 0.5}, "amount", Domain(runs=((20, 10**9),))),
        ("amount / income <= share", {"income": 200, "amount": 50}, "share", Domain(runs=((250, 1000),))),
        ("share == 0.3", {}, "share", Domain(runs=((300, 300),))),
        ("begun <= ended", {"begun": "2024-05-01"}, "ended", Domain(runs=((738_862 + 145, 766_644),), missing=True)),
        ('if grade == "A" then late == false', {"late": True}, "grade", Domain(values=("B",))),
        ('if late then note == "paid"', {"late": True}, "note", Domain(values=("paid",), missing=True)),
        ("if late then note != null", {"late": True}, "note", Domain(free=True)),
        ("if late then note == null", {"late": True}, "note", Domain(missing=True)),
        ("amount < income and income < share * 1000", {}, "amount", Domain(runs=((-(10**9), 899),))),
    ],
)  # fmt: skip
def test_a_rule_narrows_domains_of_any_size(rule: str, known: Known, name: str, left: Domain) -> None:
    schema = Schema("wide", FIELDS, None, (Rule.parse(rule, FIELDS),))
    assert Narrowing(schema).domains(known)[name] == left


def test_a_contradiction_leaves_some_field_nothing() -> None:
    schema = Schema("wide", FIELDS, None, (Rule.parse('if grade == "A" then late == false', FIELDS),))
    assert any(domain.empty for domain in Narrowing(schema).domains({"grade": "A", "late": True}).values())


def test_a_large_domain_is_left_whole_where_a_rule_cannot_be_followed() -> None:
    rule = Rule.parse("amount % 2 == 0", FIELDS)
    narrowing = Narrowing(Schema("wide", FIELDS, None, (rule,)))
    assert narrowing.domains({})["amount"].runs == ((-(10**9), 10**9),)
    few = narrowing.domains({"amount": Span(1, TRIED)})["amount"].runs
    assert len(few) == TRIED // 2
    assert all(low == high and low % 2 == 0 for low, high in few)


def test_bounds_pass_from_rule_to_rule() -> None:
    fields = tuple(IntegerField(name, min=0, max=9) for name in "abc")
    schema = Schema("chain", fields, None, tuple(Rule.parse(text, fields) for text in ("a < b", "b < c")))
    assert Narrowing(schema).domains({})["a"] == Domain(runs=((0, 7),))


def test_what_is_settled_becomes_part_of_the_schema_itself() -> None:
    rules = ('if grade == "A" then late == false', 'if grade == "A" then share <= 0.5', "amount != 5")
    schema = Schema("wide", FIELDS, None, tuple(Rule.parse(text, FIELDS) for text in rules))
    narrowed, values = Narrowing(schema).settled({"grade": "A", "amount": Span(5, 9)})
    assert values == {"grade": "A", "late": False}
    assert (narrowed.field("share").max, narrowed.field("amount").min) == (Decimal("0.5"), 6)  # type: ignore[attr-defined]
    assert narrowed.field("note").optional
