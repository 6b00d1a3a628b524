"""Continuous batching: the loop that keeps a model busy with many requests at once.

Every turn computes a ragged batch: prompts in chunks, one token for each request that is writing, several where a
grammar forces them. Requests join as soon as there is a place and memory for their whole life, and leave as soon as
they end. While the model computes, the grammars' masks for the tokens about to be chosen are worked out. When few
requests are left, guesses at what they write next are computed along with them, from what they have said before.

What a request is answered does not depend on its neighbours. Prompts are computed in pieces of two tokens or more
because kernels for a single token round differently. What is written is computed in rows of a single token, also where
several are known: the other kernels repack the whole context first, which costs as much as the attention of ten rows,
and a token's row is the same whichever turn computes it. So a request that goes on from what the model wrote before
finds it in memory, and has the same answer where it is gone and is computed again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError, PromptTooLongError
from selpe.models.base import Answer, Follow, Request
from selpe.models.engine.blocks import BlockPool
from selpe.models.engine.copies import CopyGuards
from selpe.models.engine.grammar import Grammars
from selpe.models.engine.sampling import choose
from selpe.models.engine.sequence import Sequence
from selpe.models.engine.vocabulary import Vocabulary, places_of

# Prompt tokens computed in one turn: enough to fill the cores, few enough that writers are not kept waiting long.
CHUNK = 512

# A turn of so many rows takes hardly longer than one of two, as both read all weights once. When fewer sequences are
# left than that, the places beside them are filled with guesses at what they will write.
FREE_ROWS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of one sequence: compute `tokens`, which follow `past` others that lie in `table`'s blocks.

    Several pieces of a sequence may be in one turn, in order: each sees the tokens of those before it. A `guess` is a
    token that the sequence has not written yet.
    """

    owner: Sequence
    tokens: list[int]
    past: int
    table: list[int]
    sampled: bool
    guess: bool = False


class Backend(Protocol):
    """What computes: KV blocks and a model over them."""

    @property
    def blocks(self) -> int:
        """How many KV blocks there are."""

    @property
    def block_size(self) -> int:
        """How many tokens a block holds."""

    def run(self, work: SequenceOf[Work], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        """The logits after the last token of each sampled piece of work, in order; calls `meanwhile` once."""

    def copy(self, source: int, target: int) -> None:
        """Copies one block's contents into another."""

    def close(self) -> None:
        """Frees the memory."""


class Scheduler:
    """A back end, its memory and its tokenizer, serving one stream of requests at a time."""

    def __init__(
        self,
        backend: Backend,
        vocabulary: Vocabulary,
        *,
        parallel: int,
        context_length: int,
        chunk: int = CHUNK,
    ) -> None:
        self.backend = backend
        self.vocabulary = vocabulary
        self.pool = BlockPool(backend.blocks, backend.block_size)
        self.context_length = min(context_length, backend.blocks * backend.block_size)
        self.parallel = parallel
        # With less than three, a prompt of three tokens could not be split without leaving one alone.
        self.chunk = max(chunk, 3)
        self.grammars = Grammars(vocabulary)
        self.read = self.written = 0  # tokens computed so far
        self.guards = CopyGuards(vocabulary)

    def serve(
        self, requests: Iterable[Request], follow: Follow | None, cancel: threading.Event | None
    ) -> Iterator[Answer]:
        """Answers as they finish. Closing the iterator gives all blocks back."""
        stream = _Stream(self, iter(requests))
        try:
            while cancel is None or not cancel.is_set():
                answers = stream.turn()
                if answers is None:
                    return
                for answer in answers:
                    if follow is not None:
                        stream.followers.extend(follow(answer))
                    yield answer
            yield from stream.abandon()
        finally:
            stream.release()


class _Stream:
    """The requests of one call: those that run, those that wait, and those not asked for yet."""

    def __init__(self, scheduler: Scheduler, source: Iterator[Request]) -> None:
        self.followers: deque[Request] = deque()
        self._scheduler = scheduler
        self._pool = scheduler.pool
        self._backend = scheduler.backend
        self._source = source
        self._running: list[Sequence] = []
        self._head: Sequence | None = None  # taken up, but there is no room for it yet
        width = -(-len(scheduler.vocabulary.pieces) // 32) * 4
        self._masks = np.zeros((max(scheduler.parallel, FREE_ROWS), width), np.uint8)

    def turn(self) -> list[Answer] | None:
        """The answers that one turn of the loop has finished; None when everything has been answered."""
        answers = self._admit()
        if not self._running:
            return answers or None
        work = self._plan()
        sampled = [item for item in work if item.sampled]
        logits = self._backend.run(work, lambda: self._prepare_masks(sampled))
        for item in work:
            self._note_computed(item)
        for index, item in enumerate(sampled):
            if item.guess and not self._came_true(item, index):
                continue
            answer = self._advance(item.owner, logits[index], index)
            if answer is not None:
                answers.append(answer)
        self._running = [sequence for sequence in self._running if sequence.lease is not None]
        return answers

    def abandon(self) -> Iterator[Answer]:
        """Cancelled answers for all that has been taken up and not been answered."""
        waiting = [self._head] if self._head is not None else []
        for sequence in [*self._running, *waiting]:
            yield self._retire(sequence)
        self._running, self._head = [], None
        while self.followers:
            yield Answer(self.followers.popleft(), "", "cancelled")

    def release(self) -> None:
        """Gives back the blocks of everything that still runs."""
        for sequence in self._running:
            self._retire(sequence)
        self._running = []

    def _admit(self) -> list[Answer]:
        """Starts requests while there is room; returns answers to those that need no computing or cannot start."""
        answers: list[Answer] = []
        limit = self._scheduler.parallel
        while len(self._running) < limit and len(answers) < limit:
            taken = self._next()
            if taken is None:
                break
            if isinstance(taken, Answer):
                answers.append(taken)
            elif taken.finish is not None:
                answers.append(taken.answer())
            elif not self._start(taken):
                self._head = taken
                break
        return answers

    def _next(self) -> Sequence | Answer | None:
        if self._head is not None:
            head, self._head = self._head, None
            return head
        request = self.followers.popleft() if self.followers else next(self._source, None)
        return None if request is None else self._take_up(request)

    def _take_up(self, request: Request) -> Sequence | Answer:
        scheduler = self._scheduler
        prompt: list[int] = []
        try:
            prompt = scheduler.vocabulary.prompt(request)
            room = scheduler.context_length - len(prompt)
            if room < 1:
                raise PromptTooLongError(
                    f"the prompt has {len(prompt)} tokens; at most {scheduler.context_length - 1} fit",
                    hint="Shorten the prompt, use fewer examples, or choose a model with a longer context.",
                )
            guide = scheduler.grammars.guide(request)
            limit = min(max(request.max_tokens, 1), room)
            copies = scheduler.guards.against(request.unlike)
            own = places_of(request.own, prompt, scheduler.vocabulary.names)
            return Sequence(request, prompt, guide, scheduler.vocabulary.pieces, limit=limit, copies=copies, own=own)
        except ModelError as error:
            return Answer(request, "", "error", prompt_tokens=len(prompt), error=error)
        except ValueError as error:
            return Answer(request, "", "error", prompt_tokens=len(prompt), error=ModelError(str(error)))

    def _start(self, sequence: Sequence) -> bool:
        reuse = max(sequence.given - 2, 0)
        if reuse and self._soon_known(sequence.identity[:reuse]):
            return False
        # Of a prompt no token is computed alone, so what is shared does not end one before those of the model's own.
        lease = self._pool.open(sequence.identity, total=sequence.reach, reuse=reuse, never=sequence.own.start - 1)
        if lease is None:
            return False
        if lease.copy is not None:
            self._backend.copy(*lease.copy)
        sequence.begin(lease)
        self._running.append(sequence)
        return True

    def _soon_known(self, tokens: list[int]) -> bool:
        """True when a running prompt is about to compute a block that this one could share."""
        least = self._pool.known(tokens) + self._pool.block_size
        return least <= len(tokens) and any(
            other.computed < least <= other.given and tokens[:least] == other.identity[:least]
            for other in self._running
        )

    def _plan(self) -> list[Work]:
        budget = self._scheduler.chunk
        work = []
        for sequence in self._running:
            table, whole = sequence.leased.table, len(sequence.tokens)
            for start, end in sequence.pieces(budget):
                self._pool.grow(sequence.leased, end)
                work.append(Work(sequence, sequence.tokens[start:end], start, table, end == whole))
                budget -= end - start if start < sequence.given else 0
        share = (FREE_ROWS - sum(len(item.tokens) for item in work)) // len(self._running)
        return work if share < 1 else [piece for item in work for piece in (item, *self._guesses(item, share))]

    def _guesses(self, item: Work, most: int) -> list[Work]:
        """Pieces behind a sequence's newest token that compute what it may write next.

        Rows of a single token are the same whatever else is computed, so a guess that comes true saves a turn and
        changes no bit. What a wrong one leaves in the blocks is overwritten before anything reads it.
        """
        if not item.sampled:
            return []
        sequence, end = item.owner, len(item.owner.tokens)
        guessed = sequence.guess(most)
        self._pool.grow(sequence.leased, end + len(guessed))
        return [Work(sequence, [token], end + i, item.table, True, guess=True) for i, token in enumerate(guessed)]

    def _prepare_masks(self, sampled: list[Work]) -> None:
        for item, mask in zip(sampled, self._masks, strict=False):
            if item.owner.guide is not None and not item.guess:
                item.owner.guide.write_mask(mask)

    def _note_computed(self, item: Work) -> None:
        if item.guess:
            return
        sequence = item.owner
        sequence.computed += len(item.tokens)
        if item.past < sequence.given:
            self._scheduler.read += len(item.tokens)
        else:
            self._scheduler.written += len(item.tokens)
        if item.past < sequence.given and sequence.lease is not None:
            self._pool.remember(sequence.lease, sequence.identity, min(sequence.computed, sequence.given))

    def _came_true(self, item: Work, index: int) -> bool:
        """True when a guess is what the sequence has written, and its logits tell what comes next."""
        sequence, behind = item.owner, item.past + 1
        if (
            sequence.lease is None
            or sequence.computed != item.past
            or sequence.tokens[item.past : behind] != item.tokens
        ):
            return False
        sequence.computed = behind
        if len(sequence.tokens) > behind:
            return False  # the grammar has gone on by itself
        if sequence.guide is not None:
            sequence.guide.write_mask(self._masks[index])
        return True

    def _advance(self, sequence: Sequence, row: NDArray[np.float32], index: int) -> Answer | None:
        """Chooses the next token of a sequence; returns its answer when that ends it."""
        mask = self._masks[index] if sequence.guide is not None else None
        try:
            token = choose(sequence.fresh(row), sequence.taste, sequence.draw(), mask)
            sequence.accept(token, self._scheduler.vocabulary.ends)
        except ModelError as error:
            return self._retire(sequence, error)
        return self._retire(sequence) if sequence.finish is not None else None

    def _retire(self, sequence: Sequence, error: ModelError | None = None) -> Answer:
        lease, sequence.lease = sequence.lease, None
        if lease is not None:
            if sequence.guide is None and sequence.finish is not None and sequence.computed > sequence.given:
                # A free text may be gone on from: its own tokens are kept as long as there is room.
                self._pool.remember(lease, sequence.identity, sequence.computed)
            self._pool.close(lease)
        return sequence.answer(error)
