"""How hard one endpoint is pressed, and when it is left alone: back-off, circuit breaker, adaptive concurrency."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass, field
from typing import Literal, Protocol

BreakerState = Literal["closed", "open", "half-open", "final"]


class Clock(Protocol):
    """The time that back-off and benches are measured by; tests run it faster."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Returns that many seconds later."""


class WallClock:
    """Real time."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Returns that many seconds later."""
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class Backoff:
    """Waiting times that double up to a cap, each drawn evenly from nought up (full jitter), so that clients spread."""

    base: float = 0.5
    cap: float = 30.0
    rng: random.Random = field(default_factory=random.Random)

    def delay(self, failures: int) -> float:
        """The seconds to wait after so many failures in a row."""
        return self.rng.uniform(0.0, min(self.cap, self.base * 2.0 ** min(max(failures - 1, 0), 32)))


@dataclass(slots=True)
class Breaker:
    """Benches an endpoint that fails again and again, and lets one request try it out when the bench time is over.

    Bench times double. An endpoint that has failed without a break for `patience` seconds, and a trial at least once,
    counts as dead, which matters once all of them are; it is still tried out whenever its bench time ends.
    """

    threshold: int = 3
    cooldown: float = 1.0
    cap: float = 30.0
    patience: float = 60.0
    state: BreakerState = "closed"
    failures: int = 0
    since: float = 0.0
    retry_at: float = 0.0
    tried: bool = False
    _bench: float = 0.0

    def ready(self, now: float) -> bool:
        """Whether a request may go there now."""
        return self.state == "closed" or (self.state == "open" and now >= self.retry_at)

    def begin(self) -> None:
        """Notes that a request goes there; after a bench it is the one that tries it out."""
        if self.state == "open":
            self.state = "half-open"

    def abandon(self, now: float) -> None:
        """Notes that the trial was called off without a result."""
        if self.state == "half-open":
            self.state, self.retry_at = "open", now

    def won(self) -> None:
        """Notes a sign of life: the endpoint is as good as new."""
        if self.state != "final":
            self.state, self.failures, self.tried, self._bench = "closed", 0, False, 0.0

    def lost(self, now: float, *, final: bool = False) -> None:
        """Notes a failure; a `final` one benches for good."""
        self.failures += 1
        self.tried |= self.state == "half-open"
        if self.failures == 1:
            self.since = now
        if final:
            self.state = "final"
        elif self.state == "half-open" or (self.state == "closed" and self.failures >= self.threshold):
            self._bench = min(self.cap, self._bench * 2 or self.cooldown)
            self.state, self.retry_at = "open", now + self._bench

    def dead(self, now: float) -> bool:
        """Whether there is no hope left for now."""
        return self.state == "final" or (self.state == "open" and self.tried and now - self.since >= self.patience)


@dataclass(slots=True)
class Limit:
    """How many requests may run at once: doubled while that pays, then raised one by one, cut when it hurts.

    A round is as many answers as the limit allows at once. While starting, the limit doubles from round to round
    until the throughput no longer follows: from there on more requests would only queue inside the server. Then it
    rises by one a round while the time per token stays near what it was, and falls when that time doubles. A 429,
    a 503 or a timeout halves it, once for all requests that were under way at that moment.
    """

    start: int = 4
    ceiling: int = 64
    value: float = 0.0
    starting: bool = True
    _cut_at: float = float("-inf")
    _wins: int = 0
    _work: float = 0.0
    _busy: float = 0.0
    _peak: int = 0
    _began: float = -1.0
    _rate: float = 0.0
    _before: float = 1.0
    _pace: float = 0.0

    def __post_init__(self) -> None:
        self.value = float(min(self.start, self.ceiling))

    @property
    def slots(self) -> int:
        """The limit as a whole number, at least one."""
        return max(1, int(self.value))

    def won(self, now: float, *, seconds: float, work: float, in_use: int) -> None:
        """Notes an answer of `work` tokens that took `seconds`, with `in_use` requests running besides it."""
        if self._began < 0:
            self._began = now - seconds
        self._wins += 1
        self._work += max(work, 1.0)
        self._busy += seconds
        self._peak = max(self._peak, in_use)
        if self._wins >= self.slots:
            self._end_round(now)

    def lost(self, now: float, started: float) -> None:
        """Notes that a request which began at `started` was turned away or timed out."""
        if started >= self._cut_at:
            self.value = max(1.0, self.value / 2)
            self._cut_at = now
            self.starting = False
            self._reset(now)

    def _end_round(self, now: float) -> None:
        rate = self._work / max(now - self._began, 1e-6)
        pace = self._busy / self._work
        if self._peak >= self.slots:
            if self.starting:
                self._grow_fast(rate, pace)
            else:
                self._grow_slowly(pace)
        self._reset(now)

    def _grow_fast(self, rate: float, pace: float) -> None:
        if self._rate and rate < 1.1 * self._rate:
            self.starting = False
            self.value = self._before
            return
        self._rate, self._pace, self._before = rate, pace, self.value
        self.value = min(self.value * 2, float(self.ceiling))

    def _grow_slowly(self, pace: float) -> None:
        self._pace = self._pace or pace
        if pace > 2.0 * self._pace:
            self.value = max(1.0, self.value * 0.7)
            self._pace = math.sqrt(self._pace * pace)  # a server that stays slow must not be starved down to one
        elif pace <= 1.25 * self._pace:
            self.value = min(self.value + 1.0, float(self.ceiling))

    def _reset(self, now: float) -> None:
        self._wins, self._work, self._busy, self._peak, self._began = 0, 0.0, 0.0, 0, now
