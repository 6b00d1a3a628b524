"""A draft as a notebook shows it: columns and what they became. What only the table could tell is not in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selpe.markup import paragraph, table, view

if TYPE_CHECKING:
    from selpe.intake.draft import Draft


def draft_view(draft: Draft) -> str:
    """The draft as a piece of HTML."""
    rows = [(column.name, column.kind if column.field else f"left out: {column.role}") for column in draft.columns]
    parts = [table(("column", "drafted as"), rows, caption="columns")]
    if draft.schema.label is None and draft.likely_labels:
        parts.append(paragraph(f"'{draft.likely_labels[0]}' looks like a record's class: label='…' makes it so."))
    if draft.unit is not None:
        parts.append(paragraph(f"'{draft.unit}' repeats: unit={draft.unit!r} protects each of them.", warn=True))
    if draft.schema.unconfirmed:
        parts.append(
            paragraph(
                "Read .to_yaml(), where bounds and values are. Put in what is public knowledge with "
                ".schema.change('field', …), and confirm it with .confirm('field').",
                warn=True,
            )
        )
    return view(f"Draft of a schema '{draft.schema.name}'", *parts)
