"""The draft as two files for a person to edit: schema.yaml and selpe.yaml."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from selpe.config import RECORDS_A_CLASS
from selpe.schema import CategoryField, DateField, Field, IntegerField, NumberField, TextField
from selpe.schema.fields import plain

if TYPE_CHECKING:
    from selpe.intake.draft import Draft
    from selpe.intake.draft.conventions import CellForm, TextForm
    from selpe.intake.draft.kinds import ColumnDraft

_UNCONFIRMED_HEAD = """\
# A draft of the schema, made from the table. Nothing runs on it until you have confirmed it.
#
# A schema is public: it stands in the release, and the guarantee does not cover it. What stands below was guessed from
# the private table, so for each field
#   1. put in bounds and values that are public knowledge (a scale, a form's options, a device's range), not what
#      the table happens to hold;
#   2. describe the field in a sentence, which the model reads;
#   3. then delete its line 'confirmed: false', or make it true.
# `selpe studio` asks for all of this in a page, `selpe init --ask` in the terminal; both write it here.
# Delete fields that need not be synthesised. Examples you add must be made up, never copied from the table.
"""
_PUBLIC_HEAD = """\
# A schema drafted from a table that its owner says is public.
# Look it over, and describe the fields in a sentence each: the model reads that.
"""
_HOW = {
    "text": "is the length a rule of the form, or only what the table holds?",
    "category": "is this the public list of options? Add what is missing, remove what only the table could tell",
    "integer": "are the bounds public knowledge?",
    "number": "are the bounds and the step public knowledge?",
    "boolean": "is it public that records have this field?",
    "date": "is the period public knowledge?",
}
_ROWS = "how many records (or people, with a unit) there are, rounded: it is public, please confirm"
_UNCLEAR = {
    "day_first": "# day_first: true    # the table does not tell whether day or month comes first: please say",
    "decimal": '# decimal: "."    # the table does not tell the decimal mark: please say',
}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def schema_text(draft: Draft) -> str:
    """The text of schema.yaml."""
    lines = [_PUBLIC_HEAD if draft.public else _UNCONFIRMED_HEAD]
    lines.append(f"name: {quoted(draft.schema.name)}")
    lines.append('description: ""    # one sentence: what is one record, and where does it arise?')
    lines.append(_label_line(draft))
    lines.append("")
    lines.append("fields:")
    for column in draft.columns:
        if column.field is not None:
            lines.extend(_field_lines(column, column.field))
    left_out = [column for column in draft.columns if column.field is None]
    if left_out:
        lines.extend(["", "# Columns that are not fields:"])
        lines.extend(f"#   {_comment(column.name)}: {_why(column)}" for column in left_out)
    lines.extend(
        [
            "",
            "# Rules between fields that every record obeys, for instance:",
            "# rules:",
            "#   - dbp < sbp",
            "#   - if injury == true then pain >= 1",
            "",
        ]
    )
    return "\n".join(lines)


def config_text(
    draft: Draft,
    *,
    dataset: str,
    data: str,
    query: str | None = None,
    sheet: str | None = None,
    text: TextForm | None = None,
    cells: CellForm | None = None,
    rows: int | None = None,
) -> str:
    """The text of selpe.yaml. `text` and `cells` say how the table is written, `rows` how large it is in public."""
    lines = [
        "# Settings of a run. `selpe check` looks them over; docs/configuration.md lists every one.",
        f"dataset: {quoted(dataset)}    # your name for this table: its privacy budget is kept under it",
        f"data: {quoted(data)}",
    ]
    lines += [f"query: {quoted(query)}"] if query else []
    lines += [f"sheet: {quoted(sheet)}"] if sheet else []
    lines += _text_lines(text) + _cell_lines(cells)
    lines.append("schema: schema.yaml")
    lines.append(_unit_line(draft))
    lines += [f"rows: {rows}    # {_ROWS}"] if rows else []
    lines += [
        "",
        "epsilon: 2.0    # what one run spends of the privacy budget; smaller is more private",
        "# adjacency: replace-one    # or add-remove: what 'one record more or less' means",
        "# budget: 4.0    # what all runs on this table may spend; without it the first run spends all there is",
        "",
        f"records: {_records(draft)}    # how many to write: {RECORDS_A_CLASS} a class serve; more cost no ε",
        "# test: holdout.csv    # a table to evaluate on, never used to synthesise",
        "# llm: auto    # the best model that is here; or a name, a GGUF file, a server's URL (docs/models.md)",
        "# seed: 0",
        "# out: runs",
        "",
    ]
    return "\n".join(lines)


def quoted(text: str) -> str:
    """A text as a double-quoted YAML scalar."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))


def _label_line(draft: Draft) -> str:
    if draft.schema.label is not None:
        return f"label: {_key(draft.schema.label)}"
    likely = draft.likely_labels
    example = _key(likely[0]) if likely else "name_of_a_category"
    return f"# label: {example}    # the field that says a record's class, if there is one; it must not be optional"


def _records(draft: Draft) -> int:
    """As many as serve: what was measured shows to a model that has enough records of each class to learn from."""
    labels = draft.schema.labels if draft.schema.label is not None else ()
    return max(300, RECORDS_A_CLASS * len(labels))


def _unit_line(draft: Draft) -> str:
    if draft.unit is not None:
        return f"unit: {quoted(draft.unit)}    # whose record it is: the guarantee is then for each of them"
    return "# unit: patient_id    # the column that says whose record it is, when one person can have several"


def _text_lines(form: TextForm | None) -> list[str]:
    if form is None:
        return []
    lines = [f"encoding: {quoted(form.encoding)}    # how its text is written: please confirm"] if form.encoding else []
    return lines + (
        [f"delimiter: {quoted(form.delimiter)}    # what separates its cells: please confirm"] if form.delimiter else []
    )


def _cell_lines(form: CellForm | None) -> list[str]:
    if form is None:
        return []
    lines = []
    if form.day_first is not None:
        which = "third of April" if form.day_first else "fourth of March"
        lines.append(f"day_first: {str(form.day_first).lower()}    # 03/04/2024 is the {which}: please confirm")
    if form.decimal is not None:
        lines.append(f"decimal: {quoted(form.decimal)}    # the decimal mark: please confirm")
    return lines + [_UNCLEAR[name] for name in form.unclear]


def _field_lines(column: ColumnDraft, field: Field) -> list[str]:
    lines = [f"  {_key(field.name)}:"]
    lines += [f"    # {comment}" for comment in column.comments if comment]
    lines += [f"    kind: {field.kind}", '    description: ""']
    lines += [f"    {line}" for line in _domain(field)]
    lines += ["    optional: true"] if field.optional else []
    lines += [] if field.confirmed else [f"    confirmed: false    # {_HOW[field.kind]}"]
    return lines


def _domain(field: Field) -> list[str]:
    if isinstance(field, TextField):
        return [f"min_length: {field.min_length}", f"max_length: {field.max_length}"]
    if isinstance(field, CategoryField):
        return ["values:    # add a description behind the colon where the value does not speak for itself"] + [
            f"  {quoted(value)}:" for value in field.values
        ]
    if isinstance(field, IntegerField):
        return [f"min: {field.min}", f"max: {field.max}", *_unit(field.unit)]
    if isinstance(field, NumberField):
        bounds = [f"{name}: {plain(bound)}" for name, bound in (("min", field.min), ("max", field.max))]
        return [*bounds, f"step: {plain(field.step)}", *_unit(field.unit)]
    if isinstance(field, DateField):
        return [f"min: {field.min.isoformat()}", f"max: {field.max.isoformat()}"]
    return []


def _unit(unit: str) -> list[str]:
    return [f"unit: {quoted(unit)}"] if unit else []


def _why(column: ColumnDraft) -> str:
    if column.comments:
        return column.comments[0]
    return {"empty": "every cell is missing", "unusable": "its name cannot be used"}.get(column.role, column.role)


def _key(name: str) -> str:
    simple = _PLAIN_KEY.fullmatch(name) and name.casefold() not in _YAML_WORDS
    return name if simple else quoted(name)


def _comment(text: str) -> str:
    return " ".join(char if char.isprintable() else " " for char in text).strip() if not text.isprintable() else text
