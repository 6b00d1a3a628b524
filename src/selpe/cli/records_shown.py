"""Records on a screen: each as a block of its own with every field whole, so that one can read what a model writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from selpe.cli.console import out

if TYPE_CHECKING:
    from selpe.schema import Field, Record, Schema, Value

_WIDE = 110  # columns in a log
_LOOKED_AT = 500  # records to choose a few from
_VARIED = 0.6  # of all words that differ in a text which does not go round in circles


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
    """A few records to look at first: of every class in turn, and those last that copy an example or repeat themselves.

    Only what is looked at is chosen; the release stays as it is.
    """
    from selpe.method.echoes import EchoCheck
    from selpe.models.base import WORD

    check = EchoCheck(schema)
    known, texts = check.texts(()), [field.name for field in schema.fields if field.kind == "text"]
    seen: set[str] = set()

    def faults(record: Record) -> tuple[bool, bool, bool]:
        told = " ".join(str(record[name]) for name in texts if record.get(name) is not None)
        words = WORD.findall(told.lower())
        twice = told in seen
        seen.add(told)
        return check.is_echo(record, known, ()), twice, len(set(words)) < _VARIED * len(words)

    ranked = sorted(records[:_LOOKED_AT], key=faults)
    classes: dict[object, list[Record]] = {}
    for record in ranked:
        classes.setdefault(record.get(schema.label or ""), []).append(record)
    rows = zip_longest(*(classes[label] for label in sorted(classes, key=str)))
    return [record for row in rows for record in row if record is not None][:count]


def _shown(field: Field, value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = getattr(field, "unit", "")
    return f"{' '.join(str(value).split())}{f' {unit}' if unit else ''}"
