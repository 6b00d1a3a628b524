"""Aug-PE and WASP as whole runs on the fake model: charged, noisy, resumable, and honest about what they wrote."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selpe.api import SelPE
from selpe.config import RunConfig
from selpe.errors import BudgetError, RunError, StoppedError
from selpe.evaluation.outputs import read_outputs
from selpe.evaluation.validity import score
from selpe.events import Answered, Event, Selected
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel, Faults
from selpe.privacy.ledger.charges import Charge
from selpe.run.lifecycle import Run
from selpe.run.outcome import Outcome
from selpe.run.packing import pack_release
from selpe.run.release import RELEASED, released_files
from small_world import SCHEMA, UNLABELLED, drawn

Settings = Callable[..., RunConfig]
METHODS = ("augpe", "wasp")


def execute(run: Run, model: FakeModel | None = None, **more: Any) -> Outcome:
    return run.execute(model=model or FakeModel(), encoder=HashingEncoder(64), **more)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_run_releases_valid_records_by_public_quotas_and_spends_exactly_its_epsilon(
    settings: Settings, method: str
) -> None:
    run = Run.create(settings(method))
    outcome = execute(run)
    assert sorted(path.name for path in run.release.iterdir()) == sorted(released_files(()))
    assert all(not SCHEMA.check(record) for record in outcome.records)
    assert Counter(record["urgency"] for record in outcome.records) == {"low": 10, "high": 10}
    manifest = outcome.manifest
    assert (manifest["method"], manifest["state"], manifest["private"]) == (method, "done", True)
    assert manifest["spent"]["epsilon_replace_one"] == pytest.approx(2.0, rel=1e-5)
    assert 1.2 < manifest["spent"]["epsilon_add_remove"] < 1.5
    assert manifest["spent"]["delta"] == 1e-5
    charges = run.ledger.charges()
    assert [charge.selection for charge in charges] == ["round-1", "round-2", "round-3"]
    assert {charge.mechanism for charge in charges} == {"gaussian"}
    total = run.ledger.spent()
    assert 2.0 * (1 - 1e-5) < total.epsilon_replace_one <= 2.0 * (1 + 1e-8)
    assert total.delta == 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_the_card_says_the_method_the_noise_and_both_epsilons(settings: Settings, method: str) -> None:
    run = Run.create(settings(method))
    execute(run)
    card = json.loads((run.release / "privacy-card.json").read_text())
    assert card["stamp"] is None
    assert card["mechanism"]["method"] == method
    assert card["mechanism"]["names"] == ["gaussian"]
    assert card["guarantee"]["epsilon"]["replace_one"] == pytest.approx(2.0, rel=1e-5)
    assert card["guarantee"]["delta"] == 1e-5
    assert card["guarantee"]["composition"].startswith("exact")
    assert card["public"]["settings"][f"{method}.rounds"] == 3
    text = (run.release / "privacy-card.md").read_text()
    assert f"The method is {method}, a baseline" in text
    packed = pack_release(run.folder, run.manifest, SCHEMA, allowed=RELEASED, to=run.folder / "out.zip")
    assert packed.records == 20


@pytest.mark.parametrize("method", METHODS)
def test_events_add_up_to_what_was_spent(settings: Settings, method: str) -> None:
    seen: list[Event] = []
    execute(Run.create(settings(method)), emit=seen.append)
    costs = [event for event in seen if isinstance(event, Selected)]
    assert [event.selection for event in costs] == ["round-1", "round-2", "round-3"]
    assert sum(event.epsilon_replace_one for event in costs) == pytest.approx(2.0, rel=1e-5)
    assert costs[0].epsilon_replace_one > costs[1].epsilon_replace_one > 0


@pytest.mark.parametrize("method", METHODS)
def test_a_second_run_is_refused_before_anything_is_spent(settings: Settings, method: str) -> None:
    first = Run.create(settings(method))
    execute(first)
    before = first.ledger.spent()
    with pytest.raises(BudgetError):
        execute(Run.create(settings(method, seed=1)))
    assert first.ledger.spent() == before


@pytest.mark.parametrize("method", METHODS)
def test_without_a_label_there_is_one_pool(settings: Settings, method: str, tmp_path: Path) -> None:
    UNLABELLED.save(tmp_path / "schema.yaml")
    outcome = execute(Run.create(settings(method)))
    assert len(outcome.records) == 20
    assert all(not UNLABELLED.check(record) for record in outcome.records)


@pytest.mark.parametrize("method", METHODS)
def test_people_are_the_unit_where_a_column_names_them(settings: Settings, method: str, tmp_path: Path) -> None:
    import pandas as pd

    rows = pd.DataFrame(drawn(40, offset=9000)).assign(who=[f"p{i // 4}" for i in range(40)])
    run = Run.create(settings(method, unit="who"))
    execute(run, source=rows)
    assert {charge.unit for charge in run.ledger.charges()} == {"who"}
    assert run.manifest["plan"]["units"] == 10


@pytest.mark.parametrize("method", METHODS)
def test_no_private_value_is_in_any_file_of_a_run(settings: Settings, method: str, tmp_path: Path) -> None:
    marked = [record | {"topic": f"MARKER{i} zyx"} for i, record in enumerate(drawn(40, offset=9000))]
    write_table(marked, SCHEMA, tmp_path / "private.csv")
    outcome = execute(Run.create(settings(method)))
    files = [path for path in [*outcome.folder.rglob("*"), *(tmp_path / "ledgers").rglob("*")] if path.is_file()]
    assert len(files) > 8
    assert all(b"MARKER" not in path.read_bytes() for path in files)


# -- raw outputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*METHODS, "selpe"])
def test_raw_outputs_are_kept_for_those_who_measure_validity(settings: Settings, method: str) -> None:
    run = Run.create(settings(method, bundles=0, guides="off"))
    outcome = execute(run)
    raw = [text for _, text in read_outputs(run.folder / "work" / "raw.jsonl", SCHEMA)]
    assert len(raw) == 20
    assert score(raw, SCHEMA).r_cfg == 1.0
    extracted = lines(run.folder / "work" / "extracted.jsonl")
    assert [line["released"] for line in extracted] == [True] * 20
    assert sorted(map(SCHEMA.dumps, outcome.records)) == sorted(SCHEMA.dumps(line["record"]) for line in extracted)


@pytest.mark.parametrize("method", METHODS)
def test_texts_without_a_record_count_against_the_method_and_are_not_released(settings: Settings, method: str) -> None:
    run = Run.create(settings(method))
    outcome = execute(run, FakeModel(faults=Faults(truncated=0.5)), test_seed=1)
    raw = [text for _, text in read_outputs(run.folder / "work" / "raw.jsonl", SCHEMA)]
    lost = outcome.manifest["unreadable"]
    assert 0 < lost < 20
    assert (len(raw), len(outcome.records)) == (20, 20 - lost)
    assert score(raw, SCHEMA).r_cfg < 1.0
    assert all(not SCHEMA.check(record) for record in outcome.records)


def test_a_model_that_writes_no_record_at_all_leaves_an_empty_release(settings: Settings) -> None:
    run = Run.create(settings("wasp"))
    outcome = execute(run, FakeModel(faults=Faults(truncated=1.0)))
    assert outcome.records == ()
    assert (run.release / "synthetic.jsonl").read_text() == ""
    assert outcome.manifest["unreadable"] == 20


@pytest.mark.parametrize("method", METHODS)
def test_a_busy_server_is_asked_again(settings: Settings, method: str) -> None:
    faults = Faults(rate_limited=0.2, timeout=0.1)
    outcome = execute(Run.create(settings(method, attempts=20)), FakeModel(faults=faults), test_seed=1)
    assert len(outcome.records) == 20
    assert outcome.manifest["counts"]["retries"]["model error"] > 3


# -- controls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_zero_reads_no_row_and_says_so(settings: Settings, method: str) -> None:
    run = Run.create(settings(method, epsilon=0.0))
    outcome = execute(run)
    assert len(outcome.records) == 20
    assert run.ledger.spent().epsilon_replace_one == 0.0
    assert all(charge.free for charge in run.ledger.charges())
    card = json.loads((run.release / "privacy-card.json").read_text())
    assert "No private row took part" in card["guarantee"]["statement"]
    assert outcome.manifest["private"] is True


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_infinity_and_seeded_noise_are_stamped(settings: Settings, method: str) -> None:
    endless = execute(Run.create(settings(method, epsilon=float("inf"))))
    seeded = execute(Run.create(settings(method)), test_seed=3)
    for outcome in (endless, seeded):
        assert outcome.manifest["private"] is False
        card = json.loads((outcome.folder / "release" / "privacy-card.json").read_text())
        assert card["stamp"] == "NOT PRIVATE"
    assert endless.manifest["spent"]["epsilon_add_remove"] == "inf"


# -- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_run_stopped_at_any_answer_ends_where_it_would_have(settings: Settings, method: str, tmp_path: Path) -> None:
    whole = execute(Run.create(settings(method, out=str(tmp_path / "whole")), name="same"), test_seed=11)
    run = Run.create(settings(method, dataset="again", out=str(tmp_path / "stopped")), name="same")
    stops = 0
    for after in (5, 30, 45, 1000):
        cancel, answers = threading.Event(), 0

        def count(event: Event, cancel: threading.Event = cancel, after: int = after) -> None:
            nonlocal answers
            answers += isinstance(event, Answered)
            if answers >= after:
                cancel.set()

        try:
            outcome = execute(Run.open(run.folder), emit=count, cancel=cancel, insist=True, test_seed=11)
        except StoppedError:
            stops += 1
            continue
        break
    assert stops > 0
    assert outcome.records == whole.records
    assert run.ledger.spent().epsilon_replace_one == pytest.approx(2.0, rel=1e-5)


def killed_or_done(folder: Path, seconds: float) -> bool:
    """Runs the run in a forked child that is killed after some time. True when it was killed before it was done."""
    child = os.fork()
    if child == 0:
        try:
            execute(Run.open(folder), FakeModel(seconds_per_answer=0.001), insist=True, test_seed=7)
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to kill a run and nothing else")
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_and_resumed_run_releases_the_same_bytes(settings: Settings, method: str, tmp_path: Path) -> None:
    whole = Run.create(settings(method, out=str(tmp_path / "whole")), name="same")
    execute(whole, FakeModel(seconds_per_answer=0.001), test_seed=7)
    chance, kills, place = random.Random(2), 0, 0
    while kills < 6:
        place += 1
        run = Run.create(settings(method, dataset=f"d{place}", out=str(tmp_path / f"k{place}")), name="same")
        # A look lost in a kill is paid for again; with a tight cap it would have less ε.
        run.ledger.set_budget(1000.0, delta=1e-5, composition="gaussian")
        here = 0
        while killed_or_done(run.folder, chance.uniform(0.05, 0.4 * 1.1**here)):
            here += 1
        kills += here
        for name in ("synthetic.csv", "synthetic.jsonl", "schema.json"):
            assert (run.release / name).read_bytes() == (whole.release / name).read_bytes()


@pytest.mark.parametrize("method", METHODS)
def test_a_look_lost_in_a_kill_is_not_free_and_the_run_goes_on_with_less(settings: Settings, method: str) -> None:
    run = Run.create(settings(method))
    run.ledger.set_budget(2.0, delta=1e-5, composition="gaussian")
    paid = execute_plan(run)[0]
    run.ledger.charge(paid)  # and its result lost
    outcome = execute(Run.open(run.folder))
    total = run.ledger.spent()
    assert len(outcome.records) == 20
    assert 1.999 < total.epsilon_replace_one <= 2.0 * (1 + 1e-8)
    assert total.charges == 4
    assert execute(Run.open(run.folder)).records == outcome.records  # finished looks stand at their price


def execute_plan(run: Run) -> list[Charge]:
    from selpe.run.methods import recipe_of

    return recipe_of(run.config.method).plan(run.config, SCHEMA, 40).charges(run.name)


def test_a_run_whose_lost_looks_took_everything_leaves_the_rest_to_chance(settings: Settings) -> None:
    run = Run.create(settings("augpe"))
    run.ledger.set_budget(2.0, delta=1e-5, composition="gaussian")
    for charge in execute_plan(run):
        run.ledger.charge(charge)
    outcome = execute(Run.open(run.folder))
    assert len(outcome.records) == 20
    assert run.ledger.spent().epsilon_replace_one <= 2.0 * (1 + 1e-8)
    assert {one["mechanism"] for one in outcome.manifest["selections"]} == {"noise alone (ε = 0)"}


# -- the Python interface --------------------------------------------------------------------------------------------


def test_a_baseline_runs_from_python_and_has_no_more_records_than_it_wrote(settings: Settings, tmp_path: Path) -> None:
    import pandas as pd

    made = SelPE(
        SCHEMA, epsilon=2.0, records=10, dataset="py", llm=FakeModel(), encoder=HashingEncoder(64),
        out=tmp_path / "py", method="wasp", wasp={"rounds": 1},
    )  # fmt: skip
    made.fit(pd.DataFrame(drawn(40, offset=5000)))
    assert len(made.sample()) == 10
    with pytest.raises(RunError, match="no more records"):
        made.sample(50)
