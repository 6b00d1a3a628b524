"""How far a run is: a meter that listens to its events and can be read at any moment, from any thread.

Terminal, JSON lines and web page all show the same reading.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from selpe.config import Adjacency
from selpe.events import (
    Answered,
    Event,
    Finished,
    Included,
    Judging,
    PoolReady,
    Selected,
    StageStarted,
    Started,
    Trained,
)
from selpe.models.base import Computed
from selpe.run.estimate import Estimate
from selpe.run.forecast import Forecast, Progress

Doing = Literal["preparing", "training", "writing", "choosing", "done"]
WINDOW = 30.0  # seconds over which speeds are averaged
KEPT_SAMPLES = 8
_MEASURING = {"writing": "writing phrases", "choosing": "counting with noise"}
_UNFORESEEN = ("training", "further", "seeds", "public", "texts", "lookahead")  # stages that go at a pace of their own
_TOLD_BY_PACE = 0.15  # share of a judgement from which on its own pace tells how long the rest takes
AT_ONCE = 32.0  # candidates before a pace can be told: many are begun at once, and all of their prompts read first


@dataclass(frozen=True, slots=True)
class Choice:
    """One private choice: what was chosen among, what it cost, and when."""

    name: str
    epsilon: float
    mechanism: str
    private: bool
    replayed: bool
    time: float


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """The state of a run at one moment. Public: it holds nothing of a private row."""

    doing: Doing = "preparing"
    stage: str = ""
    number: int = 0
    rounds: int = 0
    done: int = 0
    total: int = 0
    steps: float = 0.0  # like `done`, but a context that waits for its record counts as half a candidate
    pool_done: int = 0
    pool_size: int = 0
    records: int = 0
    wanted: int = 0
    answers: int = 0
    replayed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    records_per_second: float = 0.0
    tokens_per_second: float = 0.0
    retries: Mapping[str, int] = field(default_factory=dict)
    retried: int = 0
    given_up: Mapping[str, int] = field(default_factory=dict)
    epsilon: float = 0.0
    spent: float = 0.0
    adjacency: str = "replace-one"
    choices: tuple[Choice, ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    elapsed: float = 0.0
    left: float | None = None
    judging: str = ""  # what goes on in a private choice, and how far it is
    since: float = 0.0  # seconds that what goes on has taken so far

    @property
    def share(self) -> float:
        """The part of all candidates that is done, from 0 to 1."""
        if self.doing == "done":
            return 1.0
        return min(1.0, self.steps / self.total) if self.total else 0.0

    @property
    def outlook(self) -> str:
        """How long it will still take, in words."""
        if self.left is not None:
            return f"about {duration(self.left)} left"
        if self.total and self.done >= self.total:
            return f"the last step, {duration(self.since)} so far"
        return "estimating …"

    @property
    def title(self) -> str:
        """What the run is at, in a few words."""
        if self.doing == "done":
            return "Done"
        names = {
            "guides": "Guides",
            "round": f"Round {self.number} of {self.rounds}",
            "more": "Filling up classes",
            "measure": "Measuring",
            "measured": "Writing what was measured",
            "further": "Further records",
            "bundles": "Final choice",
            "seeds": "First texts",
            "public": "Public records",
            "training": "Training",
            "texts": "Writing by the tuned model",
            "lookahead": f"Looking ahead in round {self.number} of {self.rounds}",
        }
        return names.get(self.stage, "Preparing")

    @property
    def unit(self) -> str:
        """What is counted: candidates, or steps of training."""
        return "steps" if self.stage == "training" else "candidates"

    @property
    def activity(self) -> str:
        """What is being done within the stage."""
        if self.judging and (self.doing == "choosing" or self.stage == "measure"):
            return self.judging
        if self.stage == "measure" and self.doing in _MEASURING:
            return _MEASURING[self.doing]
        return {
            "preparing": "loading the model",
            "training": f"step {self.pool_done:,} of {self.pool_size:,}",
            "writing": "writing candidates",
            "choosing": "private choice",
            "done": "",
        }[self.doing]

    def as_dict(self) -> dict[str, Any]:
        """The reading as plain data; an infinite ε is the word 'inf', since JSON has no number for it."""
        plain = asdict(self) | {"share": self.share, "title": self.title, "activity": self.activity}
        plain |= {"outlook": self.outlook}
        return {key: _finite(value) for key, value in plain.items()}


class Meter:
    """Counts events into readings. A resumed run starts anew with `Started` and replays quickly.

    `expected` is what was expected of the run before it began, `computed` what its model has computed at a moment: with
    both, the time left is told from the first second on.
    """

    def __init__(
        self,
        *,
        epsilon: float = 0.0,
        adjacency: Adjacency = "replace-one",
        clock: Callable[[], float] = time.time,
        expected: Estimate | None = None,
        computed: Callable[[], Computed] | None = None,
    ) -> None:
        self._epsilon, self._adjacency, self._clock = epsilon, adjacency, clock
        self._forecast = None if expected is None else Forecast(expected)
        self._computed = computed
        self._lock = threading.Lock()
        self._reset(clock())

    def _reset(self, moment: float) -> None:
        self._began = self._ended = self._fresh_since = moment
        self._rounds = self._wanted = self._total = self._records = 0
        self._stage, self._number, self._doing = "", 0, "preparing"
        self._first_step, self._judging, self._judged = (0, moment), "", 0.0
        self._began_doing, self._what = moment, ""
        self._phrases = 0
        self._before = self._pool_size = self._pool_tries = self._pool_contexts = 0
        self._fresh_answers = self._answers = self._replayed = 0
        self._prompt = self._completion = self._fresh_records = self._fresh_tokens = 0
        self._retries: Counter[str] = Counter()
        self._given_up: Counter[str] = Counter()
        self._choices: list[Choice] = []
        self._samples: deque[Mapping[str, Any]] = deque(maxlen=KEPT_SAMPLES)
        self._recent: deque[tuple[float, int, int]] = deque()
        self._cold = self._pools = 0
        self._writing, self._writing_since = 0.0, moment
        self._zero = Computed() if self._computed is None else self._computed()

    def listen(self, event: Event, at: float | None = None) -> None:
        """Takes one event in; `at` is when it happened, if not now."""
        moment = self._clock() if at is None else at
        with self._lock:
            self._writing += max(0.0, moment - self._writing_since) if self._doing == "writing" else 0.0
            self._writing_since = moment
            match event:
                case Started():
                    self._reset(moment)
                    self._rounds, self._wanted, self._total = event.rounds, event.records, event.candidates
                case StageStarted():
                    self._enter(event, moment)
                case Answered():
                    self._count(event, moment)
                case PoolReady():
                    self._retries.update(event.retries)
                    self._given_up.update(event.given_up)
                    self._samples.extendleft(reversed(event.samples))
                    self._before += self._pool_size
                    self._pools += 1
                    self._pool_size = self._pool_tries = self._pool_contexts = 0
                    self._doing = "choosing"
                case Selected():
                    self._judging, self._judged = "", 0.0
                    if self._stage == "measure":
                        self._doing = "choosing"
                    epsilon = (
                        event.epsilon_replace_one if self._adjacency == "replace-one" else event.epsilon_add_remove
                    )
                    self._choices.append(
                        Choice(event.selection, epsilon, event.mechanism, event.private, event.replayed, moment)
                    )
                case Judging():
                    self._doing = "choosing"
                    self._judging = f"{event.what}: {event.share:.0%}" if event.share else event.what
                    self._judged = event.share
                    if event.what != self._what:
                        self._what, self._began_doing = event.what, moment
                case Trained():
                    self._train(event, moment)
                case Included():
                    self._records = event.total
                case Finished():
                    self._records, self._doing, self._ended = event.records, "done", moment

    def _enter(self, event: StageStarted, moment: float) -> None:
        self._judging, self._judged, self._what, self._began_doing = "", 0.0, "", moment
        self._stage, self._number = event.stage, event.number
        self._pool_size, self._pool_tries, self._pool_contexts = event.candidates, 0, 0
        self._doing = "writing" if event.candidates else "choosing"
        if event.stage == "measured" and event.number == 1:
            # As many were announced as there are records; what the model has right is kept.
            self._total -= max(0, min(self._total - self._before, self._records) - event.candidates)
        # Filling up and unforeseen pools come on top of what was announced.
        self._total = max(self._total, self._before + event.candidates)

    def _train(self, event: Trained, moment: float) -> None:
        """Steps of training count as candidates do, so that one bar shows both."""
        if self._doing != "training" or self._pool_size != event.steps:
            self._enter(StageStarted("training", 0, event.steps), moment)
            self._doing, self._first_step = "training", (event.step, moment)
        self._pool_tries = event.step
        if event.step == event.steps:
            self._before += self._pool_size
            self._pool_size = self._pool_tries = 0
            self._doing = "preparing"

    def _count(self, event: Answered, moment: float) -> None:
        tries = event.count if event.stage == "II" else 0
        self._answers += event.count
        self._prompt += event.prompt_tokens
        self._completion += event.completion_tokens
        self._pool_tries += tries
        if self._stage == "measure":
            self._doing = "writing"  # phrases, which are no candidates
            self._phrases += event.count
            self._judging = f"{self._phrases:,} phrase{'s' if self._phrases > 1 else ''} written to count with"
        else:
            self._pool_contexts += event.count - tries
        if event.replayed:
            self._replayed += event.count
            self._fresh_since = moment if not self._fresh_answers else self._fresh_since
            return
        self._fresh_answers += event.count
        self._cold += event.prompt_tokens - event.cached_tokens
        self._fresh_records += tries
        self._fresh_tokens += event.completion_tokens
        self._recent.append((moment, tries, event.completion_tokens))

    def read(self, now: float | None = None) -> ProgressReading:
        """The state at this moment."""
        moment = self._clock() if now is None else now
        with self._lock:
            if self._doing == "done":
                moment = self._ended
            pool_done = min(self._pool_tries, self._pool_size)
            extra = self._pool_tries - pool_done
            done = self._before + pool_done
            waiting = min(self._pool_contexts, self._pool_size) - pool_done
            steps = done + max(0, waiting) / 2
            records, tokens = self._speeds(moment)
            return ProgressReading(
                doing=self._doing,  # type: ignore[arg-type]
                stage=self._stage,
                number=self._number,
                rounds=self._rounds,
                done=done,
                total=self._total,
                steps=steps,
                pool_done=pool_done,
                pool_size=self._pool_size,
                records=self._records,
                wanted=self._wanted,
                answers=self._answers,
                replayed=self._replayed,
                prompt_tokens=self._prompt,
                completion_tokens=self._completion,
                records_per_second=records,
                tokens_per_second=tokens,
                retries=dict(self._retries),
                retried=sum(self._retries.values()) + extra,
                given_up=dict(self._given_up),
                epsilon=self._epsilon,
                spent=sum(choice.epsilon for choice in self._choices),
                adjacency=self._adjacency,
                choices=tuple(self._choices),
                samples=tuple(self._samples),
                elapsed=max(0.0, moment - self._began),
                left=self._left(moment, steps),
                judging=self._judging,
                since=max(0.0, moment - self._began_doing),
            )

    def _speeds(self, moment: float) -> tuple[float, float]:
        """Candidates and tokens a second: lately while running, over the whole run when it is done."""
        if self._doing != "done":
            while self._recent and self._recent[0][0] < moment - WINDOW:
                self._recent.popleft()
        span = moment - (self._fresh_since if self._doing == "done" else max(self._fresh_since, moment - WINDOW))
        if span < 0.5 or not self._recent:
            return 0.0, 0.0
        if self._doing == "done":
            return self._fresh_records / span, self._fresh_tokens / span
        return sum(one[1] for one in self._recent) / span, sum(one[2] for one in self._recent) / span

    def _left(self, moment: float, steps: float) -> float | None:
        """Seconds left by the pace so far, retries and private choices included; None where there is no telling."""
        if self._doing == "done":
            return 0.0
        if self._doing == "training":
            step, since = self._first_step
            taken = self._pool_tries - step
            pace = max(0.0, moment - since) / taken if taken > 0 else None  # a clock may be set back
            return None if pace is None else (self._pool_size - self._pool_tries) * pace
        if self._doing == "choosing" and self._judged >= _TOLD_BY_PACE and self._stage == "bundles":
            took = moment - self._began_doing
            if took >= 2.0:  # nothing else is left to do
                return took * (1 / self._judged - 1)
        if self._forecast is not None and not self._replayed and self._stage not in _UNFORESEEN:
            return self._forecast.left(self._progress(moment, steps))
        span = moment - self._fresh_since
        fresh = steps * self._fresh_answers / self._answers if self._answers else 0.0
        if fresh < max(3, min(AT_ONCE, 0.1 * self._total), 0.02 * self._total) or span < 2.0 or steps >= self._total:
            return None
        return (self._total - steps) * span / fresh

    def _progress(self, moment: float, steps: float) -> Progress:
        read, written = self._cold, self._fresh_tokens
        if self._computed is not None:  # it knows of answers that are not finished, too
            now = self._computed()
            read, written = now.read - self._zero.read, now.written - self._zero.written
        more = max(0.0, moment - self._writing_since) if self._doing == "writing" else 0.0
        known = self._total if self._stage in ("measured", "bundles") else None
        seconds = self._writing + more
        return Progress(
            steps, self._fresh_tokens, read, written, seconds, known, self._pools, self._stage == "bundles"
        )  # fmt: skip


def clock(seconds: float) -> str:
    """A length of time as a clock shows it: '0:07', '12:30', '1:02:03'."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def duration(seconds: float | None) -> str:
    """A length of time for people: '45 s', '3 min', '2 h 10 min'."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    if seconds < 90:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
