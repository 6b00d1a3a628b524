"""Models behind HTTP: any OpenAI-compatible server, or several of them, as one `ChatModel`.

Outside it is an ordinary iterator; inside, requests run concurrently in a loop of their own. Requests are pulled and
`follow` is called in the caller's thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import Any

from selpe.errors import ConfigError, ModelError
from selpe.models.base import Answer, Capabilities, Follow, Request
from selpe.models.http.background import BackgroundLoop
from selpe.models.http.conversation import Learnt, Speaker
from selpe.models.http.dialects import DROPPABLE, Constraint, Route, Said, Traits, constraint_of, route_of
from selpe.models.http.endpoint import Backoff, Breaker, Clock, Limit, WallClock
from selpe.models.http.faults import Fault
from selpe.models.http.fleet import Done, Endpoint, Fleet
from selpe.models.http.secret import Secret
from selpe.models.http.transport import Address, Timeouts, Transport

UNKNOWN_CONTEXT = 8192
_POLL = 0.05
_ROUTES: tuple[Route, ...] = ("chat", "completion")
_CONSTRAINTS: tuple[Constraint, ...] = ("schema", "grammar")
_COUNTS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """How one endpoint is doing, for reports and `doctor`."""

    host: str
    state: str
    parallel: int
    served: int
    seconds_per_token: float
    json_schema: bool | None
    dialects: Mapping[str, str]
    dropped: tuple[str, ...]
    noticed_unconstrained: int
    last_fault: str


class HttpModel:
    """A language model served over HTTP by one endpoint or by several that hold the same model.

    `learnt(address, facts)` is called with what is found out about a server; handing the same facts back as `known`
    in a later run saves the probes.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        model: str = "",
        *,
        key: Secret | None = None,
        timeouts: Timeouts | None = None,
        parallel: int = 64,
        max_in_flight: int = 512,
        attempts: int = 5,
        budget: float = 300.0,
        patience: float = 60.0,
        context_length: int = 0,
        max_body: int = 8 << 20,
        ca_file: str = "",
        known: Mapping[str, Mapping[str, Any]] | None = None,
        learnt: Learnt | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        addresses = [Address.parse(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not addresses:
            raise ConfigError("a model over HTTP must have at least one address")
        if len({a.base for a in addresses}) < len(addresses):
            raise ConfigError("each address of a model must be named once")
        self._addresses = addresses
        self._model = model
        self._context_length = context_length
        self._max_in_flight = max_in_flight
        self._parallel = parallel
        self._counts: dict[str, int] = {}
        self._loop = BackgroundLoop("selpe-http")
        self._speaker = Speaker(model, learnt)
        endpoints = []
        for address in addresses:
            transport = Transport(
                address,
                key=key,
                timeouts=timeouts,
                max_body=max_body,
                ca_file=ca_file,
                droppable=DROPPABLE,
            )
            traits = Traits()
            traits.recall((known or {}).get(address.base, {}))
            limit = Limit(ceiling=parallel)
            endpoints.append(Endpoint(transport, Breaker(patience=patience), limit, traits))
        self._fleet = Fleet(
            endpoints,
            clock or WallClock(),
            backoff or Backoff(),
            attempts=attempts,
            budget=budget,
            canary=self._speaker.greet,
        )

    def __repr__(self) -> str:
        return f"HttpModel({self.name!r})"

    def __reduce__(self) -> Any:
        raise TypeError("a model over HTTP cannot be pickled; build it anew from its settings")

    def __enter__(self) -> HttpModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The model's name and its hosts; stays the same across runs."""
        return f"{self._model or 'default'}@{','.join(sorted(a.host for a in self._addresses))}"

    def capabilities(self) -> Capabilities:
        """What the endpoints can do together, found out by asking each of them once.

        Raises ModelError where none can be asked: prompts are built on the answer, so it must not be a guess.
        """
        fault = self._loop.run(self._ask_around())
        traits = [e.traits for e in self._fleet.endpoints if e.traits.introduced]
        if not traits and fault is not None:
            raise fault.error()
        lengths = [t.context_length for t in traits if t.context_length]
        return Capabilities(
            grammar=any(_any_dialect(t, "grammar") for t in traits),
            json_schema=any(_any_dialect(t, "schema") for t in traits),
            seed=all("seed" not in t.dropped for t in traits),
            prefix_cache=any(t.reuses_prefix or t.owner in ("llamacpp", "vllm", "sglang") for t in traits),
            chat_template=any("chat" not in t.no_routes for t in traits),
            completion=any("completion" not in t.no_routes for t in traits),
            context_length=self._context_length or min(lengths, default=UNKNOWN_CONTEXT),
            parallel=min(self._parallel * len(self._fleet.endpoints), self._max_in_flight),
        )

    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """How each endpoint is doing at this moment."""
        return tuple(_status(endpoint) for endpoint in self._fleet.endpoints)

    def generate(
        self,
        requests: Iterable[Request],
        *,
        follow: Follow | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[Answer]:
        """Answers as they finish; see `ChatModel.generate`. Raises ModelError when every endpoint is dead."""
        stream = _RequestWindow(self._spawn, self._window, iter(requests), follow, cancel or threading.Event())
        try:
            yield from stream.answers()
        finally:
            stream.abandon()

    def count_tokens(self, text: str) -> int:
        """The server's own count where it offers one (llama.cpp, vLLM, SGLang), else a quarter of the bytes."""
        if text not in self._counts:
            counted = self._loop.run(self._count(text))
            if counted is None:  # not kept: the server may tell next time
                return (len(text.encode("utf-8", "replace")) + 3) // 4
            if len(self._counts) >= _COUNTS_KEPT:
                self._counts.clear()
            self._counts[text] = counted
        return self._counts[text]

    def close(self) -> None:
        """Ends the thread and the connections. The model cannot be used afterwards."""
        self._loop.close(self._fleet.close())

    def _window(self) -> int:
        """How many requests to hold at once: what the endpoints take, and a few that step in without delay."""
        room = self._fleet.room()
        return min(room + max(2, room // 4), self._max_in_flight)

    def _spawn(self, request: Request) -> Future[Answer]:
        return self._loop.spawn(self._serve(request))

    async def _serve(self, request: Request) -> Answer:
        began = time.perf_counter()
        served_by: list[Endpoint] = []

        async def job(endpoint: Endpoint) -> Done[Said] | Fault:
            served_by[:] = [endpoint]
            fault = await self._speaker.prepare(endpoint, request)
            if fault is not None:
                return fault
            asked = time.perf_counter()
            said = await self._speaker.ask(endpoint, request)
            if isinstance(said, Fault):
                return said
            return Done(said, max(said.completion_tokens, 1), time.perf_counter() - asked)

        delivery = await self._fleet.deliver(job, _suits(request))
        seconds = time.perf_counter() - began
        if isinstance(delivery.outcome, Fault):
            error = delivery.outcome.error(delivery.tries)
            return Answer(request, "", "error", seconds=seconds, error=error)
        said = delivery.outcome.value
        if "stop" in served_by[0].traits.dropped:
            said = _cut(said, request.stop)
        return Answer(
            request,
            said.text,
            said.finish,
            prompt_tokens=said.prompt_tokens,
            cached_tokens=said.cached_tokens,
            completion_tokens=said.completion_tokens,
            seconds=seconds,
        )

    async def _ask_around(self) -> Fault | None:
        """Learns what is not known yet; the last fault, if there was one."""
        last: Fault | None = None
        for mine in self._fleet.endpoints:
            for route in _ROUTES:
                for constraint in _CONSTRAINTS:
                    fault = await self._learnt(mine, constraint, route)
                    if fault is not None:
                        last = fault
                        break  # nobody answers on this route
        return last

    async def _learnt(self, mine: Endpoint, constraint: Constraint, route: Route) -> Fault | None:
        """Learns one thing about an endpoint, while it gets on: faults that pass must not decide how a run asks."""

        async def job(endpoint: Endpoint) -> Done[None] | Fault:
            fault = await self._speaker.introduce(endpoint)
            if fault is None and route not in endpoint.traits.no_routes:
                fault = await self._speaker.learn(endpoint, constraint, route)
            gone = fault is not None and fault.kind == "no-route"
            return fault if fault is not None and not gone else Done(None)

        while True:
            before = mine.traits.lessons
            delivery = await self._fleet.deliver(job, _only(mine))
            if not isinstance(delivery.outcome, Fault):
                return None
            if delivery.outcome.lasting or mine.traits.lessons == before:
                return delivery.outcome

    async def _count(self, text: str) -> int | None:
        for endpoint in self._fleet.endpoints:
            if endpoint.breaker.state == "closed":
                counted = await self._speaker.count(endpoint, text)
                if counted is not None:
                    return counted
        return None


class _RequestWindow:
    """One call of `generate`: at most a window of requests under way, further ones pulled as answers leave."""

    def __init__(
        self,
        spawn: Callable[[Request], Future[Answer]],
        window: Callable[[], int],
        requests: Iterator[Request],
        follow: Follow | None,
        cancel: threading.Event,
    ) -> None:
        self._spawn = spawn
        self._window = window
        self._requests: Iterator[Request] | None = requests
        self._follow = follow
        self._cancel = cancel
        self._next: deque[Request] = deque()
        self._running: dict[Future[Answer], Request] = {}
        self._ended: queue.SimpleQueue[Future[Answer]] = queue.SimpleQueue()

    def answers(self) -> Iterator[Answer]:
        while not self._cancel.is_set():
            self._fill()
            if not self._running:
                return
            try:
                future = self._ended.get(timeout=_POLL)
            except queue.Empty:
                continue
            if future.cancelled():
                raise ModelError("the model was closed while it was at work")
            if future.exception() is not None:
                yield from self._finished()
                future.result()
            answer = future.result()
            del self._running[future]
            if self._follow is not None:
                self._next.extend(self._follow(answer))
            yield answer
        self.abandon()
        for future, request in list(self._running.items()):
            try:
                yield future.result()
            except CancelledError:
                yield Answer(request, "", "cancelled")
        self._running.clear()
        yield from (Answer(request, "", "cancelled") for request in self._next)

    def abandon(self) -> None:
        """Calls off what is still under way."""
        for future in self._running:
            future.cancel()

    def _fill(self) -> None:
        while len(self._running) < self._window():
            if self._next:
                request = self._next.popleft()
            elif self._requests is not None:
                try:
                    request = next(self._requests)
                except StopIteration:
                    self._requests = None
                    return
            else:
                return
            future = self._spawn(request)
            self._running[future] = request
            future.add_done_callback(self._ended.put)

    def _finished(self) -> Iterator[Answer]:
        """The answers that had arrived before the model failed as a whole."""
        while not self._ended.empty():
            future = self._ended.get()
            if not future.cancelled() and future.exception() is None:
                del self._running[future]
                yield future.result()


def _suits(request: Request) -> Callable[[Endpoint], int]:
    """Ranks endpoints for a request: none that lacks the route, and first those that can constrain the answer."""
    route, constraint = route_of(request), constraint_of(request)

    def rank(endpoint: Endpoint) -> int:
        traits = endpoint.traits
        if route in traits.no_routes:
            return 0
        unable = constraint is not None and traits.knows(constraint, route) and not traits.dialect(constraint, route)
        return 1 if unable else 2

    return rank


def _only(mine: Endpoint) -> Callable[[Endpoint], int]:
    """Ranks one endpoint first, unless it is benched: then nobody waits for it while others live."""
    return lambda endpoint: 2 if endpoint is mine and mine.breaker.state == "closed" else 1


def _any_dialect(traits: Traits, constraint: str) -> bool:
    return any(name and key.startswith(f"{constraint}/") for key, name in traits.dialects.items())


def _cut(said: Said, stops: Sequence[str]) -> Said:
    """The answer up to the first stop, for servers that do not know how to stop there."""
    ends = [at for at in (said.text.find(stop) for stop in stops if stop) if at >= 0]
    return replace(said, text=said.text[: min(ends)], finish="stop") if ends else said


def _status(endpoint: Endpoint) -> EndpointStatus:
    traits = endpoint.traits
    asked = any(key.startswith("schema/") for key in traits.dialects)
    return EndpointStatus(
        host=endpoint.host,
        state=endpoint.breaker.state,
        parallel=endpoint.limit.slots,
        served=endpoint.served,
        seconds_per_token=endpoint.pace,
        json_schema=_any_dialect(traits, "schema") if asked else None,
        dialects=dict(traits.dialects),
        dropped=tuple(sorted(traits.dropped)),
        noticed_unconstrained=traits.noticed_unconstrained,
        last_fault=endpoint.last_fault.describe() if endpoint.last_fault is not None else "",
    )
