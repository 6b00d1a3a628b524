"""A schema as a notebook shows it. What was guessed from a private table is not in it before it is confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selpe.markup import paragraph, table, view
from selpe.schema.fields import Field

if TYPE_CHECKING:
    from selpe.schema.core import Schema

_GUESSED = "guessed from the table, not shown before it is confirmed"


def schema_view(schema: Schema) -> str:
    """The schema as a piece of HTML."""
    parts = [paragraph(schema.description)] if schema.description else []
    if schema.unconfirmed:
        parts.append(paragraph(f"A draft: not confirmed yet are {', '.join(schema.unconfirmed)}.", warn=True))
    rows = [_row(field, schema) for field in schema.fields]
    parts.append(table(("field", "kind", "a value is", "description"), rows, caption="fields"))
    if schema.rules:
        parts.append(table(("every record obeys",), [(rule.text,) for rule in schema.rules], caption="rules"))
    count = len(schema.examples)
    parts.append(paragraph(f"{count} made-up example record{'' if count == 1 else 's'}", soft=True))
    return view(f"Schema '{schema.name}'", *parts)


def _row(field: Field, schema: Schema) -> tuple[str, str, str, str]:
    kind = f"{field.kind}, the label" if field.name == schema.label else field.kind
    kind += ", may be missing" if field.optional else ""
    return field.name, kind, field.expected if field.confirmed else _GUESSED, field.description
