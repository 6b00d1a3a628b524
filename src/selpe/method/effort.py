"""What a generation took, counted as it goes: answers, tokens, and what was written in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from selpe.models.base import Answer


class _Made(Protocol):
    """A candidate as far as it matters here."""

    @property
    def attempts(self) -> int:
        """The attempts that its proposal took, the last of which went well."""


@dataclass(slots=True)
class Effort:
    """Answers and tokens; retries, what was given up and tokens thrown away, each by reason."""

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    thrown: Counter[str] = field(default_factory=Counter)
    _written: dict[tuple[int, int, str], int] = field(default_factory=dict)

    def note(self, answer: Answer) -> None:
        """Counts an answer; what comes from the disk was written by nobody now, and cannot be thrown away."""
        self.answers += 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        place = answer.place
        key = (place.number, place.attempt, place.stage)
        self._written[key] = self._written.get(key, 0) + (0 if answer.replayed else answer.completion_tokens)

    def settle(self, made: Sequence[_Made | None], failures: Mapping[tuple[int, int], str]) -> None:
        """Counts as thrown away what is in no candidate, by why its attempt failed.

        `failures` are the reasons by proposal and attempt. A candidate is made of the record of its last attempt and
        the newest context until then. An attempt that neither failed nor was needed was a spare.
        """
        last = {number: one.attempts - 1 for number, one in enumerate(made) if one is not None}
        context: dict[int, int] = {}  # the attempt that a candidate's context is from
        for number, attempt, stage in self._written:
            if stage == "I" and attempt <= last.get(number, -1):
                context[number] = max(attempt, context.get(number, 0))
        for (number, attempt, stage), tokens in self._written.items():
            if tokens and attempt != (context if stage == "I" else last).get(number):
                self.thrown[failures.get((number, attempt), "spare")] += tokens
