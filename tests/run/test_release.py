"""Sealed releases: what was changed after the run does not leave, whoever helps; what was lost is written again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import selpe
import selpe.run.lifecycle
import selpe.run.release
from faults_world import at, befallen, make_project, places
from in_process import selpe as command
from selpe.errors import LedgerError, PrivacyError, RunError
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.card import build_card, render_markdown
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.ledger.key import Key, find_key
from selpe.privacy.sealing import SEAL, Seal, digest_of, file_sum, require_whole, seal_release, told_charges
from selpe.report.gather import gather
from selpe.report.summary import write_summary
from selpe.run.lifecycle import Run
from selpe.run.manifest import read_manifest, write_manifest
from selpe.run.release import RELEASED, SEALED
from selpe.run.verify import verify_release
from small_world import SCHEMA, drawn

RUN = ("run", "--name", "mine", "--yes")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two finished runs, `mine` and `other`, on one table."""
    folder = make_project(tmp_path_factory.mktemp("house"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places(folder).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        Ledger.open("desk").set_budget(100.0)
        for name in ("mine", "other"):
            assert command("run", "--name", name, "--yes").code == 0
    return folder


@pytest.fixture
def run(house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run `mine`, to do something to; its ledger and key are those of the house."""
    for name, value in places(house).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(house)
    return Path(shutil.copytree(house / "runs" / "mine", tmp_path / "mine"))


def content(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "release").iterdir()}


def manifest_of(run: Path) -> dict[str, Any]:
    found = read_manifest(run)
    assert found is not None
    return found


def refused(run: Path, words: str = "") -> None:
    """Every door is shut: packing, reports, evaluations and resuming refuse it, and none of them writes into it."""
    before = content(run) if (run / "release").is_dir() else {}
    doors = [("release", "-y", run, "--to", run.parent / "out.zip"), ("report", run), ("evaluate", run, "--no-private")]
    for door in (*doors, ("resume", run)):
        result = command(*door)
        assert result.code != 0, door
        assert "Traceback" not in result.said
        assert words in result.err, result.err
        assert "writes it anew" not in result.err
    with pytest.raises(PrivacyError):
        require_whole(run / "release", manifest_of(run))
    assert not (run.parent / "out.zip").exists()
    assert (content(run) if (run / "release").is_dir() else {}) == before


def rewrite(run: Path) -> None:
    """What an attacker without the key does: the private table as the release, and every other file made to fit it."""
    release, opened = run / "release", Run.open(run)
    rows = drawn(12, offset=77)
    for name in ("synthetic.csv", "synthetic.jsonl"):
        write_table(rows, SCHEMA, release / name)
    card = build_card(
        schema=SCHEMA, config=opened.config, run="mine", ledger=opened.ledger, records=len(rows),
        measured=json.loads((release / "measurements.json").read_text(encoding="utf-8")),
    )  # fmt: skip
    (release / "privacy-card.json").write_text(json.dumps(card, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    (release / "privacy-card.md").write_text(render_markdown(card), encoding="utf-8")
    write_summary(release, SCHEMA)


def forged(run: Path, **changes: Any) -> Seal:
    """A seal around the files as they are, under a key of somebody else's."""
    known = Seal.from_dict(manifest_of(run)["seal"])
    files = {name: file_sum(run / "release" / name) for name in SEALED}
    told = known.to_dict() | {"files": files}
    seal = Seal(known.dataset, known.run, files, known.release, known.charges, known.digest, known.key, told["mac"])
    (run / "release" / SEAL).write_bytes(seal.to_bytes())
    write_manifest(run, manifest_of(run) | {"seal": seal.to_dict(), "card": files["privacy-card.json"]} | changes)
    return seal


# -- attacks ----------------------------------------------------------------------------------------------------------


def test_a_private_table_under_a_fitting_card_does_not_leave(run: Path) -> None:
    rewrite(run)
    write_manifest(run, manifest_of(run) | {"card": file_sum(run / "release" / "privacy-card.json")})
    refused(run, "changed after the run")
    found = verify_release(run / "release")
    assert not found.ok
    (hashes,) = (finding.file for finding in found.findings if finding.what == "hashes")
    assert {"synthetic.csv", "synthetic.jsonl"} <= set(hashes.split(", "))


def test_a_private_table_in_only_the_two_table_files_does_not_leave(run: Path) -> None:
    for name in ("synthetic.csv", "synthetic.jsonl"):
        write_table(drawn(12, offset=77), SCHEMA, run / "release" / name)
    refused(run, "synthetic.csv")


def test_a_seal_made_without_the_key_is_no_seal(run: Path) -> None:
    rewrite(run)
    forged(run)
    refused(run, "the seal was changed")
    found = verify_release(run / "release")
    assert [finding.what for finding in found.findings if finding.state == "wrong"] == ["owner's key", "owner's ledger"]


def test_a_seal_under_another_key_is_no_seal(run: Path, tmp_path: Path) -> None:
    rewrite(run)
    seal = forged(run).signed(Key(bytes(32)))
    (run / "release" / SEAL).write_bytes(seal.to_bytes())
    write_manifest(run, manifest_of(run) | {"seal": seal.to_dict()})
    refused(run, f"id {seal.key}")


def test_a_seal_that_the_ledger_does_not_know_is_no_seal(run: Path, tmp_path: Path) -> None:
    """Not even under the owner's key: the ledger's line must say the same."""
    rewrite(run)
    key = find_key()
    assert key is not None
    seal = forged(run).signed(key)
    (run / "release" / SEAL).write_bytes(seal.to_bytes())
    write_manifest(run, manifest_of(run) | {"seal": seal.to_dict()})
    refused(run, "with other files")
    write_manifest(run, manifest_of(run) | {"ledger": str(tmp_path / "empty")})
    refused(run)


def test_a_ledger_of_somebody_else_vouches_for_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(run)
    with monkeypatch.context() as theirs:
        theirs.setenv("SELPE_KEY", str(tmp_path / "their-key"))
        files = {name: file_sum(run / "release" / name) for name in SEALED}
        seal = seal_release(Ledger.open("desk", root=tmp_path / "theirs"), "mine", files)
    key = find_key()
    assert key is not None
    for made in (seal, seal.signed(key)):  # even where the mac would be right, their ledger is not ours
        (run / "release" / SEAL).write_bytes(made.to_bytes())
        write_manifest(run, manifest_of(run) | {"seal": made.to_dict(), "ledger": str(tmp_path / "theirs")})
        refused(run)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("name", RELEASED)
def test_one_changed_byte_in_any_file_is_refused_and_the_file_named(run: Path, name: str, place: str) -> None:
    path = run / "release" / name
    raw, about = bytearray(path.read_bytes()), path.stat()
    position = {"first": 0, "middle": len(raw) // 2, "last": len(raw) - 1}[place]
    raw[position] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    result = command("release", "-y", run, "--to", run.parent / "out.zip")
    assert (result.code, name in result.err) == (2, True), result.err
    verified = command("verify", run / "release", "--json")
    files = {file for finding in verified.lines[-1]["findings"] for file in finding["file"].split(", ")}
    assert (verified.code, name in files) == (2, True), verified.out


@pytest.mark.parametrize("change", [{"private": False}, {"name": "other"}, {"seal": {}}, {"seal": {"run": "mine"}}])
def test_an_edited_manifest_is_refused(run: Path, change: dict[str, Any]) -> None:
    write_manifest(run, manifest_of(run) | change)
    assert command("release", "-y", run, "--to", run.parent / "out.zip", "--not-private-control").code != 0
    assert not (run.parent / "out.zip").exists()


def test_a_removed_seal_is_refused_and_nothing_puts_one_back(run: Path) -> None:
    write_manifest(run, {name: value for name, value in manifest_of(run).items() if name != "seal"})
    refused(run, "has no seal")
    (run / "release" / SEAL).unlink()
    refused(run, "has no seal")
    shutil.rmtree(run / "release")
    assert command("resume", run).code != 0
    assert not (run / "release").exists()


def test_a_removed_file_of_the_seal_is_refused(run: Path) -> None:
    (run / "release" / SEAL).unlink()
    refused(run, SEAL)


def test_swapped_releases_are_refused(run: Path, house: Path) -> None:
    other = house / "runs" / "other"
    shutil.rmtree(run / "release")
    shutil.copytree(other / "release", run / "release")
    refused(run, "changed after the run")
    write_manifest(run, manifest_of(run) | {"seal": manifest_of(other)["seal"]})
    refused(run, "another run")


def test_without_the_key_nothing_is_packed_and_the_message_says_so(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELPE_KEY", str(tmp_path / "no-key"))
    result = command("release", "-y", run, "--to", run.parent / "out.zip")
    assert result.code == 2
    assert "the owner's key that made it" in result.err
    assert not (tmp_path / "no-key").exists()


def test_a_report_or_an_evaluation_writes_nothing_into_a_release(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (run / "release").iterdir()}
    assert command("report", run).code == 0
    assert command("evaluate", run, "--no-private", "--views", "boosted").code == 0
    assert command("report", run).code == 0
    assert {path: path.stat().st_mtime_ns for path in (run / "release").iterdir()} == before


def test_a_changed_control_is_not_compared_with(run: Path, house: Path) -> None:
    (run / "release" / "synthetic.jsonl").write_bytes(b"")
    with pytest.raises(PrivacyError, match="changed after the run"):
        gather(run, private=False)


# -- a lost release ---------------------------------------------------------------------------------------------------


def test_a_lost_release_is_written_again_to_the_byte_and_costs_nothing(run: Path) -> None:
    """Although another run has charged the table since, which a card made now would tell."""
    ledger, whole = Run.open(run).ledger, content(run)
    assert json.loads(whole["privacy-card.json"])["cumulative"]["runs"] == 1
    before = ledger.path.read_bytes()
    manifest = (run / "manifest.json").read_bytes()
    shutil.rmtree(run / "release")
    assert "there is no release folder" in command("release", "-y", run, "--to", run.parent / "out.zip").err
    result = command("resume", run)
    assert result.code == 0, result.err
    assert content(run) == whole
    assert ledger.path.read_bytes() == before
    assert (run / "manifest.json").read_bytes() == manifest
    assert command("release", "-y", run, "--to", run.parent / "out.zip").code == 0


def test_a_release_that_is_there_is_left_alone(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (run / "release").iterdir()}
    result = command("resume", run)
    assert (result.code, "is done already" in result.out) == (0, True)
    Run.open(run).execute(model=FakeModel(), encoder=HashingEncoder())
    assert {path: path.stat().st_mtime_ns for path in (run / "release").iterdir()} == before
    assert not (run / "work" / "release.part").exists()


def test_a_lost_release_that_would_come_out_otherwise_is_refused_by_name(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(run / "release")
    monkeypatch.setattr(selpe.run.lifecycle.Run, "ordered", lambda self, records: tuple(records))
    result = command("resume", run)
    assert result.code == 1
    assert "synthetic.csv" in result.err
    assert f"selpe {selpe.__version__}" in result.err
    assert not (run / "release").exists()
    assert manifest_of(run)["state"] == "done"


@pytest.mark.parametrize("name", ["privacy-card.json", "summary.html"])
@pytest.mark.parametrize("state", ["done", "running"])
def test_a_changed_copy_does_not_become_a_release(run: Path, name: str, state: str) -> None:
    """Nor does setting the run back to 'running': the ledger knows what was released."""
    shutil.rmtree(run / "release")
    path = run / "work" / "released" / name
    path.write_bytes(path.read_bytes().replace(b"4", b"1"))
    manifest = manifest_of(run) | {"state": state}
    write_manifest(run, manifest if state == "done" else {k: v for k, v in manifest.items() if k != "seal"})
    result = command("resume", run)
    assert result.code == 1
    assert name in result.err
    assert not (run / "release").exists()


def test_a_released_run_is_charged_nothing_more(run: Path) -> None:
    with pytest.raises(LedgerError, match="has been released"):
        Run.open(run).ledger.charge(Charge("mine", "one-more", "test", 0.0, 0.0))


def test_a_run_has_one_release(run: Path) -> None:
    ledger = Run.open(run).ledger
    files = dict(Seal.from_dict(manifest_of(run)["seal"]).files)
    lines = len(ledger.entries())
    assert ledger.record_release("mine", files).kind == "release"
    with pytest.raises(LedgerError, match="other files"):
        ledger.record_release("mine", files | {"summary.html": "0" * 64})
    assert len(ledger.entries()) == lines


# -- tracing, and what a seal tells -----------------------------------------------------------------------------------


def test_a_card_can_be_traced_to_its_lines_in_the_ledger(house: Path, run: Path) -> None:
    card = json.loads((house / "runs" / "other" / "release" / "privacy-card.json").read_text(encoding="utf-8"))
    history = command("budget", "history", "desk", "--json").lines[0]["entries"]
    charged = [entry for entry in history if entry["kind"] == "charge" and entry["number"] in card["ledger"]["charges"]]
    assert {entry["run"] for entry in charged} == {"other"}
    names = ("number", "selection", "mechanism", "epsilon_replace_one", "epsilon_add_remove", "delta")
    assert digest_of([{name: entry[name] for name in names} for entry in charged]) == card["ledger"]["digest"]
    seal = json.loads((house / "runs" / "other" / "release" / SEAL).read_text(encoding="utf-8"))
    assert seal["ledger"] == {"release": 2, "charges": card["ledger"]["charges"], "digest": card["ledger"]["digest"]}
    told = command("budget", "history", "desk").out
    assert f"charge {card['ledger']['charges'][0]} " in told
    assert "release 2" in told


def test_a_seal_and_a_card_do_not_tell_whether_the_table_has_changed(run: Path, tmp_path: Path) -> None:
    """A changed table has a line of its own in the ledger, so numbers of lines would tell."""
    key = find_key()
    assert key is not None
    made = []
    for changed in (False, True):
        ledger = Ledger.open("desk", root=tmp_path / str(changed))
        ledger.set_budget(5.0)
        if changed:
            ledger.note("the table has changed")
        ledger.charge(Charge("mine", "round-1", "permute-and-flip", 0.5, 1.0))
        made.append((seal_release(ledger, "mine", {"a": "0" * 64}), told_charges(ledger.charges(), "mine")))
        sums = [entry.sum for entry in ledger.entries()]
        assert not any(total in json.dumps(made[-1][0].to_dict()) for total in sums)
    assert made[0] == made[1]


# -- dying on the way -------------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


MOMENTS: dict[str, Callable[[], None]] = {
    "tables written": at(selpe.run.release, "_write_texts", die),
    "all files written": at(selpe.run.release, "_keep", die),
    "copies kept": at(selpe.run.release, "_keep", die, after=True),
    "before the ledger knows": at(selpe.run.release, "seal_release", die),
    "the ledger knows": at(selpe.run.release, "seal_release", die, after=True),
    "before it is put in its place": at(selpe.run.release, "_put_in_place", die),
    "in its place": at(selpe.run.release, "_put_in_place", die, after=True),
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_leaves_a_run_that_is_not_done_and_resuming_seals_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder = make_project(tmp_path)
    for name, value in places(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    assert befallen(RUN, MOMENTS[moment]).code == -signal.SIGKILL
    run = folder / "runs" / "mine"
    assert manifest_of(run)["state"] != "done"
    assert command("release", "-y", run, "--to", tmp_path / "out.zip").code != 0
    ledger = Ledger.open("desk")
    before = ledger.released("mine")
    assert command("resume", run).code == 0
    require_whole(run / "release", manifest_of(run))
    lines = [entry for entry in ledger.entries() if entry.kind == "release"]
    assert len(lines) == 1
    assert before is None or before == lines[0]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at open files as Linux shows them")
def test_everything_is_synced_before_the_next_step_relies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut loses what was not synced: files before the ledger's line, the folder before `done`."""
    folder = make_project(tmp_path)
    for name, value in places(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    steps: list[str] = []
    fsync, seal, rename, write = os.fsync, seal_release, Path.rename, write_manifest

    def synced(handle: int) -> None:
        steps.append(str(Path(f"/proc/self/fd/{handle}").readlink().relative_to(folder)))
        fsync(handle)

    def told(step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            steps.append(step)
            return call(*arguments)

        return watched

    def noted(place: Path, manifest: Any) -> None:
        steps.append(f"manifest {manifest['state']}")
        write(place, manifest)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(selpe.run.release, "seal_release", told("the ledger gets its line", seal))
    monkeypatch.setattr(Path, "rename", told("in its place", rename))
    monkeypatch.setattr(selpe.run.lifecycle, "write_manifest", noted)
    assert command(*RUN).code == 0
    part, kept = "runs/mine/work/release.part", "runs/mine/work/released"
    before = steps[: steps.index("the ledger gets its line")]
    assert {f"{part}/{name}" for name in SEALED} | {part, kept, f"{kept}/privacy-card.json"} <= set(before)
    sealed = steps[steps.index("the ledger gets its line") : steps.index("in its place")]
    assert sealed[-2:] == [f"{part}/{SEAL}", part]
    assert "ledger/desk/ledger.jsonl" in sealed
    placed = steps[steps.index("in its place") : steps.index("manifest done")]
    assert "runs/mine" in placed


# -- in Python --------------------------------------------------------------------------------------------------------


def test_a_lost_release_is_refused_where_the_run_was_never_done(run: Path) -> None:
    """A run of an earlier version, done and without a seal, is neither sealed now nor written again."""
    manifest = {name: value for name, value in manifest_of(run).items() if name != "seal"}
    write_manifest(run, manifest)
    with pytest.raises(PrivacyError, match="earlier version"):
        Run.open(run).execute(model=FakeModel(), encoder=HashingEncoder())


def test_a_name_that_was_released_before_is_refused_before_any_work(house: Path, run: Path, tmp_path: Path) -> None:
    config = Run.open(run).config.model_copy(update={"out": str(tmp_path / "elsewhere")})
    again = Run.create(config, name="mine")
    model = FakeModel()
    with pytest.raises(RunError, match="has been released"):
        again.execute(model=model, encoder=HashingEncoder())
    assert model.requests_served == 0
