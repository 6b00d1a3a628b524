"""Packing: the files of a finished private run, proved one by one, and nothing else whatever happens.

Most of it is about the wall behind the seal, so releases are sealed here by hand, as whoever has the key can.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import zipfile
from pathlib import Path
from typing import Any

import pytest

from selpe.config import check_config
from selpe.errors import PrivacyError, RunError, SelPEError
from selpe.intake import write_table
from selpe.privacy.card import build_card, render_markdown
from selpe.privacy.ledger import Ledger
from selpe.privacy.sealing import SEAL, file_sum, seal_release
from selpe.report.summary import write_summary
from selpe.run.packing import SUMS, Packed, pack_release
from selpe.run.release import RELEASED, SEALED, released_files
from selpe.run.verify import verify_release
from small_world import SCHEMA, drawn

WITHOUT_TABLES = released_files(())  # this run has measured nothing
MANIFEST: dict[str, Any] = {"name": "desk-1", "state": "done", "private": True}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a finished run, with things in it that must not leave."""
    release = tmp_path / "desk-1" / "release"
    release.mkdir(parents=True)
    records = drawn(12)
    write_table(records, SCHEMA, release / "synthetic.csv")
    write_table(records, SCHEMA, release / "synthetic.jsonl")
    (release / "schema.json").write_text(laid_out(SCHEMA.to_json_schema()), encoding="utf-8")
    write_card(release, epsilon=2.0)
    (release.parent / "internal").mkdir()
    (release.parent / "internal" / "evaluation.json").write_text("{}", encoding="utf-8")
    return release.parent


def laid_out(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2, default=str) + "\n"


def write_card(release: Path, *, epsilon: float, run: str = "desk-1") -> None:
    config = check_config({"dataset": "desk", "data": "x.csv", "epsilon": epsilon}, where="test")
    ledger = Ledger.open("desk", root=release.parent / "ledger")
    card = build_card(schema=SCHEMA, config=config, run=run, ledger=ledger, records=12)
    (release / "privacy-card.json").write_text(laid_out(card), encoding="utf-8")
    (release / "privacy-card.md").write_text(render_markdown(card), encoding="utf-8")
    write_summary(release, SCHEMA)


def sealed(run: Path) -> dict[str, Any]:
    """What a manifest says of a seal around the files as they are, in a ledger of its own."""
    ledger = Ledger.open("desk", root=run / f"ledger-{secrets.token_hex(4)}")
    sums = {file: file_sum(run / "release" / file) for file in SEALED if (run / "release" / file).is_file()}
    seal = seal_release(ledger, "desk-1", sums)
    (run / "release" / SEAL).write_bytes(seal.to_bytes())
    return {"seal": seal.to_dict(), "ledger": str(ledger.root), "settings": {"dataset": "desk"}}


def pack(run: Path, **changes: Any) -> Packed:
    """Packs the release, sealed as it is."""
    options: dict[str, Any] = {"allowed": RELEASED, "to": run.parent / "out.zip"}
    manifest = {**changes.pop("manifest", MANIFEST), **sealed(run)}
    return pack_release(run, manifest, SCHEMA, **(options | changes))


def refused(run: Path, kind: type[SelPEError] = SelPEError, **changes: Any) -> str:
    with pytest.raises(kind) as caught:
        pack(run, **changes)
    assert not (run.parent / "out.zip").exists()
    return str(caught.value)


def test_the_zip_holds_the_files_of_the_release_and_their_sums(run: Path) -> None:
    packed = pack(run)
    with zipfile.ZipFile(packed.path) as archive:
        names = [Path(name).name for name in archive.namelist()]
        assert sorted(names) == sorted([*WITHOUT_TABLES, SUMS])
        lines = archive.read(f"desk-1-release/{SUMS}").decode().splitlines()
        sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
        for name in WITHOUT_TABLES:
            assert hashlib.sha256(archive.read(f"desk-1-release/{name}")).hexdigest() == sums[name]
            assert archive.read(f"desk-1-release/{name}") == (run / "release" / name).read_bytes()
    assert packed.files == sums
    assert packed.records == 12
    assert packed.sha256 == hashlib.sha256(packed.path.read_bytes()).hexdigest()


def test_a_release_from_before_measured_tables_is_packed_and_verified(run: Path) -> None:
    release = run / "release"
    card = json.loads((release / "privacy-card.json").read_text(encoding="utf-8"))
    del card["measurements"]
    (release / "privacy-card.json").write_text(laid_out(card), encoding="utf-8")
    (release / "privacy-card.md").write_text(render_markdown(card), encoding="utf-8")
    write_summary(release, SCHEMA)
    found = verify_release(pack(run).path)
    assert [finding.what for finding in found.findings if finding.state == "wrong"] == []


def test_measurements_that_the_card_does_not_tell_of_stop_it(run: Path) -> None:
    (run / "release" / "measurements.json").write_text(laid_out({"looks": []}), encoding="utf-8")
    assert "disagree" in refused(run, RunError)


def test_the_same_release_makes_the_same_zip(run: Path) -> None:
    first = pack(run, to=run.parent / "a.zip")
    (run / "release" / "synthetic.csv").touch()
    assert pack(run, to=run.parent / "b.zip").sha256 == first.sha256


@pytest.mark.parametrize("stranger", ["evaluation.json", ".hidden", "synthetic.csv.bak", "Synthetic.csv"])
def test_a_stranger_in_the_folder_stops_it(run: Path, stranger: str) -> None:
    (run / "release" / stranger).write_text("x", encoding="utf-8")
    assert stranger in refused(run, PrivacyError)


def test_a_folder_in_the_folder_stops_it(run: Path) -> None:
    (run / "release" / "more").mkdir()
    assert "more" in refused(run, PrivacyError)


def test_links_are_not_followed(run: Path, tmp_path: Path) -> None:
    card, secret = run / "release" / "privacy-card.md", run / "internal" / "evaluation.json"
    card.unlink()
    card.symlink_to(secret)
    assert "privacy-card.md" in refused(run, PrivacyError)
    card.unlink()
    os.link(secret, card)
    assert "not a link" in refused(run, PrivacyError)


def test_a_release_folder_that_is_a_link_is_none(run: Path, tmp_path: Path) -> None:
    (run / "release").rename(tmp_path / "elsewhere")
    (run / "release").symlink_to(tmp_path / "elsewhere")
    assert "no release folder" in refused(run, RunError)


def test_a_missing_file_stops_it(run: Path) -> None:
    (run / "release" / "privacy-card.json").unlink()
    assert "privacy-card.json" in refused(run, RunError)


def test_a_record_against_the_schema_stops_it_and_is_not_quoted(run: Path) -> None:
    path = run / "release" / "synthetic.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    broken = json.loads(lines[4]) | {"channel": "QX7-Zebra"}
    path.write_text("\n".join([*lines[:4], json.dumps(broken), *lines[5:]]) + "\n", encoding="utf-8")
    message = refused(run, RunError)
    assert "synthetic.jsonl, line 5" in message
    assert "QX7-Zebra" not in message


def test_tables_must_hold_the_records_to_the_byte(run: Path) -> None:
    for name in ("synthetic.csv", "synthetic.jsonl"):
        path = run / "release" / name
        whole = path.read_bytes()
        path.write_bytes(whole + (b"\n" if name.endswith("csv") else b" \n"))
        assert name in refused(run, RunError)
        path.write_bytes(whole)
    rows = (run / "release" / "synthetic.csv").read_bytes()
    (run / "release" / "synthetic.csv").write_bytes(rows[: rows.rstrip().rfind(b"\n") + 1])
    assert "synthetic.csv" in refused(run, RunError)


@pytest.mark.parametrize("text", ["{", "[]\n", '{"type": "object"}\n'])
def test_a_schema_that_is_not_the_runs_stops_it(run: Path, text: str) -> None:
    (run / "release" / "schema.json").write_text(text, encoding="utf-8")
    assert "schema.json" in refused(run, RunError)


def test_json_files_cannot_hide_anything_in_their_layout(run: Path) -> None:
    path = run / "release" / "schema.json"
    path.write_text(path.read_text(encoding="utf-8") + "    \n", encoding="utf-8")
    assert "not as it was written" in refused(run, RunError)


@pytest.mark.parametrize("state", ["created", "running", "interrupted", "stopped"])
def test_a_run_that_is_not_done_has_no_release(run: Path, state: str) -> None:
    assert "not done" in refused(run, RunError, manifest=MANIFEST | {"state": state})


@pytest.mark.parametrize("private", [False, None, "yes"])
def test_a_control_is_packed_on_request_only_and_under_its_name(run: Path, private: Any) -> None:
    manifest = MANIFEST | {"private": private}
    assert "not private" in refused(run, PrivacyError, manifest=manifest)
    assert "disagree" in refused(run, PrivacyError, manifest=manifest, not_private_control=True)
    write_card(run / "release", epsilon=math.inf)
    assert "disagree" in refused(run, PrivacyError)
    packed = pack(run, manifest=manifest, not_private_control=True)
    assert not packed.private
    with zipfile.ZipFile(packed.path) as archive:
        assert all(name.startswith("desk-1-NOT-PRIVATE/") for name in archive.namelist())


def test_a_card_of_another_run_or_with_another_text_stops_it(run: Path) -> None:
    card = run / "release" / "privacy-card.md"
    card.write_text(card.read_text(encoding="utf-8") + "\nTrust us.\n", encoding="utf-8")
    assert "privacy-card.md" in refused(run, RunError)
    write_card(run / "release", epsilon=2.0, run="desk-2")
    assert "not the card of this run" in refused(run, RunError)
    (run / "release" / "privacy-card.json").write_text(laid_out({"run": "desk-1", "stamp": None}), encoding="utf-8")
    assert "not a privacy card" in refused(run, RunError)


def test_a_summary_with_anything_of_its_own_stops_it(run: Path) -> None:
    page = run / "release" / "summary.html"
    whole = page.read_text(encoding="utf-8")
    for changed in (whole + "<!-- QX7 -->", whole.replace("records", "private records", 1), whole.upper()):
        page.write_text(changed, encoding="utf-8")
        assert "summary.html" in refused(run, RunError)
    write_summary(run / "release", SCHEMA)
    assert page.read_text(encoding="utf-8") == whole
    pack(run)
