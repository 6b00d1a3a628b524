"""dpgen, ctcl and dpds as whole runs, with a tiny model of random weights and the fake language model."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selpe.baselines.dpds import open_classifier
from selpe.baselines.train.learner import TorchLearner
from selpe.config import RunConfig, check_config
from selpe.errors import BudgetError, RunError, StoppedError
from selpe.events import Answered, Event, Selected, Trained
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.accounting import gaussian_epsilon
from selpe.privacy.table import PrivateTable
from selpe.run.lifecycle import Run
from selpe.run.outcome import Outcome
from selpe.run.release import released_files
from small_world import SCHEMA, UNLABELLED, drawn

METHODS = ("dpgen", "ctcl", "dpds")
UNITS, STEPS = 8, 6


@pytest.fixture
def settings(tmp_path: Path, tiny: Path) -> Callable[..., RunConfig]:
    write_table(drawn(UNITS, offset=9000), SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")

    def build(method: str, own: dict[str, Any] | None = None, **more: object) -> RunConfig:
        training = {"model": str(tiny), "steps": STEPS, "stretches": 3, "rank": 2, "tokens": 48}
        if method != "dpds":
            training |= {"public_steps": 1}
        if method == "ctcl":
            training |= {"topics": 3, "public_records": 12}
        content: dict[str, object] = {
            "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
            "method": method, "epsilon": 2.0, "records": 6, "llm": "fake", "encoder": "hash",
            "out": str(tmp_path / "runs"), method: {**training, **(own or {})},
        }  # fmt: skip
        return check_config({**content, **more}, where="test")

    return build


def execute(run: Run, **more: Any) -> Outcome:
    return run.execute(model=FakeModel(), encoder=HashingEncoder(64), **more)


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_run_spends_exactly_what_was_asked_for_and_releases_what_fits(
    method: str, settings: Callable[..., RunConfig]
) -> None:
    heard: list[Event] = []
    run = Run.create(settings(method))
    outcome = execute(run, emit=heard.append)
    assert sorted(path.name for path in run.release.iterdir()) == sorted(released_files(()))
    assert all(not SCHEMA.check(record) for record in outcome.records)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert (manifest["state"], manifest["private"]) == ("done", True)
    assert manifest["training"]["steps"] == STEPS
    spent = run.ledger.spent()
    assert spent.epsilon_replace_one == pytest.approx(2.0, abs=1e-6)
    assert spent.epsilon_replace_one <= 2.0
    assert spent.epsilon_add_remove < 1.2
    assert spent.delta == 1e-5
    told = [event for event in heard if isinstance(event, Selected)]
    assert sum(event.epsilon_replace_one for event in told) == pytest.approx(2.0, abs=1e-6)
    assert [e.step for e in heard if isinstance(e, Trained)] == list(range(1, STEPS + 1))
    raw = (run.folder / "work" / "raw.jsonl").read_text().splitlines()
    assert len(raw) == (0 if method == "dpds" else 6)


@pytest.mark.parametrize("method", METHODS)
def test_the_mean_of_a_step_is_taken_over_the_stated_number_of_rows(
    method: str, settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the parameters, and with them the release, would depend on the true one under add-remove."""
    taken: list[int] = []
    real = TorchLearner.__init__

    def spy(self: TorchLearner, *parts: Any, units: int, **more: Any) -> None:
        taken.append(units)
        real(self, *parts, units=units, **more)

    monkeypatch.setattr(TorchLearner, "__init__", spy)
    execute(Run.create(settings(method, adjacency="add-remove", rows=10)))
    assert set(taken) == {10}


def test_topics_and_training_are_accounted_together(settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings("ctcl", {"histogram_share": 0.3}))
    execute(run)
    charges = {charge.selection: charge for charge in run.ledger.charges()}
    assert list(charges) == ["topics", "training-1", "training-2", "training-3"]
    squares = {
        name: charge.event_replace_one.count / charge.event_replace_one.sigma_over_sensitivity**2  # type: ignore[union-attr]
        for name, charge in charges.items()
    }
    assert squares["topics"] / sum(squares.values()) == pytest.approx(0.3)
    assert gaussian_epsilon(1 / math.sqrt(sum(squares.values())), 1e-5) == pytest.approx(2.0, abs=1e-6)


# -- controls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_zero_reads_no_row_and_gives_the_untrained_model(
    method: str, settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("a private row was looked at")

    for name in ("_PrivateTable__batch", "_PrivateTable__represent"):
        monkeypatch.setattr(PrivateTable, name, looked)
    run = Run.create(settings(method, epsilon=0.0))
    outcome = execute(run)
    assert outcome.manifest["training"]["steps"] == 0
    assert outcome.manifest["training"]["state"] == ""
    assert all(charge.free for charge in run.ledger.charges())


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_infinity_is_stamped_not_private(method: str, settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings(method, epsilon=math.inf))
    outcome = execute(run)
    assert outcome.manifest["private"] is False
    assert outcome.manifest["training"]["steps"] == STEPS
    card = json.loads((run.release / "privacy-card.json").read_text())
    assert card["stamp"] == "NOT PRIVATE"


# -- kills and resumption --------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a process that ends without a word."""


def killed_at(step: int) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, Trained) and event.step == step:
            raise Killed

    return listen


@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_between_stretches_ends_where_it_would_have_ended(
    method: str, settings: Callable[..., RunConfig]
) -> None:
    whole = execute(Run.create(settings(method, dataset="whole", same_data_new_ledger=True), name="a"), test_seed=7)

    def stop(event: Event) -> None:
        if isinstance(event, Selected) and event.selection == "training-2":
            raise Killed

    run = Run.create(settings(method, dataset="cut"), name="b")
    with pytest.raises(Killed):
        execute(run, test_seed=7, emit=stop, insist=True)
    rest = execute(Run.open(run.folder), test_seed=7, insist=True)
    assert rest.manifest["training"]["state"] == whole.manifest["training"]["state"] != ""
    assert rest.records == whole.records
    raw = [(folder / "work" / "raw.jsonl").read_text() for folder in (whole.folder, rest.folder)]
    assert raw[0] == raw[1]
    assert run.ledger.spent().without_result == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_within_a_stretch_pays_for_it_and_goes_on_with_more_noise(
    method: str, settings: Callable[..., RunConfig]
) -> None:
    run = Run.create(settings(method))
    with pytest.raises(Killed):
        execute(run, emit=killed_at(3))
    assert run.ledger.spent().without_result == 1
    outcome = execute(Run.open(run.folder))
    spent = run.ledger.spent()
    assert spent.without_result == 1
    assert 1.99 < spent.epsilon_replace_one <= 2.0
    sigmas = [float(value) for value in outcome.manifest["training"]["sigma"]]
    assert sigmas[0] < sigmas[1] == pytest.approx(sigmas[2])
    assert outcome.manifest["training"]["steps"] == STEPS
    again = execute(Run.open(run.folder))  # finished: nothing is drawn or charged any more
    assert again.records == outcome.records
    assert run.ledger.spent() == spent


def test_a_run_that_is_asked_to_stop_keeps_its_steps_and_pays_nothing_twice(
    settings: Callable[..., RunConfig],
) -> None:
    cancel = threading.Event()
    run = Run.create(settings("dpgen"))

    def listen(event: Event) -> None:
        if isinstance(event, Trained) and event.step == 3:
            cancel.set()

    with pytest.raises(StoppedError):
        execute(run, emit=listen, cancel=cancel)
    assert run.ledger.spent().without_result == 0
    outcome = execute(Run.open(run.folder))
    assert outcome.manifest["training"]["steps"] == STEPS - 1  # the fourth was given up
    assert run.ledger.spent().epsilon_replace_one == pytest.approx(2.0, abs=1e-6)


def test_texts_that_were_written_before_a_kill_are_not_written_again(settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings("dpgen"))
    first = execute(run)
    assert first.manifest["counts"]["replayed"] == 0
    heard: list[Event] = []
    again = execute(Run.open(run.folder), emit=heard.append)
    answered = [event for event in heard if isinstance(event, Answered)]
    assert sum(event.count for event in answered) == sum(event.count for event in answered if event.replayed) == 6
    assert again.records == first.records


def test_a_lost_checkpoint_is_an_error_and_not_a_free_draw(settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings("dpgen"))
    with pytest.raises(Killed):
        execute(run, emit=killed_at(3))
    for path in (run.folder / "work" / "training").glob("*.pt"):
        path.unlink()
    before = run.ledger.spent()
    with pytest.raises(RunError, match="missing"):
        execute(Run.open(run.folder))
    assert run.ledger.spent() == before


def test_one_checkpoint_is_left_at_the_end(settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings("dpgen"))
    execute(run)
    assert len(list((run.folder / "work" / "training").iterdir())) == 1


# -- what does not come out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_no_private_value_is_in_any_file_of_a_run(
    method: str, settings: Callable[..., RunConfig], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marked = [record | {"topic": f"MARKER{i} zyx"} for i, record in enumerate(drawn(UNITS, offset=9000))]
    write_table(marked, SCHEMA, tmp_path / "private.csv")
    outcome = execute(Run.create(settings(method)))
    files = [path for path in [*outcome.folder.rglob("*"), *(tmp_path / "ledgers").rglob("*")] if path.is_file()]
    assert len(files) > 8
    assert all(b"MARKER" not in path.read_bytes() for path in files)
    assert "MARKER" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("method", METHODS)
def test_a_second_run_is_refused_before_a_model_is_trained(method: str, settings: Callable[..., RunConfig]) -> None:
    first = Run.create(settings(method))
    execute(first)
    spent = first.ledger.spent()
    with pytest.raises(BudgetError):
        execute(Run.create(settings(method, seed=1)))
    assert first.ledger.spent() == spent


# -- the methods themselves ------------------------------------------------------------------------------------------


def test_a_model_trained_without_noise_learns_the_form_of_a_record(settings: Callable[..., RunConfig]) -> None:
    own = {"steps": 60, "stretches": 2, "tuning": "full", "rate": 0.02, "clip": 100.0, "top_p": 0.5, "public_steps": 0}
    for epsilon in (0.0, math.inf):
        config = settings("dpgen", own, epsilon=epsilon, records=4, dataset=f"e{epsilon}", same_data_new_ledger=True)
        outcome = execute(Run.create(config), insist=True)
        raw = [json.loads(line) for line in (outcome.folder / "work" / "raw.jsonl").read_text().splitlines()]
        told = [text.startswith(("urgency: low\n\ntopic: ", "urgency: high\n\ntopic: ")) for text in raw]
        assert told == [epsilon > 0] * 4


def test_practice_on_public_examples_teaches_the_form_and_costs_nothing(settings: Callable[..., RunConfig]) -> None:
    own = {"public_steps": 60, "public_rate": 0.02, "tuning": "full", "top_p": 0.5}
    run = Run.create(settings("dpgen", own, epsilon=0.0, records=4))
    outcome = execute(run)
    raw = [json.loads(line) for line in (outcome.folder / "work" / "raw.jsonl").read_text().splitlines()]
    assert all("\n\ntopic: l" in text for text in raw)  # as both examples begin: 'lost password', 'line is dead'
    assert all(charge.free for charge in run.ledger.charges())


def test_a_table_without_classes_can_be_learnt_too(settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    UNLABELLED.save(tmp_path / "schema.yaml")
    for method in ("dpgen", "ctcl"):
        outcome = execute(Run.create(settings(method, dataset=method, same_data_new_ledger=True)), insist=True)
        raw = [json.loads(line) for line in (outcome.folder / "work" / "raw.jsonl").read_text().splitlines()]
        assert len(raw) == 6


def test_the_classifier_is_taken_up_from_the_runs_folder(settings: Callable[..., RunConfig]) -> None:
    own = {"steps": 40, "stretches": 1, "rate": 0.03, "tokens": 200}
    run = Run.create(settings("dpds", own, epsilon=math.inf))
    outcome = execute(run)
    classifier = open_classifier(run.folder)
    private = drawn(UNITS, offset=9000)
    right = sum(
        said == SCHEMA.label_of(record) for said, record in zip(classifier.predict(private), private, strict=True)
    )
    assert right == UNITS  # without noise it has the private table by heart
    assert not outcome.records
    with pytest.raises(RunError, match="no classifier"):
        open_classifier(run.folder.parent)


def test_conditions_follow_public_quotas_and_noisy_topics(settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings("ctcl", epsilon=math.inf, records=12, quotas={"low": 2.0, "high": 1.0}))
    execute(run)
    lines = (run.folder / "work" / "extracted.jsonl").read_text().splitlines()
    labels = [json.loads(line)["label"] for line in lines]
    assert (labels.count("low"), labels.count("high")) == (8, 4)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    topics = {", ".join(words) for words in manifest["topics"]}
    raw = [json.loads(line) for line in (run.folder / "work" / "raw.jsonl").read_text().splitlines()]
    assert {text.split("keywords: ")[1].split("\n")[0] for text in raw} <= topics
