"""Workers in threads of this process that can be killed, and engines to put on them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from selpe.errors import ModelError
from selpe.execute.worker import Order, Worker
from selpe.execute.workers import Crew, WorkerLostError
from selpe.models.base import Answer, Capabilities, Request
from selpe.models.fake import FakeModel

HERE = "crew_world"


def no_one(_: object) -> bool:
    return False


class ThreadHands:
    """Hands whose workers live in one event loop. What is `fatal` kills its worker, with all that it holds."""

    def __init__(self, order: Order, workers: int, *, fatal: Callable[[object], bool] = no_one) -> None:
        self.order = order
        self.fatal = fatal
        self.away = 0  # how often a worker is not back yet when it is asked
        self.sent: list[tuple[int, str, tuple[object, ...]]] = []
        self.restarted: list[int] = []
        self.dismissed: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._workers = [Worker(order) for _ in range(workers)]
        self._open: list[list[Future[Any]]] = [[] for _ in range(workers)]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def send(self, worker: int, method: str, *arguments: object) -> Future[Any]:
        self.sent.append((worker, method, arguments))
        outer: Future[Any] = Future()
        if method == "describe" and self.away:
            self.away -= 1
            outer.set_exception(WorkerLostError("on its way", away=True))
            return outer
        self._open[worker].append(outer)
        if any(map(self.fatal, arguments)):
            self.kill(worker)
            return outer

        async def call() -> None:
            outcome = await getattr(self._workers[worker], method)(*arguments)
            with suppress(InvalidStateError):
                outer.set_result(outcome)

        asyncio.run_coroutine_threadsafe(call(), self._loop)
        return outer

    def kill(self, worker: int) -> None:
        """Takes a worker's life; a new one stands in its place at once."""
        self._workers[worker] = Worker(self.order)
        lost, self._open[worker] = self._open[worker], []
        for future in lost:
            with suppress(InvalidStateError):
                future.set_exception(WorkerLostError("killed by the test"))

    def restart(self, worker: int) -> None:
        self.restarted.append(worker)
        self.kill(worker)

    def dismiss(self, worker: int) -> None:
        self.dismissed.append(worker)
        self.kill(worker)

    def close(self) -> None:
        async def leave() -> None:
            here = asyncio.current_task()
            for task in asyncio.all_tasks():
                if task is not here:
                    task.cancel()
            self._loop.call_soon(self._loop.stop)

        asyncio.run_coroutine_threadsafe(leave(), self._loop)
        self._thread.join()
        self._loop.close()

    def served(self) -> Counter[str]:
        """How often each prompt was sent."""
        return Counter(one.prompt for _, _, given in self.sent for one in given if isinstance(one, Request))


def crew_of(hands: ThreadHands, workers: int, **settings: Any) -> Crew:
    return Crew(hands, workers, **settings)


def prompts(count: int, word: str = "p") -> list[Request]:
    return [Request(prompt=f"{word} {i}", seed=i, key=str(i)) for i in range(count)]


# -- engines, by name in an order's `maker` --------------------------------------------------------------------------


def quick(llm: str, **_: object) -> FakeModel:
    return FakeModel()


def slow(llm: str, **_: object) -> FakeModel:
    """A model that sleeps for as many seconds as its name says."""
    return FakeModel(seconds_per_answer=float(llm))


GATE = threading.Event()


class Gated(FakeModel):
    """A model that answers nothing until the gate is opened."""

    def _answer(self, request: Request) -> Answer:
        GATE.wait(60)
        return super()._answer(request)


def gated(llm: str, **_: object) -> FakeModel:
    return Gated()


class Fatal(FakeModel):
    """A model whose process ends at a prompt with the word in it: for workers that are processes."""

    WORD = "POISON"

    def _answer(self, request: Request) -> Answer:
        text = request.prompt or request.messages[0].content
        if self.WORD in text:
            os._exit(1)
        return super()._answer(request)


def fatal(llm: str, **_: object) -> FakeModel:
    return Fatal(seconds_per_answer=0.002)


class Doomed(FakeModel):
    """A model that fails as a whole, as one does whose servers are all gone."""

    def generate(self, requests: Any, **settings: Any) -> Any:
        next(iter(requests))
        raise ModelError("no endpoint is working", hint="bring the server back", retryable=True)


def doomed(llm: str, **_: object) -> FakeModel:
    return Doomed()


def missing(llm: str, **_: object) -> FakeModel:
    raise ModelError("there is no such model here", hint="pull it")


class Deaf(FakeModel):
    """A model that never answers."""

    def capabilities(self) -> Capabilities:
        return Capabilities(parallel=2)

    def generate(self, requests: Any, **settings: Any) -> Any:
        threading.Event().wait(60)
        yield from ()


def deaf(llm: str, **_: object) -> FakeModel:
    return Deaf()
