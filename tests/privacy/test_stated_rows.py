"""n and the release: with a public number of rows in the settings, nothing that is released depends on the true one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selpe.api import SelPE
from selpe.config import RunConfig, check_config
from selpe.errors import ConfigError
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.ledger import Ledger
from selpe.run.lifecycle import Run
from selpe.run.methods import recipe_of
from selpe.run.preflight import preflight
from small_world import SCHEMA, drawn

ROWS = drawn(25, offset=9000)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    SCHEMA.save(tmp_path / "schema.yaml")

    def build(table: list[Any], place: str, **more: object) -> RunConfig:
        """Every table has a folder, a ledger and a run of its own, all of the same names."""
        monkeypatch.setenv("SELPE_LEDGER", str(tmp_path / place / "ledgers"))
        (tmp_path / place).mkdir(exist_ok=True)
        path = write_table(table, SCHEMA, tmp_path / place / "private.csv")
        content: dict[str, object] = {
            "dataset": "desk", "data": str(path), "schema": str(tmp_path / "schema.yaml"), "epsilon": 4.0,
            "records": 24, "bundles": 4, "llm": "fake", "encoder": "hash", "out": str(tmp_path / place / "runs"),
        }  # fmt: skip
        return check_config({**content, **more}, where="test")

    return build


def released(config: RunConfig) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The card of a run, its plan, and its summary.

    Which fields rows have voted for, and how the last vote went, is a private result, with noise and paid for: what the
    card tells of measurements is left out.
    """
    run = Run.create(config, name="run")
    run.execute(model=FakeModel(), encoder=HashingEncoder(64))
    card = json.loads((run.release / "privacy-card.json").read_text(encoding="utf-8"))
    assert card.pop("measurements") is not None
    return card, run.manifest["plan"], (run.release / "summary.html").read_text(encoding="utf-8")


def test_under_add_remove_with_a_stated_number_plans_and_cards_of_n_and_n_plus_one_rows_are_identical(
    settings: Callable[..., RunConfig],
) -> None:
    stated = {"adjacency": "add-remove", "rows": 20}
    card, plan, summary = released(settings(ROWS[:-1], "fewer", **stated))
    assert (card, plan) == released(settings(ROWS, "more", **stated))[:2]
    assert plan["units"] == 20
    assert "ε, one record added or removed<" in summary
    assert "reveal" not in summary


def test_what_a_card_tells_of_named_tables_does_not_depend_on_n_either(settings: Callable[..., RunConfig]) -> None:
    told = []
    for place, table in (("fewer", ROWS[:-1]), ("more", ROWS)):
        named = {"measure": ["channel", "minutes"], "bundles": 0, "adjacency": "add-remove", "rows": 20}
        run = Run.create(settings(table, place, **named), name="run")
        run.execute(model=FakeModel(), encoder=HashingEncoder(64))
        told.append(json.loads((run.release / "privacy-card.json").read_text(encoding="utf-8")))
    assert told[0]["measurements"]["looks"][0]["tables"][0]["table"] == "urgency × channel"
    assert told[0] == told[1]


def test_without_one_the_plan_depends_on_n_and_the_release_says_so(settings: Callable[..., RunConfig]) -> None:
    config = settings(ROWS, "open", adjacency="add-remove", records=200)
    plans = [recipe_of("selpe").plan(config, SCHEMA, units) for units in range(10, 60)]
    codes = [plan.measure and (plan.measure.bins, plan.measure.fine_clusters) for plan in plans]  # type: ignore[attr-defined]
    assert len(set(codes)) > 1
    card, _, summary = released(settings(ROWS, "open", adjacency="add-remove"))
    assert "apart from the number of records, which this release may reveal" in card["guarantee"]["statement"]
    assert "ε, one record added or removed, their number apart" in summary


def test_a_bad_row_in_the_place_of_a_good_one_changes_neither_plan_nor_card(
    settings: Callable[..., RunConfig],
) -> None:
    bad: list[Any] = [*ROWS[:-1], {**ROWS[-1], "minutes": 4711}]
    card, plan, _ = released(settings(ROWS, "good", skip_bad_rows=True))
    assert (card, plan) == released(settings(bad, "bad", skip_bad_rows=True))[:2]
    assert plan["units"] == len(ROWS)
    assert card["public"]["settings"]["skip_bad_rows"] is True


@pytest.mark.parametrize("method", ["selpe", "augpe", "dpgen"])
def test_a_preflight_plans_from_the_stated_number_and_warns_where_it_is_far_off(
    method: str, settings: Callable[..., RunConfig]
) -> None:
    for stated, warned in ((20, False), (900, True), (None, False)):
        found = preflight(settings(ROWS, "x", rows=stated, method=method), Ledger.open("desk"))
        assert found.plan.units == (stated or len(ROWS))
        assert any("far from" in note for note in found.warnings) is warned
        assert found.as_dict()["notes"] == list(found.notes)
        assert "far from" not in json.dumps(found.plan.to_dict()), "the plan stands in the manifest; this is told apart"


def test_the_python_interface_plans_from_the_setting_and_warns(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"llm": FakeModel(), "encoder": HashingEncoder(64), "out": tmp_path, "records": 12}
    assert SelPE(SCHEMA, rows=120, **parts).plan().units == 120
    assert SelPE(SCHEMA, rows=120, **parts).plan(30).units == 30
    with pytest.raises(ConfigError, match="number of rows"):
        SelPE(SCHEMA, **parts).plan()
    with pytest.warns(UserWarning, match="release may reveal it"):
        SelPE(SCHEMA, adjacency="add-remove", bundles=0, guides="off", **parts).fit(ROWS)
