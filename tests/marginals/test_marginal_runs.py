"""AIM and MST as whole runs on the fake model: charged, resumable, and with texts if they are asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selpe.config import RunConfig, check_config
from selpe.errors import BudgetError, ModelError
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy import marginals
from selpe.run.lifecycle import Run
from selpe.run.outcome import Outcome
from selpe.schema import Schema
from small_world import drawn

ROWS = 40
SMALL = Schema.from_yaml(
    """
name: desk
label: urgency
fields:
  topic: {kind: text, min_length: 3, max_length: 60}
  channel: {kind: category, values: [phone, mail, visit]}
  minutes: {kind: integer, min: 1, max: 90}
  waited: {kind: integer, min: 0, max: 240, optional: true}
  urgency: {kind: category, values: [low, high]}
rules:
  - if channel == "phone" then minutes <= 60
examples:
  - {topic: lost password, channel: phone, minutes: 5, waited: 2, urgency: low}
  - {topic: line is dead, channel: visit, minutes: 30, waited: null, urgency: high}
"""
)


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., RunConfig]:
    write_table(drawn(ROWS, offset=9000, schema=SMALL), SMALL, tmp_path / "private.csv")
    SMALL.save(tmp_path / "schema.yaml")

    def build(method: str, **more: Any) -> RunConfig:
        content: dict[str, Any] = {
            "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
            "method": method, "epsilon": 2.0, "records": 20, "llm": "fake", "encoder": "hash",
            "out": str(tmp_path / "runs"),
        }  # fmt: skip
        return check_config({**content, **more}, where="test")

    return build


def execute(run: Run, model: FakeModel | None = None, **more: Any) -> Outcome:
    return run.execute(model=model or FakeModel(), encoder=HashingEncoder(64), **more)


@pytest.mark.parametrize("method", ["aim", "mst"])
def test_a_run_releases_valid_records_by_public_quotas_and_spends_its_epsilon_and_no_more(
    settings: Callable[..., RunConfig], method: str
) -> None:
    run = Run.create(settings(method))
    outcome = execute(run)
    assert Counter(record["urgency"] for record in outcome.records) == {"low": 10, "high": 10}
    assert all(not SMALL.check(record) for record in outcome.records)
    assert {record["topic"] for record in outcome.records} == {"---"}
    manifest = outcome.manifest
    assert (manifest["state"], manifest["private"], manifest["missing"]) == ("done", True, 0)
    assert {"urgency", "channel", "minutes", "waited"} <= set(manifest["marginals"])
    spent = run.ledger.spent()
    assert 1.999 < spent.epsilon_replace_one <= 2.0
    assert spent.epsilon_add_remove < 1.4
    assert spent.delta == 1e-5
    (charge,) = run.ledger.charges()
    assert charge.mechanism == f"{method}, discrete gaussian"
    card = json.loads((run.release / "privacy-card.json").read_text())
    assert card["mechanism"]["names"] == [f"{method}, discrete gaussian"]
    with pytest.raises(BudgetError):
        execute(Run.create(settings(method, seed=1)))
    assert run.ledger.spent() == spent


def test_a_killed_run_goes_on_with_what_it_has_paid_for(settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    written = {"mst": {"texts": "written"}, "budget": 10.0}
    whole = execute(Run.create(settings("mst", **written), name="whole"), test_seed=1)
    assert not whole.manifest["private"]
    assert any("seeded" in one["mechanism"] for one in whole.manifest["selections"])

    class Dying(FakeModel):
        def generate(self, requests: Any, **more: Any) -> Any:
            raise KeyboardInterrupt

    run = Run.create(settings("mst", **written), name="killed")
    with pytest.raises(KeyboardInterrupt):
        execute(run, Dying(), test_seed=1)
    assert run.manifest["state"] == "interrupted"
    resumed = execute(Run.open(run.folder), test_seed=1)
    assert resumed.records == whole.records
    assert [charge.run for charge in run.ledger.charges()] == ["whole", "killed"]
    assert all(record["topic"] != "---" for record in resumed.records)
    assert Counter(record["urgency"] for record in resumed.records) == {"low": 10, "high": 10}


def test_a_measurement_that_was_lost_stays_paid_for_and_nothing_more_is_spent(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(settings("mst"))
    with monkeypatch.context() as patch:
        patch.setattr(marginals.SeededDraws, "counts", lambda *_: 1 / 0)
        with pytest.raises(ModelError, match="withheld"):
            execute(run, test_seed=1)
    outcome = execute(Run.open(run.folder), test_seed=1)
    assert len(outcome.records) == 20  # left to chance: no row was looked at
    assert outcome.manifest["marginals"] == []
    assert run.ledger.spent().epsilon_replace_one <= 2.0


def test_no_private_value_is_in_any_file_of_a_run(settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    marked = [record | {"topic": f"MARKER{i} zyx"} for i, record in enumerate(drawn(ROWS, offset=9000, schema=SMALL))]
    write_table(marked, SMALL, tmp_path / "private.csv")
    outcome = execute(Run.create(settings("mst", epsilon=float("inf"))), test_seed=1)
    files = [path for path in [*outcome.folder.rglob("*"), *(tmp_path / "ledgers").rglob("*")] if path.is_file()]
    assert len(files) > 8
    assert all(b"MARKER" not in path.read_bytes() for path in files)
