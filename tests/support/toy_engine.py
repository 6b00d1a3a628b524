"""A back end without a model: KV blocks that hold the tokens themselves, and logits drawn from the whole context.

Whatever the scheduler gets wrong (a block shared that differs, a copy forgotten, a table out of order) changes the
context that is read back, and so the text.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from selpe.models.base import Answer, Capabilities, Follow, Request
from selpe.models.engine.sampling import Taste, choose, generator
from selpe.models.engine.schedule import Scheduler, Work

END = 256
UNWRITTEN = -1


class ToyVocabulary:
    """One token per byte, and one that ends."""

    def __init__(self) -> None:
        self.names: Sequence[bytes] = [bytes([i]) for i in range(256)] + [b"<end>"]
        self.pieces: Sequence[bytes] = [*self.names[:256], b""]
        self.special = frozenset({END})
        self.ends = (END,)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def prompt(self, request: Request) -> list[int]:
        text = request.prompt or "\n".join(turn.content for turn in request.messages)
        return self.encode(text + request.begun)


def logits_after(context: Sequence[int]) -> NDArray[np.float32]:
    """Lower-case letters, with the end a little less likely; a function of every token of the context."""
    digest = zlib.crc32(np.asarray(context, np.int32).tobytes())
    row = np.full(257, -50.0, np.float32)
    row[97:123] = np.random.Generator(np.random.Philox(key=digest)).normal(size=26)
    row[END] = row[97:123].max() - 2.5
    return row


class ToyBackend:
    """Memory that remembers what was computed into it."""

    name = "toy"

    def __init__(self, blocks: int = 64, block_size: int = 8) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self.memory = np.full((blocks, block_size), UNWRITTEN, np.int64)
        self.computed = 0
        self.turns: list[list[int]] = []
        self.widest = 0

    def run(self, work: Sequence[Work], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        assert work, "a turn without work"
        meanwhile()
        self.turns.append([len(item.tokens) for item in work])
        self.widest = max(self.widest, len({id(item.owner) for item in work}))
        for item in work:
            self.computed += len(item.tokens)
            for place, token in enumerate(item.tokens, start=item.past):
                self.memory[item.table[place // self.block_size], place % self.block_size] = token
        rows = [logits_after(self._context(item)) for item in work if item.sampled]
        return np.array(rows, np.float32).reshape(len(rows), 257)

    def copy(self, source: int, target: int) -> None:
        self.memory[target] = self.memory[source]

    def close(self) -> None:
        self.memory = self.memory[:0]

    def _context(self, item: Work) -> list[int]:
        length = item.past + len(item.tokens)
        context: list[int] = self.memory[item.table].reshape(-1)[:length].tolist()
        assert UNWRITTEN not in context, "the context has a hole"
        return context


def expected_text(request: Request, *, room: int = 10_000) -> str:
    """What the toy model writes when it is asked this request alone, without any cache."""
    context = ToyVocabulary().prompt(request)
    draws = generator(request.seed)
    taste = Taste(request.temperature, request.min_p, request.top_p)
    written: list[int] = []
    while len(written) < min(request.max_tokens, room):
        token = choose(logits_after([*context, *written]), taste, float(draws.random()))
        if token == END:
            break
        written.append(token)
    return bytes(written).decode()


class ToyModel:
    """A ChatModel on the toy back end: grammars, and steps where it is told that it can follow them."""

    name = "toy"

    def __init__(self, *, steps: bool, context: int = 4096) -> None:
        self._can = Capabilities(grammar=True, json_schema=True, seed=True, steps=steps, context_length=context)
        backend = ToyBackend(blocks=context, block_size=32)
        self._scheduler = Scheduler(backend, ToyVocabulary(), parallel=8, context_length=context)

    def capabilities(self) -> Capabilities:
        return self._can

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        yield from self._scheduler.serve(requests, follow, cancel)

    def count_tokens(self, text: str) -> int:
        return len(text.encode())

    def close(self) -> None:
        self._scheduler.backend.close()
