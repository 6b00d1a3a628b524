"""What happens around a ledger is noticed: old copies, cut or lost files, and the same rows in another ledger."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from selpe.errors import BudgetError, LedgerError
from selpe.privacy.ledger import Charge, Ledger
from selpe.privacy.ledger.fingerprint import fingerprint
from selpe.schema import Record


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def spent_on(ledger: Ledger, *selections: str) -> Ledger:
    for selection in selections:
        ledger.charge(Charge("run", selection, "permute-and-flip", 0.25, 0.5))
    return ledger


@pytest.fixture
def used() -> Ledger:
    ledger = Ledger.open("clinic")
    ledger.set_budget(4.0)
    return spent_on(ledger, "a", "b")


def rows(start: int, stop: int) -> list[Record]:
    return [{"note": f"row {number}"} for number in range(start, stop)]


# -- old copies and cut files ------------------------------------------------------------------------------------------


def test_an_older_copy_of_the_whole_folder_is_refused(used: Ledger, home: Path) -> None:
    shutil.copytree(used.path.parent, home / "backup")
    spent_on(used, "c")
    shutil.rmtree(used.path.parent)
    shutil.copytree(home / "backup", used.path.parent)
    with pytest.raises(LedgerError, match="an older copy was put in its place: 5 lines were written, it has 4"):
        Ledger.open("clinic").spent()
    with pytest.raises(LedgerError, match="older copy"):
        spent_on(Ledger.open("clinic"), "d")


def test_an_older_copy_that_went_its_own_way_is_refused(used: Ledger, home: Path) -> None:
    shutil.copytree(used.path.parent, home / "backup")
    anchors = home / "config" / "ledger.anchors"
    shutil.copytree(anchors, home / "notes")
    spent_on(used, "c")
    newest = {path.name: path.read_bytes() for path in anchors.iterdir()}
    shutil.rmtree(used.path.parent)
    shutil.copytree(home / "backup", used.path.parent)
    shutil.rmtree(anchors)
    shutil.copytree(home / "notes", anchors)
    spent_on(Ledger.open("clinic"), "other")
    for name, content in newest.items():
        (anchors / name).write_bytes(content)
    with pytest.raises(LedgerError, match="older copy"):
        Ledger.open("clinic").spent()


@pytest.mark.parametrize("with_note", [True, False])
def test_a_ledger_cut_to_its_first_line_is_refused(used: Ledger, home: Path, *, with_note: bool) -> None:
    first = used.path.read_bytes().split(b"\n")[0] + b"\n"
    used.path.write_bytes(first)
    used.path.with_name("head.json").unlink()
    if not with_note:
        shutil.rmtree(home / "config" / "ledger.anchors")
    with pytest.raises(LedgerError, match="head file of the ledger is missing"):
        Ledger.open("clinic").set_budget(4.0)


def test_a_creation_that_was_cut_short_can_be_finished(used: Ledger, home: Path) -> None:
    kept = json.loads(used.path.with_name("head.json").read_bytes())
    assert kept["seq"] == 4
    fresh = Ledger.open("fresh")
    fresh.note("begun")
    first = fresh.path.read_bytes().split(b"\n")[0] + b"\n"
    fresh.path.write_bytes(first)
    head = fresh.path.with_name("head.json")
    from selpe.privacy.ledger.journal import GENESIS, _seal, canonical
    from selpe.privacy.ledger.key import find_key

    key = find_key()
    assert key is not None
    nothing = {"seq": 0, "sum": GENESIS, "mac": _seal(key, "head", f"0:{GENESIS}"), "key": key.id}
    head.write_bytes(canonical(nothing).encode())
    shutil.rmtree(home / "config" / "ledger.anchors")
    Ledger.open("fresh").note("again")
    assert [entry.kind for entry in Ledger.open("fresh").entries()] == ["open", "note"]


def test_a_ledger_that_is_gone_is_not_begun_anew_without_a_reason(used: Ledger) -> None:
    shutil.rmtree(used.path.parent)
    again = Ledger.open("clinic")
    with pytest.raises(LedgerError, match="is gone: it had 4 lines"):
        again.set_budget(4.0)
    with pytest.raises(LedgerError, match="is gone"):
        again.recognise(fingerprint(rows(0, 9)))
    assert not again.exists
    again.set_budget(4.0, widen=True, reason="the disk broke")
    assert [entry.data.get("text") for entry in again.entries() if entry.kind == "note"] == [
        "an earlier ledger of 4 lines is gone: the disk broke"
    ]
    spent_on(again, "a")


def test_a_ledger_in_a_folder_of_its_own_goes_with_it(home: Path) -> None:
    for _ in range(2):  # as a demo's folder that was deleted and made again
        ledger = Ledger("example", home / "demo" / "ledger")
        ledger.set_budget(1.0)
        spent_on(ledger, "a")
        shutil.rmtree(home / "demo")


def test_without_its_note_a_ledger_is_checked_as_far_as_its_own_files_tell(used: Ledger, home: Path) -> None:
    anchors = home / "config" / "ledger.anchors"
    (note,) = anchors.iterdir()
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert stat.S_IMODE(anchors.stat().st_mode) == 0o700
    for damage in (b"", b"{}", note.read_bytes().replace(b'"seq": 4', b'"seq": 9')):
        note.write_bytes(damage)
        assert Ledger.open("clinic").spent().charges == 2
    spent_on(Ledger.open("clinic"), "c")
    assert json.loads(note.read_bytes())["seq"] == 5


# -- the same rows elsewhere -------------------------------------------------------------------------------------------


def test_rows_that_are_known_in_part_are_told_of(used: Ledger) -> None:
    used.recognise(fingerprint(rows(0, 40)))
    (remark,) = Ledger.open("grown").recognise(fingerprint(rows(20, 400))).remarks
    assert remark == "some of these rows are known as 'clinic', too: what was spent there is not counted"
    assert Ledger.open("strange").recognise(fingerprint(rows(1000, 1040))).remarks == ()


def test_rows_known_in_another_folder_of_ledgers_are_told_of(
    used: Ledger, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used.recognise(fingerprint(rows(0, 40)))
    monkeypatch.setenv("SELPE_LEDGER", str(home / "elsewhere"))
    (remark,) = Ledger.open("clinic").recognise(fingerprint(rows(0, 40))).remarks
    assert remark.startswith(f"these rows are known as 'clinic in {home / 'ledgers'}', too")
    demo = Ledger("example", home / "demo")  # a demo's ledger is its own
    assert demo.recognise(fingerprint(rows(0, 40))).remarks == ()


def test_ledgers_of_another_key_are_told_of(used: Ledger, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used.recognise(fingerprint(rows(0, 40)))
    monkeypatch.setenv("SELPE_KEY", str(home / "other" / "ledger.key"))
    (remark,) = Ledger.open("again").recognise(fingerprint(rows(0, 40))).remarks
    assert remark == "'clinic' was made with another key: whether it holds the same rows is not known"


def test_the_same_rows_under_another_name_are_refused_still(used: Ledger) -> None:
    used.recognise(fingerprint(rows(0, 40)))
    with pytest.raises(BudgetError, match=r"known under another name \(clinic\)"):
        Ledger.open("again").recognise(fingerprint(rows(0, 40)))
