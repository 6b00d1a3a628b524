"""Kill −9 at random moments of a run with the embedded model: the resumed release is the uninterrupted one.

This also needs the engine to write the same text again, bit for bit, when what was in flight is asked for anew beside
other requests than before.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from selpe.config import check_config
from selpe.intake import write_table
from selpe.run.lifecycle import Run
from selpe.run.release import RELEASED
from small_world import SCHEMA, drawn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL"),
]
KILLS = 5
# A process of its own: OpenVINO does not survive a fork.
CHILD = """
import sys
from pathlib import Path
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.open import open_model
from selpe.run.lifecycle import Run

with open_model("smollm2", memory=2**28, parallel=16) as model:
    print("ready", flush=True)
    Run.open(Path(sys.argv[1])).execute(model=model, encoder=HashingEncoder(64), test_seed=11)
"""
Begin = Callable[[str], Run]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2: Path) -> Begin:
    """A new run in a folder of its own, with a ledger of its own."""
    assert smollm2.exists()
    write_table(drawn(30, offset=9000), SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")

    def make(place: str) -> Run:
        monkeypatch.setenv("SELPE_LEDGER", str(tmp_path / place / "ledgers"))
        content = {
            "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
            "epsilon": 4.0, "records": 8, "rounds": 2, "batches": 1, "alpha": 0.25, "multiplicity": 2, "bundles": 4,
            "guides": "off", "llm": "smollm2", "encoder": "hash", "out": str(tmp_path / place / "runs"), "seed": 5,
        }  # fmt: skip
        run = Run.create(check_config(content, where="test"), name="same")
        run.ledger.set_budget(1000.0)  # a draw lost in a kill is paid again; with a tight cap it would have less ε
        return run

    return make


def start(folder: Path) -> subprocess.Popen[str]:
    """A child at work on the run, its model loaded."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def finish(child: subprocess.Popen[str]) -> None:
    child.communicate()
    assert child.returncode == 0, "a resumed run failed"


def killed(child: subprocess.Popen[str], seconds: float) -> bool:
    """Kills the child after some time. False when it was done before."""
    try:
        child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    assert child.returncode in (0, -signal.SIGKILL), "a resumed run failed"
    return child.returncode != 0


def answers(run: Run) -> dict[str, str]:
    """What the model wrote, by request."""
    path = run.folder / "work" / "answers.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    assert len({line["key"] for line in whole}) == len(whole)  # no answer was written twice
    return {line["key"]: line["text"] for line in whole}


def test_a_run_with_the_embedded_model_that_is_killed_and_resumed_releases_the_same_bytes(begin: Begin) -> None:
    whole = begin("whole")
    child = start(whole.folder)
    began = time.monotonic()
    finish(child)
    work, expected = time.monotonic() - began, answers(whole)
    chance, kills, place = random.Random(0), 0, 0
    while kills < KILLS:
        place += 1
        run, kept = begin(f"killed-{place}"), dict[str, str]()
        while kills < KILLS and killed(start(run.folder), chance.uniform(0.0, work / 3)):
            kills += 1
            assert answers(run).items() >= kept.items()  # what was finished stays
            kept = answers(run)
        finish(start(run.folder))
        assert answers(run) == expected
        assert sorted(path.name for path in run.release.iterdir()) == sorted(RELEASED)
        # The card is left out: a draw that was lost in a kill is paid again, and the card says so.
        for name in ("synthetic.csv", "synthetic.jsonl", "schema.json"):
            assert (run.release / name).read_bytes() == (whole.release / name).read_bytes()
