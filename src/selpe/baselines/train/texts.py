"""Records as the text that a language model is trained on and writes: a condition, a blank line, the fields by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from selpe.schema import Record, Schema


@dataclass(frozen=True, slots=True)
class Example:
    """A text to learn: `prefix` says what is wanted, `body` is the record."""

    prefix: str
    body: str


def condition(schema: Schema, label: str, keywords: Sequence[str] = ()) -> str:
    """What a record is asked for by: its class, the words of its topic, a blank line."""
    lines = []
    if schema.label is not None and label:
        lines.append(schema.lexicalise(schema.label, schema.label_value(label)))
    if keywords:
        lines.append(f"keywords: {', '.join(keywords)}")
    return "\n".join(lines or [schema.name]) + "\n\n"


def fields_by_line(schema: Schema, record: Record) -> str:
    """The fields of a record but its class, one a line; what is missing is left out."""
    told = [one for one in schema.fields if one.name != schema.label and record.get(one.name) is not None]
    # A line break within a value would read as the start of another field.
    return "\n".join(" ".join(one.lexicalise(record[one.name]).split()) for one in told)


def example(schema: Schema, record: Record, keywords: Sequence[str] = ()) -> Example:
    """A record as a text to learn."""
    return Example(condition(schema, schema.label_of(record) or "", keywords), fields_by_line(schema, record))


def tokens_of(tokenizer: Any, text: Example, longest: int) -> tuple[list[int], int]:
    """The tokens of a text with its end, cut to `longest`, and how many of them are the condition.

    The condition is cut into tokens by itself, as it is when the model is asked to go on from it.
    """
    prefix = list(tokenizer(text.prefix)["input_ids"])
    body = list(tokenizer(text.body, add_special_tokens=False)["input_ids"])
    return [*prefix, *body, int(tokenizer.eos_token_id)][: max(longest, len(prefix) + 1)], len(prefix)
