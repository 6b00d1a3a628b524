from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from selpe.config import RunConfig, check_config
from selpe.errors import BudgetError, ConfigError, RunError
from selpe.intake import write_table
from selpe.method.from_settings import plan_of
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel, Faults
from selpe.privacy.ledger import Charge
from selpe.run.lifecycle import Run, list_runs
from selpe.run.manifest import write_manifest
from selpe.run.outcome import Outcome
from selpe.run.release import RELEASED
from small_world import SCHEMA, drawn


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., RunConfig]:
    write_table(drawn(40, offset=9000), SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")

    def build(**more: object) -> RunConfig:
        content: dict[str, object] = {
            "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
            "epsilon": 4.0, "records": 24, "bundles": 4, "llm": "fake", "encoder": "hash",
            "out": str(tmp_path / "runs"),
        }  # fmt: skip
        return check_config({**content, **more}, where="test")

    return build


def execute(run: Run, model: FakeModel | None = None) -> Outcome:
    return run.execute(model=model or FakeModel(), encoder=HashingEncoder(64))


def test_a_run_writes_what_may_leave_the_house_and_nothing_else_there(settings: Callable[..., RunConfig]) -> None:
    outcome = execute(Run.create(settings()))
    assert sorted(path.name for path in (outcome.folder / "release").iterdir()) == sorted(RELEASED)
    lines = (outcome.folder / "release" / "synthetic.jsonl").read_text().splitlines()
    assert [SCHEMA.check(json.loads(line)) for line in lines] == [[]] * 24
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert (manifest["state"], manifest["records"], manifest["private"]) == ("done", 24, True)
    assert manifest["counts"]["completion_tokens"] > 0
    assert [one["name"] for one in list_runs(outcome.folder.parent)] == [manifest["name"]]


def test_the_first_run_sets_the_budget_and_the_second_is_refused_before_anything_is_spent(
    settings: Callable[..., RunConfig],
) -> None:
    first = Run.create(settings())
    execute(first)
    spent = first.ledger.spent()
    with pytest.raises(BudgetError):
        execute(Run.create(settings(seed=1)))
    assert first.ledger.spent() == spent


def test_no_private_value_is_in_any_file_of_a_run(settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    marked = [record | {"topic": f"MARKER{i} zyx"} for i, record in enumerate(drawn(40, offset=9000))]
    write_table(marked, SCHEMA, tmp_path / "private.csv")
    outcome = execute(Run.create(settings()))
    files = [path for path in [*outcome.folder.rglob("*"), *(tmp_path / "ledgers").rglob("*")] if path.is_file()]
    assert len(files) > 8
    assert all(b"MARKER" not in path.read_bytes() for path in files)


def test_a_draw_lost_in_a_kill_is_not_free_and_the_run_goes_on_with_less(settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings())
    run.ledger.set_budget(4.0)
    run.ledger.charge(Charge(run.name, "guide", "permute-and-flip", 0.5, 1.0))  # paid, and its result lost
    outcome = execute(Run.open(run.folder))
    spent = run.ledger.spent()
    assert len(outcome.records) == 24
    assert 3.9 < spent.epsilon_replace_one <= 4.0 + 1e-6
    assert spent.without_result == 1
    again = execute(Run.open(run.folder))  # the scaled prices were kept, so stored choices are found again
    assert again.records == outcome.records
    assert run.ledger.spent() == spent


@pytest.mark.usefixtures("few_rows_vote")
@pytest.mark.parametrize("spared", [0.0, 1e-9])
def test_when_lost_draws_took_all_of_the_epsilon_what_is_left_is_chance(
    settings: Callable[..., RunConfig], spared: float
) -> None:
    run = Run.create(settings())
    run.ledger.set_budget(4.0)
    lost = 4.0 - spared
    run.ledger.charge(Charge(run.name, "bundle", "permute-and-flip", lost / 2, lost))  # paid, and its result lost
    outcome = execute(Run.open(run.folder))
    assert len(outcome.records) == 24
    assert run.ledger.spent().epsilon_replace_one == pytest.approx(lost)
    free = {"uniform (ε = 0)", "nothing counted (ε = 0)"}
    assert {one["mechanism"] for one in outcome.manifest["selections"]} == free
    charged = {entry.data["selection"] for entry in run.ledger.entries() if entry.kind == "charge"}
    assert charged == {one["selection"] for one in outcome.manifest["selections"]}
    assert execute(Run.open(run.folder)).records == outcome.records  # chance is drawn once, and stored


def test_a_resumed_run_keeps_its_plan_when_the_planner_has_changed(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(settings(records=60))
    first = execute(run)
    chosen = run.manifest["chosen"]

    def other(config: RunConfig, schema: object, *, units: int, guides: int) -> object:
        changed = config if config.rounds else config.model_copy(update={"rounds": 1, "batches": 1, "alpha": 0.1})
        return plan_of(changed, schema, units=units, guides=guides)  # type: ignore[arg-type]

    monkeypatch.setattr("selpe.run.own_method.plan_of", other)
    again = Run.open(run.folder)
    assert execute(again).records == first.records
    assert again.manifest["chosen"] == chosen


@pytest.mark.usefixtures("few_rows_vote")
def test_a_resumed_run_keeps_its_measurement_and_its_last_vote_when_thresholds_have_changed(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(settings())
    first = execute(run)
    kept = run.manifest["measurement"]
    assert kept["choices"]
    assert "bundle" in run.manifest["prices"]
    changed = (
        ("LEAST", 10_000.0),
        ("FEW_PHRASES", 7),
        ("CODES", ((0.0, 5, 2),)),
        ("WORTH_A_VOTE", 1e9),
        ("WORTH_A_FIELD", 1e9),
    )
    for name, value in changed:
        monkeypatch.setattr(f"selpe.privacy.measure_plan.{name}", value)
    again = Run.open(run.folder)
    assert again.begin().plan.to_dict()["measure"] == kept
    assert execute(again).records == first.records
    assert again.manifest["measurement"] == kept


@pytest.mark.parametrize("old", [True, False])
def test_a_run_that_began_without_measuring_goes_on_without(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    with monkeypatch.context() as before:
        before.setattr("selpe.privacy.measure_plan.LEAST", 10_000.0)
        run = Run.create(settings())
        first = execute(run)
    assert run.manifest["measurement"] is None
    assert "guide" in run.manifest["prices"]
    if old:  # versions without measured tables did not tell
        del run.manifest["measurement"]
        write_manifest(run.folder, run.manifest)
    again = Run.open(run.folder)
    assert again.begin().plan.to_dict()["measure"] is None
    assert execute(again).records == first.records


def test_a_changed_schema_is_refused_on_resume(settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    run = Run.create(settings())
    execute(run)
    text = (tmp_path / "schema.yaml").read_text().replace("max: 90", "max: 91")
    (tmp_path / "schema.yaml").write_text(text)
    with pytest.raises(RunError, match="schema has changed"):
        execute(Run.open(run.folder))


def test_a_run_completes_on_a_model_that_fails_a_third_of_the_time(settings: Callable[..., RunConfig]) -> None:
    faults = Faults(invalid_json=0.1, truncated=0.05, wrong_enum=0.05, timeout=0.05, rate_limited=0.05)
    outcome = execute(Run.create(settings()), FakeModel(faults=faults))
    assert len(outcome.records) == 24
    assert sum(outcome.manifest["counts"]["retries"].values()) > 10


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        Run.open(tmp_path)


@pytest.mark.parametrize("name", ["../aside", "a/b", "NUL", "a.", "a:b", ""])
def test_no_name_leads_a_run_out_of_the_folder_of_all_runs(
    settings: Callable[..., RunConfig], tmp_path: Path, name: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="cannot be a run's name"):
        Run.create(settings(), name=name)
    assert sorted(tmp_path.rglob("*")) == before
