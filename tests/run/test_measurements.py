"""measurements.json: what was measured, with all that it takes to use it; and what must agree with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from selpe.config import RunConfig, check_config
from selpe.errors import RunError
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.run.measurements import require_fit
from selpe.run.packing import pack_release
from selpe.run.release import RELEASED
from selpe.run.verify import verify_release
from selpe.schema import Schema
from small_world import SCHEMA, UNLABELLED, drawn

Made = Callable[..., Run]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A finished run with these settings."""

    def make(schema: Schema = SCHEMA, **more: object) -> Run:
        folder = tmp_path_factory.mktemp("measured")
        write_table(drawn(40, offset=9000, schema=schema), schema, folder / "private.csv")
        schema.save(folder / "schema.yaml")
        content: dict[str, object] = {
            "dataset": "desk", "data": str(folder / "private.csv"), "schema": str(folder / "schema.yaml"),
            "epsilon": 4.0, "records": 12, "bundles": 4, "llm": "fake", "encoder": "hash", "out": str(folder / "runs"),
            "measure": ["channel", "waited", "topic"],
        }  # fmt: skip
        config: RunConfig = check_config({**content, **more}, where="test")
        with pytest.MonkeyPatch.context() as patch:
            for name in ("LEDGER", "KEY"):
                patch.setenv(f"SELPE_{name}", str(folder / name.lower()))
            run = Run.create(config, ledger=folder / "ledger")
            run.execute(model=FakeModel(), encoder=HashingEncoder(64))
        return run

    return make


@pytest.fixture(scope="module")
def private(made: Made) -> Run:
    return made()


@pytest.fixture(scope="module")
def control(made: Made) -> Run:
    return made(epsilon=float("inf"))


def read(run: Run, name: str = "measurements.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.release / name).read_text(encoding="utf-8"))
    return found


def test_every_table_has_codes_counts_noise_and_price(private: Run) -> None:
    found = read(private)
    (look,) = found["looks"]
    assert (found["stamp"], found["label"], found["classes"]) == (None, "urgency", ["low", "high"])
    assert [table["table"] for table in look["tables"]] == ["urgency × topic", "urgency × channel", "urgency × waited"]
    for table in look["tables"]:
        shape = tuple(len(axis["codes"]) for axis in table["axes"])
        for part in ("counts", "shares", "model_shares"):
            assert np.shape(table[part]) == shape
        assert np.allclose(np.sum(table["shares"], axis=1), 1.0, atol=0.01)
        assert all(isinstance(count, int) for row in table["counts"] for count in row)
    topics, channels, waited = (table["axes"][1] for table in look["tables"])
    assert channels["codes"] == ["phone", "mail", "visit"]
    assert waited["codes"][0].startswith("0")
    assert waited["codes"][-1] == "(missing)"
    assert all(isinstance(code, str) and code for code in topics["codes"])
    (charge,) = (one for one in read(private, "privacy-card.json")["charges"] if one["selection"] == look["look"])
    for relation in ("replace_one", "add_remove"):
        assert look["epsilon"][relation] == charge[f"epsilon_{relation}"]
    assert look["noise"]["scale"] == pytest.approx(6 / look["epsilon"]["replace_one"])  # 3 tables, 2 cells each
    assert look["noise"]["half_width_95"] >= 2 * look["noise"]["scale"]


def test_it_says_how_to_use_it(private: Run) -> None:
    said = " ".join(read(private)["how_to_use"])
    for words in ("unbiased", "negative", "noise alone", "sampling", "none by a person", "no more privacy"):
        assert words in said


def test_a_control_without_noise_is_stamped_and_has_both_looks(control: Run) -> None:
    found = read(control)
    assert found["stamp"] == "NOT PRIVATE"
    first, second = found["looks"]
    assert (first["look"], second["look"]) == ("measure-1", "measure-2")
    assert (first["noise"]["law"], first["noise"]["half_width_95"], first["epsilon"]["add_remove"]) == (
        "none",
        0,
        "inf",
    )
    for look in (first, second):
        assert all(np.sum(table["counts"]) == 40 for table in look["tables"])
    coarse, fine = (look["tables"][0]["axes"][1]["codes"] for look in (first, second))
    assert coarse != fine
    assert first["tables"][1]["counts"] == second["tables"][1]["counts"]  # of a category: the same codes


@pytest.mark.parametrize("settings", [{"epsilon": 0.0}, {"measure": "off"}])
def test_where_nothing_was_counted_there_is_no_file(made: Made, settings: dict[str, Any]) -> None:
    run = made(**settings)
    assert not (run.release / "measurements.json").exists()
    assert read(run, "privacy-card.json")["measurements"] is None
    assert {path.name for path in run.release.iterdir()} == set(RELEASED) - {"measurements.json"}
    whole = {path.name: path.read_bytes() for path in run.release.iterdir()}
    shutil.rmtree(run.release)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_KEY", str(run.folder.parents[1] / "key"))
        again = Run.open(run.folder)
        again.execute(model=FakeModel(), encoder=HashingEncoder(64))
        pack_release(run.folder, again.manifest, SCHEMA, allowed=RELEASED, to=run.folder / "out.zip")
    assert {path.name: path.read_bytes() for path in run.release.iterdir()} == whole
    (told,) = (one.said for one in verify_release(run.folder / "out.zip").findings if one.what == "measurements")
    assert told.startswith("none")


def test_a_lost_release_comes_back_with_its_measurements(private: Run, tmp_path: Path) -> None:
    whole = {path.name: path.read_bytes() for path in private.release.iterdir()}
    shutil.rmtree(private.release)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_KEY", str(private.folder.parents[1] / "key"))
        again = Run.open(private.folder)
        again.execute(model=FakeModel(), encoder=HashingEncoder(64))
        packed = pack_release(private.folder, again.manifest, SCHEMA, allowed=RELEASED, to=tmp_path / "out.zip")
    assert {path.name: path.read_bytes() for path in private.release.iterdir()} == whole
    assert set(packed.files) == set(RELEASED)
    findings = verify_release(tmp_path / "out.zip").findings
    assert {one.what: one.state for one in findings}["measurements"] == "ok"


def test_a_table_without_classes_stands_alone(made: Made) -> None:
    run = made(UNLABELLED, measure=["solved", ["solved", "channel"]])
    (look,) = read(run)["looks"]
    channel, solved, both = look["tables"]
    assert (solved["table"], [axis["field"] for axis in solved["axes"]]) == ("solved", ["solved"])
    assert np.shape(solved["counts"]) == np.shape(solved["shares"]) == (2,)
    assert np.shape(channel["counts"]) == (3,)
    assert (both["table"], np.shape(both["counts"])) == ("solved × channel", (2, 3))
    assert "shares" not in both


def test_no_private_text_is_in_it(made: Made, private: Run) -> None:
    texts = {str(row["topic"]) for row in drawn(40, offset=9000)}
    said = json.dumps([read(private), read(private, "privacy-card.json")["measurements"]], ensure_ascii=False)
    assert len(texts) > 30
    assert not [text for text in texts if text in said]


def test_people_are_counted_where_they_are_protected(made: Made) -> None:
    run = made(measure=["channel"], unit="topic")
    found = read(run)
    assert found["counted"].startswith("different values of 'topic'")
    assert "values of 'topic'" in found["how_to_use"][0]


# -- what must agree --------------------------------------------------------------------------------------------------


def changed(found: dict[str, Any], how: str) -> Any:
    table = found["looks"][0]["tables"][1]
    if how == "missing":
        return None
    if how == "another run":
        found["run"] = "other"
    elif how == "no stamp":
        found["stamp"] = "NOT PRIVATE"
    elif how == "less noise":
        found["looks"][0]["noise"]["scale"] /= 2
    elif how == "a table more":
        found["looks"][0]["tables"].append(table)
    elif how == "another field":
        table["axes"][1]["field"] = "secret"
    elif how == "a count less":
        table["counts"][0].pop()
    elif how == "broken counts":
        table["counts"][0][0] = 0.5
    elif how == "shares of another shape":
        table["shares"] = table["shares"][0]
    elif how == "no looks":
        del found["looks"]
    return found


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("missing", "disagree"),
        ("another run", "card says"),
        ("no stamp", "card says"),
        ("less noise", "card says"),
        ("a table more", "card says"),
        ("another field", "not those of its codes"),
        ("a count less", "card says|not those of its codes|not a file"),
        ("broken counts", "not those of its codes"),
        ("shares of another shape", "not those of its codes"),
        ("no looks", "not a file of measurements"),
    ],
)
def test_what_the_card_does_not_say_is_refused(private: Run, how: str, words: str) -> None:
    card = read(private, "privacy-card.json")
    require_fit(read(private), card, SCHEMA)
    with pytest.raises(RunError, match=words):
        require_fit(changed(read(private), how), card, SCHEMA)


def test_a_release_of_an_earlier_version_has_neither_file_nor_word_of_it(private: Run) -> None:
    card = read(private, "privacy-card.json")
    del card["measurements"]
    require_fit(None, card, SCHEMA)
    with pytest.raises(RunError, match="disagree"):
        require_fit(read(private), card, SCHEMA)


@pytest.mark.parametrize("how", ["gone", "unsealed"])
def test_verify_notices_a_file_that_is_gone_or_was_put_there(
    private: Run, made: Made, tmp_path: Path, how: str
) -> None:
    run = private if how == "gone" else made(measure="off")
    release = shutil.copytree(run.release, tmp_path / "release")
    if how == "gone":
        (release / "measurements.json").unlink()
    else:
        shutil.copyfile(private.release / "measurements.json", release / "measurements.json")
    wrong = {finding.what: finding.file for finding in verify_release(release).findings if finding.state == "wrong"}
    assert wrong["measurements"] == "measurements.json"
    assert "hashes" in wrong
