"""Records on a screen: each as a block of its own with every field whole, so that one can read what a model writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from selpe.cli.console import out

if TYPE_CHECKING:
    from selpe.schema import Field, Record, Schema, TextField, Value

_WIDE = 110  # columns in a log
_LOOKED_AT = 500  # records to choose a few from
_VARIED = 0.6  # of all words that differ in a text which does not go round in circles
_ENDS = tuple(".!?…\"')")  # of sentences


def show_whole(schema: Schema, records: Sequence[Record]) -> None:
    """Every record as a block of lines: the label first, then the fields in the schema's order, nothing cut off."""
    from rich.markup import escape
    from rich.table import Table

    from selpe.cli.outcome import print_table

    console = out()
    width = min(console.width, _WIDE) if console.is_terminal else _WIDE
    fields = sorted(schema.fields, key=lambda field: field.name != schema.label)
    names = max(len(field.title) for field in fields)
    for number, record in enumerate(records, 1):
        block = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1), width=width)
        block.add_column(style="dim", width=min(names, width // 3), overflow="fold")
        block.add_column(overflow="fold", ratio=1)
        for field in fields:
            block.add_row(escape(field.title), escape(_shown(field, record.get(field.name))))
        console.print(f"[bold]{number}[/]")
        print_table(console, block, width)
        console.print()


def telling(schema: Schema, records: Sequence[Record], count: int) -> list[Record]:
    """A few records to look at first: of every class in turn, those that read well before others.

    Only what is looked at is chosen; the release stays as it is.
    """
    reader = _Reader(schema)
    ranked = sorted(records[:_LOOKED_AT], key=reader.faults)
    classes: dict[object, list[Record]] = {}
    for record in ranked:
        classes.setdefault(record.get(schema.label or ""), []).append(record)
    rows = zip_longest(*(classes[label] for label in sorted(classes, key=str)))
    return [record for row in rows for record in row if record is not None][:count]


class _Reader:
    """Counts what a reader would stumble over in a record, those before it known."""

    def __init__(self, schema: Schema) -> None:
        from selpe.evaluation.words import text_fields
        from selpe.method.echoes import EchoCheck

        self._schema, self._fields, self._check = schema, text_fields(schema), EchoCheck(schema)
        self._public = self._check.texts(())
        self._seen: set[str] = set()

    def faults(self, record: Record) -> int:
        """Copies and near copies of examples weigh most, then texts that were there, then each text that is none."""
        texts = [(field, str(record[field.name])) for field in self._fields if record.get(field.name) is not None]
        told = " ".join(text for _, text in texts).lower()
        copied = self._check.is_echo(record, self._public, ()) or self._check.is_near(record)
        twice = told in self._seen
        self._seen.add(told)
        return 4 * copied + 2 * twice + sum(self._is_bad(field, text) for field, text in texts)

    def _is_bad(self, field: TextField, text: str) -> bool:
        from selpe.evaluation.sample_grade import flaw
        from selpe.evaluation.words import words

        found = words(text)
        circles = len(set(found)) < _VARIED * len(found)
        ends = [one[-1:] in _ENDS for example in self._schema.examples if (one := str(example.get(field.name) or ""))]
        unfinished = text[-1:] not in _ENDS and 2 * sum(ends) > len(ends)
        return bool(flaw(self._schema, field, text)) or circles or unfinished


def _shown(field: Field, value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = getattr(field, "unit", "")
    return f"{' '.join(str(value).split())}{f' {unit}' if unit else ''}"
