"""Stage II's two written forms: a JSON object, or 'field: value' lines that are assembled to one.

Both are decoded under a grammar made from the schema, with the class (and any fact or seeded value) fixed, so that what
comes out is a record or was cut short. Lines suit small models, which know them from countless forms and lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil
from typing import Any, TypeAlias

from selpe.method.guides import Form
from selpe.models.base import JSON_STYLE
from selpe.schema import (
    BooleanField,
    CategoryField,
    Field,
    IntegerField,
    NumberField,
    Record,
    Schema,
    Span,
    TextField,
    Value,
)
from selpe.schema.fields import plain
from selpe.schema.narrowing import Domain

EMPTY = "-"
MISSING = "unknown"  # in notes, as `Field.text_of` writes it
_ANOTHER_FIELD = re.compile(r"; [^;:]{1,40}: ")
_DECODER = json.JSONDecoder()
Fact: TypeAlias = Value | Span  # what a record is to have in a field: a value, or one of a span
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")


def written(schema: Schema, record: Mapping[str, Value], form: Form) -> str:
    """A record as an example of the form."""
    if form == "json":
        return schema.dumps(record)
    return "\n".join(f"{field.name}: {_line_value(field, record.get(field.name))}" for field in schema.fields)


def constraint(schema: Schema, fixed: Mapping[str, Fact], form: Form, without: Collection[str] = ()) -> dict[str, Any]:
    """What a request must carry so that the answer is a record in this form: a JSON Schema or a grammar.

    A field in `fixed` has that value, or a value of that span. Lines can leave fields out.
    """
    narrowed = schema.within({name: fact for name, fact in fixed.items() if isinstance(fact, Span)})
    values = {name: fact for name, fact in fixed.items() if not isinstance(fact, Span)}
    if form == "json":
        return {"json_schema": narrowed.to_json_schema(values)}
    return {"grammar": line_grammar(fields_of(narrowed, without), values)}


def agrees(field: Field, value: Value, fact: Fact) -> bool:
    """Whether a record's value is what a fact says, in either form: lines keep no runs of white space."""
    if isinstance(fact, Span):
        return value is not None and field.within(fact).check(value) is None
    if isinstance(fact, str) and isinstance(value, str):
        return value.split() == fact.split()
    return value == fact


def fields_of(schema: Schema, without: Collection[str] = ()) -> tuple[Field, ...]:
    """The fields that are written, in schema order."""
    return tuple(field for field in schema.fields if field.name not in without)


def parse(schema: Schema, text: str, form: Form, without: Collection[str] = ()) -> Record | None:
    """The record that a text holds, or None where it is not of the form. Validity is checked elsewhere."""
    if form == "lines":
        return _parse_lines(schema, text, fields_of(schema, without))
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    return {str(name): _plain(value) for name, value in content.items()}


@dataclass(frozen=True, slots=True)
class Notes:
    """What stage I wrote, and the values that it settles; `all_said` if stage II has nothing to write."""

    text: str
    settled: Record
    all_said: bool = False


NO_NOTES = Notes("", {})


def stated(schema: Schema, notes: str, *, whole: bool) -> Record:
    """The values that notes state as prompts state them: a valid value behind the field's title.

    Left out are what is no value of the field, a text that goes on into something like a further field, and the last
    value of notes that are not `whole`.
    """
    heads = []
    for field in schema.fields:
        head = f"{field.title}: "
        place = 0 if notes.startswith(head) else notes.find(f"; {head}") + 2
        if place != 1:
            heads.append((place, place + len(head), field))
    heads.sort(key=lambda one: one[:2])
    ends = [place - 2 for place, _, _ in heads[1:]] + [len(notes) if whole else 0]
    found: Record = {}
    for (_, start, field), end in zip(heads, ends, strict=False):
        if start < end:
            text = notes[start:end].strip(" ;")
            value = _from_notes(field, text)
            if value is None and field.optional and text in (EMPTY, MISSING):
                found[field.name] = None
            elif value is not None and field.check(value) is None and not _ANOTHER_FIELD.search(text):
                found[field.name] = value
    return found


def _from_notes(field: Field, text: str) -> Value:
    if isinstance(field, CategoryField) and text in field.values:
        return text
    if text == MISSING:
        return None
    return _from_line(field, text.removesuffix(getattr(field, "unit", "")).strip())


def layout(fields: Sequence[Field], form: Form) -> tuple[str, ...]:
    """What stands before each value, up to the blank in front of it, and what stands behind the last one."""
    if form == "lines":
        heads = [f"{field.name}:" for field in fields]
        return (heads[0], *(f"\n{head}" for head in heads[1:]), "\n")
    keys = [f"{json.dumps(field.name, ensure_ascii=False)}:" for field in fields]
    return ("{" + keys[0], *(f", {key}" for key in keys[1:]), "}")


def progress(schema: Schema, text: str, form: Form, without: Collection[str] = ()) -> tuple[Record, dict[str, int]]:
    """The values that the beginning of a record has whole, and the places where they and the next one begin."""
    record: Record = {}
    places: dict[str, int] = {}
    fields = fields_of(schema, without)
    parts = layout(fields, form)
    place = len(parts[0])
    if not text.startswith(parts[0]):
        return record, places
    for field, behind in zip(fields, parts[1:], strict=True):
        places[field.name] = place
        found = _next_value(schema, field, text, place, form)
        if found is None or not text.startswith(behind, found[1]):
            break
        record[field.name] = found[0]
        place = found[1] + len(behind)
    return record, places


def _next_value(schema: Schema, field: Field, text: str, place: int, form: Form) -> tuple[Value, int] | None:
    """The value that stands behind a place and a blank, and where it ends; None where it has not ended."""
    if form == "lines":
        end = text.find("\n", place)
        return None if end < 0 else (_on_line(schema, field, text[place + 1 : end]), end)
    try:
        value, end = _DECODER.raw_decode(text, place + 1)
    except ValueError:
        return None
    return _plain(value), end


def stretch_rule(field: Field, domain: Domain, runs: Sequence[Field], form: Form) -> str:
    """The grammar rule of a value that is one of a domain; `runs` are the field's runs in it."""
    if form == "json":
        schemas: list[dict[str, Any]] = [{"enum": list(domain.values)}] if domain.values else []
        schemas += [_json_schema(one) for one in ([replace(field, optional=False)] if domain.free else runs)]
        schemas += [{"type": "null"}] if domain.missing else []
        return " | ".join(map(_json_rule, schemas))
    rules = [json.dumps(_line_value(field, value), ensure_ascii=False) for value in domain.values]
    rules += [_present_rule(one) for one in ([field] if domain.free else runs)]
    return " | ".join([*rules, f'"{EMPTY}"'] if domain.missing else rules)


def fixed_value(field: Field, value: Value, form: Form) -> str:
    """The grammar of a value that is given."""
    if form == "json":
        return f"({_json_rule({'const': value})})"
    return json.dumps(_line_value(field, value), ensure_ascii=False)


def line_grammar(fields: Sequence[Field], fixed: Mapping[str, Value]) -> str:
    """A Lark grammar, in LLGuidance's dialect, for 'field: value' lines of these fields."""
    lines, rules = [], []
    for number, field in enumerate(fields):
        start = json.dumps(f"{field.name}: ", ensure_ascii=False)
        if field.name in fixed:
            value = fixed_value(field, fixed[field.name], "lines")
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
    domain = _json_schema(replace(field, optional=False))
    if "enum" in domain:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in domain["enum"])
    if "pattern" in domain:
        return f"/{domain['pattern'].removeprefix('^').removesuffix('$')}/"
    if isinstance(field, NumberField) and field.min == field.max:
        # LLGuidance would write 1 alone, and not 1.0 as examples have it.
        return " | ".join(sorted({f'"{_line_value(field, float(field.min))}"', f'"{plain(field.min)}"'}))
    number = _json_rule(domain)
    grouped = _grouped_rule(field)
    return f"{number} | {grouped}" if grouped else number


def _json_schema(field: Field) -> dict[str, Any]:
    """The JSON Schema of a field's value."""
    schema = Schema("one", (field,)).to_json_schema()["properties"][field.name]
    return {key: value for key, value in schema.items() if key != "description"}


def _json_rule(schema: Mapping[str, Any]) -> str:
    """A JSON value inside of a grammar, without white space around it."""
    return f"%json {json.dumps({**schema, 'x-guidance': JSON_STYLE})}"


def _grouped_rule(field: Field) -> str:
    """Thousands with a comma, for a model that has '59,000' in mind and may not write the comma writes 59."""
    if not isinstance(field, (IntegerField, NumberField)) or field.max < 2000:
        return ""
    decimals = field.decimals if isinstance(field, NumberField) else 0
    if field.step != Decimal(1).scaleb(-decimals):
        return ""
    # So that whatever stands behind the comma is in range.
    least, most = max(1, ceil(Decimal(field.min) / 1000)), min(999, int(field.max) // 1000 - 1)
    fraction = rf"(\.[0-9]{{1,{decimals}}})?" if decimals else ""
    if least > 1:
        thousands = _json_rule({"type": "integer", "minimum": least, "maximum": most})
        return f"({thousands}) /,[0-9]{{3}}{fraction}/" if least <= most else ""
    return f"/({_up_to(most)}),[0-9]{{3}}{fraction}/"


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


def _parse_lines(schema: Schema, text: str, fields: Sequence[Field]) -> Record | None:
    lines = text.strip("\n").split("\n")
    if len(lines) != len(fields):
        return None
    record: Record = {}
    for field, line in zip(fields, lines, strict=True):
        name, separator, value = line.partition(": ")
        if name != field.name or not separator:
            return None
        record[field.name] = _on_line(schema, field, value)
    return record


def _on_line(schema: Schema, field: Field, value: str) -> Value:
    return _from_line(field, _own_part(schema, value) if isinstance(field, TextField) else value.strip())


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
