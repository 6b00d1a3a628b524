"""Signals, clocks and memory: a run stops where it must, keeps what it has, and goes on from there."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import selpe.report.summary
import selpe.run.lifecycle
import selpe.run.release
from faults_world import (
    MARK,
    at,
    befallen,
    choices,
    released,
    require_tidy,
    spent,
    state,
)
from in_process import selpe as command
from selpe.events import Answered, Included, Started, Trained
from selpe.models.answers import AnswerStore
from selpe.models.encoders.vectors import RememberingEncoder
from selpe.privacy.ledger import Ledger, journal
from selpe.run.event_log import EventLog, EventReader
from selpe.run.progress import Meter

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")
RUN = ("run", "--name", "mine", "--yes")
HUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none, and skips all this


# -- signals ---------------------------------------------


def sent(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def heard(befall: Callable[[], None]) -> Callable[[], None]:
    """The same where signals are heard, whoever runs the tests: `nohup` and background jobs are deaf to some."""

    def listen_first() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, HUP):
            signal.signal(number, signal.SIG_DFL)
        befall()

    return listen_first


SIGNALS: dict[str, Callable[[], None]] = {
    "SIGINT while answers come": at(AnswerStore, "put", sent(signal.SIGINT), nth=5),
    "SIGTERM while answers come": at(AnswerStore, "put", sent(signal.SIGTERM), nth=5),
    "SIGHUP while answers come": at(AnswerStore, "put", sent(HUP), nth=5),
    "SIGTERM between charge and draw": at(Ledger, "charge", sent(signal.SIGTERM), after=True),
    "SIGHUP after a choice": at(Ledger, "store", sent(HUP), after=True),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_stops_a_run_cleanly_and_nothing_is_paid_for_twice(project: Path, name: str) -> None:
    stopped = befallen(RUN, heard(SIGNALS[name]))
    require_tidy(stopped, 130)
    assert "selpe resume runs/mine" in stopped.err
    assert state(project) == "interrupted"
    kept = choices(project)
    require_tidy(command("resume", "mine"), 0)
    assert kept.items() <= choices(project).items()
    assert spent(project) == pytest.approx(4.0)


def test_a_signal_while_the_release_is_written_is_too_late_to_stop_it(project: Path) -> None:
    require_tidy(befallen(RUN, at(selpe.run.release, "build_card", sent(signal.SIGTERM))), 0)
    assert state(project) == "done"
    assert spent(project) == pytest.approx(4.0)


def test_nohup_means_what_it_says(project: Path) -> None:
    arm = SIGNALS["SIGHUP while answers come"]

    def befall() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        arm()

    require_tidy(befallen(RUN, befall), 0)
    assert state(project) == "done"


def test_a_signal_before_anything_began_spends_nothing(project: Path) -> None:
    ended = befallen(RUN, at(selpe.run.lifecycle.Run, "create", sent(signal.SIGTERM)))
    assert ended.code == -signal.SIGTERM
    assert not (project / "ledger").exists()


# -- clocks ---------------------------------------------


class Jumping(datetime):
    """A clock that is set forwards and back by years, every time somebody looks."""

    looks = 0

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        cls.looks += 1
        return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(days=4000 * (-1) ** cls.looks)


def test_a_clock_that_jumps_changes_times_and_nothing_else(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "datetime", Jumping)
    monkeypatch.setattr(selpe.run.lifecycle, "datetime", Jumping)
    looks = 0

    def leaping() -> float:
        nonlocal looks
        looks += 1
        return 2.0e9 if looks % 2 else 1.4e9

    monkeypatch.setattr("time.time", leaping)
    require_tidy(command(*RUN), 0)
    require_tidy(command("runs"), 0)
    require_tidy(command("budget", "show", "desk"), 0)
    require_tidy(command("budget", "history", "desk", "--verify"), 0)
    assert spent(project) == pytest.approx(4.0)
    events = EventReader(project / "runs" / "mine" / "work" / "events.jsonl").more()
    meter = Meter(epsilon=4.0)
    for moment, event in events:
        meter.listen(event, moment)
    assert any(isinstance(event, Included) for _, event in events)
    assert json.loads((project / "runs" / "mine" / "manifest.json").read_text())["seconds"] >= 0


def test_answers_are_logged_although_the_clock_was_set_back(tmp_path: Path) -> None:
    now = [1000.0]
    with EventLog(tmp_path / "events.jsonl", clock=lambda: now[0]) as log:
        log.listen(Answered("I", 1, 1))
        now[0] = 10.0
        log.listen(Answered("I", 1, 1))
        assert len(EventReader(tmp_path / "events.jsonl").more()) == 1


def test_no_reading_is_negative_when_the_clock_was_set_back() -> None:
    now = [1000.0]
    meter = Meter(clock=lambda: now[0])
    meter.listen(Started(1, 10, 100))
    meter.listen(Trained(1, 10))
    now[0] = 900.0
    meter.listen(Trained(3, 10))
    reading = meter.read()
    assert reading.elapsed == 0.0
    assert reading.left == 0.0
    meter.listen(Answered("II", 5, 5))
    assert meter.read().tokens_per_second >= 0.0


# -- memory ---------------------------------------------


def use_up_memory() -> None:
    """From now on this process gets next to no memory that it does not have yet."""
    import resource  # which Windows has not

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs to know its own size")
@pytest.mark.parametrize("moment", ["at the start", "between charge and draw"])
def test_a_run_without_memory_ends_and_its_ledger_is_whole(project: Path, moment: str) -> None:
    """It may get through, fail with a message, or be ended by a library; it never leaves half a line behind.

    Libraries do not all say that memory was what they lacked, and OpenBLAS asks for its first block over and over
    until it is given one, or killed.
    """
    arm = use_up_memory if moment == "at the start" else at(Ledger, "charge", use_up_memory, after=True)
    ended = befallen(RUN, arm, patience=20.0)
    if ended.code > 0:
        assert ended.code in (1, 2, 3), ended
        assert "Traceback" not in ended.said
        assert MARK not in ended.said
    kept, paid = choices(project), spent(project)
    assert paid <= 4.0 + 1e-9
    if (project / "runs" / "mine" / "manifest.json").exists():
        require_tidy(command("resume", "mine"), 0)
        assert kept.items() <= choices(project).items()
        assert paid <= spent(project) <= 4.0 + 1e-9


def test_a_lack_of_memory_is_said_so(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(RememberingEncoder, "encode_public", none_left)
        ended = command(*RUN)
    require_tidy(ended, 1)
    assert "not enough memory" in ended.err
    assert "selpe resume" in ended.err
    require_tidy(command("resume", "mine"), 0)
    assert released(project)
    assert spent(project) == pytest.approx(4.0)
