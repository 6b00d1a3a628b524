"""Kill −9 at random moments: the resumed release is the uninterrupted one, and no ε is spent twice."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import selpe.report.summary  # noqa: F401  (loaded once, not in every child)
from selpe.config import RunConfig, check_config
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.run.release import RELEASED
from small_world import SCHEMA, drawn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("few_rows_vote"),
    pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL"),
]
KILLS = 100


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], RunConfig]:
    """Settings for a run in a folder of its own, with a ledger and a key of its own."""
    write_table(drawn(40, offset=9000), SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")

    def settings(place: str) -> RunConfig:
        monkeypatch.setenv("SELPE_LEDGER", str(tmp_path / place / "ledgers"))
        return check_config(
            {
                "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
                "epsilon": 4.0, "records": 24, "rounds": 2, "batches": 2, "alpha": 0.25, "bundles": 4,
                "llm": "fake", "encoder": "hash", "out": str(tmp_path / place / "runs"), "seed": 5,
            },
            where="test",
        )  # fmt: skip

    return settings


def execute(run: Run, *, test_seed: int | None, seconds: float = 0.0005) -> None:
    run.execute(model=FakeModel(seconds_per_answer=seconds), encoder=HashingEncoder(64), test_seed=test_seed)


def killed_once_or_done(folder: Path, seconds: float, test_seed: int | None) -> bool:
    """Runs the run in a forked child that is killed after some time. True when it was killed before it was done."""
    child = os.fork()
    if child == 0:
        try:
            execute(Run.open(folder), test_seed=test_seed)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    time.sleep(seconds)
    ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a resumed run failed"
    return os.WIFSIGNALED(status)


def killed_until_done(folder: Path, chance: random.Random, test_seed: int | None) -> int:
    """Kills and resumes until a child survives. Says how many died."""
    kills = 0
    # The longer it takes, the longer a child may live: a slow machine must not make this last for ever.
    while killed_once_or_done(folder, chance.uniform(0.0, 0.3 * 1.05**kills), test_seed):
        kills += 1
    return kills


def released(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "release" / name).read_bytes() for name in RELEASED}


def test_a_killed_and_resumed_run_releases_the_same_bytes(world: Callable[[str], RunConfig]) -> None:
    whole = Run.create(world("whole"), name="same")
    execute(whole, test_seed=11)
    expected = released(whole.folder)
    chance, kills, place = random.Random(0), 0, 0
    while kills < KILLS:
        place += 1
        run = Run.create(world(f"killed-{place}"), name="same")
        run.ledger.set_budget(1000.0)  # a draw lost in a kill is paid again; with a tight cap it would have less ε
        kills += killed_until_done(run.folder, chance, 11)
        got = released(run.folder)
        # The card is left out: a draw that was lost in a kill is paid again, and the card says so.
        for name in ("synthetic.csv", "synthetic.jsonl", "schema.json"):
            assert got[name] == expected[name]
        assert sorted(path.name for path in (run.folder / "release").iterdir()) == sorted(RELEASED)


def test_with_real_noise_every_stored_choice_stands_and_the_ledger_is_never_below_the_truth(
    world: Callable[[str], RunConfig],
) -> None:
    chance, kills, place = random.Random(1), 0, 0
    while kills < 25:
        place += 1
        config = world(f"noisy-{place}")
        run = Run.create(config, name="noisy")
        ledger = run.ledger
        seen: dict[str, object] = {}
        here = 0
        while json.loads((run.folder / "manifest.json").read_text())["state"] != "done":
            here += killed_once_or_done(run.folder, chance.uniform(0.0, 0.3 * 1.05**here), None)
            now = {
                entry.data["selection"]: entry.data["result"] for entry in ledger.entries() if entry.kind == "result"
            }
            for name, result in seen.items():
                assert now[name] == result
            seen = now
        kills += here
        charges = [entry for entry in ledger.entries() if entry.kind == "charge"]
        steps = {"round-1", "round-2", "field-1", "measure-1", "bundle"}
        assert {entry.data["selection"] for entry in charges} == set(seen) == steps
        card = json.loads((run.folder / "release" / "privacy-card.json").read_text())
        assert json.dumps(card).count("NOT PRIVATE") == 0
        assert ledger.spent().epsilon_replace_one <= 4.0 + 1e-6  # also where a kill cost a draw that was paid for
