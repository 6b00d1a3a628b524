"""Passages: long runs of words that occur in a private text and in a synthetic one.

Texts become runs of word numbers. The hash of a run of n words is a difference of two sums over the corpus, so runs of
any length cost one pass, and 100,000 synthetic records are searched in seconds. A word that no real text has breaks a
run. Passages of the schema's own examples and descriptions are public and do not count.

What a common phrase does, held-out rows show: they have it as often as private rows. A long passage is looked at more
closely: it counts where a single real record has it, of the private ones and of all that were held out.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.attack.lineup import Lineup
from selpe.evaluation.words import passages, words
from selpe.schema import Record, Schema

WORDS = 8  # a shared run of this many words is a passage
LONG = 20  # a passage of this many words does not happen by chance
SHOWN = 20  # pairs of records that are named
CHUNK = 20_000  # synthetic records that are searched at once

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse among 64-bit numbers
_INVERSE = np.uint64(pow(int(_BASE), -1, 2**64))
_SEED = 20_260_403

Hashes = NDArray[np.uint64]
Places = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Shared:
    """A synthetic and a private record with a passage in common: their positions, and its length in words."""

    synthetic: int
    private: int
    words: int


@dataclass(frozen=True, slots=True)
class Copies:
    """How many rows have a passage in the synthetic table, private ones beside held-out ones."""

    words: int  # the length of a passage
    private_rows: int  # rows with a text that long
    private_touched: int  # of which a passage stands in the synthetic table
    holdout_rows: int
    holdout_touched: int
    synthetic_touched: int  # synthetic records with a passage of a private row
    longest: int  # words of the longest passage shared with a private row; 0 where none is `words` long
    long_words: int
    long_private: int  # rows of which a passage of `long_words`, theirs alone, stands in the synthetic table
    long_holdout: int
    p_value: float
    found: tuple[Shared, ...]


@dataclass(frozen=True, slots=True)
class _Corpus:
    """Texts one after another as word numbers, with the record and the text that each word belongs to."""

    words: Places  # 0 where no real text has the word
    record: Places
    text: Places

    def runs(self, n: int, codes: Hashes) -> tuple[Hashes, Places]:
        """The hash of every run of n known words within one text, and the record it stands in."""
        count = len(self.words) - n + 1
        if count < 1:
            return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int32)
        # Σ code_k · B^k over the run, times B^-start: the same for the same words wherever they stand. 64 bits wrap.
        sums = np.zeros(len(self.words) + 1, dtype=np.uint64)
        np.cumsum(codes[self.words] * _powers(_BASE, len(self.words)), out=sums[1:])
        hashes = (sums[n:] - sums[:-n]) * _powers(_INVERSE, count)
        unknown = np.zeros(len(self.words) + 1, dtype=np.int32)
        np.cumsum(self.words == 0, out=unknown[1:])
        whole = (self.text[:count] == self.text[n - 1 :]) & (unknown[n:] == unknown[:-n])
        return hashes[whole], self.record[:count][whole]


def _powers(base: np.uint64, count: int) -> Hashes:
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


class Search:
    """The passages of real rows, and where they occur in a synthetic table."""

    def __init__(self, schema: Schema, synthetic: Sequence[Record], lineup: Lineup) -> None:
        self._private = len(lineup.private)
        self._size = len(lineup.rows)
        self._known: dict[str, int] = {}
        real = (*lineup.rows, *lineup.spare)
        self._real = self._corpus((passages(schema, record) for record in real), grow=True)
        self._public = self._corpus(([words(text)] for text in _public(schema)), grow=False)
        random = np.random.default_rng(_SEED)
        self._codes = random.integers(1, 2**64 - 1, size=len(self._known) + 1, dtype=np.uint64)
        self._synthetic = []
        for start in range(0, len(synthetic), CHUNK):
            part = synthetic[start : start + CHUNK]
            corpus = self._corpus((passages(schema, record) for record in part), grow=False)
            self._synthetic.append((start, corpus))

    def able(self, n: int) -> NDArray[np.bool_]:
        """Which real rows have a text of n words at all."""
        owner = self._real.runs(n, self._codes)[1]
        return np.asarray(np.bincount(owner, minlength=self._size)[: self._size] > 0)

    def rows(self, n: int, *, alone: bool = False) -> NDArray[np.bool_]:
        """Which rows have a passage of n words in the synthetic table; with `alone`, one that no other real row has."""
        hashes, owner = self._passages(n)
        if alone:
            hashes, owner = _of_one(hashes, owner)
        found = np.zeros(self._size, dtype=bool)
        mine = owner < self._size
        hashes, owner = hashes[mine], owner[mine]
        for _, corpus in self._synthetic:
            found[owner[_among(hashes, np.unique(corpus.runs(n, self._codes)[0]))]] = True
        return found

    def shared(self, n: int) -> dict[tuple[int, int], int]:
        """Pairs of a synthetic and a private record with a passage of n words, and how many such runs they share.

        A passage of several private records counts for the first of them.
        """
        hashes, owner = self._passages(n)
        own = owner < self._private
        hashes, first = np.unique(hashes[own], return_index=True)
        owner = owner[own][first]
        found: dict[tuple[int, int], int] = {}
        for start, corpus in self._synthetic:
            runs, record = corpus.runs(n, self._codes)
            hit = _among(runs, hashes)
            whose = owner[np.searchsorted(hashes, runs[hit])]
            pairs, counts = np.unique(np.stack([record[hit] + start, whose]), axis=1, return_counts=True)
            found |= {(int(s), int(p)): int(c) for s, p, c in zip(pairs[0], pairs[1], counts, strict=True)}
        return found

    def longest(self, known: int) -> int:
        """The length of the longest passage of a private row, which has at least `known` words; doubling, halving."""
        low, high = known, 2 * known
        while self._is_shared(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_shared(middle) else (low, middle)
        return low

    def _is_shared(self, n: int) -> bool:
        return bool(self.rows(n)[: self._private].any())

    def _passages(self, n: int) -> tuple[Hashes, Places]:
        """The runs of real rows that are not public, and whose they are."""
        hashes, owner = self._real.runs(n, self._codes)
        private = ~_among(hashes, np.unique(self._public.runs(n, self._codes)[0]))
        return hashes[private], owner[private]

    def _corpus(self, records: Iterable[Iterable[list[str]]], *, grow: bool) -> _Corpus:
        numbers, record, text = array("i"), array("i"), array("i")
        texts = 0
        for place, each in enumerate(records):
            for passage in each:
                if grow:
                    numbers.extend(self._known.setdefault(word, len(self._known) + 1) for word in passage)
                else:
                    numbers.extend(self._known.get(word, 0) for word in passage)
                record.extend([place] * len(passage))
                text.extend([texts] * len(passage))
                texts += 1
        return _Corpus(*(np.array(column, dtype=np.int32) for column in (numbers, record, text)))


def _among(values: Hashes, targets: Hashes) -> NDArray[np.bool_]:
    """Which values are among sorted targets."""
    if not len(targets):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(targets[np.minimum(np.searchsorted(targets, values), len(targets) - 1)] == values)


def _of_one(hashes: Hashes, owner: Places) -> tuple[Hashes, Places]:
    """The runs that a single record has, each once."""
    names, place = np.unique(hashes, return_inverse=True)
    first, last = np.full(len(names), np.iinfo(np.int32).max, dtype=np.int32), np.full(len(names), -1, dtype=np.int32)
    np.minimum.at(first, place, owner)
    np.maximum.at(last, place, owner)
    return names[first == last], first[first == last]


def _public(schema: Schema) -> Iterator[str]:
    """Every text that the schema itself has."""
    yield schema.description
    for field in schema.fields:
        yield field.description
        yield from (example for example in field.examples if isinstance(example, str))
    for record in schema.examples:
        yield from (value for value in record.values() if isinstance(value, str))


def find_copies(schema: Schema, synthetic: Sequence[Record], lineup: Lineup) -> tuple[Copies, NDArray[np.bool_]]:
    """What was found, private rows beside held-out ones, and which rows of the line-up have a passage."""
    search, own = Search(schema, synthetic, lineup), lineup.members
    able, touched = search.able(WORDS), search.rows(WORDS)
    some = bool(touched[own].any())
    long = search.rows(LONG, alone=True) if some else np.zeros_like(touched)
    pairs = search.shared(WORDS) if some else {}
    found = Copies(
        WORDS,
        int(able[own].sum()),
        int(touched[own].sum()),
        int(able[~own].sum()),
        int(touched[~own].sum()),
        len({synthetic_record for synthetic_record, _ in pairs}),
        search.longest(WORDS) if some else 0,
        LONG,
        int(long[own].sum()),
        int(long[~own].sum()),
        math.nan,
        _shown(schema, synthetic, lineup, pairs),
    )
    return found, touched


def _shown(
    schema: Schema, synthetic: Sequence[Record], lineup: Lineup, pairs: Mapping[tuple[int, int], int]
) -> tuple[Shared, ...]:
    """The pairs that share most, with the exact length of their longest passage."""
    most = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:SHOWN]
    found = []
    for left, right in most:
        texts = [list(passages(schema, record)) for record in (synthetic[left], lineup.private[right])]
        length = max(_overlap(a, b) for a in texts[0] for b in texts[1])
        found.append(Shared(left, right, length))
    return tuple(sorted(found, key=lambda shared: (-shared.words, shared.synthetic, shared.private)))


def _overlap(left: Sequence[str], right: Sequence[str]) -> int:
    return SequenceMatcher(None, left, right, autojunk=False).find_longest_match().size
