"""Codebooks (ours): a small public list of codes for every field, so that rows can be counted and records be written.

A category has a code for each value, a number or a date one for each bin, a text one for each cluster of texts that the
model wrote; 'missing' is a code of its own. A row's code is a function of that row and of public things alone. The way
back, from a code to a fact that binds a new record, knows nothing of rows: a value, a span, or a phrase of the model's.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.method.record_forms import Fact
from selpe.models.encoders.alone import encode_alone
from selpe.models.encoders.base import Encoder
from selpe.schema import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    Record,
    Schema,
    Span,
    TextField,
    Value,
)
from selpe.schema.fields import exact_decimal, first_multiple, parse_date

MISSING = "(missing)"
SHORT_WORDS = 10  # a text field whose examples are mostly no longer than this is written as a phrase, else by exemplars
SHORT_LENGTH = 80  # letters, where there are no examples
BRIEF_WORDS = 4  # a field with examples this short has values that many records share
_SHOWN = 3  # phrases by which a cluster is shown


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text for one field that the model wrote, and the class it wrote it for; None: for any."""

    text: str
    label: str | None = None


class Codebook(ABC):
    """The codes of one field. It is a Coder (privacy/counts.py): private rows are counted by it, one by one."""

    def __init__(self, field: Field, words: Sequence[str]) -> None:
        self.field = field
        self._present = len(words)
        self.words = (*words, MISSING) if field.optional else tuple(words)

    @property
    def name(self) -> str:
        """The field's name."""
        return self.field.name

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.words)

    @property
    def remote(self) -> str | None:
        """Where a row's value would be sent to be coded."""
        return None

    def code(self, row: Record) -> int:
        """The code of a row's value; −1 where it has none."""
        value = row.get(self.name)
        if value is None:
            return self._present if self.field.optional else -1
        return self._code(value) if self._fits(value) else -1

    def code_of_public(self, record: Record) -> int:
        """The code of a record that the model wrote; the same, where what is known of it is not worked out again."""
        return self.code(record)

    def is_missing(self, code: int) -> bool:
        """Whether a code stands for a missing value."""
        return code == self._present

    def codes(self, records: Iterable[Record]) -> NDArray[np.intp]:
        """The codes of public records."""
        return np.array([self.code(record) for record in records], dtype=np.intp)

    def fact(self, code: int, label: str | None, chance: random.Random) -> Fact:
        """What a record of a class is to have in this field to be of that code."""
        return None if self.is_missing(code) else self._fact(code, label, chance)

    def to_dict(self) -> dict[str, Any]:
        """What the codes are, as plain data."""
        return {"field": self.name, "kind": self.field.kind, "codes": list(self.words)}

    def _fits(self, value: Value) -> bool:
        """Whether a value is of the field's domain. Others have no code: no row may end a count by an error."""
        try:
            return self.field.check(value) is None
        except ValueError:  # a whole number of thousands of digits, which Python does not write as text
            return False

    @abstractmethod
    def _code(self, value: Value) -> int: ...

    @abstractmethod
    def _fact(self, code: int, label: str | None, chance: random.Random) -> Fact: ...


class ListedCodes(Codebook):
    """A code for each value of a category or a boolean."""

    def __init__(self, field: CategoryField | BooleanField) -> None:
        self._values: tuple[Value, ...] = field.values if isinstance(field, CategoryField) else (True, False)
        super().__init__(field, [field.text_of(value) for value in self._values])
        self._place = {value: number for number, value in enumerate(self._values)}

    def _code(self, value: Value) -> int:
        return self._place.get(value, -1)

    def _fact(self, code: int, label: str | None, chance: random.Random) -> Fact:
        return self._values[code]


class BinnedCodes(Codebook):
    """A code for each bin of a number or a date. Values are whole steps of the field's grid, so that bins are exact."""

    def __init__(self, field: IntegerField | NumberField | DateField, known: Sequence[Value], bins: int) -> None:
        self._grid = _Grid(field)
        self._edges = _edges([self._grid.step_of(value) for value in known], self._grid.first, self._grid.last, bins)
        starts, ends = [self._grid.first, *self._edges], [*(edge - 1 for edge in self._edges), self._grid.last]
        self._spans = [Span(self._grid.at(low), self._grid.at(high)) for low, high in zip(starts, ends, strict=True)]
        super().__init__(field, [_bin_shown(span) for span in self._spans])

    @property
    def spans(self) -> Sequence[Span]:
        """The bins in order."""
        return self._spans

    def _code(self, value: Value) -> int:
        return bisect_right(self._edges, self._grid.step_of(value))

    def _fact(self, code: int, label: str | None, chance: random.Random) -> Fact:
        return self._spans[code]


class TextCodes(Codebook):
    """A code for each cluster of texts that the model wrote for the field; a text has that of the nearest centre.

    A centre that no text is nearest to would be a code without a phrase to write, and is left out.
    """

    def __init__(
        self,
        field: TextField,
        phrases: Sequence[Phrase],
        vectors: NDArray[np.float64],
        *,
        encoder: Encoder,
        clusters: int,
        seed: int,
        centres: NDArray[np.float64] | None = None,
    ) -> None:
        self._encoder = encoder
        found = _centres(vectors, clusters, seed) if centres is None else centres
        self.centres = found[np.unique((vectors @ found.T).argmax(axis=1))]
        nearest = (vectors @ self.centres.T).argmax(axis=1)
        self._public = {phrase.text: int(code) for phrase, code in zip(phrases, nearest, strict=True)}
        self.members = [
            [phrases[int(i)] for i in _central_first(vectors, np.flatnonzero(nearest == k), centre)]
            for k, centre in enumerate(self.centres)
        ]
        super().__init__(field, [_shown(members) for members in self.members])

    @property
    def remote(self) -> str | None:
        """Where texts are encoded."""
        return self._encoder.remote

    def _code(self, value: Value) -> int:
        # One text and one product of a fixed shape: company cannot change a bit of it (PROOF.md, A1).
        vector = encode_alone(self._encoder, [str(value)])[0].astype(np.float64)
        return int(np.argmax(self.centres @ vector))

    def code_of_public(self, record: Record) -> int:
        """The code of a text that the model wrote: mostly one of those that the codes were made from."""
        known = self._public.get(str(record.get(self.name)))
        return self.code(record) if known is None else known

    def coded(self, vectors: NDArray[np.float64]) -> NDArray[np.intp]:
        """The codes of public texts by their vectors."""
        return np.asarray((vectors @ self.centres.T).argmax(axis=1))

    def _fact(self, code: int, label: str | None, chance: random.Random) -> Fact:
        members = self.members[code]
        own = [phrase for phrase in members if phrase.label == label]
        return chance.choice(own or members).text


def is_short(field: TextField, schema: Schema) -> bool:
    """Whether a text is short enough to be written as a phrase of its own."""
    words = _usual_words(field, schema)
    return field.max_length <= SHORT_LENGTH if words is None else words <= SHORT_WORDS


def is_brief(field: Field, schema: Schema) -> bool:
    """Whether a field is a text of so few words that many records share one, by the schema's examples."""
    words = _usual_words(field, schema) if isinstance(field, TextField) else None
    return words is not None and words <= BRIEF_WORDS


def brief_texts(schema: Schema) -> tuple[str, ...]:
    """The names of all such fields, as the schema has them; never the label."""
    return tuple(one.name for one in schema.fields if one.name != schema.label and is_brief(one, schema))


def _usual_words(field: TextField, schema: Schema) -> int | None:
    """The median of the examples' words; None where no example has a text."""
    words = sorted(len(str(one[field.name]).split()) for one in schema.examples if one.get(field.name) is not None)
    return words[len(words) // 2] if words else None


# -- numbers ----------------------------------------------------------------------------------------------------------


class _Grid:
    """The values of a number or date field as whole numbers, and back."""

    def __init__(self, field: IntegerField | NumberField | DateField) -> None:
        self._field = field
        if isinstance(field, DateField):
            self.first, self.last = field.min.toordinal(), field.max.toordinal()
        else:
            low, step = first_multiple(field.min, field.step), Decimal(field.step)
            self.first = int(low / step)
            self.last = int((Decimal(field.max) / step).to_integral_value(ROUND_FLOOR))

    def step_of(self, value: Value) -> int:
        """The number of a value on the grid; values outside count as its ends."""
        if isinstance(self._field, DateField):
            day = parse_date(str(value))
            number = self.first if day is None else day.toordinal()
        else:
            exact = exact_decimal(value) or Decimal(0)
            number = int((exact / Decimal(self._field.step)).to_integral_value(ROUND_FLOOR))
        return min(max(number, self.first), self.last)

    def at(self, number: int) -> int | Decimal | date:
        """The value of a number on the grid."""
        if isinstance(self._field, DateField):
            return date.fromordinal(number)
        return number * self._field.step


def _edges(known: Sequence[int], first: int, last: int, bins: int) -> list[int]:
    """Where bins begin, the first one aside: at quantiles of what is known, or evenly; each value alone if few.

    In whole numbers throughout: floats are too coarse for nanoseconds. Where many have the least value, as many incomes
    are 0, it is a bin of its own.
    """
    if last - first < bins:
        return list(range(first + 1, last + 1))
    if len(set(known)) < 2:
        return [first + (last - first + 1) * i // bins for i in range(1, bins)]
    ordered = sorted(known)
    cuts = {ordered[-(-i * (len(ordered) - 1) // bins)] for i in range(1, bins)}
    return sorted({max(cut, first + 1) for cut in cuts})


def _bin_shown(span: Span) -> str:
    return str(span) if span.low != span.high else str(span).partition(" to ")[0]


# -- texts ------------------------------------------------------------------------------------------------------------


def _centres(vectors: NDArray[np.float64], clusters: int, seed: int) -> NDArray[np.float64]:
    """Unit centres of clusters of unit vectors; as many as there are different ones, at most `clusters`."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    distinct = np.unique(vectors, axis=0)
    count = min(clusters, len(distinct))
    with threadpool_limits(1):  # sums in one order: the same clusters for the same seed
        centres = KMeans(count, n_init=2, random_state=seed % 2**32).fit(distinct).cluster_centers_
    return np.asarray(centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12))


def _central_first(
    vectors: NDArray[np.float64], members: NDArray[np.intp], centre: NDArray[np.float64]
) -> NDArray[np.intp]:
    return members[np.argsort(-(vectors[members] @ centre), kind="stable")]


def _shown(members: Sequence[Phrase]) -> str:
    distinct = list(dict.fromkeys(phrase.text for phrase in members))
    return " | ".join(distinct[:_SHOWN])
