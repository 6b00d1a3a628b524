"""One or several endpoints as one: each request goes where it will be served soonest, and is carried to an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from selpe.errors import ModelError
from selpe.models.http.dialects import Traits
from selpe.models.http.endpoint import Backoff, Breaker, Clock, Limit, WallClock
from selpe.models.http.faults import Fault
from selpe.models.http.transport import Transport

T = TypeVar("T")

# A benched endpoint that answers a plain GET with any of these is up again, whatever it thinks of the question.
_SIGNS_OF_LIFE = ("absent", "no-route", "refused", "garbage", "busy")
_GLANCE = 5.0


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """What came out of a job, how much work it was (tokens or texts) and how long it took; no work is not measured."""

    value: T
    work: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivery(Generic[T]):
    """The end of a job: a result or the last fault, and after how many tries."""

    outcome: Done[T] | Fault
    tries: int


@dataclass(slots=True, eq=False)
class Endpoint:
    """One server with all that was learnt about it."""

    transport: Transport
    breaker: Breaker = field(default_factory=Breaker)
    limit: Limit = field(default_factory=Limit)
    traits: Traits = field(default_factory=Traits)
    learning: asyncio.Lock = field(default_factory=asyncio.Lock)
    paused_until: float = float("-inf")
    turned_away: int = 0
    in_use: int = 0
    pace: float = 0.0
    served: int = 0
    last_fault: Fault | None = None

    @property
    def host(self) -> str:
        """Host and port."""
        return self.transport.address.host

    def usable(self, now: float) -> bool:
        """Whether requests may go there now, slots aside."""
        return now >= self.paused_until and self.breaker.ready(now)

    def wakes(self, now: float) -> float:
        """The time at which it may become usable or be given up."""
        if self.breaker.state == "open" and not self.breaker.tried:
            return max(self.breaker.retry_at, self.paused_until)
        if self.breaker.state == "open":
            return min(
                max(self.breaker.retry_at, self.paused_until), max(self.breaker.since + self.breaker.patience, now)
            )
        return self.paused_until


Job = Callable[[Endpoint], Awaitable["Done[T] | Fault"]]
Suits = Callable[[Endpoint], int]
Canary = Callable[[Endpoint], Awaitable["Fault | None"]]


@dataclass(slots=True)
class Fleet:
    """All endpoints, and the rules by which a job is placed, tried again and given up.

    `attempts` bounds the failures that a request may have caused itself, `budget` the seconds from its first try.
    `canary` is a tiny request of our own: where it goes well on a benched endpoint, the requests before it were at
    fault, and not the endpoint. Without it, a server would be called dead when only requests that it fails at are left.
    """

    endpoints: Sequence[Endpoint]
    clock: Clock = field(default_factory=WallClock)
    backoff: Backoff = field(default_factory=Backoff)
    attempts: int = 5
    budget: float = 300.0
    canary: Canary | None = None
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def room(self) -> int:
        """How many requests can run at once as things stand."""
        return sum(e.limit.slots for e in self.endpoints if e.breaker.state == "closed") or 1

    async def deliver(self, job: Job[T], suits: Suits = lambda _: 1) -> Delivery[T]:
        """The job's result, from whichever endpoint. Raises ModelError when all endpoints are dead.

        `suits` ranks endpoints for this job: only those of the highest rank are used, none of rank 0.
        """
        began: float | None = None
        charged = tries = 0
        while True:
            endpoint = await self._acquire(suits)
            if isinstance(endpoint, Fault):
                return Delivery(endpoint, tries)
            began = self.clock.now() if began is None else began
            tries += 1
            outcome = await self._try(endpoint, job)
            if not isinstance(outcome, Fault):
                return Delivery(outcome, tries)
            policy = outcome.policy
            charged += outcome.charged
            spent = self.clock.now() - began >= self.budget
            nowhere = outcome.kind == "no-route" and (suits(endpoint) or not any(map(suits, self.endpoints)))
            if not policy.retried or charged >= self.attempts or spent or nowhere:
                return Delivery(outcome, tries)
            if policy.charged:
                await self.clock.sleep(self.backoff.delay(charged))

    async def close(self) -> None:
        """Closes all connections."""
        for endpoint in self.endpoints:
            await endpoint.transport.close()

    async def _try(self, endpoint: Endpoint, job: Job[T]) -> Done[T] | Fault:
        started = self.clock.now()
        settled = False
        try:
            glance = await self._glance(endpoint)
            outcome: Done[T] | Fault = glance or await job(endpoint)
            settled = True
        finally:
            in_use = endpoint.in_use
            endpoint.in_use -= 1
            if not settled:
                endpoint.breaker.abandon(self.clock.now())
            self._wake()
        if isinstance(outcome, Fault):
            self._note_fault(endpoint, outcome, started)
        else:
            self._note_success(endpoint, outcome, in_use)
        return outcome

    async def _glance(self, endpoint: Endpoint) -> Fault | None:
        """What a short look at a benched endpoint finds wrong, so that no request hangs there to find out."""
        if endpoint.breaker.state != "half-open":
            return None
        seen = await endpoint.transport.get("models", total=_GLANCE)
        if isinstance(seen, Fault) and seen.kind not in _SIGNS_OF_LIFE:
            return replace(seen, aside=True)
        if self.canary is None or endpoint.last_fault is None or not endpoint.last_fault.policy.charged:
            return None
        fault = await self.canary(endpoint)
        if fault is None:
            endpoint.breaker.won()
        return fault if fault is not None and fault.policy.bench != "never" else None

    def _note_success(self, endpoint: Endpoint, done: Done[T], in_use: int) -> None:
        endpoint.breaker.won()
        endpoint.turned_away = 0
        if done.work:
            endpoint.served += 1
            endpoint.limit.won(time.perf_counter(), seconds=done.seconds, work=done.work, in_use=in_use)
            pace = done.seconds / done.work
            endpoint.pace = pace if not endpoint.pace else 0.8 * endpoint.pace + 0.2 * pace
        self._wake()

    def _note_fault(self, endpoint: Endpoint, fault: Fault, started: float) -> None:
        now, policy = self.clock.now(), fault.policy
        endpoint.last_fault = fault
        if policy.slower:
            endpoint.limit.lost(now, started)
        if policy.bench == "never":
            endpoint.breaker.won()
        else:
            endpoint.breaker.lost(now, final=policy.bench == "at once")
        if fault.kind in ("busy", "overloaded"):
            endpoint.turned_away += 1
            wait = self.backoff.delay(endpoint.turned_away) if fault.retry_after is None else fault.retry_after
            endpoint.paused_until = max(endpoint.paused_until, now + wait)
        self._wake()

    async def _acquire(self, suits: Suits) -> Endpoint | Fault:
        while True:
            now = self.clock.now()
            fit = self._fitting(now, suits)
            chosen = _soonest([e for e in fit if e.usable(now) and e.in_use < _slots(e)])
            if chosen is not None:
                chosen.breaker.begin()
                chosen.in_use += 1
                return chosen
            if all(e.breaker.dead(now) for e in self.endpoints):
                raise self._dead()
            if not fit:
                gone = [e.last_fault for e in self.endpoints if suits(e) and e.last_fault is not None]
                return gone[0] if gone else Fault("no-route", self.endpoints[0].host)
            sleepers = [e.wakes(now) for e in fit if not e.usable(now) and e.breaker.state != "half-open"]
            soonest = min(sleepers, default=None)
            if soonest is not None and len(sleepers) == len(fit) and soonest - now > self.budget:
                return Fault("busy", fit[0].host, retry_after=soonest - now)
            await self._wait(None if soonest is None else max(soonest - now, 0.0))

    def _fitting(self, now: float, suits: Suits) -> list[Endpoint]:
        alive = [e for e in self.endpoints if not e.breaker.dead(now) or e.breaker.ready(now)]
        ranks = [(suits(e), e) for e in alive]
        best = max((rank for rank, _ in ranks), default=0)
        return [e for rank, e in ranks if rank == best and best > 0]

    def _dead(self) -> ModelError:
        faults = [e.last_fault or Fault("unreachable", e.host) for e in self.endpoints]
        lasting = all(fault.lasting for fault in faults)
        what = "; ".join(f"{fault.host}: {fault.describe()}" for fault in faults)
        many = len(faults) > 1
        return ModelError(
            f"{'no endpoint is' if many else 'the endpoint is not'} working ({what})",
            hint=f"{faults[0].policy.hint}; finished work is kept"
            if lasting
            else "bring the server back and resume the run: finished work is kept",
            retryable=not lasting,
        )

    async def _wait(self, seconds: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        timer = None if seconds is None else asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            await asyncio.wait([waiter] if timer is None else [waiter, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


def _slots(endpoint: Endpoint) -> int:
    """As many as the limit says, and one alone after a bench."""
    return endpoint.limit.slots if endpoint.breaker.state == "closed" else endpoint.in_use + 1


def _soonest(free: Sequence[Endpoint]) -> Endpoint | None:
    """The endpoint that will be done first: few requests for its measured speed; one due for a trial comes first."""
    if not free:
        return None
    known = [e.pace for e in free if e.pace]
    usual = min(known, default=1.0)
    return min(free, key=lambda e: (e.breaker.state != "open", (e.in_use + 1) * (e.pace or usual)))
