"""Texts that an answer must not copy: once five words of one stand in a row, the sixth is held back; of a text of four
or five words, the last. Nor is the third word of a run written where more than half of a value's runs of three words
would then be copied: a model that may not go on with a copy changes a word and goes on behind it. Of a text of two or
three words the last is held back only where all of a value would be that text: such words may stand in others.

Small models like to repeat the examples that they are shown. A copy that is noticed when the record is whole has cost
all of its tokens; here it is not written in the first place, and what goes before it stays. Words count, whatever their
case and whatever stands between them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from selpe.models.base import COPIED_WORDS, NEAR_RUNS, WHOLE_WORDS, WORD
from selpe.models.engine.sampling import Row
from selpe.models.engine.vocabulary import Vocabulary

_MOST_KEPT = 4096
_TAIL = 200  # bytes of an answer in which its last five words are looked for
_LEAST = 3  # letters of a word by which a token that begins it can be told; fewer are mostly words themselves
_BEFORE_VALUE = re.compile(r'[;\n"]|: ')  # what a value begins behind, in notes, in lines and in JSON
_ONE_WORD = re.compile(r"([\W_]*)([^\W_]+)[\W_]*")
_Words = tuple[str, ...]
_Tokens = tuple[frozenset[int], frozenset[int]]  # that begin a word: behind a blank or the like, and without one


class CopyGuard:
    """What an answer must not say next, lest it copy one of some texts."""

    __slots__ = ("_last", "_next", "_third", "_triples")

    def __init__(
        self,
        following: Mapping[_Words, _Tokens],
        third: Mapping[_Words, _Tokens],
        triples: frozenset[_Words],
        last: Mapping[_Words, _Tokens],
    ) -> None:
        self._next = following  # by five words in a row, or all words but the last of a short text
        self._third = third  # by two words in a row
        self._triples = triples
        self._last = last  # of a value, by all before it

    def held_back(self, row: Row, text: bytes | bytearray) -> Row:
        """The row after this text, with what would go on copying below all else."""
        said = text[-_TAIL:].decode("utf-8", "ignore").lower()
        words = tuple(WORD.findall(said)[1 - COPIED_WORDS :])
        ends = (words[start:] for start in range(max(0, len(words) - WHOLE_WORDS + 2)))
        copied = [self._next[end] for end in ends if end in self._next]
        if words[-2:] in self._third and self._mostly_copied(said):
            copied.append(self._third[words[-2:]])
        if (words[-1:] in self._last or words[-2:] in self._last) and (value := _value_of(said)) in self._last:
            copied.append(self._last[value])
        if not copied:
            return row
        tokens = frozenset[int]().union(*(behind_blank for behind_blank, _ in copied))
        if not WORD.match(said[-1]):
            tokens = tokens.union(*(directly for _, directly in copied))
        row = row.copy()
        row[list(tokens)] = row.min() - 1000.0
        return row

    def _mostly_copied(self, said: str) -> bool:
        """Whether the value that is being written would be a near copy with one more word of a copied run."""
        words = _value_of(said)
        if len(words) < 2:
            return False
        copied = sum(triple in self._triples for triple in _triples(words))
        return 2 * (copied + 1) > max(len(words) - 1, NEAR_RUNS)


class CopyGuards:
    """Makes guards against copies of texts. Requests mostly name the same texts, so what is known of one is kept."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._words: dict[str, _Tokens] = {}
        self._made: dict[_Words, CopyGuard] = {}

    def against(self, texts: _Words) -> CopyGuard | None:
        """What holds copies of these texts back; None where there are no texts."""
        if not texts:
            return None
        if texts not in self._made:
            if len(self._made) >= _MOST_KEPT:
                self._made.clear()
                self._words.clear()
            self._made[texts] = self._guard(texts)
        return self._made[texts]

    def _guard(self, texts: _Words) -> CopyGuard:
        texts_with = Counter(run for text in texts for run in _runs(text))
        # Words that several texts share are a form, and may be written.
        form = {triple for run, count in texts_with.items() if count > 1 for triple in _triples(run)}
        words = [tuple(WORD.findall(text.lower())) for text in texts]
        triples = frozenset(
            triple for own in words if len(own) >= WHOLE_WORDS for triple in _triples(own) if triple not in form
        )
        following = self._following(run for run, count in texts_with.items() if count == 1)
        last = self._following(own for own in words if 1 < len(own) < WHOLE_WORDS)
        return CopyGuard(following, self._following(triples), triples, last)

    def _following(self, runs: Iterable[_Words]) -> dict[_Words, _Tokens]:
        """The tokens that begin the last word of these runs, by the words before it."""
        found: dict[_Words, _Tokens] = {}
        for *before, last in runs:
            # Numbers are not held back: another digit is another fact, and no other wording.
            if not last.isdigit():
                known, more = found.get(tuple(before), (frozenset(), frozenset())), self._beginning(last)
                found[tuple(before)] = (known[0] | more[0], known[1] | more[1])
        return found

    def _beginning(self, word: str) -> _Tokens:
        """The tokens that begin a word: all of it or enough, or what the tokenizer would begin it with."""
        if word not in self._words:
            parts = {word[:end] for end in range(_LEAST, len(word))} | {word}
            tokens = [token for part in parts for token in self._by_part.get(part, ())]
            for said in (word, word.title()):
                tokens += self._vocabulary.encode(said)[:1] + self._vocabulary.encode(f" {said}")[:1]
            matches = {token: match for token in tokens if (match := self._match(token))}
            behind_blank = frozenset(token for token, match in matches.items() if match[1])
            self._words[word] = behind_blank, frozenset(matches) - behind_blank
        return self._words[word]

    @cached_property
    def _by_part(self) -> dict[str, list[int]]:
        """The tokens that hold one word or a part of one, by that."""
        found: dict[str, list[int]] = {}
        for token in range(len(self._vocabulary.pieces)):
            if match := self._match(token):
                found.setdefault(match[2].lower(), []).append(token)
        return found

    def _match(self, token: int) -> re.Match[str] | None:
        # The first byte of a letter of several bytes is no letter yet, but a word can begin with it.
        return _ONE_WORD.fullmatch(self._vocabulary.pieces[token].decode("utf-8", "replace").replace("�", "0"))


def _runs(text: str) -> set[_Words]:
    """The runs of words by which a copy of a text is known: six in a row, or all of a text of four or five."""
    words = tuple(WORD.findall(text.lower()))
    if len(words) < WHOLE_WORDS:
        return set()
    length = min(COPIED_WORDS, len(words))
    return {words[start : start + length] for start in range(len(words) - length + 1)}


def _value_of(said: str) -> _Words:
    """The words of the value that is being written."""
    return tuple(WORD.findall(_BEFORE_VALUE.split(said)[-1]))


def _triples(words: _Words) -> Iterator[_Words]:
    return zip(words, words[1:], words[2:], strict=False)
