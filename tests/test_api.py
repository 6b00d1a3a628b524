"""SelPE in Python: fit spends, sample does not, and both say clearly what is wrong."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import selpe
from selpe import Schema, SelPE
from selpe.errors import (
    BudgetError,
    ConfigError,
    DataError,
    InferredTypesWarning,
    NotFittedError,
    PrivacyError,
    RunError,
    SchemaError,
    SelPEError,
    StoppedError,
    UnconfirmedSchemaError,
)
from selpe.evaluation.sample_grade import RULE
from selpe.events import Event, Finished, PoolReady, Selected
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.ledger import Ledger
from small_world import SCHEMA, UNLABELLED, drawn

TABLE = pd.DataFrame(drawn(40))


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Ledgers and key of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("SELPE_LEDGER", str(home / "ledgers"))
        patch.setenv("SELPE_KEY", str(home / "key"))
        yield home


def small(out: Path, schema: Any = SCHEMA, **settings: Any) -> SelPE:
    quick: dict[str, Any] = {"records": 16, "llm": "fake", "encoder": "hash", "bundles": 0, "guides": "off", "out": out}
    return SelPE(schema, **(quick | {"dataset": f"t-{out.name}"} | settings))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> SelPE:
    return small(tmp_path_factory.mktemp("fitted")).fit(TABLE)


def test_fit_makes_a_run_and_sample_gives_its_records(fitted: SelPE) -> None:
    frame = fitted.sample()
    assert tuple(frame.columns) == SCHEMA.names
    assert Counter(frame["urgency"]) == {"low": 8, "high": 8}
    assert [SCHEMA.check(record) for record in fitted.records] == [[]] * 16
    assert {path.name for path in (fitted.run_folder / "release").iterdir()} >= {"synthetic.csv", "privacy-card.md"}
    assert fitted.card["guarantee"]["epsilon"]["replace_one"] == pytest.approx(2.0)
    assert "fitted in" in repr(fitted)


def test_a_name_cannot_lead_a_fit_to_a_run_elsewhere(fitted: SelPE, tmp_path: Path) -> None:
    there = fitted.run_folder
    model = small(there.parent / "other", dataset=f"t-{there.parent.name}")
    with pytest.raises(ConfigError, match="cannot be a run's name"):
        model.fit(TABLE, name=f"../{there.name}")


def test_without_a_model_named_auto_takes_one_that_the_run_keeps_and_a_poor_one_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path / "cache"))  # no larger model of the user's is here
    monkeypatch.setenv("SELPE_LEDGER", str(tmp_path / "ledgers"))  # the same rows have another name in other tests
    monkeypatch.setenv("SELPE_KEY", str(tmp_path / "key"))
    monkeypatch.setitem(RULE, "readable", (2.0, 2.0))  # nothing is good enough
    opened: list[str] = []

    def open_model(llm: str, **_: Any) -> FakeModel:
        opened.append(llm)
        return FakeModel()

    monkeypatch.setattr("selpe.run.session.open_model", open_model)
    settings: dict[str, Any] = {
        "records": 16,
        "encoder": "hash",
        "bundles": 0,
        "guides": "off",
        "dataset": "auto",
        "out": tmp_path,
    }
    with pytest.warns(UserWarning, match="first candidates are poor"):
        found = SelPE(SCHEMA, **settings).fit(TABLE, name="one")
    manifest = json.loads((found.run_folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["settings"]["llm"], manifest["writer"]["asked"]) == ("smollm2", "auto")
    assert manifest["grade"]["grade"] == "poor"
    assert len(found.sample(20)) == 20
    with pytest.warns(UserWarning, match="first candidates are poor"):
        SelPE(SCHEMA, **settings).fit(TABLE, name="one")  # the same run again, not another one
    assert set(opened) == {"smollm2"}


def test_fewer_keep_the_classes_in_proportion_and_are_the_same_each_time(fitted: SelPE) -> None:
    fewer = fitted.sample(5)
    assert sorted(Counter(fewer["urgency"]).values()) == [2, 3]
    assert fewer.equals(fitted.sample(5))
    assert not fewer.equals(fitted.sample(5, seed=1))
    known = {SCHEMA.dumps(record) for record in fitted.records}
    assert len(known) == 16


def test_more_are_written_without_the_table_and_cost_nothing(fitted: SelPE) -> None:
    ledger = Ledger.open(fitted.card["dataset"])
    before = ledger.entries()
    more = fitted.sample(40)
    assert ledger.entries() == before
    assert len(more) == len(more.drop_duplicates()) == 40
    assert Counter(more["urgency"]) == {"low": 20, "high": 20}
    assert more.head(16).equals(fitted.sample())
    assert more.equals(fitted.sample(40))


def test_given_values_stand_in_every_record_and_cost_nothing(fitted: SelPE) -> None:
    before = Ledger.open(fitted.card["dataset"]).entries()
    frame = fitted.sample(7, given={"channel": "mail", "waited": None, "urgency": "high"})
    assert Ledger.open(fitted.card["dataset"]).entries() == before
    assert len(frame) == len(frame.drop_duplicates()) == 7
    assert [set(frame[name]) for name in ("channel", "urgency")] == [{"mail"}, {"high"}]
    assert frame["waited"].isna().all()
    assert all(not SCHEMA.check(_record(row)) for row in frame.to_dict("records"))
    assert frame.equals(fitted.sample(7, given={"channel": "mail", "waited": None, "urgency": "high"}))
    assert Counter(fitted.sample(6, given={"solved": False})["urgency"]) == {"low": 3, "high": 3}


@pytest.mark.parametrize(
    ("given", "match"),
    [({"channel": "fax"}, "'channel' must be one of"), ({"minutes": None}, "'minutes' must"), ({"who": 1}, "no field")],
)
def test_what_is_given_must_fit_its_field(fitted: SelPE, given: dict[str, Any], match: str) -> None:
    with pytest.raises((ConfigError, SchemaError), match=match):
        fitted.sample(3, given=given)


def test_given_values_may_be_of_numpy_and_pandas(fitted: SelPE) -> None:
    given: dict[str, Any] = {
        "minutes": np.int64(30),
        "day": pd.Timestamp("2024-03-01"),
        "waited": pd.NA,
        "score": np.float32(2.5),
    }
    plain: dict[str, Any] = {"minutes": 30, "day": "2024-03-01", "waited": None, "score": 2.5}
    assert fitted.sample(3, given=given).equals(fitted.sample(3, given=plain))


def test_further_records_draw_their_facts_from_the_measured_tables(tmp_path: Path) -> None:
    """Every row of a class has one channel: without noise further records of that class have it, too."""
    rows = [dict(row, channel="mail" if row["urgency"] == "high" else "phone") for row in drawn(200)]
    made = small(tmp_path, measure=["channel"], epsilon=math.inf).fit(pd.DataFrame(rows))
    more = made.sample(60).tail(44)
    assert (more[more["urgency"] == "high"]["channel"] == "mail").mean() > 0.9
    assert (more[more["urgency"] == "low"]["channel"] == "phone").mean() > 0.9


def _record(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A frame's row as a record: what is missing is None, and a date is text."""
    return {name: None if pd.isna(value) else _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    return value.date().isoformat() if isinstance(value, pd.Timestamp) else value


def test_a_report_is_written_into_internal_and_where_it_is_asked_for(fitted: SelPE, tmp_path: Path) -> None:
    quick: dict[str, Any] = {"views": ("minilm",), "bootstrap": 10}
    found = fitted.report(tmp_path / "mine.html", holdout=pd.DataFrame(drawn(30, offset=400)), private=TABLE, **quick)
    assert found.content["tables"] == {"synthetic": 16, "test": 30, "private": 40}
    page = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert page == (fitted.run_folder / "internal" / "report.html").read_text(encoding="utf-8")
    assert "INTERNAL, NOT FOR RELEASE" in page
    with pytest.raises(PrivacyError, match="must not lie in a release"):
        fitted.report(fitted.run_folder / "release" / "report.html")
    alone = fitted.report(**quick)  # the frame is not kept: no row to attack with
    assert alone.content["attack"] is None
    assert "give it as `private`" in alone.content["notes"][0]


def test_sampling_before_fitting_says_what_to_do(tmp_path: Path) -> None:
    fresh = small(tmp_path)
    for use in (fresh.sample, lambda: fresh.records, lambda: fresh.card, lambda: fresh.run_folder, fresh.report):
        with pytest.raises(NotFittedError, match="not fitted") as caught:
            use()
        assert "fit(table)" in caught.value.hint


@pytest.mark.parametrize("n", [0, -3, 2.5, True, "5"])
def test_n_must_be_sensible(fitted: SelPE, n: Any) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        fitted.sample(n)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"epsilon": -1}, "epsilon"), ({"rounds": 0}, "greater than"), ({"llm": "http://me:word@host/v1"}, "password")],
)
def test_mistakes_in_settings_show_before_the_table_is_read(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    wrong = small(tmp_path, **settings)
    for use in (lambda: wrong.fit(object()), lambda: wrong.fit(tmp_path / "none.csv"), lambda: wrong.plan(40)):
        with pytest.raises(ConfigError) as caught:
            use()
        assert message in f"{caught.value} {caught.value.hint}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "hint"),
    [({"no_such": 1}, "docs/configuration.md"), ({"round": 1}, "Did you mean 'rounds'?"), ({"data": "x"}, "fit()")],
)
def test_names_of_settings_that_do_not_exist_show_at_once(
    tmp_path: Path, settings: dict[str, Any], hint: str
) -> None:  # fmt: skip
    with pytest.raises(ConfigError, match="no setting") as caught:
        small(tmp_path, **settings)
    assert hint in caught.value.hint
    with pytest.raises(ConfigError, match="no setting"):
        small(tmp_path).set_params(**settings)


def test_the_second_fit_is_refused_before_a_folder_is_made(fitted: SelPE) -> None:
    runs = sorted(fitted.run_folder.parent.iterdir())
    with pytest.raises(BudgetError, match="only ε 0"):
        small(fitted.run_folder.parent, dataset=fitted.card["dataset"]).fit(TABLE)
    assert sorted(fitted.run_folder.parent.iterdir()) == runs


def test_a_table_that_does_not_fit_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        small(tmp_path).fit(TABLE.assign(channel="QX7-Zebra"))
    assert "QX7-Zebra" not in f"{caught.value} {caught.value.hint}"
    assert list(tmp_path.iterdir()) == []


def test_drafted_schemas_must_be_confirmed_first(tmp_path: Path) -> None:
    content = SCHEMA.to_dict()
    content["fields"]["topic"]["confirmed"] = False
    with pytest.raises(UnconfirmedSchemaError):
        small(tmp_path, content).fit(TABLE)


def test_schema_and_table_may_come_as_files_dicts_or_records(tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40, offset=500), SCHEMA, tmp_path / "table.csv")
    a = small(tmp_path / "a", tmp_path / "schema.yaml", epsilon=0).fit(tmp_path / "table.csv")
    b = small(tmp_path / "b", SCHEMA.to_dict(), epsilon=0).fit(drawn(40, offset=900))
    assert len(a.records) == len(b.records) == 16


def test_a_polars_frame_in_is_a_polars_frame_out(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(drawn(40, offset=1300), infer_schema_length=None)
    made = small(tmp_path).fit(frame)
    for asked in ({}, {"n": 5}, {"n": 20}, {"n": 4, "given": {"channel": "mail"}}):
        found, same = made.sample(**asked), made.sample(**asked, frame="pandas")
        assert isinstance(found, polars.DataFrame)
        assert isinstance(same, pd.DataFrame)
        assert [_polars_record(row) for row in found.to_dicts()] == [_record(row) for row in same.to_dict("records")]
    assert made.sample().schema["channel"] == polars.Enum(["phone", "mail", "visit"])
    assert isinstance(SelPE.open(made.run_folder).sample(frame="polars"), polars.DataFrame)


def test_a_pandas_frame_in_is_a_pandas_frame_out_unless_asked_otherwise(fitted: SelPE) -> None:
    polars = pytest.importorskip("polars")
    assert isinstance(fitted.sample(), pd.DataFrame)
    assert isinstance(fitted.sample(20, frame="polars"), polars.DataFrame)
    with pytest.raises(ConfigError, match="'pandas' or 'polars'"):
        fitted.sample(frame="arrow")  # type: ignore[call-overload]


def _polars_record(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}


def test_a_table_that_was_read_is_taken_as_it_is(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    write_table(drawn(40, offset=3300), SCHEMA, tmp_path / "table.csv")
    assert len(small(tmp_path / "runs", epsilon=0).fit(selpe.read_table(tmp_path / "table.csv")).records) == 16
    assert not [found for found in recwarn if found.category is InferredTypesWarning]


def test_columns_that_a_frame_typed_are_warned_of_once_and_by_name(tmp_path: Path) -> None:
    typed = pd.DataFrame(drawn(40, offset=3700)).assign(topic=7, day=pd.Timestamp("2024-03-01"))
    schema = SCHEMA.to_yaml().replace("min_length: 3", "min_length: 1")
    with pytest.warns(InferredTypesWarning, match=r"for all rows: topic, day\. .*read_table.*dtype=str") as found:
        small(tmp_path, Schema.from_yaml(schema), epsilon=0).fit(typed)
    assert len(found) == 1
    assert found[0].filename == __file__


def test_tables_without_a_label_work(tmp_path: Path) -> None:
    plain = small(tmp_path, UNLABELLED).fit(pd.DataFrame(drawn(40, offset=1700, schema=UNLABELLED)))
    assert (len(plain.sample()), len(plain.sample(7)), len(plain.sample(20))) == (16, 7, 20)


def test_models_may_be_objects_and_stay_open(tmp_path: Path) -> None:
    class Closing(FakeModel):
        closed = False

        def close(self) -> None:
            self.closed = True

    model = Closing()
    made = small(tmp_path, llm=model, encoder=HashingEncoder()).fit(pd.DataFrame(drawn(40, offset=2100)))
    assert not model.closed
    assert made.card["release"]["model"] == "fake"


def test_listeners_hear_the_run(tmp_path: Path) -> None:
    heard: list[Event] = []
    small(tmp_path).fit(pd.DataFrame(drawn(40, offset=2500)), emit=heard.append)
    assert {PoolReady, Selected, Finished} <= {type(event) for event in heard}


def test_an_interrupted_fit_goes_on_under_its_name(tmp_path: Path) -> None:
    table = pd.DataFrame(drawn(40, offset=2900))

    def stop(event: Event) -> None:
        if isinstance(event, Selected):
            raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        small(tmp_path).fit(table, name="mine", emit=stop)
    again = small(tmp_path)
    with pytest.raises(RunError, match="other settings"):
        small(tmp_path, records=20).fit(table, name="mine")
    assert len(again.fit(table, name="mine").records) == 16
    assert again.card["guarantee"]["epsilon"]["replace_one"] == pytest.approx(2.0)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_release_changed_after_the_fit_is_refused_and_a_lost_one_written_again(tmp_path: Path) -> None:
    table = pd.DataFrame(drawn(40, offset=6400))
    made = small(tmp_path).fit(table, name="mine")
    release = made.run_folder / "release"
    whole = {path.name: path.read_bytes() for path in release.iterdir()}
    (release / "synthetic.jsonl").write_bytes(whole["synthetic.jsonl"] + b"\n")
    for look in (lambda: made.records, lambda: made.card, made.sample, made.report):
        with pytest.raises(PrivacyError, match="changed after the run"):
            look()
    with pytest.raises(PrivacyError, match="changed after the run"):
        small(tmp_path).fit(table, name="mine")
    shutil.rmtree(release)
    again = small(tmp_path).fit(table, name="mine")
    assert {path.name: path.read_bytes() for path in release.iterdir()} == whole
    assert len(again.records) == 16


def test_the_plan_spends_nothing_and_needs_no_table(tmp_path: Path) -> None:
    plan = small(tmp_path, guides="auto", bundles=8).plan(300)
    assert (plan.units, plan.records, plan.epsilon) == (300, 16, 2.0)
    assert plan.prices()["measure-1"] > plan.prices()["bundle"] > 0
    assert "bundle" not in small(tmp_path, guides="auto", bundles=8).plan(150).prices()  # too few rows for a last vote
    assert small(tmp_path, guides="auto", bundles=8, measure="off").plan(150).prices()["guide"] > 0
    assert list(tmp_path.iterdir()) == []


def test_importing_selpe_is_light_and_its_names_are_there() -> None:
    code = "import sys, selpe; assert 'numpy' not in sys.modules and 'pandas' not in sys.modules; print(dir(selpe))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'SelPE'" in done.stdout
    assert "'read_table'" in done.stdout
    assert selpe.Schema is Schema
    with pytest.raises(AttributeError, match="no attribute 'Selpe'"):
        _ = selpe.Selpe
    assert issubclass(RunError, SelPEError)
