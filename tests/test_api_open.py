"""A finished run opened from Python does what the fitted object did; others are refused, and say what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from selpe import SelPE
from selpe.errors import PrivacyError, RunError, StoppedError
from selpe.events import Event, Selected
from selpe.models.fake import FakeModel
from selpe.privacy.ledger import Ledger
from small_world import SCHEMA, UNLABELLED, drawn

QUICK: dict[str, Any] = {"records": 16, "llm": "fake", "encoder": "hash", "bundles": 0, "guides": "off"}
GIVEN = {"channel": "mail", "urgency": "high"}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Ledgers and key of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("SELPE_LEDGER", str(home / "ledgers"))
        patch.setenv("SELPE_KEY", str(home / "key"))
        yield home


WAYS: dict[str, dict[str, Any]] = {
    "evolved": {"measure": "off"},
    "voted": {"guides": "auto", "bundles": 8, "rounds": 2, "measure": "off"},
    "measured": {"measure": ["channel", "minutes", "day", "solved"], "epsilon": 50.0, "budget": 50.0},
    "measured texts": {"measure": ["topic", ["channel", "solved"]], "epsilon": 50.0, "bundles": 0},
    "unlabelled": {"schema": UNLABELLED, "measure": "off"},
}


@pytest.fixture(scope="module", params=WAYS)
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = {"schema": SCHEMA, **QUICK, "dataset": request.param.replace(" ", "-")} | WAYS[request.param]
    rows = drawn(120, offset=1000 * list(WAYS).index(request.param), schema=settings["schema"])
    with pytest.MonkeyPatch.context() as patch:
        # In another order of tests it is made more than once, and each time its budget is whole.
        patch.setenv("SELPE_LEDGER", str(tmp_path_factory.mktemp("ledgers")))
        yield SelPE(**settings, out=tmp_path_factory.mktemp("runs")).fit(pd.DataFrame(rows), name="mine")


def test_an_opened_run_gives_what_the_fitted_one_gives_to_the_byte(fitted: SelPE) -> None:
    before = Ledger.open(fitted.card["dataset"]).entries()
    opened = SelPE.open(fitted.run_folder)
    given: dict[str, Any] = GIVEN if fitted.schema.label else {"channel": "mail"}
    assert opened.records == fitted.records
    for asked in ({}, {"n": 5}, {"n": 40}, {"n": 40, "seed": 1}, {"n": 6, "given": given}):
        assert opened.sample(**asked).equals(fitted.sample(**asked)), asked
    assert opened.card == fitted.card
    assert opened.measurements == fitted.measurements
    counted = any(name.startswith("measure-") for name in fitted.plan().prices())
    assert (opened.measurements is not None) == counted == ("measured" in fitted.card["dataset"])
    kept = json.loads((fitted.run_folder / "work" / "composition.json").read_text(encoding="utf-8"))
    assert (kept["tables"] is not None) == counted, "the tables that the release follows are drawn from again"
    assert opened.plan().to_dict() == fitted.plan().to_dict()
    assert opened.plan().units == 120
    assert Ledger.open(fitted.card["dataset"]).entries() == before


def test_an_opened_run_has_the_settings_of_the_run(fitted: SelPE) -> None:
    opened = SelPE.open("mine", out=fitted.run_folder.parent)
    for name in ("epsilon", "records", "llm", "encoder", "dataset", "measure"):
        assert opened.get_params()[name] == fitted.get_params()[name], name
    assert opened.schema.fingerprint() == fitted.schema.fingerprint()
    assert opened.plan(90).to_dict() == fitted.plan(90).to_dict()
    assert "fitted in" in repr(opened)


@pytest.fixture
def one(tmp_path: Path) -> SelPE:
    return SelPE(SCHEMA, **QUICK, dataset=f"t-{tmp_path.name}", out=tmp_path / "runs").fit(
        drawn(40), name="mine", insist=True
    )


def test_an_opened_run_is_reported_on(one: SelPE) -> None:
    found = SelPE.open(one.run_folder).report(test=drawn(30, offset=400), views=("minilm",), bootstrap=10)
    assert found.content["tables"] == {"synthetic": 16, "test": 30}


def test_an_opened_run_may_write_with_another_model(one: SelPE) -> None:
    class Counted(FakeModel):
        asked = 0

        def generate(self, *given: Any, **more: Any) -> Any:
            self.asked += 1
            return super().generate(*given, **more)

    model = Counted()
    assert len(SelPE.open(one.run_folder, llm=model).sample(20)) == 20
    assert model.asked


def test_a_run_that_is_not_there_is_looked_for_by_its_name(one: SelPE, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run 'mien'") as caught:
        SelPE.open("mien", out=one.run_folder.parent)
    assert "Did you mean 'mine'?" in caught.value.hint
    with pytest.raises(RunError, match="no run") as caught:
        SelPE.open("mine", out=tmp_path / "elsewhere")
    assert "`out`" in caught.value.hint


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Selected):
            raise StoppedError("stopped")

    asked = SelPE(SCHEMA, **QUICK, out=tmp_path / "runs")
    with pytest.raises(StoppedError):
        asked.fit(drawn(40), name="mine", emit=stop, insist=True)
    with pytest.raises(RunError, match="not finished: it is 'interrupted'") as caught:
        SelPE.open(tmp_path / "runs" / "mine")
    assert "selpe resume" in caught.value.hint
    assert "name='mine'" in caught.value.hint
    asked.fit(drawn(40), name="mine", insist=True)
    assert len(SelPE.open(tmp_path / "runs" / "mine").sample(20)) == 20


@pytest.mark.parametrize("file", ["synthetic.jsonl", "synthetic.csv", "privacy-card.json", "seal.json"])
def test_a_release_that_was_changed_is_refused(one: SelPE, file: str) -> None:
    path = one.run_folder / "release" / file
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(PrivacyError, match="changed after the run"):
        SelPE.open(one.run_folder)


def test_a_release_that_is_lost_or_changed_after_opening_is_refused(one: SelPE) -> None:
    opened = SelPE.open(one.run_folder)
    shutil.rmtree(one.run_folder / "release")
    for look in (opened.sample, lambda: opened.records, lambda: opened.card, lambda: opened.measurements):
        with pytest.raises(PrivacyError, match="no release folder"):
            look()
    with pytest.raises(PrivacyError, match="no release folder"):
        SelPE.open(one.run_folder)


def test_a_manifest_that_says_more_than_the_ledger_is_refused(one: SelPE) -> None:
    path = one.run_folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["seal"]["run"] = "another"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PrivacyError, match="seal"):
        SelPE.open(one.run_folder)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match="not a run folder"):
        SelPE.open(one.run_folder)


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"format": "selpe-composition/0"}'])
def test_a_damaged_composition_is_refused_with_its_place(one: SelPE, damage: str) -> None:
    (one.run_folder / "work" / "composition.json").write_text(damage, encoding="utf-8")
    with pytest.raises(RunError, match="changed or cut short") as caught:
        SelPE.open(one.run_folder)
    assert "composition.json" in caught.value.where


def test_a_run_of_an_earlier_version_gives_what_it_released_and_no_more(one: SelPE) -> None:
    (one.run_folder / "work" / "composition.json").unlink()
    opened = SelPE.open(one.run_folder)
    assert opened.records == one.records
    for asked in ({"n": 20}, {"n": 3, "given": {"channel": "mail"}}):
        with pytest.raises(RunError, match="kept nothing to write further records from"):
            opened.sample(**asked)
    one.fit(drawn(40), name="mine", insist=True)
    assert len(SelPE.open(one.run_folder).sample(20)) == 20
