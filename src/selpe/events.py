"""What happens during a run, as values. The algorithm emits them; progress bar, log, manifest and web page listen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias


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

    `stage` is I or II of a record, or 'phrases' or 'alike' for a value of one field alone.
    """

    stage: str
    prompt_tokens: int
    completion_tokens: int
    replayed: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True)
class PoolReady(Event):
    """A pool is complete: candidates found, retries and losses by reason, and a few of its records."""

    stage: str
    number: int
    found: int
    retries: Mapping[str, int]
    given_up: Mapping[str, int]
    samples: tuple[Mapping[str, Any], ...] = ()


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


def silence(event: Event) -> None:
    """A listener that does not listen."""
