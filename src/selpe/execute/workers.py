"""Workers as one crew: who is there, who holds what, who was lost and comes back.

Nothing here knows of Ray either. `Hands` is what carries calls to workers; the crew gives them out as tickets, each of
which ends exactly once: with a result, or as lost. A worker that is lost gets nothing until it has described itself
again, and no outcome of before its loss counts against it twice.
"""

from __future__ import annotations

import itertools
import logging
import queue
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from selpe.errors import ConfigError, ModelError
from selpe.execute.worker import Broken, Facts
from selpe.models.base import Capabilities
from selpe.version import __version__

log = logging.getLogger(__name__)

State = Literal["coming", "ready", "gone"]
_LONGEST_PAUSE = 30.0
_LONGEST_ABSENCE = 5.0  # seconds until a worker that is being begun again is asked once more


class Hands(Protocol):
    """What carries calls to workers, by number."""

    def send(self, worker: int, method: str, *arguments: object) -> Future[Any]:
        """The outcome to come of a call; it fails with WorkerLostError when the worker was lost."""

    def restart(self, worker: int) -> None:
        """Ends a worker that hangs; it is begun again."""

    def dismiss(self, worker: int) -> None:
        """Ends a worker permanently."""


class WorkerLostError(Exception):
    """A worker that was lost: its process or node died, or it cannot be reached. `away`: it may come back."""

    def __init__(self, why: str, *, away: bool = False) -> None:
        super().__init__(why)
        self.away = away


@dataclass(frozen=True, slots=True)
class Came:
    """The result of a ticket."""

    ticket: int
    result: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """A ticket whose worker was lost, or whose engine failed as a whole."""

    ticket: int
    why: ModelError


@dataclass(slots=True, eq=False)
class Member:
    """One worker, and all that is known about it. `term` counts its restarts."""

    number: int
    state: State = "coming"
    room: int = 1
    term: int = 0
    held: set[int] = field(default_factory=set)
    unlucky: int = 0
    missed: int = 0
    heard: float = 0.0
    ask_at: float | None = 0.0  # when to ask it to describe itself; None while it is being asked or need not be

    @property
    def load(self) -> int:
        """How many tickets it holds."""
        return len(self.held)


@dataclass(frozen=True, slots=True)
class _Given:
    member: Member
    term: int


class Crew:
    """All workers of one order.

    `in_flight` bounds what each holds, by default a little more than its engine takes at once. `restarts` is how often
    in a row one may be lost that has done nothing in between; `patience` how long a silent one is waited for.
    """

    def __init__(
        self,
        hands: Hands,
        workers: int,
        *,
        in_flight: int | None = None,
        restarts: int = 5,
        patience: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        hint: str = "",
    ) -> None:
        self._hands = hands
        self._in_flight = in_flight
        self._restarts = restarts
        self._patience = patience
        self._clock = clock
        self._hint = hint
        self.members = [Member(number) for number in range(workers)]
        self._facts: Facts | None = None
        self._numbers = itertools.count()
        self._given: dict[int, _Given] = {}
        self._forgotten: set[int] = set()
        self._ended: queue.SimpleQueue[tuple[int, Future[Any]]] = queue.SimpleQueue()
        self._news: dict[int, Came | Lost] = {}
        self._broken: set[int] = set()  # whose engines have failed since the last result of any
        self._last: ModelError | None = None
        self._alone_since = clock()
        self.losses = 0
        self._ask_around()

    # -- who is there --------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """What the workers are, once the first of them is there."""
        while self._facts is None:
            self.news((), timeout=1.0)
        return self._facts

    def ready(self) -> Sequence[Member]:
        """The workers that can be given something."""
        return [member for member in self.members if member.state == "ready"]

    def parallel(self) -> int:
        """How many requests all workers together hold."""
        known = [member.room for member in self.members if member.state == "ready"]
        return sum(known) + (len(self.members) - len(known)) * max(known, default=1)

    # -- tickets -------------------------------------------------------------------------------------------------

    def give(self, member: Member, method: str, *arguments: object) -> int:
        """A ticket for a call to a worker."""
        ticket = next(self._numbers)
        if not member.held:
            member.heard = self._clock()
        member.held.add(ticket)
        self._given[ticket] = _Given(member, member.term)
        self._send(ticket, member, method, *arguments)
        return ticket

    def news(self, tickets: Collection[int], timeout: float) -> list[Came | Lost]:
        """What has become of some tickets; waits that long for the first of them to end.

        Raises ModelError when no worker is left, none has come for longer than the patience, or the engines of all of
        them have failed one after the other.
        """
        end = self._clock() + timeout
        while not any(number in tickets for number in self._news):
            self._tend()
            left = end - self._clock()
            try:
                ended = [self._ended.get(timeout=max(0.0, min(left, 0.5)))]
            except queue.Empty:
                if left <= 0:
                    break
                continue
            while not self._ended.empty():
                ended.append(self._ended.get())
            for number, future in ended:
                self._hear(number, future)
            if not tickets:
                break
        return [self._news.pop(number) for number in list(self._news) if number in tickets]

    def forget(self, tickets: Collection[int]) -> None:
        """Nobody waits for these any more; they hold their places until they end."""
        for ticket in tickets:
            if self._news.pop(ticket, None) is None and ticket in self._given:
                self._forgotten.add(ticket)

    def explain(self, member: Member) -> None:
        """Notes that a worker was lost by the fault of what it held: that does not count against it."""
        member.unlucky = 0

    def stop(self) -> None:
        """Asks all workers to stop what they are doing."""
        for member in self.members:
            if member.held and member.state == "ready":
                self._hands.send(member.number, "stop")

    def close(self) -> None:
        """Stops all workers."""
        for member in self.members:
            if member.state != "gone":
                member.state = "gone"
                self._hands.dismiss(member.number)

    # -- inside --------------------------------------------------------------------------------------------------

    def _send(self, number: int, member: Member, method: str, *arguments: object) -> None:
        future = self._hands.send(member.number, method, *arguments)
        future.add_done_callback(lambda ended: self._ended.put((number, ended)))

    def _hear(self, number: int, future: Future[Any]) -> None:
        """Takes in the end of a call."""
        given = self._given.pop(number)
        member, current = given.member, given.term == given.member.term
        held = number in member.held  # else the worker was asked to describe itself
        member.held.discard(number)
        outcome = _outcome(future)
        if not held and isinstance(outcome, WorkerLostError) and outcome.away:
            if current:  # it has not been started again yet: this is not a further loss
                member.missed += 1
                member.ask_at = self._clock() + min(_LONGEST_ABSENCE, 0.25 * 2.0**member.missed)
            return
        if isinstance(outcome, Broken | WorkerLostError):
            why = outcome.error if isinstance(outcome, Broken) else ModelError(str(outcome), retryable=True)
            if current:
                self._fell(member, why, broken=isinstance(outcome, Broken))
            if held:
                self._note(number, Lost(number, why))
            return
        if current:
            member.heard = self._clock()
        if held:
            member.unlucky = 0
            self._broken.clear()
            self._note(number, Came(number, outcome))
        elif current:
            self._joined(member, outcome)

    def _note(self, number: int, news: Came | Lost) -> None:
        if number in self._forgotten:
            self._forgotten.discard(number)
        else:
            self._news[number] = news

    def _joined(self, member: Member, facts: Facts) -> None:
        if facts.version != __version__:
            raise ConfigError(
                f"a worker has SelPE {facts.version}, and this is {__version__}", hint="install the same on all nodes"
            )
        if self._facts is None:
            self._facts = facts
        elif facts.model != self._facts.model or _kind(facts.capabilities) != _kind(self._facts.capabilities):
            raise ConfigError(
                f"workers hold different models ({self._facts.model} and {facts.model})",
                hint="install the same engines and weights on all nodes",
            )
        parallel = facts.capabilities.parallel
        member.room = self._in_flight or parallel + max(2, parallel // 4)
        member.state, member.missed = "ready", 0

    def _fell(self, member: Member, why: ModelError, *, broken: bool) -> None:
        """A worker was lost, or its engine failed: it must describe itself again before it gets any work."""
        held, member.term, member.state = len(member.held), member.term + 1, "coming"
        member.unlucky += 1
        self.losses += 1
        self._last = why
        log.warning("a worker was lost (%s)%s", why.message, f"; {held + 1} requests go to others" if held else "")
        if broken:
            self._broken.add(member.number)
        if member.unlucky > self._restarts:
            member.state, member.ask_at = "gone", None
            self._hands.dismiss(member.number)
        else:
            pause = 0.0 if member.unlucky == 1 else min(_LONGEST_PAUSE, 0.5 * 2.0 ** (member.unlucky - 2))
            member.ask_at = self._clock() + pause

    def _tend(self) -> None:
        """Asks workers that may be back, ends those that hang, and gives up those that do not return."""
        self._ask_around()
        now = self._clock()
        for member in self.members:
            if member.state == "ready" and member.held and now - member.heard > self._patience:
                log.warning("a worker that holds %d requests was silent for %.0f s", member.load, self._patience)
                member.heard = now
                self._hands.restart(member.number)
        living = {member.number for member in self.members if member.state != "gone"}
        if self._last is not None and living <= self._broken:
            raise self._last if living else self._deserted(self._last)
        if self.ready():
            self._alone_since = now
        elif now - self._alone_since > self._patience:
            raise ModelError(
                f"no worker was there for {self._patience:.0f} s",
                hint=self._hint or "finished work is kept: resume the run when there are workers again",
                retryable=True,
            )

    def _deserted(self, last: ModelError) -> ModelError:
        return ModelError(
            f"all workers were lost, and the last one said: {last.message}",
            hint=last.hint or "look at the nodes' memory and logs, then resume: finished work is kept",
            retryable=last.retryable,
        )

    def _ask_around(self) -> None:
        now = self._clock()
        for member in self.members:
            if member.state == "coming" and member.ask_at is not None and now >= member.ask_at:
                member.ask_at = None
                number = next(self._numbers)
                self._given[number] = _Given(member, member.term)
                self._send(number, member, "describe")


def _outcome(future: Future[Any]) -> Any:
    """What a call came to; anything that is raised on the way means that the worker was lost."""
    problem = future.exception()
    if problem is None:
        return future.result()
    return (
        problem if isinstance(problem, WorkerLostError) else WorkerLostError(f"it failed with {type(problem).__name__}")
    )


def _kind(capabilities: Capabilities) -> Capabilities:
    """What prompts are built on: how many requests fit at once may differ between workers."""
    return replace(capabilities, parallel=1)
