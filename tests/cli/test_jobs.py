"""Processes of one experiment: which cores they have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from selpe.cli import jobs


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system keeps no process to cores")
def test_another_process_can_choose_among_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one core")
    start = subprocess.Popen
    script = "import os, time; time.sleep(1); print(len(os.sched_getaffinity(0)))"
    monkeypatch.setattr(subprocess, "Popen", lambda words, **more: start([sys.executable, "-c", script], **more))
    with jobs.kept_to_cores(0, 2), jobs.others_at_work(2, tmp_path):
        assert os.sched_getaffinity(0) < before
    assert os.sched_getaffinity(0) == before
    assert int((tmp_path / "jobs" / "1.log").read_text(encoding="utf-8")) == len(before)


def test_a_process_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = subprocess.Popen, []

    def deaf(_: list[str], **more: Any) -> subprocess.Popen[bytes]:
        started.append(start([sys.executable, "-c", "import time; time.sleep(600)"], **more))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", deaf)
    monkeypatch.setattr(jobs, "PATIENCE", 0.1)
    with jobs.others_at_work(2, tmp_path):
        assert started[0].poll() is None
    assert started[0].returncode not in (None, 0)
