"""R-CFG and S-CFG in detail: what is read out of free text, which violations are named, how rates are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lark import Lark

from selpe.evaluation.validity import (
    extract,
    rough,
    rough_grammar,
    score,
    strict,
    strict_grammar,
    validator,
)
from selpe.intake import read_table, to_records
from selpe.schema import Record, Schema, Value

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SCHEMA = Schema.from_yaml("""
name: desk
label: level
fields:
  chief_complaint: {kind: text, min_length: 3, max_length: 80}
  level: {kind: category, values: [low, high]}
  pulse: {kind: integer, min: 30, max: 220, optional: true}
  amount: {kind: number, min: 0, max: 100000, step: 0.01, unit: USD}
  injury: {kind: boolean}
  seen: {kind: date, min: 2024-01-01, max: 2025-12-31}
rules:
  - if injury == true then pulse >= 60
""")
RECORD = {
    "chief_complaint": "chest pain",
    "level": "low",
    "pulse": 72,
    "amount": 4.18,
    "injury": True,
    "seen": "2024-03-09",
}
GOOD = json.dumps(RECORD)


def one(name: str, kind: str, raw: str) -> object:
    """What is extracted for one field of a kind from a raw text."""
    more = {
        "category": ", values: [a, b]",
        "integer": ", min: 0, max: 9",
        "number": ", min: 0, max: 9",
        "date": ", min: 2024-01-01, max: 2024-12-31",
    }
    schema = Schema.from_yaml(f"name: one\nfields:\n  {name}: {{kind: {kind}{more.get(kind, '')}}}\n")
    return extract(raw, schema)[name]


# -- extraction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("integer", "7", 7),
        ("integer", '"7"', 7),
        ("integer", "7.0", 7),
        ("integer", "7.5", None),
        ("integer", "-7", -7),
        ("integer", "−7", -7),
        ("integer", "1,234,567", 1234567),
        ("integer", "1,23", None),
        ("integer", "45 years old", 45),
        ("integer", "120/80 mmHg", 120),
        ("integer", "about 30", 30),
        ("integer", "**7**", 7),
        ("integer", "7.", 7),
        ("integer", "12k", None),
        ("integer", "3 million", None),
        ("integer", "12 345", None),
        ("integer", "10:30", None),
        ("integer", "seven", None),
        ("integer", "9" * 5000, None),
        ("number", "$1,200.50", 1200.5),
        ("number", "37.5°C (99.5°F)", 37.5),
        ("number", "~ 3.2", 3.2),
        ("number", "1.5e3", 1500.0),
        ("number", ".5", 0.5),
        ("number", "85%", 85.0),
        ("number", "1.2.3", None),
        ("number", "1e5.5", None),
        ("number", "1e999", None),
        ("number", "NaN", None),
        ("boolean", "Yes", True),
        ("boolean", "FALSE.", False),
        ("boolean", "'on'", True),
        ("boolean", "0", False),
        ("boolean", "none", None),
        ("boolean", "1.5", None),
        ("date", "2024-03-09T10:00:00Z", "2024-03-09"),
        ("date", "2024/3/9", "2024-03-09"),
        ("date", "9.3.2024", "2024-03-09"),
        ("date", "March 9th, 2024", "2024-03-09"),
        ("date", "Sat, 9 Mar 2024", "2024-03-09"),
        ("date", "09-Mar-2024", "2024-03-09"),
        ("date", "the 9th of March 2024", None),
        ("date", "31/12/2024", "2024-12-31"),
        ("date", "12/31/2024", "2024-12-31"),
        ("date", "05/05/2024", "2024-05-05"),
        ("date", "03/04/2024", None),  # which is the month?
        ("date", "2024-02-30", None),
        ("date", "2024-03-091", None),
        ("category", "b", "b"),
        ("category", "'c'", "c"),
        ("text", "chest pain, worse at night", "chest pain, worse at night"),
        ("text", "'it's bad'", "it's bad"),
        ("text", "“curly”", "curly"),
        ("text", '"two\\nlines"', "two\nlines"),
        ("text", '"bad \\escape"', "bad escape"),
        ("text", "**bold**", "bold"),
        ("text", "pain (left)", "pain (left)"),
        ("text", "null", None),
        ("text", "None", "None"),
        ("text", "...", None),
        ("text", '"never closed', None),
    ],
)
def test_a_value_is_read_by_its_kind(kind: str, written: str, value: object) -> None:
    assert one("it", kind, f"it: {written}\n") == value


@pytest.mark.parametrize(
    "key",
    ["pain_level", '"pain_level"', "'pain_level'", "**Pain level**", "`PAIN-LEVEL`", "painLevel", "- Pain Level",
     "3) pain_level", "Pain level (0-10)", "“pain level”", "[pain_level]", "_pain_level_"],
)  # fmt: skip
@pytest.mark.parametrize("separator", [":", " :", "=", " = ", " := ", " -> ", " => ", " → ", "："])
def test_a_key_is_found_in_many_notations(key: str, separator: str) -> None:
    assert one("pain_level", "integer", f"Well, then.\n{key}{separator} 7\nBye.") == 7


@pytest.mark.parametrize("text", ["age 45", "language: 45", "age of 45", "ages: 45", "age_group: 45", "age is 45"])
def test_words_that_only_resemble_a_key_are_not_one(text: str) -> None:
    assert one("age", "integer", text) is None


def test_fields_whose_names_differ_in_case_alone_are_told_apart() -> None:
    schema = Schema.from_yaml(
        "name: twins\nfields:\n  a: {kind: integer, min: 0, max: 9}\n  A: {kind: integer, min: 0, max: 9}\n"
    )
    assert extract("A: 1; a: 2", schema) == {"a": 2, "A": 1}


def test_a_name_that_continues_another_does_not_shadow_it() -> None:
    schema = Schema.from_yaml(
        "name: two\nfields:\n  pain: {kind: integer, min: 0, max: 9}\n  pain_site: {kind: text}\n"
    )
    assert extract("Pain site: left arm\nPain: 3", schema) == {"pain": 3, "pain_site": "left arm"}


def test_the_first_complete_record_wins_over_a_mixture() -> None:
    half = '{"chief_complaint": "first", "level": "high"}\n'
    assert extract(half + GOOD, SCHEMA) == RECORD
    assert extract(GOOD + "\n" + GOOD.replace("chest pain", "other"), SCHEMA) == RECORD


def test_without_a_complete_record_the_first_readable_value_of_each_field_wins() -> None:
    text = "level: high\npulse: none\nlevel: low\npulse: 70"
    found = extract(text, SCHEMA)
    assert (found["level"], found["pulse"], found["amount"]) == ("high", 70, None)


def _given(record: Record) -> list[tuple[str, str, Value]]:
    return [(name, name.replace("_", " ").capitalize(), value) for name, value in record.items() if value is not None]


NOTATIONS: dict[str, Callable[[Record], str]] = {
    "lines": lambda record: "\n".join(f"{title}: {value}" for _, title, value in _given(record)),
    "list": lambda record: "Sure!\n\n" + "\n".join(f"- **{title}:** {value}" for _, title, value in _given(record)),
    "rows": lambda record: "|a|b|\n|-|-|\n" + "\n".join(f"| {name} | {value} |" for name, _, value in _given(record)),
    "commas": lambda record: ", ".join(f"{name}={value}" for name, _, value in _given(record)),
    "semicolons": lambda record: "; ".join(f"{name}: {value}" for name, _, value in _given(record)),
    "python": repr,
    "fence": lambda record: f"```json\n{json.dumps(record, indent=2)}\n```\nAnything else?",
}


@pytest.mark.parametrize("notation", NOTATIONS)
def test_the_example_records_survive_every_notation(notation: str) -> None:
    schema = Schema.load(EXAMPLES / "triage" / "schema.yaml")
    records = to_records(read_table(EXAMPLES / "triage" / "test.csv"), schema)
    for record in records:
        assert extract(NOTATIONS[notation](record), schema) == record
    assert len(records) > 50


def test_words_for_nothing_are_missing_where_a_field_is_optional() -> None:
    schema = Schema.from_yaml(
        "name: maybe\nfields:\n  note: {kind: text, optional: true}\n  must: {kind: text}\n"
        "  used: {kind: category, values: [None, some], optional: true}\n"
    )
    assert extract("note: None\nmust: None\nused: None", schema) == {"note": None, "must": "None", "used": "None"}
    assert extract('"note": "None"', schema)["note"] == "None"


def test_pairs_of_unknown_keys_are_skipped_whole() -> None:
    assert one("pain", "integer", '{"note": "pain: 9 at first", "pain": 3}') == 3
    assert one("pain", "integer", "{'note': 'pain: 9 at first', 'pain': 3}") == 3


def test_rough_verdict_names_missing_and_unparsable_fields() -> None:
    verdict = rough("level: low\nchief complaint: ouch!\namount: plenty\npulse: none\ninjury: no", SCHEMA)
    assert not verdict.ok
    assert verdict.missing == ("seen",)
    assert verdict.unparsable == ("amount",)  # pulse is optional: nothing is lost without it
    assert verdict.found == {"level": "low", "chief_complaint": "ouch!", "injury": "no"}


HOSTILE = [
    '"',
    "'",
    "*",
    "(",
    "| ",
    "\n",
    " ",
    "\\",
    '\\"',
    "{",
    "1,111",
    '"a":"',
    '"pulse"   ',
    "pulse: ",
    "| pulse |",
]
HOSTILE += [f"chief_complaint: {start}" for start in ("'", "“", '"\\', "a ")] + ["amount: 1.1", "seen: 2024-"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", HOSTILE)
def test_long_hostile_text_is_judged(piece: str) -> None:
    """A matcher that goes back over its text would need many minutes for these, not fractions of a second."""
    raw = piece * (200_000 // len(piece))
    assert not rough(raw, SCHEMA).ok
    assert not rough(f"chief_complaint: {raw}", SCHEMA).ok
    assert not strict(raw, SCHEMA).syntax
    assert not strict(f'{{"chief_complaint": {raw}', SCHEMA).syntax


# -- strict --------------------------------------------------------------------------------------------------------


def levels(raw: str) -> tuple[bool, bool, bool]:
    verdict = strict(raw, SCHEMA)
    return verdict.syntax, verdict.domain, verdict.rules


def test_strict_returns_the_record_it_read() -> None:
    verdict = strict(GOOD, SCHEMA)
    assert verdict.ok
    assert verdict.record == RECORD
    assert strict(GOOD + "x", SCHEMA).record is None


def test_every_multiple_of_a_decimal_step_is_in_its_domain() -> None:
    """In binary floats most of these are not multiples of 0.01."""
    for cents in range(0, 1000, 7):
        text = f"{cents / 100:.2f}"
        assert strict(GOOD.replace("4.18", text), SCHEMA).ok, text
        assert not strict(GOOD.replace("4.18", text + "1"), SCHEMA).domain, text


def test_strict_names_each_field_that_breaks_the_syntax() -> None:
    raw = '{"level": 3, "pulse": "72", "pulse": 72, "amount": [1], "injury": "yes", "extra": 0, "seen": null}'
    found = {violation.field: violation for violation in strict(raw, SCHEMA).violations}
    assert set(found) == {"", "chief_complaint", "level", "pulse", "amount", "injury", "seen"}
    assert {violation.level for violation in found.values()} == {"syntax"}
    assert found["pulse"].expected == "given once"


def test_strict_names_every_field_outside_its_domain_and_the_broken_rule() -> None:
    raw = json.dumps(RECORD | {"level": "medium", "amount": -1, "seen": "2024-02-30", "pulse": 40})
    verdict = strict(raw, SCHEMA)
    assert (verdict.syntax, verdict.domain, verdict.rules) == (True, False, False)
    assert [(violation.field, violation.level) for violation in verdict.violations] == [
        ("level", "domain"),
        ("amount", "domain"),
        ("seen", "domain"),
        ("pulse", "rule"),
    ]


def test_levels_are_cumulative() -> None:
    assert levels(GOOD) == (True, True, True)
    assert levels(GOOD.replace("72", "50")) == (True, True, False)
    assert levels(GOOD.replace("72", "20")) == (True, False, False)
    assert levels(GOOD.replace("72", "72.5")) == (False, False, False)


@pytest.mark.parametrize("spoil", [lambda raw: raw, lambda raw: raw + "}", lambda raw: raw.replace('": "', '": ["', 1)])
def test_violations_never_quote_the_output(spoil: object) -> None:
    assert callable(spoil)
    marked = dict.fromkeys([*SCHEMA.names, "MARKER_KEY"], "MARKER")
    verdict = strict(spoil(json.dumps(marked)), SCHEMA)
    assert verdict.violations
    assert "MARKER" not in repr(verdict.violations)
    assert all("MARKER" not in violation.message for violation in verdict.violations)


# -- grammars, caching, rates --------------------------------------------------------------------------------------


def test_the_printed_grammars_are_ascii_that_lark_can_read() -> None:
    schema = Schema.from_yaml(
        """
name: "odd // name"
fields:
  'say "hi" \\ / you': {kind: text, min_length: 0}
  Größe: {kind: integer, min: 0, max: 9}
  '🫀 | :=': {kind: boolean}
  ' _ ': {kind: date, min: 2024-01-01, max: 2024-12-31}
"""
    )
    for text in (strict_grammar(schema), rough_grammar(schema)):
        assert text.isascii()
        Lark(text, parser="lalr", lexer="contextual")
    record = {'say "hi" \\ / you': "", "Größe": 3, "🫀 | :=": True, " _ ": "2024-05-06"}
    for ascii_only in (True, False):
        raw = json.dumps(record, ensure_ascii=ascii_only).replace("/", "\\/")
        assert strict(raw, schema).record == record
        assert extract(raw, schema) == record


def test_schemas_that_say_the_same_share_a_validator() -> None:
    again = Schema.from_yaml(SCHEMA.to_yaml())
    assert validator(again) is validator(SCHEMA)
    other = Schema.from_dict(SCHEMA.to_dict() | {"description": "another"})
    assert validator(other) is not validator(SCHEMA)


def test_validators_work_from_many_threads() -> None:
    raws = [GOOD, GOOD[:-1], "pulse: 3"] * 100
    with ThreadPoolExecutor(8) as pool:
        threaded = list(pool.map(lambda raw: (rough(raw, SCHEMA), strict(raw, SCHEMA)), raws))
    assert threaded == [(rough(raw, SCHEMA), strict(raw, SCHEMA)) for raw in raws]


def test_score_counts_levels_and_violations_by_field() -> None:
    raws = [
        GOOD,
        GOOD.replace("72", "50"),
        GOOD.replace('"low"', '"medium"'),
        GOOD.replace('"low"', '"medium"').replace("4.18", "-4.18"),
        f"```json\n{GOOD}\n```",
        "no record",
    ]
    report = score(raws, SCHEMA)
    assert report.counts == {"rough": 5, "syntax": 4, "domain": 2, "rules": 1}
    assert (report.total, report.r_cfg, report.s_cfg) == (6, 5 / 6, 1 / 6)
    assert report.violations["domain"] == {"level": 2, "amount": 1}
    assert report.violations["rule"] == {"if injury == true then pulse >= 60": 1}
    assert report.violations["syntax"] == {"": 2}
    assert report.violations["rough"] == dict.fromkeys(SCHEMA.required, 1)
    assert json.loads(json.dumps(report.as_dict()))["rates"]["rules"] == 1 / 6


def test_score_of_nothing_is_zero() -> None:
    report = score([], SCHEMA)
    assert (report.total, report.r_cfg, report.s_cfg) == (0, 0.0, 0.0)
