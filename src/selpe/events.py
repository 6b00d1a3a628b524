"""What happens during a run, as values. The algorithm emits them; progress bar, log, manifest and web page listen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from selpe.models.base import Answer


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. Public by construction: no event carries anything of a private row."""

    def as_dict(self) -> dict[str, Any]:
        """The event as plain data, with its kind."""
        return {"event": type(self).__name__, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Started(Event):
    """A run begins: how many rounds and records there will be, and how many candidates to generate in all."""

    rounds: int
    records: int
    candidates: int


@dataclass(frozen=True, slots=True)
class StageStarted(Event):
    """A part of the run begins, with the candidates it will generate; 0 where it generates none, or nobody knows yet.

    Of our own method: 'guides', 'round', 'more' (classes are filled up), 'measure' (phrases are written, and rows are
    counted), 'measured' (records are written around measured facts), 'bundles' (the last choice) and 'further'
    (records beyond the core). Others have 'seeds', 'public', 'training', 'texts' and 'lookahead'.
    """

    stage: str
    number: int
    candidates: int


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """The model finished an answer; `replayed` ones came from disk, and logs sum several up.

    `stage` is I or II of a record, or 'phrases' or 'alike' for a value of one field alone. Of the prompt's tokens
    `cached_tokens` were computed before, of those written `forced_tokens` left the model no choice.
    """

    stage: str
    prompt_tokens: int
    completion_tokens: int
    replayed: bool = False
    count: int = 1
    cached_tokens: int = 0
    forced_tokens: int = 0

    @classmethod
    def of(cls, answer: Answer, stage: str | None = None) -> Answered:
        """The event of one answer; `stage` is that of its request unless said otherwise."""
        return cls(
            answer.request.stage if stage is None else stage,
            answer.prompt_tokens, answer.completion_tokens, answer.replayed,
            cached_tokens=answer.cached_tokens, forced_tokens=answer.forced_tokens,
        )  # fmt: skip

    def plus(self, other: Answered | None) -> Answered:
        """Both as one, where they are of the same stage and came the same way."""
        if other is None:
            return self
        return Answered(
            self.stage, self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens,
            self.replayed, self.count + other.count,
            self.cached_tokens + other.cached_tokens, self.forced_tokens + other.forced_tokens,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PoolReady(Event):
    """A pool is complete: candidates found, retries and losses by reason, and a few of its records.

    `thrown` are the tokens that were written and then thrown away, by reason.
    """

    stage: str
    number: int
    found: int
    retries: Mapping[str, int]
    given_up: Mapping[str, int]
    samples: tuple[Mapping[str, Any], ...] = ()
    thrown: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graded(Event):
    """The first candidates were graded, before any private row was looked at: whether this model will do."""

    grade: str
    records: int
    measures: tuple[Mapping[str, Any], ...]
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selected(Event):
    """A private choice was made and paid for. `records` are the winners, where records were chosen."""

    selection: str
    mechanism: str
    epsilon_add_remove: float
    epsilon_replace_one: float
    private: bool
    replayed: bool
    winners: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    records: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judging(Event):
    """Sets of records are being judged: what goes on, and the share of it that is done.

    How many rows take part is not said: the share is of the number that the plan was made from.
    """

    what: str
    share: float


@dataclass(frozen=True, slots=True)
class Trained(Event):
    """A model that is being trained has taken a step, the `step`-th of `steps`. How well it did is private."""

    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class Included(Event):
    """Records were taken into the synthetic table; `total` of them so far."""

    number: int
    total: int


@dataclass(frozen=True, slots=True)
class Finished(Event):
    """The run is done."""

    records: int


Emit: TypeAlias = Callable[[Event], None]


def together(*listeners: Emit) -> Emit:
    """One listener that passes every event on to all of these."""

    def listen(event: Event) -> None:
        for hear in listeners:
            hear(event)

    return listen


def silence(event: Event) -> None:
    """A listener that does not listen."""
