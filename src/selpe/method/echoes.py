"""Echoes: records that only repeat what the model was shown.

An echo is a copy of an example, or has a text that shares six words in a row with a text of a record shown, or that is
a whole text of an example, of four words or more. Examples are whole records of the schema, and texts that a single
field gives. Words that several examples share are a form, and shorter texts may coincide. Texts that a record must
have, because a fact says so, are nobody's copy: phrases, which facts are made of, are held to the same when they are
written.

A model that may not go on with a copy changes a word and goes on behind it. So a text of five words or more is a near
copy where most of its runs of three words stand in one text of an example. Near copies are written again as well, but
not for ever: a small model has few words of its own, and a record is worth more than none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from functools import cached_property, lru_cache

from selpe.models.base import COPIED_WORDS, NEAR_RUNS, WHOLE_WORDS, WORD
from selpe.schema import Record, Schema, TextField

# Letters from which on a whole text counts whatever its words: a script without spaces has long texts of few words.
LONG_TEXT = 30


class EchoCheck:
    """What of a schema's records can be an echo."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def texts(self, shown: Iterable[Record]) -> tuple[str, ...]:
        """The texts of these records and of the schema's examples that are long enough to be copied."""
        return tuple(dict.fromkeys([*self._texts_of_examples, *self._long_texts(shown)]))

    def values(self) -> tuple[str, ...]:
        """The examples' texts of two or three words: to coincide is no copy, but a small model writes little else."""
        return tuple(text for text in self._public_texts if 1 < len(_words(text)) < WHOLE_WORDS)

    def repeats(self, text: str, known: Iterable[str]) -> bool:
        """Whether a text shares six words in a row with one of those, beyond what several examples share."""
        own = runs(text) - self._form
        return bool(own) and any(not own.isdisjoint(runs(one)) for one in known)

    def copies(self, text: str, known: Iterable[str]) -> bool:
        """Whether a value repeats one of those, or is a whole text of an example and no short one."""
        return _words(text) in self._whole_texts or self.repeats(text, known)

    def is_echo(self, record: Record, known: Collection[str], given: Collection[str]) -> bool:
        """Whether a record is an example, or repeats one of the known texts in a field that was not given."""
        if self._schema.dumps(record) in self._examples:
            return True
        own = (str(record[name]) for name in self._names if name not in given and record.get(name) is not None)
        return any(self.copies(text, known) for text in own)

    def is_near(self, record: Record, given: Collection[str] = ()) -> bool:
        """Whether a text that was not given is a near copy of an example's."""
        own = (str(record[name]) for name in self._names if name not in given and record.get(name) is not None)
        return any(self._nearly(text) for text in own)

    def has_near(self, notes: str) -> bool:
        """Whether a part of notes is a near copy of an example's text."""
        return any(self._nearly(part.rpartition(": ")[2]) for part in notes.split(";"))

    def _nearly(self, text: str) -> bool:
        own = _triples(_words(text)) - self._form_triples
        return len(own) >= NEAR_RUNS and any(2 * len(own & known) > len(own) for known in self._triples_of_examples)

    def _long_texts(self, records: Iterable[Record]) -> list[str]:
        texts = (str(record[name]) for record in records for name in self._names if record.get(name) is not None)
        return [text for text in texts if runs(text)]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._schema.fields if isinstance(one, TextField))

    @cached_property
    def _texts_of_examples(self) -> list[str]:
        texts = [text for text in self._public_texts if len(_words(text)) >= WHOLE_WORDS]
        # What stands in another text as well is not shared by two: it would pass for a form.
        return [text for text in texts if not runs(text) or not any(runs(text) < runs(other) for other in texts)]

    @cached_property
    def _public_texts(self) -> tuple[str, ...]:
        """The texts of all examples: those of whole records, then those of single fields."""
        fields = [one for one in self._schema.fields if isinstance(one, TextField)]
        found = [record.get(one.name) for record in self._schema.examples for one in fields]
        found += [example for one in fields for example in one.examples]
        return tuple(dict.fromkeys(text for text in found if isinstance(text, str)))

    @cached_property
    def _whole_texts(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_words(text) for text in self._public_texts if is_long(text))

    @cached_property
    def _form(self) -> frozenset[tuple[str, ...]]:
        return common_form(self._schema)

    @cached_property
    def _triples_of_examples(self) -> tuple[frozenset[tuple[str, ...]], ...]:
        return tuple(_triples(_words(text)) for text in self._public_texts)

    @cached_property
    def _form_triples(self) -> frozenset[tuple[str, ...]]:
        return frozenset(triple for run in self._form for triple in _triples(run))

    @cached_property
    def _examples(self) -> frozenset[str]:
        return frozenset(self._schema.dumps(record) for record in self._schema.examples)


def common_form(schema: Schema) -> frozenset[tuple[str, ...]]:
    """Runs of six words that several examples share: a form that such texts have, and nobody's copy."""
    counted: Counter[tuple[str, ...]] = Counter()
    for example in schema.examples:
        counted.update({run for value in example.values() if isinstance(value, str) for run in runs(value)})
    return frozenset(run for run, examples in counted.items() if examples > 1)


def is_long(text: str) -> bool:
    """Whether a text is too long to be the same as another by chance."""
    return len(_words(text)) >= WHOLE_WORDS or len(text.strip()) >= LONG_TEXT


def _triples(words: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    return frozenset(words[i : i + 3] for i in range(len(words) - 2))


def _words(text: str) -> tuple[str, ...]:
    return tuple(WORD.findall(text.lower()))


@lru_cache(maxsize=4096)
def runs(text: str) -> frozenset[tuple[str, ...]]:
    """All runs of six words in a text that do not end in a number: another number is another fact."""
    words = _words(text)
    found = (words[i : i + COPIED_WORDS] for i in range(len(words) - COPIED_WORDS + 1))
    return frozenset(run for run in found if not run[-1].isdigit())
