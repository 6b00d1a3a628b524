"""`selpe verify`: a receiver without key or ledger sees whether a release agrees with itself, and what that leaves."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults_world import make_project, places
from in_process import Result, selpe
from selpe.privacy.card_text import render_markdown
from selpe.privacy.sealing import SEAL, Seal, digest_of, file_sum
from selpe.run.release import SEALED
from selpe.run.verify import CANNOT, NOT_THE_OWNERS


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a finished run and its packed zip."""
    folder = make_project(tmp_path_factory.mktemp("house"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places(folder).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        assert selpe("run", "--name", "mine", "--yes").code == 0
        assert selpe("release", "-y", "mine", "--to", folder / "mine.zip").code == 0
    return folder


@pytest.fixture
def received(house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked release at somebody's who has neither key nor ledger."""
    for name, value in places(tmp_path).items():
        monkeypatch.setenv(name, value)
    with zipfile.ZipFile(house / "mine.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "mine-release"


def verified(path: Path, *words: object) -> tuple[int, dict[str, Any]]:
    result = selpe("verify", path, *words, "--json")
    return result.code, result.lines[-1]


def states(told: dict[str, Any]) -> dict[str, str]:
    return {finding["what"]: finding["state"] for finding in told["findings"]}


def resealed(release: Path) -> None:
    """Hashes and sum made to fit, as anybody can; the mac, which takes the key, cannot be."""
    card = json.loads((release / "privacy-card.json").read_text(encoding="utf-8"))
    known = Seal.from_dict(json.loads((release / SEAL).read_text(encoding="utf-8")))
    files = {name: file_sum(release / name) for name in SEALED}
    numbers = tuple(charge["number"] for charge in card["charges"])
    digest = digest_of(card["charges"])
    seal = Seal(known.dataset, known.run, files, known.release, numbers, digest, known.key, known.mac)
    (release / SEAL).write_bytes(seal.to_bytes())
    (release / "SHA256SUMS").unlink()
    (release / "judged.txt").unlink(missing_ok=True)  # which only the sums vouch for


@pytest.mark.parametrize("what", ["folder", "zip"])
def test_a_receiver_can_check_all_but_the_owner(received: Path, house: Path, what: str) -> None:
    code, told = verified(received if what == "folder" else house / "mine.zip")
    assert (code, told["ok"]) == (0, True)
    unchecked = {"owner's key", "owner's ledger"}
    assert states(told) == {what: "unchecked" if what in unchecked else "ok" for what in states(told)}
    assert told["cannot"] == [NOT_THE_OWNERS, *CANNOT]
    said = selpe("verify", received)
    assert "12 records, every one valid under schema.json" in said.out
    assert "that the seal is the owner's" in said.out


def test_the_owner_can_check_key_and_ledger_too(house: Path, received: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELPE_KEY", places(house)["SELPE_KEY"])
    code, told = verified(received)
    assert (code, states(told)["owner's key"], states(told)["owner's ledger"]) == (0, "ok", "unchecked")
    code, told = verified(received, "--ledger", house / "ledger")
    assert (code, set(states(told).values())) == (0, {"ok"})
    assert told["cannot"] == list(CANNOT)
    resealed(received)
    assert verified(received, "--ledger", house / "ledger")[0] == 0  # nothing was changed, so it is the same seal
    (received / "summary.html").write_text("changed", encoding="utf-8")
    (received / "SHA256SUMS").touch()
    resealed(received)
    code, told = verified(received, "--ledger", house / "ledger")
    assert (code, states(told)["hashes"]) == (2, "ok")
    assert {states(told)["owner's key"], states(told)["owner's ledger"]} == {"wrong"}


def edit_card(release: Path, change: Callable[[dict[str, Any]], None]) -> None:
    card = json.loads((release / "privacy-card.json").read_text(encoding="utf-8"))
    change(card)
    (release / "privacy-card.json").write_text(json.dumps(card, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    (release / "privacy-card.md").write_text(render_markdown(card), encoding="utf-8")
    resealed(release)


def of(told: dict[str, Any], what: str) -> tuple[str, str]:
    (found,) = (finding for finding in told["findings"] if finding["what"] == what)
    return found["state"], found["file"]


def test_a_smaller_epsilon_does_not_add_up(received: Path) -> None:
    edit_card(received, lambda card: card["guarantee"]["epsilon"].update(replace_one=1.0))
    code, told = verified(received)
    assert (code, of(told, "charges")) == (2, ("wrong", "privacy-card.json"))


def test_a_smaller_epsilon_in_words_alone_is_noticed(received: Path) -> None:
    def change(card: dict[str, Any]) -> None:
        card["guarantee"]["statement"] = card["guarantee"]["statement"].replace("ε = 4", "ε = 1")

    edit_card(received, change)
    code, told = verified(received)
    assert (code, of(told, "charges")) == (2, ("wrong", "privacy-card.json"))


def test_a_charge_left_out_is_not_what_was_sealed(received: Path) -> None:
    seal = (received / SEAL).read_bytes()
    edit_card(received, lambda card: card["charges"].pop())
    (received / SEAL).write_bytes(seal)
    code, told = verified(received)
    assert (code, of(told, "charges")) == (2, ("wrong", "privacy-card.json"))


def test_a_card_whose_forms_differ_is_named(received: Path) -> None:
    (received / "privacy-card.md").write_text("# All is well\n", encoding="utf-8")
    resealed(received)
    code, told = verified(received)
    assert (code, of(told, "card")) == (2, ("wrong", "privacy-card.md"))


def test_a_record_against_the_schema_is_named_by_line_and_not_quoted(received: Path) -> None:
    path = received / "synthetic.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[2] = json.dumps(json.loads(lines[2]) | {"channel": "QX7-Zebra"})
    path.write_text("\n".join(lines), encoding="utf-8")
    resealed(received)
    code, told = verified(received)
    assert (code, of(told, "table")) == (2, ("wrong", "synthetic.jsonl, line 3"))
    assert "QX7" not in json.dumps(told)


def test_tables_that_differ_are_named(received: Path) -> None:
    path = received / "synthetic.csv"
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*rows[:3], *rows[4:]]), encoding="utf-8")
    resealed(received)
    code, told = verified(received)
    assert (code, of(told, "table")[1].partition(",")[0]) == (2, "synthetic.csv")


@pytest.mark.parametrize("stranger", ["rows.csv", ".hidden", "Synthetic.csv"])
def test_anything_else_in_it_is_named(received: Path, stranger: str) -> None:
    (received / stranger).write_text("x", encoding="utf-8")
    code, told = verified(received)
    assert (code, of(told, "files")) == (2, ("wrong", stranger))


def test_sums_that_do_not_fit_are_named(received: Path) -> None:
    (received / "SHA256SUMS").write_text("0" * 64 + "  synthetic.csv\n", encoding="utf-8")
    code, told = verified(received)
    assert (code, of(told, "hashes")) == (2, ("wrong", "SHA256SUMS"))


def spoilt(zip_of: Path, to: Path, how: str) -> Path:
    """A zip with something in it that is none of its files."""
    shutil.copyfile(zip_of, to)
    if how == "before":
        to.write_bytes(b"rows\n" + to.read_bytes())
        return to
    with zipfile.ZipFile(to, "a") as archive:
        if how == "comment":
            archive.comment = b"rows"
        elif how == "file":
            archive.writestr("mine-release/rows.csv", "rows")
        elif how == "outside":
            archive.writestr("../rows.csv", "rows")
        else:
            archive.writestr("mine-release/synthetic.csv", "rows")
    return to


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("how", ["before", "comment", "file", "outside", "twice"])
def test_nothing_can_hide_in_the_zip(house: Path, received: Path, tmp_path: Path, how: str) -> None:
    code, told = verified(spoilt(house / "mine.zip", tmp_path / "spoilt.zip", how))
    assert (code, told["ok"]) == (2, False)
    assert of(told, "files")[1] == "spoilt.zip"


@pytest.mark.parametrize("raw", [b"", b"PK", b"not a zip"])
def test_a_file_that_is_no_zip_is_refused(received: Path, tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "odd.zip").write_bytes(raw)
    assert verified(tmp_path / "odd.zip")[0] == 2


def test_what_is_not_there_is_said(received: Path) -> None:
    result: Result = selpe("verify", "nowhere.zip")
    assert (result.code, "no such release" in result.err) == (2, True)


def test_a_release_of_another_version_is_not_called_forged_for_its_words(received: Path) -> None:
    edit_card(received, lambda card: card["versions"].update(selpe="99.0"))
    (received / "privacy-card.md").write_text("# In other words\n", encoding="utf-8")
    (received / "SHA256SUMS").touch()
    resealed(received)
    code, told = verified(received)
    assert (code, of(told, "card")[0]) == (0, "unchecked")
