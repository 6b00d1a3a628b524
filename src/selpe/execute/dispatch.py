"""Jobs to workers, so that each is done once: pulled as places become free, sent again where a worker was lost.

Workers get a job whenever they have room, so fast ones do more. A job whose worker is lost goes to another; one that
was there when two workers were lost is then served alone, so that a third loss can only be its own fault. Jobs that
were merely near a bad one are done as usual.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from selpe.errors import ModelError
from selpe.execute.workers import Came, Crew, Lost, Member

J = TypeVar("J")

POLL = 0.1
SUSPECT = 2  # losses after which a job is served alone
LAST_WORD = 5.0  # seconds that workers have to end what was cut short


class Cancelled:
    """Stands for the result of a job that was called off."""


CANCELLED = Cancelled()


@dataclass(slots=True)
class _Job(Generic[J]):
    item: J
    losses: int = 0


@dataclass(frozen=True, slots=True)
class _Held(Generic[J]):
    job: _Job[J]
    member: Member
    alone: bool


class Dispatch(Generic[J]):
    """One batch of jobs, all calls of one method. `payload` is what is sent of an item."""

    def __init__(
        self,
        crew: Crew,
        method: str,
        items: Iterable[J],
        *,
        payload: Callable[[J], object],
        cancel: threading.Event | None = None,
    ) -> None:
        self._crew = crew
        self._method = method
        self._source: Iterator[J] | None = iter(items)
        self._payload = payload
        self._cancel = cancel or threading.Event()
        self._next: deque[_Job[J]] = deque()
        self._suspects: deque[_Job[J]] = deque()
        self._held: dict[int, _Held[J]] = {}

    def add(self, items: Iterable[J]) -> None:
        """Further jobs, to be done before new ones are pulled."""
        self._next.extend(_Job(item) for item in items)

    def outcomes(self) -> Iterator[tuple[J, Any]]:
        """Each item with its result as it comes: with ModelError where it was given up, with CANCELLED at the end."""
        try:
            while not self._cancel.is_set():
                self._fill()
                if not self._held and self._source is None and not self._next and not self._suspects:
                    return
                for news in self._crew.news(self._held, POLL):
                    yield from self._settled(news)
            yield from self._called_off()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stops waiting for what is in progress."""
        if self._held:
            self._crew.stop()
            self._crew.forget(list(self._held))
            self._held.clear()

    def _settled(self, news: Came | Lost) -> Iterator[tuple[J, Any]]:
        held = self._held.pop(news.ticket)
        if isinstance(news, Came):
            yield held.job.item, news.result
            return
        job = held.job
        job.losses += 1
        if held.alone:
            self._crew.explain(held.member)
            yield (
                job.item,
                ModelError(
                    f"a worker was lost each time that it served this request, {job.losses} times ({news.why.message})",
                    hint=news.why.hint,
                    retryable=True,
                ),
            )
        elif job.losses >= SUSPECT:
            self._suspects.append(job)
        else:
            self._next.appendleft(job)

    def _called_off(self) -> Iterator[tuple[J, Any]]:
        """What still arrives after the stop, then the rest as cancelled."""
        self._crew.stop()
        end = time.monotonic() + LAST_WORD
        while self._held and (left := end - time.monotonic()) > 0:
            for news in self._crew.news(self._held, min(left, POLL)):
                held = self._held.pop(news.ticket)
                yield held.job.item, news.result if isinstance(news, Came) else CANCELLED
        rest = [held.job for held in self._held.values()] + [*self._next, *self._suspects]
        self._crew.forget(list(self._held))
        for queue in (self._held, self._next, self._suspects):
            queue.clear()
        yield from ((job.item, CANCELLED) for job in rest)

    # -- giving out ----------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        kept_free = self._isolate()
        while (member := self._roomiest(kept_free)) is not None:
            job = self._pulled()
            if job is None:
                return
            self._give(member, job)

    def _isolate(self) -> set[int]:
        """Gives suspects to workers that hold nothing else; the workers that must be given no more for that."""
        busy = {held.member.number for held in self._held.values() if held.alone}
        ready = sorted(self._crew.ready(), key=lambda member: member.load)
        for member in ready:
            if self._suspects and not member.held:
                self._give(member, self._suspects.popleft(), alone=True)
                busy.add(member.number)
        free = [member.number for member in ready if member.number not in busy]
        if self._suspects and not busy and free:
            busy.add(free[0])  # the one that will be empty soonest
        return busy

    def _roomiest(self, kept_free: set[int]) -> Member | None:
        """The worker with the largest share of free places, if any has one."""
        free = [member for member in self._crew.ready() if member.load < member.room and member.number not in kept_free]
        return min(free, key=lambda member: member.load / member.room, default=None)

    def _pulled(self) -> _Job[J] | None:
        if self._next:
            return self._next.popleft()
        if self._source is not None:
            for item in self._source:
                return _Job(item)
            self._source = None
        # The source may have been told of followers while it was asked.
        return self._next.popleft() if self._next else None

    def _give(self, member: Member, job: _Job[J], *, alone: bool = False) -> None:
        ticket = self._crew.give(member, self._method, self._payload(job.item))
        self._held[ticket] = _Held(job, member, alone)
