"""What runs on a node: an engine that is fed one request at a time, and an encoder for public text.

Nothing here knows of Ray. A worker opens its engine at first need, so that one that was lost and begun again needs
nothing but its order. What goes wrong comes back as a value: an error of one request within its reply, an error of the
engine as a whole as `Broken`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from selpe.errors import ModelError, SelPEError
from selpe.models.base import Answer, Capabilities, ChatModel, Finish, Request
from selpe.version import __version__

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from selpe.models.encoders.base import Encoder

log = logging.getLogger(__name__)

MAKER = "selpe.models.open:open_model"
_LINGER = 0.02  # seconds that a stream which has just begun waits for more to begin with


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is to be: a model and an encoder as written in the settings, and how many threads they may use.

    `maker` names the function that opens the model, by module and name: code does not travel, it is installed there.
    """

    llm: str
    encoder: str = ""
    threads: int | None = None
    maker: str = MAKER


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker reports about itself once its engine is open."""

    version: str
    model: str
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer without its request, which the asker has."""

    text: str
    finish: Finish
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    error: ModelError | None = None
    forced_tokens: int = 0

    @classmethod
    def of(cls, answer: Answer) -> Reply:
        """The reply that carries an answer."""
        return cls(
            answer.text, answer.finish, answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens,
            answer.seconds, answer.error, answer.forced_tokens,
        )  # fmt: skip

    def to(self, request: Request) -> Answer:
        """The answer that it was."""
        return Answer(
            request, self.text, self.finish, self.prompt_tokens, self.cached_tokens, self.completion_tokens,
            self.seconds, self.error, forced_tokens=self.forced_tokens,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vectors of public texts, and the name of the encoder that they are from."""

    encoder: str
    vectors: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Broken:
    """An engine that failed as a whole; it is opened again when it is next needed."""

    error: ModelError


class Serving:
    """An engine in a thread of its own that takes requests as they come and keeps its batch full.

    A stream begins with what has arrived. While it runs, what arrives joins it whenever an answer leaves, by way of
    `follow`: so any ChatModel can be fed, and none waits for its source.
    """

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self._arrived: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._open: dict[str, Future[Reply]] = {}
        self._changing = threading.Lock()
        self._count = 0
        self._cancel = threading.Event()
        self._failed: ModelError | None = None
        self._thread = threading.Thread(target=self._work, name="selpe-serving", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Reply]:
        """The reply to come. It fails with ModelError where the engine as a whole did."""
        future: Future[Reply] = Future()
        with self._changing:
            if self._failed is not None:
                future.set_exception(self._failed)
                return future
            self._count += 1
            key = str(self._count)
            self._open[key] = future
            self._arrived.put(replace(request, key=key))
        return future

    def stop(self) -> None:
        """Cuts short all that is under way: it comes back as cancelled."""
        for request in self._drained():
            self._settle(Answer(request, "", "cancelled"))
        self._cancel.set()

    def close(self) -> None:
        """Ends the thread after what is under way, and closes the model."""
        self.stop()
        self._arrived.put(None)
        self._thread.join(timeout=10)
        self.model.close()

    def _work(self) -> None:
        while (first := self._arrived.get()) is not None:
            self._cancel = threading.Event()
            try:
                stream = self.model.generate(self._opening(first), follow=self._joining, cancel=self._cancel)
                for answer in stream:
                    self._settle(answer)
            except Exception as problem:
                self._fail(problem)
                return
            self._fail_unanswered()

    def _opening(self, first: Request) -> Iterator[Request]:
        yield first
        while True:
            try:
                request = self._arrived.get(timeout=_LINGER)
            except queue.Empty:
                return
            if request is None or self._cancel.is_set():
                self._arrived.put(request)
                return
            yield request

    def _joining(self, answer: Answer) -> Iterable[Request]:
        # What arrives after a stop was not meant by it: it begins the next stream.
        return () if self._cancel.is_set() else self._drained()

    def _drained(self) -> list[Request]:
        found: list[Request] = []
        while True:
            try:
                request = self._arrived.get_nowait()
            except queue.Empty:
                return found
            if request is None:
                self._arrived.put(None)
                return found
            found.append(request)

    def _settle(self, answer: Answer) -> None:
        with self._changing:
            future = self._open.pop(answer.request.key, None)
        if future is not None:
            with suppress(InvalidStateError):  # nobody waits for it any more
                future.set_result(Reply.of(answer))

    def _fail(self, problem: Exception) -> None:
        error = (
            problem
            if isinstance(problem, ModelError)
            # Of a foreign error its kind alone: nobody knows what its message quotes.
            else ModelError(f"the engine failed with {type(problem).__name__}", retryable=True)
        )
        with self._changing:
            self._failed = error
            lost, self._open = list(self._open.values()), {}
        _refuse(lost, error)

    def _fail_unanswered(self) -> None:
        """An engine must answer everything; what it forgot must not be waited for."""
        with self._changing:
            if not self._arrived.empty():
                return  # what is open may be waiting still; the next stream will tell
            forgotten, self._open = list(self._open.values()), {}
        _refuse(forgotten, ModelError("the engine gave no answer", retryable=True))


class Worker:
    """One worker: methods for remote calls, many at a time."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._serving: Serving | None = None
        self._encoder: Encoder | None = None
        self._opening = asyncio.Lock()
        self._encoding = asyncio.Lock()

    async def describe(self) -> Facts | Broken:
        """What this worker is; opens the engine."""
        try:
            model = (await self._served()).model
            return Facts(__version__, model.name, await asyncio.to_thread(model.capabilities))
        except Exception as problem:
            return _broken(problem)

    async def answer(self, request: Request) -> Reply | Broken:
        """The engine's answer to one request."""
        serving = None
        try:
            serving = await self._served()
            return await asyncio.wrap_future(serving.submit(request))
        except Exception as problem:
            if serving is not None and serving is self._serving:
                self._serving = None  # it is opened again when it is next needed
                with suppress(Exception):
                    await asyncio.to_thread(serving.model.close)
            return _broken(problem)

    async def encode(self, texts: Sequence[str]) -> Encoded | Broken:
        """Vectors of public texts. Private text must never be sent here."""
        try:
            async with self._encoding:
                if self._encoder is None:
                    self._encoder = await asyncio.to_thread(_open_encoder, self._order)
                return Encoded(self._encoder.name, await asyncio.to_thread(self._encoder.encode, list(texts)))
        except Exception as problem:
            return _broken(problem)

    async def count(self, text: str) -> int | Broken:
        """The number of tokens of a public text."""
        try:
            return await asyncio.to_thread((await self._served()).model.count_tokens, text)
        except Exception as problem:
            return _broken(problem)

    async def stop(self) -> None:
        """Cuts short what is under way."""
        if self._serving is not None:
            self._serving.stop()

    async def _served(self) -> Serving:
        async with self._opening:
            if self._serving is None:
                self._serving = Serving(await asyncio.to_thread(_open_model, self._order))
            return self._serving


def _refuse(futures: Iterable[Future[Reply]], error: ModelError) -> None:
    for future in futures:
        with suppress(InvalidStateError):
            future.set_exception(error)


def _open_model(order: Order) -> ChatModel:
    module, _, name = order.maker.partition(":")
    maker: Callable[..., ChatModel] = getattr(import_module(module), name)
    return maker(order.llm, **_threads(order))


def _open_encoder(order: Order) -> Encoder:
    from selpe.models.open import open_encoder
    from selpe.models.store.registry import DEFAULT_ENCODER

    threads: dict[str, Any] = {"threads": order.threads} if order.encoder == DEFAULT_ENCODER and order.threads else {}
    return open_encoder(order.encoder, **threads)


def _threads(order: Order) -> dict[str, Any]:
    """Engines that compute on the processor keep to their share of it; the others are not asked."""
    from selpe.models.open import LLAMACPP
    from selpe.models.store.registry import REGISTRY

    computes = order.llm in REGISTRY or order.llm.endswith(".gguf") or order.llm.startswith(LLAMACPP)
    return {"threads": order.threads} if computes and order.threads else {}


def _broken(problem: Exception) -> Broken:
    if isinstance(problem, ModelError):
        return Broken(problem)
    if isinstance(problem, SelPEError):
        return Broken(ModelError(problem.message, hint=problem.hint, where=problem.where))
    if isinstance(problem, ImportError):
        return Broken(
            ModelError(
                f"a package is missing on the node ({problem.name})", hint="install the same extras on all nodes"
            )
        )
    return Broken(ModelError(f"the engine failed with {type(problem).__name__}", retryable=True))
