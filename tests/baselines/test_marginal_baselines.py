"""What AIM and MST need before they measure: the extra, columns and codes, and texts that say nothing. And `prior`."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from in_process import selpe
from selpe.baselines import marginals as baseline
from selpe.baselines.marginals import Columns, neutral_text
from selpe.config import RunConfig, check_config
from selpe.errors import ConfigError
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.run.methods import recipe_of
from selpe.schema import Schema, TextField
from small_world import SCHEMA, UNLABELLED, drawn

Settings = Callable[..., RunConfig]
CONFIG = "dataset: desk\ndata: desk.csv\nschema: schema.yaml\nrecords: 12\nllm: fake\nencoder: hash\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40), SCHEMA, tmp_path / "desk.csv")
    (tmp_path / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def installed(monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    """Has the extra installed, or not."""
    monkeypatch.setattr(baseline, "find_spec", lambda name: object() if there else None)


# -- the extra -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["aim", "mst"])
def test_without_the_extra_a_run_ends_with_a_word_on_it_and_code_2(
    project: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    installed(monkeypatch, there=False)
    code, _, err = selpe("run", "--yes", "--method", method)
    assert code == 2
    assert f"'{method}' needs mbi" in err
    assert "selpe[marginals]" in err
    assert not (project / "ledgers" / "desk").exists()


# -- settings --------------------------------------------------------------------------------------------------------


def test_a_delta_is_taken_unless_the_settings_say_none(settings: Settings) -> None:
    assert settings("aim").delta == 1e-5
    assert settings("mst", delta=0.0).delta == 0.0


def test_the_model_alone_has_no_epsilon_whatever_the_settings_say(settings: Settings) -> None:
    assert (settings("prior", epsilon=2.0).epsilon, settings("prior").delta) == (0.0, 0.0)


def test_a_plan_says_what_is_measured_and_what_it_costs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, there=True)
    for method, written in (("aim", 0), ("mst", 20)):
        own = {"texts": "written"} if written else {}
        config = settings(method, **{method: own})
        plan = recipe_of(method).plan(config, SCHEMA, 40)
        assert plan.guarantee.replace_one == pytest.approx(2.0)
        assert plan.to_dict()["columns"] == ("urgency", "channel", "minutes", "waited", "score", "solved", "day")
        assert recipe_of(method).estimate(config, SCHEMA, plan, ()).candidates == written


def test_a_schema_of_texts_alone_is_refused_before_anything_is_spent(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, there=True)
    fields = {"note": {"kind": "text"}, "kind": {"kind": "category", "values": ["a", "b"]}}
    schema = Schema.from_dict({"name": "notes", "label": "kind", "fields": fields})
    with pytest.raises(ConfigError, match="too few"):
        recipe_of("aim").plan(settings("aim"), schema, 40)


# -- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [SCHEMA, UNLABELLED])
def test_codes_become_values_of_the_domain_and_missing_ones(schema: Schema) -> None:
    columns, chance = Columns.of(schema, 5), random.Random(1)
    assert len(columns.axes) == len(columns.books) + bool(schema.label)
    for row in drawn(30):
        codes = [book.code(row) for book in columns.books]
        record = columns.record("low" if schema.label else "", codes, chance)
        assert [book.code(record) for book in columns.books] == codes
        assert all(violation.level == "rule" for violation in schema.check(record))
        assert record["topic"] == "---"


def test_a_text_that_must_be_there_is_the_shortest_row_of_dashes_and_else_missing() -> None:
    assert neutral_text(TextField("note", optional=True)) is None
    assert neutral_text(TextField("note", min_length=0)) == ""
    assert neutral_text(TextField("note", min_length=3)) == "---"
    with pytest.raises(ConfigError, match="texts: written"):
        neutral_text(TextField("note", pattern="[a-z]+"))


# -- the model alone -------------------------------------------------------------------------------------------------


def test_the_model_alone_reads_no_row_and_spends_nothing(settings: Settings, tmp_path: Path) -> None:
    run = Run.create(settings("prior"))
    outcome = run.execute(model=FakeModel(), encoder=HashingEncoder(64))
    assert Counter(record["urgency"] for record in outcome.records) == {"low": 10, "high": 10}
    assert all(not SCHEMA.check(record) for record in outcome.records)
    assert (run.ledger.charges(), run.ledger.budget) == ([], None)
    assert outcome.manifest["spent"]["epsilon_replace_one"] == 0
    write_table(drawn(40, offset=50), SCHEMA, tmp_path / "private.csv")
    other = Run.create(settings("prior", dataset="other")).execute(model=FakeModel(), encoder=HashingEncoder(64))
    assert other.records == outcome.records  # whatever the rows are


def test_the_model_alone_is_run_by_its_name(project: Path) -> None:
    code, out, err = selpe("--json", "run", "--yes", "--method", "prior", "--allow-fake")
    assert code == 0, err
    done: dict[str, Any] = next(line["done"] for line in map(json.loads, out.splitlines()) if "done" in line)
    assert (done["method"], done["epsilon"]) == ("prior", 0.0)
    card = json.loads((Path(done["folder"]) / "release" / "privacy-card.json").read_text())
    assert card["mechanism"]["how"] == "no private row is read: the model writes alone"


def test_a_setting_of_one_method_is_not_taken_for_another() -> None:
    with pytest.raises(ConfigError, match="columns"):
        check_config({"dataset": "d", "data": "d.csv", "method": "mst", "mst": {"columns": 2}}, where="test")
