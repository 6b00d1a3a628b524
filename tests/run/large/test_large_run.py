"""Runs beyond the core: the same ε, exact classes, nothing twice, and the same bytes after a kill at any moment."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from selpe import SelPE
from selpe.config import RunConfig, check_config
from selpe.errors import PrivacyError
from selpe.evaluation.validity import strict
from selpe.events import Event, Finished, StageStarted, Started
from selpe.intake import write_table
from selpe.intake.lines import RecordLines
from selpe.models.base import Answer, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.run.methods import recipe_of
from selpe.run.outcome import Outcome
from selpe.run.packing import pack_release
from selpe.run.preflight import preflight
from selpe.run.release import RELEASED
from small_world import SCHEMA, drawn

LARGE: dict[str, Any] = {"records": 150, "core": 21, "quotas": {"low": 2, "high": 1}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("large")
    write_table(drawn(40, offset=9000), SCHEMA, folder / "private.csv")
    SCHEMA.save(folder / "schema.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_LEDGER", str(folder / "ledgers"))
        patch.setenv("SELPE_KEY", str(folder / "key"))
        patch.setattr("selpe.run.large.further.CHUNK", 40)
        yield folder


def settings(place: Path, dataset: str, **more: Any) -> RunConfig:
    content: dict[str, Any] = {
        "dataset": dataset, "data": str(place / "private.csv"), "schema": str(place / "schema.yaml"), "epsilon": 4.0,
        "rounds": 2, "batches": 2, "alpha": 0.25, "bundles": 4, "llm": "fake", "encoder": "hash",
        "out": str(place / dataset), "seed": 5, "same_data_new_ledger": True,
    }  # fmt: skip
    return check_config(content | LARGE | more, where="test")


def execute(run: Run, model: FakeModel | None = None, **more: Any) -> Outcome:
    given: dict[str, Any] = {
        "model": model or FakeModel(),
        "encoder": HashingEncoder(64),
        "test_seed": 11,
        "insist": True,
    }
    return run.execute(**(given | more))


def released(run: Run) -> dict[str, bytes]:
    return {name: (run.release / name).read_bytes() for name in RELEASED}


class Mortal(FakeModel):
    """Kills its process at an answer."""

    def __init__(self, until: int) -> None:
        super().__init__()
        self.until = until

    def _answer(self, request: Request) -> Answer:
        if self.requests_served == self.until:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._answer(request)


@pytest.fixture(scope="module")
def whole(place: Path) -> tuple[Run, Outcome, list[Event], tuple[int, int]]:
    """A large run, what it told, and how many answers its core and all of it took."""
    run, events, model, core = Run.create(settings(place, "whole"), name="large"), list[Event](), FakeModel(), [0]

    def hear(event: Event) -> None:
        events.append(event)
        if isinstance(event, StageStarted) and event.stage == "further" and not core[0]:
            core[0] = model.requests_served

    return run, execute(run, model, emit=hear), events, (core[0], model.requests_served)


Whole = tuple[Run, Outcome, list[Event], tuple[int, int]]


def test_classes_are_exact_rows_distinct_and_every_row_is_strictly_valid(whole: Whole) -> None:
    run, outcome, _, _ = whole
    lines = (run.release / "synthetic.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines)) == len(outcome.records) == 150
    assert all(strict(line, SCHEMA).ok for line in lines)
    assert Counter(record["urgency"] for record in outcome.records) == {"low": 100, "high": 50}
    assert isinstance(outcome.records, RecordLines)
    assert [SCHEMA.dumps(record) for record in outcome.records[3:5]] == lines[3:5]
    table = (run.release / "synthetic.csv").read_text(encoding="utf-8").splitlines()
    assert len(table) == 151
    card = json.loads((run.release / "privacy-card.json").read_text())
    assert (card["release"]["records"], card["public"]["settings"]["core"]) == (150, 21)
    counts = outcome.manifest["counts"]
    assert (outcome.manifest["records"], outcome.manifest["core"], outcome.manifest["missing"]) == (150, 21, {})
    assert counts["answers"] == whole[3][1]


def test_it_starts_with_the_whole_table_and_is_finished_once(whole: Whole) -> None:
    events = whole[2]
    assert isinstance(events[0], Started)
    assert events[0].records == 150
    assert [event.records for event in events if isinstance(event, Finished)] == [150]
    assert events[-1] == Finished(150)
    assert [event.number for event in events if isinstance(event, StageStarted) and event.stage == "further"] == [
        1, 2, 3, 4,
    ]  # fmt: skip


def test_records_beyond_the_core_cost_nothing_and_the_core_is_chosen_as_if_it_were_all(
    whole: Whole, place: Path
) -> None:
    alone = Run.create(settings(place, "alone", records=21), name="large")
    core = execute(alone)
    large = {SCHEMA.dumps(record) for record in whole[1].records}
    assert {SCHEMA.dumps(record) for record in core.records} <= large
    for key in ("spent", "prices", "selections", "guide", "bundle"):
        assert whole[1].manifest[key] == core.manifest[key]
    assert len(alone.ledger.charges()) == len(whole[0].ledger.charges())


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
def test_killed_while_it_writes_and_resumed_it_releases_the_same_bytes(whole: Whole, place: Path) -> None:
    core, every = whole[3]
    run = Run.create(settings(place, "killed"), name="large")
    for served in (core + 30, 100, 90):  # in the first chunk; what the core took is replayed from then on
        child = os.fork()
        if child == 0:
            try:
                execute(Run.open(run.folder), Mortal(served))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
    assert list((run.folder / "work" / "further").glob("part-*"))
    model = FakeModel()
    outcome = execute(Run.open(run.folder), model)
    assert model.requests_served < every - core - 90
    expected, got = released(whole[0]), released(run)
    for name in ("synthetic.csv", "synthetic.jsonl", "schema.json"):
        assert got[name] == expected[name]
    assert run.ledger.spent() == whole[0].ledger.spent()
    assert outcome.manifest["counts"]["candidates"] == whole[1].manifest["counts"]["candidates"]


def test_a_large_release_packs_and_a_changed_row_in_it_does_not(whole: Whole, tmp_path: Path) -> None:
    run = whole[0]
    pack: dict[str, Any] = {"allowed": RELEASED, "to": tmp_path / "out.zip", "not_private_control": True}
    packed = pack_release(run.folder, run.manifest, SCHEMA, **pack)
    assert packed.records == 150
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.zip"]
    table = run.release / "synthetic.csv"
    rows = table.read_bytes()
    table.write_bytes(rows.replace(b"phone", b"visit", 1))
    try:
        with pytest.raises(PrivacyError, match=r"synthetic.csv.*changed after the run"):
            pack_release(run.folder, run.manifest, SCHEMA, **pack | {"to": tmp_path / "other.zip"})
    finally:
        table.write_bytes(rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.zip"]


def test_a_plan_and_an_estimate_of_a_million_records_are_those_of_the_core(place: Path) -> None:
    recipe = recipe_of("selpe")
    large, small = (settings(place, "planned", core=900, records=records) for records in (10**6, 900))
    plans = [recipe.plan(config, SCHEMA, 40) for config in (large, small)]
    assert [plan.records for plan in plans] == [10**6, 900]
    assert plans[0].prices() == plans[1].prices()
    assert plans[0].guarantee == plans[1].guarantee
    more, less = (recipe.estimate(config, SCHEMA, plan, ()) for config, plan in zip((large, small), plans, strict=True))
    assert more.candidates - less.candidates == 10**6 - 900
    outlook = preflight(large, Run(place, large, {"ledger": str(place / "none")}).ledger)
    assert outlook.as_dict()["estimate"]["candidates"] == more.candidates


def test_python_samples_fewer_all_and_more_of_a_large_release(place: Path) -> None:
    quick: dict[str, Any] = {"llm": "fake", "encoder": "hash", "bundles": 0, "guides": "off", "dataset": "python"}
    fitted = SelPE(SCHEMA, **quick, **LARGE, out=place / "python").fit(drawn(40))
    frame = fitted.sample()
    assert Counter(frame["urgency"]) == {"low": 100, "high": 50}
    assert Counter(fitted.sample(30)["urgency"]) == {"low": 20, "high": 10}
    more = fitted.sample(180)
    assert len(more.drop_duplicates()) == 180
    assert Counter(more["urgency"]) == {"low": 120, "high": 60}
    assert more.head(150).equals(frame)
    assert more.equals(fitted.sample(180))
