"""Words of a text, the same way for every measure that counts them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from selpe.schema import Record, Schema, TextField

# Scripts that put no space between words count by character, so that a sentence is not one word.
_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0e7f]|[^\\W\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]+"
)


def words(text: str) -> list[str]:
    """The words of a text in order, without case and punctuation."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def text_fields(schema: Schema) -> tuple[TextField, ...]:
    """The fields that hold free text."""
    return tuple(field for field in schema.fields if isinstance(field, TextField))


def unlabelled(schema: Schema, records: Sequence[Record]) -> list[str]:
    """Each record as one text, without its label."""
    hidden = () if schema.label is None else (schema.label,)
    return [schema.linearise(record, without=hidden) for record in records]


def passages(schema: Schema, record: Record) -> Iterator[list[str]]:
    """The words of every text field of a record that has any."""
    for field in text_fields(schema):
        value = record.get(field.name)
        if isinstance(value, str) and (found := words(value)):
            yield found


def grams(sequence: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    """Every run of n words."""
    return (tuple(sequence[start : start + n]) for start in range(len(sequence) - n + 1))
