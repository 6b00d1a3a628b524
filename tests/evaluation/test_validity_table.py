"""A table of raw outputs with the verdicts they must get: R-CFG, and the highest level of S-CFG."""

# ruff: noqa: E501  (one case a line reads best)
from __future__ import annotations

import pytest

from selpe.evaluation.validity import rough, strict
from selpe.schema import Schema

SCHEMA = Schema.from_yaml("""
name: triage
label: acuity
fields:
  complaint: {kind: text, min_length: 3, max_length: 60}
  acuity: {kind: category, values: ["1", "2", "3", "4", "5"]}
  sbp: {kind: integer, min: 50, max: 260, step: 2, optional: true}
  dbp: {kind: integer, min: 20, max: 200, optional: true}
  temperature: {kind: number, min: 33, max: 42.5, step: 0.1, unit: °C}
  injury: {kind: boolean}
  arrived: {kind: date, min: 2024-01-01, max: 2025-12-31}
  code: {kind: text, min_length: 6, max_length: 6, pattern: "[A-Z]{2}-[0-9]{3}", optional: true}
rules:
  - dbp < sbp
  - if injury == true then acuity != "5"
""")

GOOD = (
    '{"complaint": "Chest pain since noon", "acuity": "2", "sbp": 150, "dbp": 90, "temperature": 37.5, '
    '"injury": false, "arrived": "2024-03-09", "code": "AB-123"}'
)
BRIEF = (
    '{"complaint":"Chest pain","acuity":"2","temperature":37.5,"injury":false,"arrived":"2024-03-09"}'  # no optional
)


def but(old: str, new: str) -> str:
    """The good record with one part changed."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


YES, NO = True, False
NONE, SYNTAX, DOMAIN, RULES = "none", "syntax", "domain", "rules"

# (what it is, raw output, R-CFG, highest level of S-CFG)
JSON_RECORDS = [
    ("a valid record", GOOD, YES, RULES),
    ("white space around it", f"\n\t {GOOD} \r\n", YES, RULES),
    ("no optional fields", BRIEF, YES, RULES),
    ("optional field is null", but('"sbp": 150', '"sbp": null'), YES, RULES),
    ("all optional fields null", but("150", "null").replace("90", "null").replace('"AB-123"', "null"), YES, RULES),
    ("keys in another order", '{"injury": true, "arrived": "2025-01-31", "temperature": 40, "acuity": "1", "complaint": "Fell"}', YES, RULES),
    ("spread over lines", GOOD.replace(", ", ",\n  ").replace("{", "{\n  ").replace(": ", " :\n"), YES, RULES),
    ("no space at all", GOOD.replace(", ", ",").replace(": ", ":"), YES, RULES),
    ("number with exponent", but("37.5", "3.75e1"), YES, RULES),
    ("number with trailing zeros", but("37.5", "37.500"), YES, RULES),
    ("whole number in a decimal field", but("37.5", "37"), YES, RULES),
    ("escapes in text", but("Chest pain since noon", "Chest \\\"pain\\\"\\n since \\u00fc noon"), YES, RULES),
    ("an escaped key", but('"acuity"', '"\\u0061cuity"'), YES, RULES),
    ("Unicode text", but("Chest pain since noon", "Brustschmerz, heiß; 胸痛 🫀"), YES, RULES),
    ("escaped surrogate pair", but("Chest pain", "Pain \\ud83e\\udec0"), YES, RULES),
    ("keys of the record inside a text", but("Chest pain since noon", "acuity: 9, sbp = x, injury: perhaps"), YES, RULES),
    ("JSON inside a text", but("Chest pain since noon", '{\\"acuity\\": \\"7\\"}'), YES, RULES),
    ("braces inside a text", but("Chest pain since noon", "}{][ }}} pain {{{"), YES, RULES),
    ("a code fence inside a text", but("Chest pain since noon", "```json pain ```"), YES, RULES),
]  # fmt: skip

DOMAINS_AND_RULES = [
    ("unknown category", but('"2"', '"6"'), YES, SYNTAX),
    ("category in another case or with a space", but('"2"', '"2 "'), YES, SYNTAX),
    ("integer above its range", but("150", "262"), YES, SYNTAX),
    ("integer below its range", but("90", "-90"), YES, SYNTAX),
    ("integer off its step", but("150", "151"), YES, SYNTAX),
    ("number above its range", but("37.5", "42.6"), YES, SYNTAX),
    ("number off its step", but("37.5", "37.55"), YES, SYNTAX),
    ("number off its step beyond a float's precision", but("37.5", "37.50000000000000000001"), YES, SYNTAX),
    ("a huge integer", but("150", "9" * 5000), YES, SYNTAX),
    ("a number beyond floats", but("37.5", "1e999"), YES, SYNTAX),
    ("a number beyond decimals", but("37.5", "1e99999999999999999999"), YES, SYNTAX),
    ("a number too small for decimals", but("37.5", "1e-99999999999999999999"), YES, SYNTAX),
    ("minus zero out of range", but("37.5", "-0.0"), YES, SYNTAX),
    ("text too short", but("Chest pain since noon", "Ow"), YES, SYNTAX),
    ("text too long", but("Chest pain since noon", "pain " * 20), YES, SYNTAX),
    ("text of a million characters", but("Chest pain since noon", "x" * 1_000_000), YES, SYNTAX),
    ("pattern not matched", but("AB-123", "ab-123"), YES, SYNTAX),
    ("pattern matched in part only", but("AB-123", "AB-1234"), YES, SYNTAX),
    ("a lone surrogate escape", but("Chest", "\\ud800 Chest"), YES, SYNTAX),
    ("an escaped control character", but("Chest", "\\u0000Chest"), YES, SYNTAX),
    ("day out of range", but("2024-03-09", "2026-01-01"), YES, SYNTAX),
    ("day that does not exist", but("2024-03-09", "2024-02-30"), YES, SYNTAX),
    ("day in another notation", but("2024-03-09", "09.03.2024"), YES, SYNTAX),
    ("day in words", but("2024-03-09", "March 9, 2024"), YES, SYNTAX),
    ("day with a time", but("2024-03-09", "2024-03-09T10:00:00"), YES, SYNTAX),
    ("a comparison broken", but("90", "180"), YES, DOMAIN),
    ("a comparison at its edge", but("90", "150"), YES, DOMAIN),
    ("an implication broken", but("false", "true").replace('"2"', '"5"'), YES, DOMAIN),
    ("a rule about a missing field holds", but('"sbp": 150, ', "").replace("90", "180"), YES, RULES),
]  # fmt: skip

NOT_RECORDS = [
    ("empty", "", NO, NONE),
    ("white space", " \n\t ", NO, NONE),
    ("a refusal", "I'm sorry, but I can't help with that.", NO, NONE),
    ("an empty object", "{}", NO, NONE),
    ("an array of one record", f"[{GOOD}]", YES, NONE),
    ("a record as a JSON string", '"' + GOOD.replace('"', '\\"') + '"', YES, NONE),
    ("a number", "42", NO, NONE),
    ("null", "null", NO, NONE),
    ("a code fence", f"```json\n{GOOD}\n```", YES, NONE),
    ("prose before", f"Here is the record: {GOOD}", YES, NONE),
    ("prose after", f"{GOOD}\nLet me know if you need more!", YES, NONE),
    ("a byte order mark", f"\ufeff{GOOD}", YES, NONE),
    ("a no-break space around it", f"\u00a0{GOOD}", YES, NONE),
    ("two objects", f"{GOOD}{GOOD}", YES, NONE),
    ("two objects on lines", f"{GOOD}\n{BRIEF}", YES, NONE),
    ("an object in an object", f'{{"record": {GOOD}}}', YES, NONE),
    ("nested braces", "{" + GOOD + "}", YES, NONE),
    ("a closing brace too many", GOOD + "}", YES, NONE),
    ("no closing brace", GOOD[:-1], YES, NONE),
    ("cut off in its last text", GOOD[: GOOD.index("24-03")], NO, NONE),
    ("cut off after a key", GOOD[: GOOD.index(" false")], NO, NONE),
    ("no opening brace", GOOD[1:], YES, NONE),
    ("a trailing comma", GOOD[:-1] + ",}", YES, NONE),
    ("a missing comma", but('"2", ', '"2" '), YES, NONE),
    ("a missing colon", but('"acuity": ', '"acuity" '), NO, NONE),
    ("semicolons", GOOD.replace(", ", "; "), YES, NONE),
    ("single quotes", GOOD.replace('"', "'"), YES, NONE),
    ("single quotes with an apostrophe", "{'complaint': 'can't breathe', 'acuity': '2', 'temperature': 37.5, 'injury': False, 'arrived': '2024-03-09'}", YES, NONE),
    ("curly quotes", BRIEF.replace('":', "”:").replace('",', "”,").replace('"}', "”}").replace('"', "“"), YES, NONE),
    ("keys without quotes", "{complaint: \"Chest pain\", acuity: '2', temperature: 37.5, injury: false, arrived: 2024-03-09}", YES, NONE),
    ("Python's constants", GOOD.replace("false", "False"), YES, NONE),
    ("a comment", GOOD[:-1] + " // made up\n}", YES, NONE),
    ("a raw line break in a text", but("since", "\nsince"), YES, NONE),
    ("a raw tab in a text", but("since", "\tsince"), YES, NONE),
    ("a raw NUL in a text", but("since", "\x00since"), YES, NONE),
    ("a raw lone surrogate", but("since", "\ud800since"), YES, NONE),
    ("an unknown escape", but("since", "\\since"), YES, NONE),
    ("a broken Unicode escape", but("since", "\\u12since"), YES, NONE),
    ("a text that never closes", '{"complaint": "Chest pain', NO, NONE),
    ("a duplicate key", but('"sbp": 150', '"sbp": 150, "sbp": 150'), YES, NONE),
    ("a duplicate key in another spelling", but('"acuity": "2"', '"acuity": "2", "\\u0061cuity": "3"'), YES, NONE),
    ("an extra key", GOOD[:-1] + ', "note": "acuity: high"}', YES, NONE),
    ("a key in another case", but('"acuity"', '"Acuity"'), YES, NONE),
    ("a key with a space", but('"acuity"', '"acuity "'), NO, NONE),
    ("a missing required key", but('"acuity": "2", ', ""), NO, NONE),
    ("a required field is null", but('"2"', "null"), NO, NONE),
    ("a required text is empty", but('"Chest pain since noon"', '""'), NO, SYNTAX),
    ("a category as a number", but('"2"', "2"), YES, NONE),
    ("an integer as a string", but("150", '"150"'), YES, NONE),
    ("an integer with a fraction", but("150", "150.5"), YES, NONE),  # sbp is optional: R-CFG does not miss it
    ("an integer with a zero fraction", but("150", "150.0"), YES, NONE),
    ("an integer with an exponent", but("150", "15e1"), YES, NONE),
    ("a leading zero", but("37.5", "037.5"), YES, NONE),
    ("a leading plus", but("37.5", "+37.5"), YES, NONE),
    ("no digit before the point", but("37.5", ".5"), YES, NONE),
    ("no digit after the point", but("37.5", "37."), YES, NONE),
    ("a decimal comma", but("37.5", "37,5"), NO, NONE),
    ("a thousands separator", but("37.5", "1,037.5"), YES, NONE),
    ("hexadecimal", but("37.5", "0x25"), NO, NONE),
    ("NaN", but("37.5", "NaN"), NO, NONE),
    ("Infinity", but("37.5", "-Infinity"), NO, NONE),
    ("a number as a word", but("37.5", '"high"'), NO, NONE),
    ("a range for a number", but("37.5", '"36-38"'), NO, NONE),
    ("a number with its unit", but("37.5", '"37.5 °C"'), YES, NONE),
    ("a boolean as yes", but("false", '"yes"'), YES, NONE),
    ("a boolean as 1", but("false", "1"), YES, NONE),
    ("a boolean as a word that is none", but("false", '"perhaps"'), NO, NONE),
    ("a boolean as a decimal", but("false", "0.5"), NO, NONE),
    ("a day as a number", but('"2024-03-09"', "20240309"), NO, NONE),
    ("a day without quotes", but('"2024-03-09"', "2024-03-09"), YES, NONE),
    ("a day of month 13", but("2024-03-09", "2024-13-09"), NO, SYNTAX),
    ("a text as an array", but('"Chest pain since noon"', '["Chest", "pain"]'), NO, NONE),
    ("a text as an object", but('"Chest pain since noon"', '{"text": "Chest"}'), NO, NONE),
    ("deep nesting", '{"complaint": ' * 100_000, NO, NONE),
    ("deep arrays", "[" * 100_000 + "]" * 100_000, NO, NONE),
]  # fmt: skip

FREE_TEXT = [
    ("lines", "Complaint: chest pain, worse at night\nAcuity: 2\nTemperature: 37.5\nInjury: no\nArrived: 2024-03-09", YES, NONE),
    ("lines with Windows ends", "complaint: chest pain\r\nacuity: 2\r\ntemperature: 37.5\r\ninjury: no\r\narrived: 2024-03-09\r\n", YES, NONE),
    ("one line with commas", "complaint: chest pain, acuity: 2, temperature: 37.5, injury: no, arrived: 2024-03-09", YES, NONE),
    ("equals signs and semicolons", "complaint=chest pain; acuity=2; temperature=37.5; injury=false; arrived=2024-03-09", YES, NONE),
    ("Markdown emphasis", "**Complaint**: chest pain\n**Acuity:** 2\n**Temperature (°C):** 37.5°C\n**Injury**: No\n**Arrived**: 9 March 2024", YES, NONE),
    ("Markdown list", "Here you go:\n- complaint: chest pain\n- acuity: 2 (emergent)\n* temperature: 37.5 °C\n* injury: none\n+ injury: no\n1. arrived: 2024/03/09", YES, NONE),
    ("Markdown table", "| Field | Value |\n|---|---|\n| complaint | chest pain |\n| acuity | 2 |\n| temperature | 37.5 |\n| injury | no |\n| arrived | 2024-03-09 |", YES, NONE),
    ("back quotes and arrows", "`complaint` -> chest pain\n`acuity` -> 2\n`temperature` => 37.5\n`injury` → no\n`arrived` := 2024-03-09", YES, NONE),
    ("values on the next line", "Complaint:\nChest pain\nAcuity:\n2\nTemperature:\n37.5\nInjury:\nno\nArrived:\n2024-03-09", YES, NONE),
    ("YAML with quotes", "complaint: 'chest pain'\nacuity: \"2\"\ntemperature: 37.5\ninjury: false\narrived: 2024-03-09", YES, NONE),
    ("a template first, then the record", f'{{"complaint": "...", "acuity": <level>, "temperature": ?, "injury": ?, "arrived": "YYYY-MM-DD"}}\n{GOOD}', YES, NONE),
    ("a key without a value", "complaint: chest pain\nacuity:\ntemperature: 37.5\ninjury: no\narrived: 2024-03-09", NO, NONE),
    ("dashes for a value", "complaint: ---\nacuity: 2\ntemperature: 37.5\ninjury: no\narrived: 2024-03-09", NO, NONE),
    ("prose without keys", "A patient with chest pain arrived on 2024-03-09 with 37.5 degrees, level 2, no injury.", NO, NONE),
    ("names inside other words", "recomplaint: x\nacuityx: 2\ntemperatures: 3\nminjury: no\nunarrived: 2024-03-09", NO, NONE),
    ("a table with names across", "| complaint | acuity | temperature | injury | arrived |\n|---|---|---|---|---|\n| chest pain | 2 | 37.5 | no | 2024-03-09 |", NO, NONE),
]  # fmt: skip

TABLE = [*JSON_RECORDS, *DOMAINS_AND_RULES, *NOT_RECORDS, *FREE_TEXT]


def level(raw: str) -> str:
    verdict = strict(raw, SCHEMA)
    assert verdict.syntax >= verdict.domain >= verdict.rules
    assert verdict.ok == (not verdict.violations)
    return [NONE, SYNTAX, DOMAIN, RULES][verdict.syntax + verdict.domain + verdict.rules]


@pytest.mark.parametrize(("raw", "reaches"), [row[1::2] for row in TABLE], ids=[row[0] for row in TABLE])
def test_strict_grammar_reaches_the_expected_level(raw: str, reaches: str) -> None:
    assert level(raw) == reaches


@pytest.mark.parametrize(("raw", "passes"), [row[1:3] for row in TABLE], ids=[row[0] for row in TABLE])
def test_rough_grammar_gives_the_expected_verdict(raw: str, passes: bool) -> None:
    verdict = rough(raw, SCHEMA)
    assert verdict.ok == passes, (verdict.missing, verdict.unparsable)


def test_table_names_each_case_once() -> None:
    names = [row[0] for row in TABLE]
    assert len(set(names)) == len(names) >= 60
