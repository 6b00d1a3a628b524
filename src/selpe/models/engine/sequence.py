"""One request on its way: its tokens, its text so far, and why it ended."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf

from selpe.errors import ModelError
from selpe.models.base import Answer, Finish, Request
from selpe.models.engine.blocks import Lease
from selpe.models.engine.copies import CopyGuard
from selpe.models.engine.grammar import GrammarGuide
from selpe.models.engine.sampling import Echoes, Row, Taste, generator

# A guess at what comes next is what followed the same so many tokens before. Of three, 65 to 80 % were right.
_ALIKE = 3


class Sequence:
    """A request that has been taken up.

    `tokens` are the prompt and all that was written; the first `computed` of them are in the KV blocks. The first
    `given` were known before the model had its say: the prompt, and what the grammar forces at the start. Those at the
    places `own` the model wrote itself, earlier: like all that it writes, they are computed in rows of their own.
    """

    __slots__ = (
        "_began",
        "_copies",
        "_draws",
        "_echoes",
        "_limit",
        "_longest_stop",
        "_pieces",
        "_stops",
        "_text",
        "cached",
        "computed",
        "finish",
        "forced",
        "given",
        "guide",
        "lease",
        "marks",
        "own",
        "prompt_length",
        "request",
        "taste",
        "tokens",
    )

    def __init__(
        self,
        request: Request,
        prompt: list[int],
        guide: GrammarGuide | None,
        pieces: SequenceOf[bytes],
        *,
        limit: int,
        copies: CopyGuard | None = None,
        own: range = range(0),
    ) -> None:
        self.request = request
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.own = own
        self.guide = guide
        self.taste = Taste(request.temperature, request.min_p, request.top_p)
        self.computed = 0
        self.cached = 0
        self.forced = 0
        self.lease: Lease | None = None
        self.finish: Finish | None = None
        self._pieces = pieces
        self._limit = limit
        self._stops = tuple(stop.encode() for stop in request.stop if stop)
        self._longest_stop = max(map(len, self._stops), default=0)
        self._draws = generator(request.seed)
        self._echoes = Echoes(request.no_repeat) if request.no_repeat else None
        self._copies = copies
        self._text = bytearray()
        self._began = time.monotonic()
        self._follow_guide()
        self.given = len(self.tokens)
        self.marks = [~token if place in own else token for place, token in enumerate(self.tokens)]

    @property
    def written(self) -> int:
        """How many tokens the answer has so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def reach(self) -> int:
        """How many tokens prompt and answer can have at most."""
        return self.prompt_length + self._limit

    @property
    def identity(self) -> list[int]:
        """The tokens as their blocks are found by: those in rows of their own are other numbers than those of prompts,
        because other kernels compute them, and round differently."""
        self.marks += [~token for token in self.tokens[len(self.marks) :]]
        return self.marks

    def pieces(self, budget: int) -> Iterator[tuple[int, int]]:
        """What to compute next, as places from and to, in order; of prompts at most `budget` tokens."""
        at = self.computed
        while at < self.given and budget > 0:
            alone = at in self.own
            end = next((edge for edge in (self.own.start, self.own.stop) if at < edge), self.given)
            count = min(end - at, budget) if alone else _piece(end - at, budget)
            if not count:
                return
            yield from ((place, place + 1) for place in range(at, at + count)) if alone else [(at, at + count)]
            at, budget = at + count, budget - count
        if at >= self.given:
            yield from ((place, place + 1) for place in range(at, len(self.tokens)))

    @property
    def leased(self) -> Lease:
        """The lease of a sequence that runs."""
        if self.lease is None:
            raise AssertionError("the sequence is not running")
        return self.lease

    def begin(self, lease: Lease) -> None:
        """Starts the sequence in its blocks, some of which may hold its beginning already."""
        self.lease = lease
        self.computed = self.cached = lease.cached

    def draw(self) -> float:
        """The next uniform number of this request's own stream."""
        return float(self._draws.random())

    def fresh(self, row: Row) -> Row:
        """The logits with what would only repeat the answer, or copy a text that it must be unlike, held back."""
        if self._copies is not None:
            row = self._copies.held_back(row, self._text)
        return row if self._echoes is None else self._echoes.held_back(row, self._pieces.__getitem__)

    def guess(self, most: int) -> list[int]:
        """What followed the last time that the newest tokens stood in prompt or answer; up to `most` tokens of it."""
        newest = self.tokens[-_ALIKE:]
        most = max(min(most, self.reach - len(self.tokens) - 1), 0)  # behind the last one nothing is chosen
        for end in range(len(self.tokens) - 1, _ALIKE - 1, -1):
            if self.tokens[end - 1] == newest[-1] and self.tokens[end - _ALIKE : end] == newest:
                return self.tokens[end : end + most]
        return []

    def accept(self, token: int, ends: SequenceOf[int]) -> None:
        """Takes a sampled token as written, and whatever the grammar forces after it."""
        if self.guide is not None:
            self.guide.accept(token)
        if token in ends:
            self.finish = "stop"
            return
        self._write(token)
        self._follow_guide()

    def answer(self, error: ModelError | None = None) -> Answer:
        """The answer as it stands; an unfinished one counts as cancelled."""
        # A cut can fall inside a character: its first bytes are left out rather than shown as a replacement mark.
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._text), final=False)
        return Answer(
            request=self.request,
            text=text,
            finish="error" if error is not None else self.finish or "cancelled",
            prompt_tokens=self.prompt_length,
            cached_tokens=min(self.cached, self.prompt_length),  # a beginning that the grammar forces is shared too
            completion_tokens=self.written,
            seconds=time.monotonic() - self._began,
            error=error,
            forced_tokens=self.forced,
        )

    def _follow_guide(self) -> None:
        if self.guide is None:
            return
        forced = self.guide.forced() if self.finish is None else []
        start = len(self.tokens)
        goal = start + len(forced)
        for token in forced:
            self._write(token)
        self.forced += len(self.tokens) - start
        # What the grammar ends is complete, even where the token limit falls on the same place.
        if self.finish != "stop" and len(self.tokens) == goal and self.guide.stopped:
            self.finish = "stop"

    def _write(self, token: int) -> None:
        if self.finish is not None:
            return
        self.tokens.append(token)
        if self._echoes is not None:
            self._echoes.note(token)
        before = len(self._text)
        self._text += self._pieces[token]
        if self._stops and self._ends_at_stop(before):
            self.finish = "stop"
        elif self.written >= self._limit:
            self.finish = "length"

    def _ends_at_stop(self, before: int) -> bool:
        """Cuts the text before the first stop string that the newest token has completed."""
        start = max(0, before - self._longest_stop + 1)
        found = [at for stop in self._stops if (at := self._text.find(stop, start)) >= 0]
        if found:
            del self._text[min(found) :]
        return bool(found)


def _piece(count: int, budget: int) -> int:
    """How many of a prompt's `count` tokens to compute now: never one alone, and never leaving one alone."""
    if count <= budget:
        return count
    piece = budget - 1 if count - budget == 1 else budget
    return piece if piece > 1 else 0
