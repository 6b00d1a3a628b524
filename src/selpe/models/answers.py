"""A model that remembers: every finished answer is on disk by the hash of its request, and is never generated again.

This is what makes a run resumable. A run that was killed is simply run again; the model's answers come from the
file, and the algorithm, being a function of answers, settings and stored selections, ends where it would have.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

from selpe.lasting import sync_folder
from selpe.models.base import Answer, Capabilities, ChatModel, Follow, Request
from selpe.operating_system import refusal
from selpe.owner_only import make_folder, open_bytes


class Answers(Protocol):
    """Where finished answers are kept and found again."""

    def get(self, model: str, request: Request) -> Answer | None:
        """The kept answer to this very request, or None."""

    def put(self, model: str, answer: Answer) -> None:
        """Keeps a finished answer."""

    def sync(self) -> None:
        """Returns once what was kept is on the disk."""

    def close(self) -> None:
        """Frees what is open."""


# Handles say nothing, and what the model wrote itself stands in the prompt.
_CONTENT = tuple(one.name for one in fields(Request) if one.name not in ("key", "place", "own"))


def key_of_content(model: str, request: Request) -> bytes:
    """The hash of a request without the caller's handles."""
    content: dict[str, Any] = {name: getattr(request, name) for name in _CONTENT}
    content["messages"] = [{"role": message.role, "content": message.content} for message in request.messages]
    text = json.dumps([model, content], sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).digest()


class AnswerStore:
    """Finished answers in one append-only file. Holds synthetic text only; private text never gets here.

    `key` says which requests are the same one: those to the same model with the same content.
    """

    def __init__(self, path: Path, key: Callable[[str, Request], bytes] = key_of_content) -> None:
        self.path = path
        self._key = key
        make_folder(path.parent)
        self._offsets: dict[bytes, int] = {}
        self._end = self._index()
        self._file = open_bytes(path, "ab")
        sync_folder(path.parent)  # answers that were voted on must not lose their file in a power cut
        self._reader = path.open("rb")

    def __len__(self) -> int:
        return len(self._offsets)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        self._reader.close()

    def get(self, model: str, request: Request) -> Answer | None:
        """The stored answer to this very request, or None."""
        offset = self._offsets.get(self._key(model, request))
        if offset is None:
            return None
        self._reader.seek(offset)
        line = _parsed(self._reader.readline())
        if line is None:
            return None
        return Answer(
            request,
            line["text"],
            line["finish"],
            prompt_tokens=line["prompt_tokens"],
            completion_tokens=line["completion_tokens"],
            replayed=True,
        )

    def put(self, model: str, answer: Answer) -> None:
        """Keeps a finished answer. Errors and cancelled answers are not kept: they may go well next time."""
        key = self._key(model, answer.request)
        if answer.finish not in ("stop", "length") or key in self._offsets:
            return
        line = {
            "key": key.hex(),
            "stage": answer.request.stage,  # for those who count raw outputs later
            "text": answer.text,
            "finish": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
        }
        raw = json.dumps(line).encode() + b"\n"
        self._append(raw)
        self._offsets[key] = self._end
        self._end += len(raw)

    def sync(self) -> None:
        """Returns once the answers are on the disk: then a pool that was voted on outlives a power cut."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise refusal(error, where=str(self.path)) from None

    def _append(self, raw: bytes) -> None:
        """One unbuffered write per answer: after a kill the file ends in whole lines, or in one torn line."""
        rest = memoryview(raw)
        try:
            while rest:  # a disk that is nearly full takes a part, and says so only at the next attempt
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._end)  # else the next answer would continue half a line
            raise refusal(error, where=str(self.path), hint="make room, and then go on: selpe resume") from None

    def _index(self) -> int:
        """Reads which answers are there; cuts a torn last line off. A spoilt line costs its own answer alone."""
        if not self.path.exists():
            return 0
        end = 0
        with self.path.open("rb+") as file:
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                if (line := _parsed(raw)) is not None:
                    self._offsets[bytes.fromhex(line["key"])] = end
                end += len(raw)
            file.truncate(end)
        return end


class InFront:
    """What is the same in every ChatModel that stands in front of another one."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

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


class RememberingModel(InFront):
    """A ChatModel in front of another one: known requests are answered from the store, new answers are kept."""

    def __init__(self, model: ChatModel, store: Answers) -> None:
        super().__init__(model)
        self._store = store
        self.replayed = 0

    def elsewhere(self, store: Answers) -> RememberingModel:
        """The same model in front of another store."""
        return RememberingModel(self._model, store)

    def close(self) -> None:
        """Closes the store and the model behind."""
        self._store.close()
        self._model.close()

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        """Answers as they come: stored ones at once, the others from the model, each kept before it is handed on."""
        known: deque[Answer] = deque()

        def unknown(request: Request) -> Iterator[Request]:
            """The request, or those that its stored answer leads to, as far as they have no answer yet."""
            answer = self._store.get(self.name, request)
            if answer is None:
                yield request
                return
            known.append(answer)
            for further in follow(answer) if follow is not None else ():
                yield from unknown(further)

        def keep_and_follow(answer: Answer) -> Iterable[Request]:
            self._store.put(self.name, answer)
            further = follow(answer) if follow is not None else ()
            return [request for one in further for request in unknown(one)]

        source = (request for one in requests for request in unknown(one))
        try:
            for answer in self._model.generate(source, follow=keep_and_follow, cancel=cancel):
                self._store.put(self.name, answer)  # a model may hand an answer on before it asks what follows
                yield from self._drained(known)
                yield answer
            yield from self._drained(known)
        finally:  # also where the caller has all that it needs, and closes the stream
            self._store.sync()

    def _drained(self, known: deque[Answer]) -> Iterator[Answer]:
        while known:
            self.replayed += 1
            yield known.popleft()


def _parsed(raw: bytes) -> dict[str, Any] | None:
    """The content of a stored line; None where it is not whole."""
    try:
        line = json.loads(raw)
        bytes.fromhex(line["key"])
        whole = isinstance(line["text"], str) and line["finish"] in ("stop", "length")
        counted = all(type(line[name]) is int for name in ("prompt_tokens", "completion_tokens"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return line if whole and counted else None
