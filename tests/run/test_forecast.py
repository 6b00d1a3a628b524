"""The time left: what was expected at first, then what the run shows; all by a clock that moves by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from selpe.events import Answered, Finished, Judging, PoolReady, StageStarted, Started
from selpe.models.base import Computed
from selpe.models.speed import Pace
from selpe.run.estimate import ENDING, Estimate
from selpe.run.forecast import Forecast, Progress
from selpe.run.progress import Meter

# 100 candidates: 20 seconds of reading and 100 of writing at this pace, and 12 of everything else.
BARE = Estimate(160, 50_000, 20_000, 0.0, "", cached_tokens=42_000, likely=100, pools=0)
EXPECTED = BARE.at(Pace(400.0, 200.0))


@dataclass
class Machine:
    """A machine that reads first and then writes, so many times slower than it was measured."""

    slower: float = 1.0
    tokens: int = 200  # that a candidate really takes
    cold: int = 8_000
    candidates: int = 100

    @property
    def total(self) -> float:
        return self.slower * (self.cold / 400 + self.tokens * self.candidates / 200)

    def after(self, seconds: float) -> Progress:
        reading = min(seconds, self.slower * self.cold / 400)
        written = round((seconds - reading) * 200 / self.slower)
        steps = max(0.0, written / self.tokens - 16)  # so much is in work and not finished
        return Progress(steps, round(steps * self.tokens), round(reading * 400 / self.slower), written, seconds)


def test_the_estimate_adds_reading_writing_and_a_tenth_for_the_rest() -> None:
    assert EXPECTED.cold_tokens == 8_000
    assert EXPECTED.seconds == pytest.approx(1.1 * (20 + 100))
    assert EXPECTED.basis == "measured on this machine just now"


def test_the_end_of_each_pool_takes_as_long_as_a_few_candidates_more_until_it_is_over() -> None:
    expected = replace(BARE, pools=2).at(Pace(400.0, 200.0))
    ending = ENDING * 200 / 200  # seconds
    assert expected.seconds == pytest.approx(1.1 * (20 + 100 + 2 * ending))
    start = Progress(0.0, 0, 0, 0, 0.0)
    assert Forecast(expected).left(start) == pytest.approx(expected.seconds)
    after = replace(start, pools=1)
    assert Forecast(expected).left(start) - Forecast(expected).left(after) == pytest.approx(ending)


def test_before_the_first_token_all_of_the_estimate_is_left() -> None:
    assert Forecast(EXPECTED).left(Progress(0.0, 0, 0, 0, 0.0)) == pytest.approx(EXPECTED.seconds)


@pytest.mark.parametrize("slower", [0.7, 1.0, 1.5])
@pytest.mark.parametrize("tokens", [180, 200, 230])
@pytest.mark.parametrize("seconds", [10.0, 30.0, 60.0])
def test_after_ten_seconds_it_is_right_within_a_quarter(slower: float, tokens: int, seconds: float) -> None:
    machine = Machine(slower, tokens)
    truth = machine.total + 0.1 * 120
    assert seconds + Forecast(EXPECTED).left(machine.after(seconds)) == pytest.approx(truth, rel=0.25)


def test_a_slow_machine_is_noticed_more_and_more() -> None:
    machine, truth = Machine(slower=3.0), 3 * 120 + 12.0
    errors = [abs(t + Forecast(EXPECTED).left(machine.after(t)) - truth) for t in (1.0, 5.0, 20.0, 80.0)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * truth


def test_once_the_number_of_candidates_is_known_it_is_what_counts() -> None:
    now = Machine().after(70.0)
    fewer = Forecast(EXPECTED).left(replace(now, total=60))
    assert fewer < 0.5 * Forecast(EXPECTED).left(now)
    assert Forecast(EXPECTED).left(replace(now, total=60, writing_done=True)) == pytest.approx(12.0)


def test_an_estimate_by_earlier_runs_needs_no_pace() -> None:
    known = Estimate(100, 50_000, 20_000, 100.0, "1 earlier run with this model", likely=100)
    assert Forecast(known).left(Progress(0.0, 0, 0, 0, 0.0)) == pytest.approx(100.0)
    assert Forecast(known).left(Progress(50.0, 10_000, 0, 10_000, 50.0)) == pytest.approx(50.0)


def test_the_meter_tells_the_time_left_before_any_answer_by_what_the_model_has_computed() -> None:
    now, computed = [1000.0], [Computed(500, 700)]
    meter = Meter(clock=lambda: now[0], expected=EXPECTED, computed=lambda: computed[0])
    meter.listen(Started(1, 80, 160))
    meter.listen(StageStarted("round", 1, 80))
    assert meter.read().left == pytest.approx(EXPECTED.seconds)
    now[0], computed[0] = 1030.0, Computed(500 + 8_000, 700 + 2_000)
    left = meter.read().left
    assert left == pytest.approx(Forecast(EXPECTED).left(Progress(0.0, 0, 8_000, 2_000, 30.0)))
    assert left == pytest.approx(102.0, rel=0.1)


def test_the_meter_does_without_a_model_that_counts() -> None:
    now = [1000.0]
    meter = Meter(clock=lambda: now[0], expected=EXPECTED)
    meter.listen(Started(1, 80, 160))
    meter.listen(StageStarted("round", 1, 80))
    now[0] = 1030.0
    meter.listen(Answered("I", 500, 100, count=20, cached_tokens=400))
    assert meter.read().left == pytest.approx(Forecast(EXPECTED).left(Progress(10.0, 100, 100, 100, 30.0)))


def test_the_pace_of_the_final_choice_tells_its_end() -> None:
    moments = iter([0.0] * 4 + [10.0, 30.0])
    meter = Meter(expected=EXPECTED, clock=lambda: next(moments))
    meter.listen(Started(1, 80, 160))
    meter.listen(StageStarted("bundles", 0, 0))
    meter.listen(Judging("rows vote", 0.0))
    meter.listen(Judging("rows vote", 0.2))
    reading = meter.read()
    assert reading.since == 30.0
    assert reading.left == pytest.approx(120.0)


def test_a_last_step_without_an_end_in_sight_says_how_long_it_takes() -> None:
    moments = iter([0.0, 0.0, 0.0, 0.0, 100.0, 180.0])
    meter = Meter(clock=lambda: next(moments))
    meter.listen(Started(1, 1, 1))
    meter.listen(StageStarted("round", 1, 1))
    meter.listen(PoolReady("round", 1, 1, {}, {}))
    meter.listen(StageStarted("bundles", 0, 0))
    assert meter.read().outlook == "the last step, 80 s so far"


def test_a_judgement_says_how_far_it_is_until_the_choice_is_made() -> None:
    meter = Meter(expected=EXPECTED)
    meter.listen(Started(1, 80, 160))
    meter.listen(StageStarted("bundles", 0, 0))
    meter.listen(Judging("rows vote", 0.4))
    reading = meter.read()
    assert (reading.title, reading.activity) == ("Final choice", "rows vote: 40%")
    assert reading.left == pytest.approx(12.0)
    meter.listen(Finished(80))
    assert (meter.read().activity, meter.read().left) == ("", 0.0)
