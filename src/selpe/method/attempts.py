"""Attempts: which proposal ends with which record, whatever order a model answers in.

A proposal has a few attempts, one after the other. The first that is valid counts, unless a proposal before it has the
same record; if one comes to the same record later, the later proposal goes on with its next attempt. This is deferred
acceptance, and has the same end in every order of events. So attempts may be asked for ahead of their turn, as spares:
their answers count if their turn comes, and are dropped if it does not. Most second attempts go well, so only who fails
again has spares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from selpe.method.echoes import is_long
from selpe.method.prompting import Proposal
from selpe.schema import Record

Turn = tuple[int, int]  # the number of a proposal and of its attempt
SPARES = 2  # for one failure
SPARED = 2  # attempts that have none
# Another record of the same context would be another one of these.
ANEW = frozenset({"duplicate", "echo", "repeated"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A valid record, with the raw text it came from and how it came about."""

    record: Record
    raw: str
    proposal: Proposal
    context: str = ""
    attempts: int = 1


@dataclass(slots=True)
class _Chain:
    """The attempts of one proposal: what came of each, and why those whose turn is over failed."""

    outcomes: dict[int, Candidate | str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    asked: set[int] = field(default_factory=lambda: {0})
    held: Candidate | None = None


class Attempts:
    """What came of the attempts of all proposals so far, each with `most` of them.

    `text` writes a record down, `known` says of a text whether there was such a record before.
    """

    def __init__(self, count: int, most: int, text: Callable[[Record], str], known: Callable[[str], bool]) -> None:
        self._chains = [_Chain() for _ in range(count)]
        self.most = most
        self._text = text
        self._known = known
        self._holders: dict[str, int] = {}

    def settled(self, numbers: Iterable[int]) -> bool:
        """Whether each of these proposals has its record, or no attempts left."""
        chains = (self._chains[number] for number in numbers)
        return all(chain.held is not None or len(chain.failures) == self.most for chain in chains)

    def abandon(self, numbers: Iterable[int]) -> None:
        """Forgets what was asked for and not answered. It is asked for again if its turn comes after all."""
        for number in numbers:
            self._chains[number].asked &= self._chains[number].outcomes.keys()

    def wanted(self, turn: Turn) -> bool:
        """Whether an attempt counts, as far as one can tell: not if one before it went well."""
        return self._chains[turn[0]].held is None

    def drop(self, turn: Turn) -> None:
        """Forgets that an attempt was asked for. It is asked for again if its turn comes after all."""
        self._chains[turn[0]].asked.discard(turn[1])

    def note(self, turn: Turn, outcome: Candidate | str) -> list[Turn]:
        """Takes what came of an attempt; returns the attempts that are to be asked for now."""
        self._chains[turn[0]].outcomes[turn[1]] = outcome
        return list(self._settle(turn[0]))

    def repeated(self, texts: Sequence[str]) -> dict[int, Candidate]:
        """The candidates with a long text in one of these fields that an earlier one has, and by no fact.

        Only those that have attempts left to try.
        """
        found: dict[int, Candidate] = {}
        seen: set[tuple[str, str]] = set()
        for number, candidate in enumerate(self.candidates()):
            if candidate is None:
                continue
            given = dict(candidate.proposal.facts)
            own = {(name, str(candidate.record[name])) for name in texts if name not in given}
            long = {(name, " ".join(text.lower().split())) for name, text in own if is_long(text)}
            if not seen.isdisjoint(long) and candidate.attempts < self.most:
                found[number] = candidate
            seen |= long
        return found

    def take_back(self, number: int, reason: str) -> list[Turn]:
        """Counts the attempt that went well as failed after all; returns the attempts that are to be asked for now."""
        chain = self._chains[number]
        if chain.held is None:
            raise ValueError(f"proposal {number} has no record")
        del self._holders[self._text(chain.held.record)]
        chain.held = None
        chain.outcomes[len(chain.failures)] = reason
        return list(self._settle(number))

    def give_back(self, number: int, candidate: Candidate) -> None:
        """Lets a proposal that came to nothing since have what was taken back."""
        chain, text = self._chains[number], self._text(candidate.record)
        if chain.held is None and text not in self._holders:
            self._holders[text] = number
            chain.held = candidate

    def spares(self, turn: Turn) -> list[Turn]:
        """Later attempts that need nothing of those before them, to be asked for ahead of their turn."""
        number, asked = turn[0], self._chains[turn[0]].asked
        if turn[1] < SPARED:
            return []
        found = [attempt for attempt in range(turn[1] + 1, self.most) if attempt % 2 == 0 and attempt not in asked]
        asked.update(found[:SPARES])
        return [(number, attempt) for attempt in found[:SPARES]]

    def anew(self, turn: Turn) -> bool:
        """Whether an attempt begins with a context of its own: every second one, and after a copy of what there is."""
        failures = self._chains[turn[0]].failures
        return turn[1] % 2 == 0 or (len(failures) == turn[1] and failures[-1] in ANEW)

    def candidates(self) -> tuple[Candidate | None, ...]:
        """What each proposal has."""
        return tuple(chain.held for chain in self._chains)

    def reasons(self) -> dict[Turn, str]:
        """Why each attempt failed whose turn came."""
        return {(n, attempt): why for n, chain in enumerate(self._chains) for attempt, why in enumerate(chain.failures)}

    def failures(self) -> tuple[Counter[str], Counter[str]]:
        """Why attempts were followed by others, and why proposals were given up."""
        retries: Counter[str] = Counter()
        given_up: Counter[str] = Counter()
        for chain in self._chains:
            over = len(chain.failures) == self.most
            retries.update(chain.failures[:-1] if over else chain.failures)
            if chain.held is None:
                given_up[chain.failures[-1] if over else "unanswered"] += 1
        return retries, given_up

    def _settle(self, number: int) -> Iterator[Turn]:
        """Goes on with a proposal as far as its outcomes are known."""
        chain = self._chains[number]
        while chain.held is None and (outcome := chain.outcomes.get(len(chain.failures))) is not None:
            if isinstance(outcome, str):
                yield from self._fail(number, outcome)
                continue
            text = self._text(outcome.record)
            holder = self._holders.get(text, number)
            if holder < number or self._known(text):
                yield from self._fail(number, "duplicate")
                continue
            self._holders[text] = number
            chain.held = outcome
            if holder > number:
                self._chains[holder].held = None
                yield from self._fail(holder, "duplicate")
                yield from self._settle(holder)

    def _fail(self, number: int, reason: str) -> Iterator[Turn]:
        """Ends an attempt's turn, and asks for the next one unless that was done ahead."""
        chain = self._chains[number]
        chain.failures.append(reason)
        attempt = len(chain.failures)
        if attempt < self.most and attempt not in chain.asked:
            chain.asked.add(attempt)
            yield number, attempt
