"""The profile: where a run's seconds and tokens went, by clocks that move by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selpe.events import Answered, Finished, PoolReady, StageStarted, Started
from selpe.models.base import Computed
from selpe.run.profile import Profiler, RunProfile


class Clock:
    def __init__(self) -> None:
        self.now = self.work = 0.0
        self.profiler = Profiler(cores=2.0, clock=lambda: self.now, processor=lambda: self.work)

    def spend(self, seconds: float, processor: float = 0.0) -> None:
        self.now += seconds
        self.work += processor


def a_run() -> RunProfile:
    clock = Clock()
    hear = clock.profiler.listen
    clock.spend(3.0, 3.0)
    clock.profiler.opened()
    clock.spend(1.0)
    hear(Started(1, 8, 20))
    hear(StageStarted("round", 1, 16))
    clock.spend(2.0, 4.0)
    hear(Answered("I", 500, 100, cached_tokens=0, count=5))
    clock.spend(4.0, 4.0)
    hear(Answered("II", 900, 150, cached_tokens=800, forced_tokens=60))
    hear(Answered("II", 900, 150, replayed=True, count=2))
    hear(PoolReady("round", 1, 16, {"rule": 3}, {}, (), {"rule": 40, "duplicate": 5}))
    clock.spend(0.5, 0.5)
    hear(StageStarted("measured", 1, 4))
    clock.spend(1.0)
    hear(StageStarted("measured", 2, 1))
    clock.spend(2.0)
    hear(StageStarted("bundles", 0, 0))
    clock.spend(5.0, 5.0)
    hear(Finished(8))
    clock.spend(0.25)
    return clock.profiler.profile()


def test_every_second_belongs_to_one_stage_and_stages_that_come_twice_are_added_up() -> None:
    found = a_run()
    assert [(stage.stage, stage.seconds) for stage in found.stages] == [
        ("opening the model", 3.0),
        ("preparing", 1.0),
        ("round 1", 6.0),
        ("round 1, votes", 0.5),
        ("writing what was measured", 3.0),
        ("final choice", 5.0),
        ("writing the release", 0.25),
    ]
    assert found.total.seconds == 18.75


def test_tokens_are_those_that_this_process_had_computed() -> None:
    found = a_run()
    writing = next(stage for stage in found.stages if stage.stage == "round 1")
    assert (writing.answers, writing.read, writing.shared, writing.cold) == (6, 1400, 800, 600)
    assert (writing.written, writing.forced) == (250, 60)
    assert found.replayed == 2
    assert (found.thrown, found.retries) == ({"rule": 40, "duplicate": 5}, {"rule": 3})


def test_the_first_record_is_awaited_from_when_the_model_is_open() -> None:
    assert a_run().first_record == pytest.approx(1.0 + 2.0 + 4.0)


def test_cores_that_do_nothing_are_idle() -> None:
    found = a_run()
    idle = {stage.stage: found.idle(stage) for stage in found.stages}
    assert idle["round 1"] == pytest.approx(1 - 8 / 12)
    assert idle["final choice"] == pytest.approx(0.5)
    assert idle["preparing"] == 1.0


def test_what_was_broken_off_before_anybody_saw_it_is_thrown_away_too() -> None:
    clock, written = Clock(), [1000]
    clock.profiler.opened(lambda: Computed(0, written[0]))
    clock.profiler.listen(Started(1, 8, 20))
    clock.profiler.listen(StageStarted("round", 1, 16))
    clock.profiler.listen(Answered("II", 900, 150))
    written[0] = 1000 + 149
    assert clock.profiler.profile().thrown == {}
    written[0] = 1000 + 149 + 41
    assert clock.profiler.profile().thrown == {"unfinished": 40}


def test_it_is_saved_as_plain_figures(tmp_path: Path) -> None:
    a_run().save(tmp_path / "profile.json")
    said = json.loads((tmp_path / "profile.json").read_text())
    assert said["format"] == "selpe-profile/1"
    assert (said["first_record"], said["total"]["cold"], said["thrown"]["rule"]) == (7.0, 600, 40)
    assert [stage["stage"] for stage in said["stages"]][2] == "round 1"
