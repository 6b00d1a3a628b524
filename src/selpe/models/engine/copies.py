"""Texts that an answer must not copy: once five words of one stand in a row, the sixth is held back.

Small models like to repeat the examples that they are shown. A copy that is noticed when the record is whole has cost
all of its tokens; here it is not written in the first place, and what goes before it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from selpe.models.base import COPIED_WORDS, WORD
from selpe.models.engine.sampling import Row
from selpe.models.engine.vocabulary import Vocabulary

_MOST_KEPT = 4096
_Run = tuple[list[int], int]  # tokens of five words in a row, and the token that begins the sixth


class CopyGuard:
    """What an answer must not say next, lest it copy one of some texts."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Sequence[_Run]) -> None:
        self._runs: dict[int, list[_Run]] = {}  # by the last token, which is nearly always another one
        for run in runs:
            self._runs.setdefault(run[0][-1], []).append(run)

    def held_back(self, row: Row, tokens: list[int]) -> Row:
        """The row after these tokens, with what would go on copying below all else."""
        copied = [then for before, then in self._runs.get(tokens[-1], ()) if tokens[-len(before) :] == before]
        if not copied:
            return row
        row = row.copy()
        row[copied] = row.min() - 1000.0
        return row


class CopyGuards:
    """Makes guards against copies of texts. Requests mostly name the same texts, so what is known of one is kept."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._runs: dict[str, list[_Run]] = {}
        self._made: dict[tuple[str, ...], CopyGuard] = {}

    def against(self, texts: tuple[str, ...]) -> CopyGuard | None:
        """What holds copies of these texts back; None where there are no texts."""
        if not texts:
            return None
        if texts not in self._made:
            if len(self._made) >= _MOST_KEPT:
                self._made.clear()
            self._made[texts] = CopyGuard([run for text in texts for run in self._runs_of(text)])
        return self._made[texts]

    def _runs_of(self, text: str) -> list[_Run]:
        if text not in self._runs:
            if len(self._runs) >= _MOST_KEPT:
                self._runs.clear()
            # A text begins with a token of its own where it does not follow a blank.
            self._runs[text] = [*self._found(f" {text}"), *self._found(text)]
        return self._runs[text]

    def _found(self, text: str) -> list[_Run]:
        tokens = self._vocabulary.encode(text)
        pieces = [self._vocabulary.pieces[token] for token in tokens]
        if b"".join(pieces) != text.encode():
            return []  # a tokenizer that changes texts: what it would write cannot be told
        ends = list(accumulate(map(len, pieces)))
        words = list(WORD.finditer(text))
        starts = [len(text[: word.start()].encode()) for word in words]
        at = [next(i for i, end in enumerate(ends) if end > start) for start in starts]  # the token of each word
        return [
            (tokens[first:sixth], tokens[sixth])
            for first, sixth, word in zip(at, at[COPIED_WORDS - 1 :], words[COPIED_WORDS - 1 :], strict=False)
            # Numbers are not held back: another digit is another fact, and no other wording.
            if first < sixth and not word[0].isdigit()
        ]
