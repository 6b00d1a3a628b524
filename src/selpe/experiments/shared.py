"""Model answers that cells share, with their vectors, and how long it takes to make those that were not there yet.

Cells of one data set, seed and model ask for much the same candidates: the prior does not depend on ε, nor on most
settings. Each answer is generated once, encoded once and kept. The time that a cell would take alone follows from the
measured speed of new ones.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.embedding import Remembering
from selpe.models.answers import AnswerStore, InFront, RememberingModel
from selpe.models.base import Answer, ChatModel, Follow, Request
from selpe.models.encoders.base import Encoder
from selpe.models.encoders.vectors import RememberingEncoder, VectorStore
from selpe.models.store.blobs import read_json, write_json
from selpe.owner_only import FILE_MODE, make_folder, write_bytes

_MOST_WRITERS = 100


class Timed(InFront):
    """A ChatModel that counts the tokens it wrote and the seconds they took."""

    def __init__(self, model: ChatModel) -> None:
        super().__init__(model)
        self.tokens = 0
        self.seconds = 0.0

    def close(self) -> None:
        """Does nothing: the model behind is closed where it was opened."""

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        """The answers of the model behind."""
        began = time.monotonic()
        for answer in self._model.generate(requests, follow=follow, cancel=cancel):
            self.seconds += time.monotonic() - began
            self.tokens += answer.completion_tokens
            yield answer
            began = time.monotonic()  # what the caller did meanwhile is not the model's time
        self.seconds += time.monotonic() - began


class TimedEncoder(Remembering):
    """An encoder that keeps vectors in memory, counts texts, and times the new ones.

    All runs of a split encode the same real rows, each several times. They are benchmark data, which this process reads
    anyway; nothing of them is written.
    """

    def __init__(self, encoder: Encoder, *, texts: int = 0, seconds: float = 0.0) -> None:
        super().__init__(encoder)
        self.texts, self.seconds = texts, seconds  # of new ones
        self.known = 0

    def fresh(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of texts that are new."""
        began = time.monotonic()
        found = super().fresh(texts)
        self.texts, self.seconds = self.texts + len(texts), self.seconds + time.monotonic() - began
        return found

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text, in order."""
        before = self.texts
        found = super().encode(texts)
        self.known += len(texts) - (self.texts - before)
        return found

    @property
    def pace(self) -> float:
        """The seconds that a new text took."""
        return self.seconds / self.texts if self.texts else 0.0


class SharedVectors:
    """A PublicEncoder for runs: vectors of what models wrote, on disk."""

    def __init__(self, path: Path, encoder: Encoder, *, texts: int = 0, seconds: float = 0.0) -> None:
        self._store = VectorStore(path)
        self.timed = TimedEncoder(encoder, texts=texts, seconds=seconds)
        self._remembering = RememberingEncoder(self.timed, self._store)

    def encode_public(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text, in order."""
        before = self.timed.texts
        found = self._remembering.encode_public(texts)
        self.timed.known += len(set(texts)) - (self.timed.texts - before)
        return found

    def close(self) -> None:
        """Closes the store."""
        self._store.close()


class SharedAnswers:
    """The answers of one model for one split, on disk; opened once per process and closed at the end.

    A store has one writer. Another process that works on the same experiment keeps a store of its own, which begins
    with what the first one has by then.
    """

    def __init__(self, folder: Path, name: str, model: ChatModel, encoder: Encoder) -> None:
        from filelock import FileLock, Timeout

        make_folder(folder)
        for number in range(1, _MOST_WRITERS):
            path = folder / (f"{name}.jsonl" if number == 1 else f"{name}.{number}.jsonl")
            self._lock = FileLock(path.with_suffix(".lock"), mode=FILE_MODE)
            try:
                self._lock.acquire(timeout=0)
                break
            except Timeout:
                continue
        first = folder / f"{name}.jsonl"
        if path != first and not path.exists():
            known = first.read_bytes()
            write_bytes(path, known[: known.rfind(b"\n") + 1])  # the last line may be half written
        self._speed = path.with_suffix(".speed.json")
        self._store = AnswerStore(path)
        self.timed = Timed(model)
        self.model: ChatModel = RememberingModel(self.timed, self._store)
        speeds = read_json(self._speed) or {}
        self._before = (int(speeds.get("tokens", 0)), float(speeds.get("seconds", 0.0)))
        self.vectors = SharedVectors(
            path.with_suffix(f".{slug(encoder.name)}.sqlite"),
            encoder,
            texts=int(speeds.get("texts", 0)),
            seconds=float(speeds.get("encoding", 0.0)),
        )

    @property
    def tokens_per_second(self) -> float | None:
        """How fast new answers came so far, earlier processes included; None where none came."""
        tokens, seconds = self._totals()
        return tokens / seconds if tokens and seconds else None

    def save(self) -> None:
        """Keeps the speed for later processes."""
        tokens, seconds = self._totals()
        encoded = {"texts": self.vectors.timed.texts, "encoding": round(self.vectors.timed.seconds, 3)}
        write_json(self._speed, {"tokens": tokens, "seconds": round(seconds, 3), **encoded})

    def close(self) -> None:
        """Closes the store; the model stays open."""
        self.save()
        self._store.close()
        self.vectors.close()
        self._lock.release()

    def _totals(self) -> tuple[int, float]:
        return self._before[0] + self.timed.tokens, self._before[1] + self.timed.seconds


def speed_of(folder: Path, llm: str) -> float | None:
    """The speed of a model over all its stores in a folder, for an estimate."""
    tokens, seconds = 0, 0.0
    for path in folder.glob(f"*-{slug(llm)}*.speed.json"):
        try:
            known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            tokens, seconds = tokens + int(known["tokens"]), seconds + float(known["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tokens / seconds if tokens and seconds else None


def slug(llm: str) -> str:
    """A model's name as part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in llm)[-60:]
