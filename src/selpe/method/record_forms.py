"""Stage II's two written forms: a JSON object, or 'field: value' lines that are assembled to one.

Both are decoded under a grammar made from the schema, with the class (and any fact or seeded value) fixed, so that what
comes out is a record or was cut short. Lines suit small models, which know them from countless forms and lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from selpe.method.guides import Form
from selpe.schema import BooleanField, Field, IntegerField, NumberField, Record, Schema, Span, TextField, Value

EMPTY = "-"
Fact: TypeAlias = Value | Span  # what a record is to have in a field: a value, or one of a span
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")


def written(schema: Schema, record: Mapping[str, Value], form: Form) -> str:
    """A record as an example of the form."""
    if form == "json":
        return schema.dumps(record)
    return "\n".join(f"{field.name}: {_line_value(field, record.get(field.name))}" for field in schema.fields)


def constraint(schema: Schema, fixed: Mapping[str, Fact], form: Form) -> dict[str, Any]:
    """What a request must carry so that the answer is a record in this form: a JSON Schema or a grammar.

    A field in `fixed` has that value, or a value of that span.
    """
    narrowed = schema.within({name: fact for name, fact in fixed.items() if isinstance(fact, Span)})
    values = {name: fact for name, fact in fixed.items() if not isinstance(fact, Span)}
    if form == "json":
        return {"json_schema": narrowed.to_json_schema(values)}
    return {"grammar": line_grammar(narrowed, values)}


def agrees(field: Field, value: Value, fact: Fact) -> bool:
    """Whether a record's value is what a fact says, in either form: lines keep no runs of white space."""
    if isinstance(fact, Span):
        return value is not None and field.within(fact).check(value) is None
    if isinstance(fact, str) and isinstance(value, str):
        return value.split() == fact.split()
    return value == fact


def parse(schema: Schema, text: str, form: Form) -> Record | None:
    """The record that a text holds, or None where it is not of the form. Validity is checked elsewhere."""
    if form == "lines":
        return _parse_lines(schema, text)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    return {str(name): _plain(value) for name, value in content.items()}


def line_grammar(schema: Schema, fixed: Mapping[str, Value]) -> str:
    """A Lark grammar, in LLGuidance's dialect, for 'field: value' lines in schema order."""
    lines, rules = [], []
    for number, field in enumerate(schema.fields):
        start = json.dumps(f"{field.name}: ", ensure_ascii=False)
        if field.name in fixed:
            value = json.dumps(_line_value(field, fixed[field.name]), ensure_ascii=False)
        else:
            value = f"value_{number}"
            rules.append(f"{value}: {line_rule(field)}")
        lines.append(f"{start} {value}")
    # The last line ends like every other: a model that may not end a text in the way it has learnt rambles on.
    return "start: " + ' "\\n" '.join([*lines, ""]) + "\n" + "\n".join(rules) + "\n"


def line_rule(field: Field) -> str:
    """The grammar rule of a field's value on its line."""
    rule = _present_rule(field)
    return f'{rule} | "{EMPTY}"' if field.optional else rule


def _present_rule(field: Field) -> str:
    if isinstance(field, TextField):
        if field.pattern is not None:
            return f"/{field.pattern.replace('/', chr(92) + '/')}/"
        # No line break inside a line, and neither blanks nor the sign for 'missing' at its start.
        inner = f"{{{max(0, field.min_length - 1)},{field.max_length - 1}}}"
        return rf"/[^\n\r\t \-][^\n\r\t]{inner}/"
    if isinstance(field, BooleanField):
        return '"yes" | "no"'
    schema = Schema("one", (field,)).to_json_schema()["properties"][field.name]
    domain = schema["anyOf"][0] if "anyOf" in schema else schema
    if "enum" in domain:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in domain["enum"])
    if "pattern" in domain:
        return f"/{domain['pattern'].removeprefix('^').removesuffix('$')}/"
    number = f"%json {json.dumps({key: value for key, value in domain.items() if key != 'description'})}"
    grouped = _grouped_rule(field)
    return f"{number} | {grouped}" if grouped else number


def _grouped_rule(field: Field) -> str:
    """Thousands with a comma, for a model that has '59,000' in mind and may not write the comma writes 59."""
    if not isinstance(field, (IntegerField, NumberField)) or field.min > 1000 or field.max < 2000:
        return ""
    decimals = field.decimals if isinstance(field, NumberField) else 0
    if field.step != Decimal(1).scaleb(-decimals):
        return ""
    thousands = min(999, int(field.max) // 1000 - 1)  # so that whatever stands behind the comma is in range
    fraction = rf"(\.[0-9]{{1,{decimals}}})?" if decimals else ""
    return f"/({_up_to(thousands)}),[0-9]{{3}}{fraction}/"


def _up_to(most: int) -> str:
    """A regular expression for the numbers from 1 to `most`, digit by digit."""
    digits = str(most)
    found = [f"[1-9][0-9]{{0,{len(digits) - 2}}}"] if len(digits) > 1 else []
    for place, digit in enumerate(digits):
        behind = len(digits) - place - 1
        least, highest = int(place == 0), int(digit) - (behind > 0)
        if highest >= least:
            found.append(f"{digits[:place]}[{least}-{highest}][0-9]{{{behind}}}")
    return "|".join(found)


def _line_value(field: Field, value: Value) -> str:
    if value is None:
        return EMPTY
    if isinstance(field, BooleanField):
        return "yes" if value else "no"
    if isinstance(field, NumberField):
        return field.text_of(value).removesuffix(field.unit).strip()
    return re.sub(r"\s+", " ", str(value))


def _parse_lines(schema: Schema, text: str) -> Record | None:
    lines = text.strip("\n").split("\n")
    if len(lines) != len(schema.fields):
        return None
    record: Record = {}
    for field, line in zip(schema.fields, lines, strict=True):
        name, separator, value = line.partition(": ")
        if name != field.name or not separator:
            return None
        record[field.name] = _from_line(
            field, _own_part(schema, value) if isinstance(field, TextField) else value.strip()
        )
    return record


def _own_part(schema: Schema, value: str) -> str:
    """A text as far as it belongs to its field. A small model that copies from notes runs on into the fields behind."""
    starts = (value.find(mark) for field in schema.fields for mark in (f"; {field.title}:", f"; {field.name}:"))
    return value[: min((start for start in starts if start > 0), default=len(value))].strip()


def _from_line(field: Field, value: str) -> Value:
    if field.optional and value == EMPTY:
        return None
    if isinstance(field, BooleanField):
        return {"yes": True, "no": False}.get(value, value)
    number = value.replace(",", "") if _GROUPED.fullmatch(value) else value
    try:
        if isinstance(field, IntegerField):
            return int(number)
        if isinstance(field, NumberField):
            return float(Decimal(number))
    except (ValueError, ArithmeticError):
        return value
    return value


def _plain(value: Any) -> Value:
    """JSON's values as records hold them; what nests becomes text, which no domain but text accepts."""
    return value if isinstance(value, (str, int, float, bool)) or value is None else json.dumps(value)
