"""Model answers that cells share, and how long answers take that were not there yet.

Cells of one data set, seed and model ask for much the same candidates: the prior does not depend on ε, nor on most
settings. Each answer is generated once and kept. The time that a cell would have taken alone is told by the speed at
which new answers came.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from selpe.llm.base import Answer, Capabilities, ChatModel, Follow, Request
from selpe.llm.blobs import read_json, write_json
from selpe.llm.remembering import AnswerStore, RememberingModel

_MOST_WRITERS = 100


class Timed:
    """A ChatModel that counts the tokens it wrote and the seconds they took."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.tokens = 0
        self.seconds = 0.0

    @property
    def name(self) -> str:
        """The name of the model behind."""
        return self._model.name

    def capabilities(self) -> Capabilities:
        """What the model behind can do."""
        return self._model.capabilities()

    def count_tokens(self, text: str) -> int:
        """As the model behind counts."""
        return self._model.count_tokens(text)

    def close(self) -> None:
        """The model behind is closed by whoever opened it."""

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


class SharedAnswers:
    """The answers of one model for one split, on disk; opened once per process and closed at the end.

    A store has one writer. Another process that works on the same experiment keeps a store of its own.
    """

    def __init__(self, folder: Path, name: str, model: ChatModel) -> None:
        from filelock import FileLock, Timeout

        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MOST_WRITERS):
            path = folder / (f"{name}.jsonl" if number == 1 else f"{name}.{number}.jsonl")
            self._lock = FileLock(path.with_suffix(".lock"))
            try:
                self._lock.acquire(timeout=0)
                break
            except Timeout:
                continue
        self._speed = path.with_suffix(".speed.json")
        self._store = AnswerStore(path)
        self.timed = Timed(model)
        self.model: ChatModel = RememberingModel(self.timed, self._store)
        known = read_json(self._speed) or {}
        self._before = (int(known.get("tokens", 0)), float(known.get("seconds", 0.0)))

    @property
    def tokens_per_second(self) -> float | None:
        """How fast new answers came so far, earlier processes included; None where none came."""
        tokens, seconds = self._totals()
        return tokens / seconds if tokens and seconds else None

    def save(self) -> None:
        """Keeps the speed for later processes."""
        tokens, seconds = self._totals()
        write_json(self._speed, {"tokens": tokens, "seconds": round(seconds, 3)})

    def close(self) -> None:
        """Closes the store; the model stays open."""
        self.save()
        self._store.close()
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
