"""The answers of the chunk that is being written: a kill loses none of them, and they do not pile up.

A run's own store keeps every answer for ever, by a hash of the whole request. For millions of records that would be
gigabytes which nobody asks for again once their chunk is a part. Here a store is begun anew with every chunk, with
keys that are quicker to make.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from selpe.models.answers import AnswerStore
from selpe.models.base import Answer, Request


class ChunkAnswers:
    """Answers (models/answers.py) of one chunk at a time: `begin` one, and `end` it when its part is kept."""

    def __init__(self) -> None:
        self._store: AnswerStore | None = None

    def begin(self, path: Path) -> None:
        """Takes up the chunk of this file: what it answered before it was cut off is found again."""
        self._store = AnswerStore(path, key=_key_in_chunk)

    def end(self) -> None:
        """Forgets the chunk, on disk too."""
        if (store := self._store) is not None:
            self.close()
            store.path.unlink(missing_ok=True)

    def get(self, model: str, request: Request) -> Answer | None:
        """The answer that the chunk has, or None."""
        return None if self._store is None else self._store.get(model, request)

    def put(self, model: str, answer: Answer) -> None:
        """Keeps a finished answer, each once."""
        if self._store is not None:
            self._store.put(model, answer)

    def sync(self) -> None:
        """Returns once the answers are on the disk."""
        if self._store is not None:
            self._store.sync()

    def close(self) -> None:
        """Closes the file; the chunk can be taken up again."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _key_in_chunk(model: str, request: Request) -> bytes:
    """The request within its chunk, which one model writes: its place, its seed, and a checksum of its prompt."""
    prompt = request.prompt or "\n".join(message.content for message in request.messages)
    return f"{request.place}:{request.seed}:{zlib.crc32(prompt.encode('utf-8', 'surrogatepass')):08x}".encode()
