"""How long a run will still take: what was expected of it, corrected by what it does.

Before anything is written there is only the estimate. Then two things are learnt on the way: how many tokens a
candidate takes here, retries included, and how much slower or faster the machine is than when it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from selpe.models.speed import Pace
from selpe.run.estimate import Estimate

_CANDIDATES = 24.0  # that the expectation of tokens counts for, against those that were seen
_SECONDS = 6.0  # that the measured pace counts for, against the time that was spent writing


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: candidates done (with halves) and the tokens that these took; tokens computed in all, those of
    unfinished answers included; and seconds spent writing.

    `total` is the number of candidates once it is known for sure, `pools` how many pools are written; `writing_done`
    says that nothing more will be.
    """

    steps: float
    finished: int
    read: int
    written: int
    seconds: float
    total: int | None = None
    pools: int = 0
    writing_done: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """The time left of a run of which this was expected."""

    expected: Estimate

    def left(self, now: Progress) -> float:
        """Seconds until the release, as far as they can be told."""
        whole = self._pace.seconds(self.expected.cold_tokens, self._written + self._endings)
        rest = max(0.0, self.expected.seconds - whole)
        if now.writing_done:
            return rest
        candidates = self.expected.likely if now.total is None else now.total
        each = (_CANDIDATES * self._written / max(1, self.expected.likely) + now.finished) / (_CANDIDATES + now.steps)
        still = max(each * max(0.0, candidates - now.steps) / 2, each * candidates - now.written)
        still += self._endings * max(0, self.expected.pools - now.pools) / max(1, self.expected.pools)
        work = self._pace.seconds(max(0, self.expected.cold_tokens - now.read), still)
        done = self._pace.seconds(now.read, now.written)
        return work * (now.seconds + _SECONDS) / (done + _SECONDS) + rest

    @property
    def _written(self) -> int:
        return self.expected.completion_tokens

    @property
    def _endings(self) -> float:
        return 0.0 if self.expected.pace is None else self.expected.endings  # earlier runs have them in their seconds

    @property
    def _pace(self) -> Pace:
        """As measured; else one at which reading is free and writing takes all of the time that was expected."""
        if self.expected.pace is not None:
            return self.expected.pace
        return Pace(float("inf"), max(1, self._written) / max(1e-6, self.expected.seconds))
