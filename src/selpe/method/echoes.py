"""Echoes: records that only repeat what the model was shown.

An echo is a copy of an example, or has a text that shares six words in a row with a text of the same field of a record
shown. Short texts may coincide. Texts that a record must have, because a fact says so, are nobody's copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property, lru_cache

from selpe.models.base import COPIED_WORDS, WORD
from selpe.schema import Record, Schema, TextField


class EchoCheck:
    """What of a schema's records can be an echo."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def texts(self, shown: Iterable[Record]) -> tuple[str, ...]:
        """The texts of these records and of the schema's examples that are long enough to be copied."""
        return tuple(dict.fromkeys([*self._texts_of_examples, *self._long_texts(shown)]))

    def repeats(self, text: str, known: Iterable[str]) -> bool:
        """Whether a text shares six words in a row with one of those."""
        own = runs(text)
        return bool(own) and any(not own.isdisjoint(runs(one)) for one in known)

    def is_echo(self, record: Record, known: Collection[str], given: Collection[str]) -> bool:
        """Whether a record is an example, or repeats one of the known texts in a field that was not given."""
        if self._schema.dumps(record) in self._examples:
            return True
        own = (str(record[name]) for name in self._names if name not in given and record.get(name) is not None)
        return any(self.repeats(text, known) for text in own)

    def _long_texts(self, records: Iterable[Record]) -> list[str]:
        texts = (str(record[name]) for record in records for name in self._names if record.get(name) is not None)
        return [text for text in texts if runs(text)]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._schema.fields if isinstance(one, TextField))

    @cached_property
    def _texts_of_examples(self) -> list[str]:
        return self._long_texts(self._schema.examples)

    @cached_property
    def _examples(self) -> frozenset[str]:
        return frozenset(self._schema.dumps(record) for record in self._schema.examples)


@lru_cache(maxsize=4096)
def runs(text: str) -> frozenset[tuple[str, ...]]:
    """All runs of six words in a text."""
    words = WORD.findall(text.lower())
    return frozenset(tuple(words[i : i + COPIED_WORDS]) for i in range(len(words) - COPIED_WORDS + 1))
