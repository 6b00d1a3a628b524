"""The whole evaluation: of runs and of anybody's tables, on private rows that never show outside `internal/`."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import selpe
from evaluated_world import QUICK, World, make_world
from private_world import MARKER
from selpe.errors import ConfigError, DataError, PrivacyError, RunError
from selpe.evaluation.winners import winners_over_rounds
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.report.evaluate import Evaluation, evaluate
from selpe.report.gather import gather
from small_world import SCHEMA, UNLABELLED, drawn


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_LEDGER", str(folder / "ledgers"))
        patch.setenv("SELPE_KEY", str(folder / "key"))
        yield make_world(folder)


@pytest.fixture(scope="module")
def found(world: World) -> Evaluation:
    return evaluate(world.run, control=world.control, **QUICK)


def test_a_run_brings_its_own_tables_and_its_story(found: Evaluation) -> None:
    content = found.content
    assert content["tables"] == {"synthetic": 24, "test": 40, "private": 60, "control": 24}
    trained = {score["trained_on"] for score in content["utility"]["scores"]}
    assert trained == {"synthetic", "private rows", "real rows", "epsilon 0", "schema examples", "chance"}
    assert content["fidelity"]["counts"] == {"synthetic": 24, "real": 40}
    assert content["attack"]["counts"]["private"] == 60
    assert content["subject"] | {"run": ""} == {
        "name": "desk-1", "records": 24, "fields": 8, "label": "urgency", "classes": ["low", "high"], "run": "",
        "private": True, "epsilon": 2.0, "adjacency": "replace-one", "unit": None,
    }  # fmt: skip
    assert sum(choice["epsilon"] for choice in content["making"]["choices"]) == pytest.approx(2.0)
    assert content["making"]["pools"][0]["found"] > 0


def test_winners_stand_somewhere_among_the_candidates(found: Evaluation) -> None:
    rounds = found.content["winners"]
    choices = [choice["name"] for choice in found.content["making"]["choices"]]
    assert [one["name"] for one in rounds] == [name for name in choices if name.startswith("round-")]
    assert set(choices) == {"round-1", "round-2", "measure-1"}
    assert all(0 <= percentile <= 100 for one in rounds for _, percentile in one["winners"])
    assert {label for one in rounds for label, _ in one["winners"]} == {"low", "high"}


def test_it_is_written_into_internal_and_touches_nothing_else(world: World, found: Evaluation) -> None:
    before = {path: path.read_bytes() for path in world.run.rglob("*") if path.is_file()}
    page = found.write()
    assert page == world.run / "internal" / "report.html"
    content = json.loads((page.parent / "evaluation.json").read_text(encoding="utf-8"))
    assert content == json.loads(json.dumps(found.as_dict()))
    assert "INTERNAL, NOT FOR RELEASE" in page.read_text(encoding="utf-8")
    assert "NOT FOR RELEASE" in (page.parent / "NOT-FOR-RELEASE").read_text(encoding="utf-8")
    after = {path: path.read_bytes() for path in world.run.rglob("*") if path.is_file()}
    changed = {path.parent.name for path in after if before.get(path) != after[path]}
    assert changed == {"internal"}


def test_a_private_value_is_found_in_internal_at_most(
    world: World, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    private = world.folder / "private.csv"
    shown = evaluate(world.run, show_real=True, test=private, progress=lambda what, _: told.append(what), **QUICK)
    shown.write()
    where = {
        path.relative_to(world.run).parts[0]
        for path in world.run.rglob("*")
        if path.is_file() and MARKER.encode() in path.read_bytes()
    }
    assert where == {"internal"}
    assert MARKER not in "".join(capfd.readouterr()) + caplog.text + "".join(told) + repr(shown)
    quiet = evaluate(world.run, **QUICK)
    quiet.write()
    assert not any(MARKER.encode() in path.read_bytes() for path in world.run.rglob("*") if path.is_file())


def test_a_copy_of_the_private_table_must_not_be_released(world: World) -> None:
    private = drawn(60, offset=300)
    found = evaluate(private, schema=SCHEMA, private=private, test=world.test, **QUICK)
    assert found.verdict["headline"] == "Do not release this table yet"
    assert found.content["attack"]["nrs"]["value"] == 0.0
    assert found.verdict["steps"][0].startswith("Treat this table like the private one")


def test_rows_that_stand_on_both_sides_are_told(world: World) -> None:
    material = gather(world.run, test=world.folder / "private.csv")
    assert "60 of the 60 test records stand in the private table too" in " ".join(material.notes)
    assert MARKER not in repr(material)


def test_progress_goes_from_nothing_to_all(world: World) -> None:
    told: list[tuple[str, float]] = []
    evaluate(world.run, private=False, progress=lambda what, share: told.append((what, share)), **QUICK)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], told[-1]) == (0.0, ("done", 1.0))


def test_without_the_private_table_nothing_is_attacked(world: World) -> None:
    found = evaluate(world.run, private=False, **QUICK)
    assert found.content["attack"] is None
    trained = {score["trained_on"] for score in found.content["utility"]["scores"]}
    assert trained == {"synthetic", "schema examples", "chance"}
    assert found.verdict["findings"][2]["answer"] == "not attacked"


def test_a_moved_private_table_is_noted_and_can_be_given(world: World, tmp_path: Path) -> None:
    kept = (world.folder / "private.csv").rename(tmp_path / "moved.csv")
    try:
        gone = gather(world.run)
        assert gone.private is None
        assert "give it as `private`" in gone.notes[0]
        assert len(gather(world.run, private=kept).private or ()) == 60
    finally:
        kept.rename(world.folder / "private.csv")


def test_tables_of_others_need_a_schema_and_their_invalid_rows_are_counted(world: World, tmp_path: Path) -> None:
    table = write_table(world.records(), SCHEMA, tmp_path / "theirs.csv")
    lines = table.read_text(encoding="utf-8").splitlines()
    table.write_text("\n".join([*lines, lines[1].replace(",phone,", ",pigeon,").replace(",mail,", ",pigeon,")
                                .replace(",visit,", ",pigeon,")]) + "\n", encoding="utf-8")  # fmt: skip
    with pytest.raises(ConfigError, match="needs its schema"):
        evaluate(table, test=world.test)
    found = evaluate(table, schema=world.folder / "schema.yaml", test=world.test, **QUICK)
    assert found.content["validity"] == {"rate": 24 / 25, "total": 25, "invalid": 1, "distinct": 24}
    assert found.content["subject"]["private"] is None
    assert found.content["making"] is None
    with pytest.raises(RunError, match="belongs to no run"):
        found.write()
    assert found.write(tmp_path / "out").is_file()


def test_frames_and_records_are_tables_too(world: World) -> None:
    records = world.records()
    by_records = gather(records, schema=SCHEMA, test=drawn(10))
    by_frame = gather(pd.DataFrame(records), schema=SCHEMA, test=pd.DataFrame(drawn(10)))
    assert by_records.synthetic == by_frame.synthetic == records
    assert by_records.test == by_frame.test


def test_without_any_real_row_the_table_is_judged_by_itself(world: World) -> None:
    found = evaluate(world.records(), schema=SCHEMA, **QUICK)
    assert found.content["fidelity"] is None
    assert found.content["synthetic"]["counts"] == {"synthetic": 24}
    assert "there were no real records" in found.html()


def test_without_a_label_everything_but_utility_is_measured() -> None:
    found = evaluate(
        drawn(20, schema=UNLABELLED), schema=UNLABELLED, test=drawn(20, offset=300, schema=UNLABELLED),
        private=drawn(20, offset=900, schema=UNLABELLED), **QUICK,
    )  # fmt: skip
    assert found.content["utility"] is None
    assert found.content["attack"]["counts"]["private"] == 20
    assert "names no label" in found.html()


def test_as_many_real_rows_are_a_reference_where_there_are_more(world: World) -> None:
    found = evaluate(world.records(), schema=SCHEMA, test=world.test, holdout=drawn(50, offset=300), **QUICK)
    rows = {score["trained_on"]: score["rows"] for score in found.content["utility"]["scores"]}
    assert rows == {"synthetic": 24, "real rows": 24, "schema examples": len(SCHEMA.examples), "chance": 0}


def rows_trained_on(records: int, **tables: Any) -> tuple[dict[str, int], str]:
    found = evaluate(drawn(records), schema=SCHEMA, test=drawn(20, offset=900), **tables, **QUICK).content["utility"]
    return {score["trained_on"]: score["rows"] for score in found["scores"]}, " ".join(found["notes"])


def test_where_real_rows_are_fewer_than_records_all_of_them_are_the_reference_and_it_is_said() -> None:
    private, holdout = drawn(12, offset=300), drawn(5, offset=600)
    rows, notes = rows_trained_on(24, private=private)
    assert (rows["private rows"], rows["real rows"]) == (12, 12)
    assert "There are 12 real rows to train on, fewer than the 24 synthetic records" in notes
    rows, notes = rows_trained_on(24, private=private, holdout=holdout)
    assert (rows["private rows"], rows["real rows"]) == (12, 17)
    assert "17 real rows" in notes
    rows, notes = rows_trained_on(10, private=private)
    assert (rows["private rows"], rows["real rows"]) == (12, 10)
    assert "fewer than" not in notes


def test_the_schemas_examples_as_a_table_are_not_ready_for_use() -> None:
    found = evaluate(list(SCHEMA.examples), schema=SCHEMA, test=drawn(30, offset=300), **QUICK)
    assert found.verdict["headline"] == "Not ready for use"
    assert found.content["fidelity"]["echoes"]["synthetic"]["share"] == 1.0
    assert "no better than the schema's" in found.verdict["findings"][0]["sentence"]
    assert (
        "100 % of the records copy an example of the schema (0 % nearly)." in found.verdict["findings"][1]["sentence"]
    )


@dataclass(frozen=True)
class Elsewhere:
    """An encoder behind a URL."""

    name: str = "far"
    dimension: int = 8
    remote: str | None = "https://far.example/v1"
    rowwise: bool = True

    def encode(self, texts: Any) -> Any:
        raise AssertionError("a text was sent")


def test_real_rows_are_not_sent_to_an_encoder_elsewhere(world: World) -> None:
    with pytest.raises(PrivacyError, match=r"far\.example"):
        evaluate(world.run, encoder=Elsewhere(), views=("minilm",))


def test_bad_input_is_named(world: World, tmp_path: Path) -> None:
    for wrong, message in (
        ({"control": world.run}, "ε = 0"),
        ({"test": tmp_path / "absent.csv"}, "no such file"),
        ({"private": world.folder / "schema.yaml"}, "unknown kind of file"),
    ):
        with pytest.raises((ConfigError, DataError), match=message) as caught:
            gather(world.run, **wrong)  # type: ignore[arg-type]
        assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="not a run"):
        gather(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="no column for"):
        gather(world.run, test=tmp_path / "other.csv")


def test_nothing_internal_is_written_into_a_release(world: World, found: Evaluation) -> None:
    for place in (world.run / "release", world.run / "release" / "deeper"):
        with pytest.raises(PrivacyError, match="must not lie in a release"):
            found.write(place)
    assert "report.html" not in world.released()


def test_a_run_that_is_not_done_is_not_judged(world: World) -> None:
    path = world.run / "manifest.json"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace('"state": "done"', '"state": "interrupted"'), encoding="utf-8")
    try:
        with pytest.raises(ConfigError, match="not done"):
            gather(world.run)
    finally:
        path.write_text(whole, encoding="utf-8")


def test_a_winner_that_equals_the_real_rows_stands_at_the_top() -> None:
    real, other = drawn(1)[0], drawn(4, offset=50)
    others = [record | {"urgency": real["urgency"]} for record in other]
    making = {"choices": [{"name": "round-1", "records": {str(real["urgency"]): [real]}}], "expected": [80.0]}
    (found,) = winners_over_rounds(SCHEMA, making, [real, *others], [real] * 3, encoder=HashingEncoder())
    ((label, percentile),) = found["winners"]
    assert (label, percentile) == (real["urgency"], pytest.approx(90.0))  # above four of five, level with itself
    assert winners_over_rounds(SCHEMA, making, [], [real], encoder=HashingEncoder()) == []


def test_evaluate_is_a_function_whatever_was_imported_before() -> None:
    code = (
        "import sys, selpe\n"
        "assert 'numpy' not in sys.modules\n"
        "first = selpe.evaluate\n"
        "import selpe.evaluation.validity\n"
        "from selpe import evaluate\n"
        "assert first is evaluate and callable(evaluate)\n"
        "try:\n    evaluate([{}])\nexcept Exception as error:\n    print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "ConfigError"
    assert "evaluate" in dir(selpe)
