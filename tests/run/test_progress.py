"""The meter: what it counts, what it leaves out, and how the terminal, logs and machines show it."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from selpe.cli import console
from selpe.cli.display import JsonLines, PlainLines, render
from selpe.events import Answered, Event, Finished, Included, PoolReady, Selected, StageStarted, Started, Trained
from selpe.run.event_log import EventLog, EventReader
from selpe.run.progress import Meter, ProgressReading, clock, duration


@dataclass
class World:
    """A meter whose clock moves by hand."""

    epsilon: float = 2.0
    now: float = 1000.0
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        self.meter = Meter(epsilon=self.epsilon, clock=lambda: self.now)

    def hear(self, *events: Event, seconds: float = 0.0) -> ProgressReading:
        for event in events:
            self.now += seconds
            self.meter.listen(event)
        return self.meter.read()


def answers(count: int, *, replayed: bool = False) -> list[Event]:
    pair: list[Event] = [Answered("I", 100, 20, replayed), Answered("II", 100, 30, replayed)]
    return pair * count


def choice(name: str, epsilon: float, *, private: bool = True) -> Selected:
    return Selected(name, "permute-and-flip", epsilon / 2, epsilon, private, False, {})


def test_steps_of_training_count_towards_the_whole_and_tell_the_time_left() -> None:
    world = World()
    world.hear(Started(1, 10, 30))
    reading = world.hear(*(Trained(step, 20) for step in range(1, 6)), choice("training-1", 0.5), seconds=3.0)
    assert (reading.title, reading.activity, reading.unit) == ("Training", "step 5 of 20", "steps")
    assert (reading.done, reading.total) == (5, 30)
    assert reading.share == pytest.approx(1 / 6)
    assert reading.left == pytest.approx(15 * 15 / 4)  # 15 steps, and 15 seconds for the last four and a choice
    world.hear(*(Trained(step, 20) for step in range(6, 21)), seconds=3.0)
    reading = world.hear(StageStarted("texts", 0, 10), *answers(4))
    assert (reading.done, reading.total, reading.pool_size, reading.unit) == (24, 30, 10, "candidates")
    assert world.hear(Finished(10)).share == 1.0


def test_retries_never_push_a_pool_past_its_size() -> None:
    world = World()
    world.hear(Started(2, 10, 30), StageStarted("round", 1, 10))
    reading = world.hear(*answers(13))
    assert (reading.done, reading.pool_done, reading.retried) == (10, 10, 3)
    reading = world.hear(PoolReady("round", 1, 9, {"rule": 2, "duplicate": 1}, {"rule": 1}))
    assert (reading.done, reading.retried, reading.retries, reading.given_up) == (
        10, 3, {"rule": 2, "duplicate": 1}, {"rule": 1},
    )  # fmt: skip
    assert world.hear(StageStarted("round", 2, 20)).done == 10


def test_a_context_that_waits_for_its_record_is_half_a_candidate() -> None:
    world = World()
    world.hear(Started(1, 10, 20), StageStarted("round", 1, 20))
    reading = world.hear(*[Answered("I", 100, 20)] * 10, seconds=1.0)
    assert (reading.done, reading.share) == (0, 0.25)
    assert reading.left == pytest.approx(30.0)
    reading = world.hear(*[Answered("II", 100, 20)] * 4, *[Answered("I", 100, 20)] * 30)
    assert (reading.done, reading.share) == (4, 0.6)


def test_pools_that_were_not_announced_lengthen_the_way_instead_of_passing_the_end() -> None:
    world = World()
    world.hear(Started(1, 4, 4), StageStarted("round", 1, 4), *answers(4), PoolReady("round", 1, 2, {}, {}))
    reading = world.hear(StageStarted("more", 1, 2), *answers(1))
    assert (reading.done, reading.total, reading.title) == (5, 6, "Filling up classes")
    assert reading.share < 1


def phrases(count: int) -> list[Event]:
    return [Answered("phrases", 60, 8)] * count


def test_measuring_has_words_and_its_phrases_are_no_candidates() -> None:
    world = World()
    world.hear(Started(1, 10, 20), StageStarted("round", 1, 10), *answers(10), PoolReady("round", 1, 10, {}, {}))
    reading = world.hear(Included(1, 10), StageStarted("measure", 0, 0))
    assert (reading.title, reading.activity) == ("Measuring", "counting with noise")
    reading = world.hear(choice("field-1", 0.2), *phrases(300))
    assert (reading.done, reading.total, reading.retried) == (10, 20, 0)
    assert reading.activity == reading.judging == "300 phrases written to count with"
    assert (reading.steps, reading.completion_tokens) == (10, 10 * 50 + 300 * 8)
    reading = world.hear(choice("measure-1", 1.0))
    assert (reading.activity, reading.share) == ("counting with noise", 0.5)
    assert reading.spent == pytest.approx(1.2)


def test_records_that_stay_as_they_are_shorten_the_way() -> None:
    world = World()
    world.hear(Started(1, 10, 20), StageStarted("round", 1, 10), *answers(10), PoolReady("round", 1, 10, {}, {}))
    world.hear(Included(1, 10), StageStarted("measure", 0, 0), choice("measure-1", 1.0))
    reading = world.hear(StageStarted("measured", 1, 6), *answers(3))
    assert (reading.title, reading.activity) == ("Writing what was measured", "writing candidates")
    assert (reading.done, reading.total, reading.pool_size) == (13, 16, 6)
    reading = world.hear(*answers(3), PoolReady("measured", 1, 5, {"rule": 4}, {"rule": 1}))
    assert (reading.done, reading.total, reading.retries) == (16, 16, {"rule": 4})
    assert world.hear(StageStarted("measured", 2, 1)).total == 17


def test_records_beyond_the_core_stay_announced() -> None:
    world = World()
    world.hear(Started(1, 110, 120), StageStarted("round", 1, 10), *answers(10), PoolReady("round", 1, 10, {}, {}))
    reading = world.hear(Included(1, 10), StageStarted("measured", 1, 4))
    assert reading.total == 114


def test_epsilon_is_summed_under_the_relation_of_the_run() -> None:
    events = (choice("guide", 0.5), choice("round-1", 0.25))
    assert World().hear(*events).spent == pytest.approx(0.75)
    other = Meter(epsilon=2.0, adjacency="add-remove")
    for event in events:
        other.listen(event)
    assert other.read().spent == pytest.approx(0.375)


def test_answers_from_disk_count_as_done_but_not_as_speed() -> None:
    world = World()
    world.hear(Started(1, 50, 150), StageStarted("round", 1, 150))
    world.hear(*answers(100, replayed=True))
    reading = world.hear(*answers(20), seconds=0.5)
    assert (reading.done, reading.replayed) == (120, 200)
    assert reading.records_per_second == pytest.approx(1.0)
    assert reading.tokens_per_second == pytest.approx(50.0)
    assert reading.left == pytest.approx(30.0)


def test_the_first_of_many_answers_begun_at_once_do_not_tell_a_pace() -> None:
    world = World()
    world.hear(Started(1, 100, 300), StageStarted("round", 1, 300))
    # Sixty prompts were read at once, which took a minute: four answers after it are not four a minute.
    assert world.hear(*answers(4), seconds=15.0).outlook == "estimating …"
    assert world.hear(*answers(56), seconds=0.1).left is not None


def test_time_left_follows_the_pace_with_retries_and_choices_in_it() -> None:
    world = World()
    world.hear(Started(2, 20, 40), StageStarted("round", 1, 20))
    assert world.meter.read().left is None
    reading = world.hear(*answers(20), seconds=0.5)
    assert reading.left == pytest.approx(20.0)
    reading = world.hear(PoolReady("round", 1, 20, {}, {}), choice("round-1", 1.0), seconds=10.0)
    assert reading.left == pytest.approx(40.0)


def test_a_resumed_run_starts_anew() -> None:
    world = World()
    world.hear(Started(1, 5, 10), StageStarted("round", 1, 10), *answers(4), choice("guide", 0.5))
    reading = world.hear(Started(1, 5, 10))
    assert (reading.done, reading.spent, reading.answers, reading.doing) == (0, 0.0, 0, "preparing")


def test_the_clock_stops_when_the_run_is_done() -> None:
    world = World()
    world.hear(Started(1, 5, 10), Included(1, 5), seconds=1.0)
    world.hear(Finished(5), seconds=3.0)
    world.now += 500
    reading = world.meter.read()
    assert (reading.share, reading.elapsed, reading.left, reading.records) == (1.0, 4.0, 0.0, 5)


def test_a_control_without_noise_is_still_json() -> None:
    reading = World(epsilon=math.inf).hear(choice("guide", math.inf, private=False))
    plain = reading.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False))["epsilon"] == "inf"
    assert plain["choices"][0]["epsilon"] == "inf"


def test_newest_samples_come_first_and_old_ones_go() -> None:
    world = World()
    for number in range(1, 5):
        samples = tuple({"n": 10 * number + i} for i in range(4))
        world.hear(StageStarted("round", number, 4), PoolReady("round", number, 4, {}, {}, samples))
    shown = [sample["n"] for sample in world.meter.read().samples]
    assert shown == [40, 41, 42, 43, 30, 31, 32, 33]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.4, "4 s"), (89, "89 s"), (150, "2 min"), (5400, "1 h 30 min"), (None, "?"), (math.inf, "?")],
)
def test_durations_read_well(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_clocks_read_like_clocks() -> None:
    assert [clock(7.9), clock(750), clock(3723)] == ["0:07", "12:30", "1:02:03"]


# -- the log ---------------------------------------------------------------------------------------------------------


def test_a_log_read_back_gives_the_same_reading(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "events.jsonl"
    events = [
        Started(1, 5, 12), StageStarted("round", 1, 12), *answers(9), *answers(4, replayed=True),
        PoolReady("round", 1, 12, {"rule": 1}, {}, ({"x": "é"},)), choice("round-1", 0.5), Included(1, 5), Finished(5),
    ]  # fmt: skip
    with EventLog(path, clock=lambda: world.now) as log:
        for event in events:
            log.listen(event)
            world.hear(event)
    other = Meter(epsilon=2.0, clock=lambda: world.now)
    for moment, event in EventReader(path).more():
        other.listen(event, moment)
    assert other.read() == world.meter.read()


def test_a_log_sums_answers_up_to_a_few_lines_a_second(tmp_path: Path) -> None:
    now = 0.0
    with EventLog(tmp_path / "events.jsonl", clock=lambda: now) as log:
        for _ in range(1000):
            now += 0.01
            log.listen(Answered("II", 1, 1))
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert len(lines) <= 11
    assert sum(line["count"] for line in lines) == 1000


def test_a_line_still_being_written_waits_and_strange_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert reader.more() == []
    whole = '{"time": "2026-01-01T00:00:00+00:00", "event": "Finished", "records": 3}\n'
    path.write_text('{"event": "FromTheFuture"}\nnot json\n[]\n' + whole + whole[:20])
    assert [event for _, event in reader.more()] == [Finished(3)]
    with path.open("a") as file:
        file.write(whole[20:])
    assert [event for _, event in reader.more()] == [Finished(3)]
    assert reader.more() == []


# -- showing it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_the_live_display_keeps_to_four_lines_at_any_width(width: int) -> None:
    world = World()
    world.hear(Started(5, 200, 123456), StageStarted("round", 3, 60000))
    world.hear(*answers(30), choice("guide", 0.5), seconds=0.3)
    target = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    target.print(render(world.meter.read(), width))
    lines = target.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 4
    assert max(map(len, lines)) <= width
    assert "Round 3 of 5" in lines[0]


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    target = io.StringIO()
    monkeypatch.setattr("selpe.cli.display.err", lambda: Console(file=target, soft_wrap=True))
    yield target
    console.err.cache_clear()


def test_a_log_gets_a_line_per_stage_and_one_every_ten_seconds(stderr: io.StringIO) -> None:
    world = World()
    lines = PlainLines(clock=lambda: world.now)
    for event in (Started(1, 5, 10), StageStarted("round", 1, 10), Included(1, 5)):
        lines.event(event, world.hear(event))
    before = stderr.getvalue().splitlines()
    assert before == ["[0:00] 5 records in 1 round from 10 candidates", "[0:00] Round 1 of 1: writing 10 candidates"]
    for _ in range(25):
        lines.tick(world.hear(*answers(1), seconds=0.5))
    after = stderr.getvalue().splitlines()[2:]
    assert len(after) == 2
    assert "[0:10] Round 1 of 1: 10 of 10 candidates" in after[0]


def test_a_log_tells_of_measuring_in_words(stderr: io.StringIO) -> None:
    world, lines = World(), PlainLines(clock=lambda: 0.0)
    for event in (
        Started(1, 10, 20), StageStarted("measure", 0, 0), choice("field-1", 0.2), choice("measure-1", 1.0),
        StageStarted("measured", 1, 6), PoolReady("measured", 1, 5, {"rule": 4}, {"rule": 1}),
        PoolReady("measured", 2, 0, {}, {}),
    ):  # fmt: skip
        lines.event(event, world.hear(event))
    said = stderr.getvalue().splitlines()
    assert [line.partition("] ")[2] for line in said[1:]] == [
        "Measuring: phrases for codebooks, then counts",
        "private vote 1 for a field to measure: ε 0.2",
        "private rows counted, look 1: ε 1",
        "Writing what was measured: writing 6 candidates",
        "records written around what was measured: 5 candidates, retried: 4 rule, 1 given up",
    ]
    event = PoolReady("measured", 1, 0, {}, {})
    lines.event(event, world.hear(event))
    assert stderr.getvalue().rstrip().endswith("no record had to be written anew")


def test_reasons_and_losses_are_named(stderr: io.StringIO) -> None:
    world = World()
    event = PoolReady("round", 2, 7, {"duplicate": 3, "rule": 1}, {"rule": 2})
    PlainLines(clock=lambda: world.now).event(event, world.hear(event))
    assert stderr.getvalue() == "[0:00] round 2 written: 7 candidates, retried: 3 duplicate, 1 rule, 2 given up\n"


def test_machines_get_events_and_readings_without_bulk(capsys: pytest.CaptureFixture[str]) -> None:
    world, lines = World(), JsonLines()
    event = PoolReady("round", 1, 1, {}, {}, ({"text": "a record"},))
    lines.event(event, world.hear(event))
    lines.tick(world.hear(choice("guide", 0.5)))
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["event"], "samples" in first) == ("PoolReady", False)
    assert second["progress"]["spent"] == 0.5
    assert not {"samples", "choices"} & set(second["progress"])
