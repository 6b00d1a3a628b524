"""Where the time of a run went: seconds by stage, tokens by kind, the first record, and cores that were idle.

A listener beside the meter. It counts what this process did: what a resumed run takes from the disk costs nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from selpe.events import Answered, Event, Finished, PoolReady, StageStarted, Started
from selpe.models.base import Computed
from selpe.owner_only import write_text

FORMAT = "selpe-profile/1"
OPENING, PREPARING, RELEASING = "opening the model", "preparing", "writing the release"
UNFINISHED = "unfinished"
_NAMES = {
    "guides": "guides", "more": "filling up classes", "measure": "measuring", "measured": "writing what was measured",
    "bundles": "final choice", "further": "further records", "seeds": "first texts", "public": "public records",
    "training": "training", "texts": "texts of the tuned model",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage took. `processor` are seconds of all cores together; tokens are those of finished answers."""

    stage: str
    seconds: float = 0.0
    processor: float = 0.0
    answers: int = 0
    read: int = 0
    shared: int = 0
    written: int = 0
    forced: int = 0

    @property
    def cold(self) -> int:
        """Prompt tokens that had to be computed."""
        return self.read - self.shared

    def with_answers(self, told: Answered) -> StageCost:
        """The stage and these answers."""
        return replace(
            self,
            answers=self.answers + told.count,
            read=self.read + told.prompt_tokens,
            shared=self.shared + told.cached_tokens,
            written=self.written + told.completion_tokens,
            forced=self.forced + told.forced_tokens,
        )


@dataclass(frozen=True, slots=True)
class RunProfile:
    """A run's costs. `first_record` counts from when the model was open; `thrown` are written tokens by reason."""

    stages: tuple[StageCost, ...]
    cores: float
    first_record: float | None = None
    replayed: int = 0
    thrown: Mapping[str, int] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> StageCost:
        """All stages together."""
        sums = {
            name: sum(getattr(stage, name) for stage in self.stages)
            for name in ("seconds", "processor", "answers", "read", "shared", "written", "forced")
        }
        return StageCost("all", **sums)

    def idle(self, stage: StageCost) -> float:
        """The share of this machine's usable cores that was idle in a stage, or busy with other programs."""
        there = stage.seconds * self.cores
        return max(0.0, 1.0 - stage.processor / there) if there > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The profile as plain data."""
        return {
            "format": FORMAT,
            "cores": self.cores,
            "first_record": None if self.first_record is None else round(self.first_record, 2),
            "replayed": self.replayed,
            "thrown": dict(self.thrown),
            "retries": dict(self.retries),
            "total": self._plain(self.total),
            "stages": [self._plain(stage) for stage in self.stages],
        }

    def _plain(self, stage: StageCost) -> dict[str, Any]:
        plain = asdict(stage) | {"cold": stage.cold, "idle": self.idle(stage)}
        return {name: round(value, 2) if isinstance(value, float) else value for name, value in plain.items()}

    def save(self, path: Path) -> None:
        """Writes it as JSON."""
        write_text(path, json.dumps(self.as_dict(), indent=2) + "\n")


class Profiler:
    """Turns a run's events into its profile. Stages that come twice are added up."""

    def __init__(
        self,
        *,
        before: float = 0.0,
        cores: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] | None = None,
    ) -> None:
        self._clock, self._processor, self._cores = clock, processor or _processor_seconds, cores
        self._stages = {OPENING: StageCost(OPENING, before, before)}  # how busy the cores were then is not known
        self._thrown: Counter[str] = Counter()
        self._retries: Counter[str] = Counter()
        self._opened: float | None = None
        self._first_record: float | None = None
        self._replayed = self._zero = 0
        self._computed: Callable[[], Computed] | None = None
        self._since = (self._clock(), self._processor())
        self._stage = OPENING

    def opened(self, computed: Callable[[], Computed] | None = None) -> None:
        """The model is open, and the first record is awaited; `computed` says what the model has computed, if known."""
        self._enter(PREPARING)
        self._opened = self._clock()
        self._computed = computed

    def listen(self, event: Event) -> None:
        """Takes one event in."""
        match event:
            case Started():
                self._zero = self._computed().written if self._computed is not None else 0
            case StageStarted():
                self._enter(_name(event))
            case Answered():
                self._count(event)
            case PoolReady():
                self._thrown.update(event.thrown)
                self._retries.update(event.retries)
                self._enter(f"{self._stage}, votes")
            case Finished():
                self._enter(RELEASING)
            case _:
                pass

    def profile(self) -> RunProfile:
        """What was counted so far."""
        self._enter(self._stage)
        stages = tuple(stage for stage in self._stages.values() if stage.answers or stage.seconds >= 0.005)
        return RunProfile(
            stages, self._cores, self._first_record, self._replayed, self._all_thrown(), dict(self._retries)
        )  # fmt: skip

    def _all_thrown(self) -> dict[str, int]:
        """What was thrown away, and at least so much of answers that were broken off and that nobody saw."""
        thrown = dict(self._thrown)
        if self._computed is not None:
            unseen = self._computed().written - self._zero - sum(stage.written for stage in self._stages.values())
            thrown |= {UNFINISHED: unseen} if unseen > 0 else {}
        return thrown

    def _count(self, told: Answered) -> None:
        if told.replayed:
            self._replayed += told.count
            return
        if self._first_record is None and told.stage == "II" and self._opened is not None:
            self._first_record = self._clock() - self._opened
        self._stages[self._stage] = self._here.with_answers(told)

    @property
    def _here(self) -> StageCost:
        return self._stages.get(self._stage, StageCost(self._stage))

    def _enter(self, stage: str) -> None:
        """Ends the present stage and begins another."""
        now = (self._clock(), self._processor())
        here = self._here
        self._stages[self._stage] = replace(
            here,
            seconds=here.seconds + now[0] - self._since[0],
            processor=here.processor + now[1] - self._since[1],
        )
        self._stage, self._since = stage, now


def _name(event: StageStarted) -> str:
    if event.stage in ("round", "lookahead"):
        return f"{'round' if event.stage == 'round' else 'look ahead in round'} {event.number}"
    return _NAMES.get(event.stage, event.stage)


def _processor_seconds() -> float:
    """Processor time of this process and of finished children."""
    return sum(os.times()[:4])
