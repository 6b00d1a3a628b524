"""The answers of the chunk that is being written: a kill loses less than a second of them, and they do not pile up.

A run's own store keeps every answer for ever, by a hash of the whole request. For millions of records that would be
gigabytes which nobody asks for again once their chunk is a part. Here the file is begun anew with every chunk.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from typing import IO

from selpe.models.base import Answer, Finish, Request
from selpe.owner_only import open_bytes

_PERIOD = 0.5  # seconds between writes to the disk


class ChunkAnswers:
    """Answers (models/answers.py) of one chunk at a time: `begin` one, and `end` it when its part is kept."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._found: dict[str, tuple[str, str, int, int]] = {}
        self._kept: set[str] = set()
        self._written = 0.0

    def begin(self, path: Path) -> None:
        """Takes up the chunk of this file: what it answered before it was cut off is found again."""
        self._path = path
        self._found = dict(_read(path))
        self._kept = set(self._found)
        self._file = open_bytes(path, "ab")

    def end(self) -> None:
        """Forgets the chunk, on disk too."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._found, self._kept, self._path = {}, set(), None

    def get(self, model: str, request: Request) -> Answer | None:
        """The answer from before the cut, or None."""
        found = self._found.get(_key(request)) if self._found else None
        if found is None:
            return None
        text, finish, prompt, completion = found
        ended: Finish = "length" if finish == "length" else "stop"
        return Answer(request, text, ended, prompt_tokens=prompt, completion_tokens=completion, replayed=True)

    def put(self, model: str, answer: Answer) -> None:
        """Keeps a finished answer, each once."""
        key = _key(answer.request)
        if self._file is None or answer.finish not in ("stop", "length") or key in self._kept:
            return
        self._kept.add(key)
        line = [key, answer.text, answer.finish, answer.prompt_tokens, answer.completion_tokens]
        self._file.write(json.dumps(line).encode() + b"\n")
        if time.monotonic() - self._written > _PERIOD:
            self._file.flush()
            self._written = time.monotonic()

    def sync(self) -> None:
        """Returns once the answers are on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; the chunk can be taken up again."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _read(path: Path) -> list[tuple[str, tuple[str, str, int, int]]]:
    """The whole lines of a file that may have been cut off; the rest of it is cut off too."""
    found: list[tuple[str, tuple[str, str, int, int]]] = []
    end = 0
    if not path.exists():
        return found
    with path.open("rb+") as file:
        for raw in file:
            try:
                key, text, finish, prompt, completion = json.loads(raw)
            except (ValueError, TypeError):
                break
            if not raw.endswith(b"\n"):
                break
            found.append((key, (text, finish, prompt, completion)))
            end += len(raw)
        file.truncate(end)
    return found


def _key(request: Request) -> str:
    """The request within its chunk: its place, its seed, and a checksum of its prompt."""
    prompt = request.prompt or "\n".join(message.content for message in request.messages)
    return f"{request.key}:{request.seed}:{zlib.crc32(prompt.encode('utf-8', 'surrogatepass')):08x}"
