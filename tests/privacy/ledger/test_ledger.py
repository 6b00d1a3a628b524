"""The ledger keeps what was spent, refuses what does not fit, and notices every edit."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selpe.errors import BudgetError, ConfigError, LedgerError
from selpe.privacy.accounting import BoundedRange, Event, Gaussian, gaussian_sigma
from selpe.privacy.ledger import Charge, Ledger, Receipt
from selpe.privacy.ledger import journal as journal_module
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.fingerprint import fingerprint
from selpe.privacy.ledger.key import Key, find_key, make_key
from selpe.schema import Record


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def charge(selection: str, epsilon: float = 0.5, run: str = "run", **more: Any) -> Charge:
    return Charge(run, selection, "permute-and-flip", epsilon / 2, epsilon, **more)


def opened(epsilon: float = 4.0) -> Ledger:
    ledger = Ledger.open("clinic")
    ledger.set_budget(epsilon)
    return ledger


# -- spending ------------------------------------------------------------------------------------------------


def test_opening_creates_nothing(home: Path) -> None:
    ledger = Ledger.open("clinic")
    assert not ledger.exists
    assert ledger.spent().charges == 0
    assert ledger.budget is None
    assert list(home.iterdir()) == []


def test_both_neighbour_relations_are_added_up() -> None:
    ledger = opened()
    for n in range(3):
        ledger.charge(charge(f"s{n}", 0.5))
    total = Ledger.open("clinic").spent()
    assert (total.epsilon_add_remove, total.epsilon_replace_one, total.charges) == (0.75, 1.5, 3)
    assert total.without_result == 3


def test_overspending_is_refused_and_leaves_no_trace() -> None:
    ledger = opened(1.0)
    ledger.charge(charge("s0", 0.75))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetError, match=r"only ε 0\.25 of 1 is left") as refused:
        ledger.charge(charge("s1", 0.5))
    assert refused.value.exit_code == 3
    assert ledger.path.read_bytes() == before


def test_shares_of_a_budget_add_up_to_it_in_spite_of_rounding() -> None:
    for parts in (3, 6, 7, 10, 49):
        ledger = Ledger.open(f"shares{parts}")
        ledger.set_budget(5.0)
        for n in range(parts):
            ledger.charge(charge(f"s{n}", 5 / parts))
        with pytest.raises(BudgetError):
            ledger.charge(charge("more", 0.001))


def test_nothing_can_be_spent_without_a_cap() -> None:
    ledger = Ledger.open("clinic")
    with pytest.raises(BudgetError, match="no budget yet"):
        ledger.charge(charge("s0"))
    assert ledger.spent().charges == 0


def test_the_cap_counts_under_its_own_relation() -> None:
    ledger = Ledger.open("clinic")
    ledger.set_budget(1.0, "add-remove")
    ledger.charge(charge("s0", 2.0))
    with pytest.raises(BudgetError):
        ledger.charge(charge("s1", 0.1))


def test_raising_the_cap_needs_a_reason_and_is_recorded() -> None:
    ledger = opened(1.0)
    with pytest.raises(BudgetError, match="weakens"):
        ledger.set_budget(2.0)
    with pytest.raises(BudgetError, match="weakens"):
        ledger.set_budget(2.0, widen=True, reason="  ")
    ledger.set_budget(0.5)
    ledger.set_budget(2.0, widen=True, reason="board decision")
    last = ledger.entries()[-1]
    assert (last.data["raised"], last.data["reason"]) == (True, "board decision")
    assert ledger.budget is not None
    assert ledger.budget.epsilon == 2.0


def test_changing_the_relation_counts_as_raising() -> None:
    ledger = opened(1.0)
    with pytest.raises(BudgetError):
        ledger.set_budget(1.0, "add-remove")


def test_a_free_choice_costs_nothing_and_needs_no_cap() -> None:
    ledger = Ledger.open("clinic")
    ledger.store(ledger.charge(charge("s0", 0.0)), {"winner": 1})
    assert ledger.spent().epsilon_replace_one == 0
    assert not ledger.spent().not_private


def test_a_control_without_noise_is_recorded_and_marks_the_table() -> None:
    ledger = opened(1.0)
    marked = charge("s0", math.inf, event_replace_one=BoundedRange(math.inf))
    ledger.store(ledger.charge(marked), {"winner": 1})
    total = ledger.spent()
    assert total.not_private
    assert total.epsilon_replace_one == 0
    assert ledger.entries()[-2].data["epsilon_replace_one"] == "inf"
    assert ledger.charges()[0].epsilon_replace_one == math.inf
    ledger.charge(charge("s1", 1.0))  # the cap is about what is private


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_an_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError):
        charge("s0", epsilon)


# -- results -------------------------------------------------------------------------------------------------


def test_a_stored_result_comes_back_and_cannot_be_charged_again() -> None:
    ledger = opened()
    ledger.store(ledger.charge(charge("s0")), {"winners": (1, 2), "name": "ä"})
    again = Ledger.open("clinic")
    assert again.stored("run", "s0") == {"winners": [1, 2], "name": "ä"}
    assert again.stored("run", "s1") is None
    assert again.stored("other", "s0") is None
    with pytest.raises(LedgerError, match="cannot be drawn again"):
        again.charge(charge("s0"))
    assert again.spent().without_result == 0


def test_array_scalars_can_be_stored() -> None:
    np = pytest.importorskip("numpy")
    ledger = opened()
    ledger.store(ledger.charge(charge("s0")), {"winner": np.int64(3), "all": np.arange(2)})
    assert ledger.stored("run", "s0") == {"winner": 3, "all": [0, 1]}


def test_a_receipt_pays_for_one_draw() -> None:
    ledger = opened()
    receipt = ledger.charge(charge("s0"))
    ledger.store(receipt, {"winner": 1})
    with pytest.raises(LedgerError, match="used before"):
        ledger.store(receipt, {"winner": 2})
    assert ledger.stored("run", "s0") == {"winner": 1}


def test_a_lost_result_is_paid_for_and_a_new_draw_is_paid_again() -> None:
    ledger = opened()
    lost = ledger.charge(charge("s0"))
    second = ledger.charge(charge("s0"))
    ledger.store(second, {"winner": 7})
    assert ledger.spent().epsilon_replace_one == 1.0
    with pytest.raises(LedgerError, match="stored result already"):
        ledger.store(lost, {"winner": 8})


def test_a_made_up_receipt_is_refused() -> None:
    ledger = opened()
    real = ledger.charge(charge("s0"))
    for seq in (real.seq + 1, real.seq - 1):
        with pytest.raises(LedgerError, match="not from this ledger"):
            ledger.store(Receipt("clinic", seq, real.sum, real.charge), {})


def test_an_account_speaks_for_its_own_run_only() -> None:
    account = opened().account("run")
    account.store(account.charge(charge("s0")), {"winner": 1})
    assert account.stored("s0") == {"winner": 1}
    with pytest.raises(LedgerError, match="for itself"):
        account.charge(charge("s1", run="another"))


# -- joint composition ---------------------------------------------------------------------------------------


def gaussian(selection: str, sigma: float, epsilon: float) -> Charge:
    event: Event = Gaussian(sigma)
    return Charge(
        "aug-pe", selection, "gaussian", epsilon, epsilon, 1e-6, event_add_remove=event, event_replace_one=event
    )


def test_joint_composition_admits_what_sums_would_refuse_and_still_stops() -> None:
    ledger = Ledger.open("clinic")
    ledger.set_budget(2.0, delta=1e-5)
    sigma = gaussian_sigma(2.0, 1e-5, 1.0, 10) * 1.15  # the room that a fixed Rényi order needs
    for n in range(10):
        ledger.charge(gaussian(f"s{n}", sigma, 0.5))
    assert ledger.spent().epsilon_replace_one < 2.0  # as one mechanism; the plain sum of the charges is 5
    admitted = 0
    with pytest.raises(BudgetError):  # noqa: PT012
        for n in range(10, 20):
            ledger.charge(gaussian(f"s{n}", sigma, 0.5))
            admitted += 1
    assert admitted <= 1
    cap = ledger.budget
    assert cap is not None
    assert cap.used(ledger.charges())[0] <= 2.0


def test_joint_composition_still_admits_plain_sums_of_pure_charges() -> None:
    ledger = Ledger.open("clinic")
    ledger.set_budget(2.0, delta=1e-9)
    ledger.charge(charge("s0", 1.0))
    ledger.charge(charge("s1", 1.0))
    with pytest.raises(BudgetError):
        ledger.charge(charge("s2", 0.01))


def test_joint_composition_refuses_a_charge_that_does_not_say_what_happened() -> None:
    ledger = Ledger.open("clinic")
    ledger.set_budget(2.0, delta=1e-5)
    with pytest.raises(BudgetError, match="what happened"):
        ledger.charge(charge("s0", 0.1, delta=1e-7))


def test_basic_composition_adds_up_delta() -> None:
    ledger = Ledger.open("clinic")
    ledger.set_budget(2.0, delta=1e-5, composition="basic")
    ledger.charge(charge("s0", 0.5, delta=6e-6))
    with pytest.raises(BudgetError, match="δ"):
        ledger.charge(charge("s1", 0.5, delta=6e-6))


def test_events_survive_the_ledger() -> None:
    ledger = opened()
    sent = charge("s0", 0.5, event_add_remove=BoundedRange(0.25), event_replace_one=BoundedRange(0.5), note="x")
    ledger.charge(sent)
    assert ledger.charges() == [sent]


# -- tampering -----------------------------------------------------------------------------------------------


@pytest.fixture
def used() -> Ledger:
    ledger = opened()
    for n in range(4):
        ledger.store(ledger.charge(charge(f"s{n}", 0.25)), {"winner": n})
    return ledger


def lines(ledger: Ledger) -> list[bytes]:
    return ledger.path.read_bytes().splitlines(keepends=True)


def cheaper(line: bytes) -> bytes:
    return line.replace(b'"epsilon_replace_one":0.25', b'"epsilon_replace_one":0.05')


def rechained(changed: list[bytes]) -> list[bytes]:
    """A forger without the key: edits, and recomputes all the plain checksums."""
    previous, out = journal_module.GENESIS, []
    for raw in changed:
        fields = json.loads(raw)
        total = journal_module._chain(previous, fields["seq"], fields["time"], fields["kind"], fields["data"])
        fields["sum"] = previous = total
        out.append(journal_module.canonical(fields).encode() + b"\n")
    return out


def with_a_forged_cap(all_: list[bytes]) -> list[bytes]:
    """A chained but unsealed line behind the head, where a crash might have left an honest one."""
    fields = json.loads(all_[1])
    fields["seq"], fields["data"]["epsilon"] = len(all_) + 1, 1000.0
    return rechained([*all_, journal_module.canonical(fields).encode() + b"\n"])


FORGERIES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "edited": lambda all_: [cheaper(line) for line in all_],
    "edited and rechained": lambda all_: rechained([cheaper(line) for line in all_]),
    "middle line deleted": lambda all_: [*all_[:3], *all_[4:]],
    "two lines swapped": lambda all_: [*all_[:3], all_[4], all_[3], *all_[5:]],
    "a line repeated": lambda all_: [*all_[:3], all_[3], *all_[3:]],
    "last line deleted": lambda all_: all_[:-1],
    "last four lines deleted": lambda all_: all_[:-4],
    "last line torn": lambda all_: [*all_[:-1], all_[-1][:-20]],
    "last newline removed": lambda all_: [*all_[:-1], all_[-1][:-1]],
    "emptied": lambda _: [],
    "a higher cap added": with_a_forged_cap,
    "a space added": lambda all_: [all_[0].replace(b":", b": ", 1), *all_[1:]],
    "a blank line added": lambda all_: [*all_, b"\n"],
    "garbage": lambda all_: [*all_[:2], b"\x00\xff\n", *all_[3:]],
    "not a number": lambda all_: [*all_, b'{"v":NaN}\n'],
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_every_edit_is_noticed(used: Ledger, forgery: str) -> None:
    before = lines(used)
    after = FORGERIES[forgery](before)
    assert after != before
    used.path.write_bytes(b"".join(after))
    for ledger in (used, Ledger.open("clinic")):
        with pytest.raises(LedgerError, match="Nothing can be spent") as refused:
            ledger.charge(charge("more"))
        assert "budget history --verify" in refused.value.hint
        with pytest.raises(LedgerError):
            ledger.spent()


def test_a_missing_file_or_head_is_noticed(used: Ledger) -> None:
    head = used.path.with_name("head.json")
    kept = head.read_bytes()
    head.unlink()
    with pytest.raises(LedgerError, match="head file of the ledger is missing"):
        used.charge(charge("more"))
    head.write_bytes(kept.replace(b'"seq":10', b'"seq":4'))
    with pytest.raises(LedgerError, match="not the one that was acknowledged"):
        used.charge(charge("more"))
    head.write_bytes(kept)
    used.path.unlink()
    with pytest.raises(LedgerError, match="10 entries were acknowledged"):
        Ledger.open("clinic").charge(charge("more"))


@pytest.mark.parametrize("key", ["own", "invented"])
def test_an_end_cut_off_together_with_a_forged_head_is_noticed(used: Ledger, key: str) -> None:
    path = used.path.with_name("head.json")
    head, kept = json.loads(path.read_bytes()), lines(used)[:-2]
    last = json.loads(kept[-1])
    used.path.write_bytes(b"".join(kept))
    forged = {**head, "seq": last["seq"], "sum": last["sum"], "key": head["key"] if key == "own" else "f" * 16}
    path.write_text(json.dumps(forged))
    with pytest.raises(LedgerError, match="head file of the ledger was edited"):
        Ledger.open("clinic").spent()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), how=st.sampled_from(["set", "cut", "add"]))
def test_any_changed_byte_is_noticed(where: float, byte: int, how: str, home: Path) -> None:
    ledger = Ledger.open("clinic")
    if not ledger.exists:
        ledger.set_budget(4.0)
        ledger.store(ledger.charge(charge("s0", 0.25)), {"winner": 0})
    raw = ledger.path.read_bytes()
    at = int(where * len(raw))
    changed = raw[:at] + (b"" if how == "cut" else bytes([byte])) + raw[at + (how != "add") :]
    if changed == raw:
        return
    ledger.path.write_bytes(changed)
    try:
        with pytest.raises(LedgerError):
            Ledger.open("clinic").spent()
    finally:
        ledger.path.write_bytes(raw)


def test_a_ledger_under_another_name_is_refused(used: Ledger) -> None:
    shutil.copytree(used.path.parent, used.path.parent.with_name("other"))
    with pytest.raises(LedgerError, match="another data set"):
        Ledger.open("other").spent()


def test_a_half_finished_write_of_the_head_is_harmless(used: Ledger) -> None:
    used.path.with_name("head.new").write_bytes(b"{")
    before = used.spent().epsilon_replace_one
    used.charge(charge("more", 0.5))
    assert Ledger.open("clinic").spent().epsilon_replace_one == before + 0.5


def test_an_entry_that_the_head_does_not_know_yet_counts(used: Ledger) -> None:
    head = used.path.with_name("head.json")
    old = head.read_bytes()
    used.charge(charge("more", 1.0))
    head.write_bytes(old)  # as a crash between the line and its head leaves it
    assert Ledger.open("clinic").spent().epsilon_replace_one == 2.0
    Ledger.open("clinic").charge(charge("and more", 1.0))


def test_a_torn_line_is_moved_aside_and_noted(used: Ledger) -> None:
    with used.path.open("ab") as file:
        file.write(b'{"data":{"run"')
    assert used.spent().charges == 4
    used.charge(charge("more"))
    note = next(e for e in used.entries() if e.kind == "repair")
    assert used.path.with_name(note.data["kept"]).read_bytes() == b'{"data":{"run"'


# -- the key -------------------------------------------------------------------------------------------------


def test_the_key_is_for_its_owner_alone(used: Ledger, home: Path) -> None:
    path = home / "config" / "ledger.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = find_key()
    assert key is not None
    assert key.secret.hex() not in used.path.read_text() + repr(key) + used.path.with_name("head.json").read_text()
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="other users") as refused:
        Ledger.open("clinic")
    assert "chmod 600" in refused.value.hint


def test_without_the_key_a_ledger_can_be_read_but_not_charged(used: Ledger, home: Path) -> None:
    (home / "config" / "ledger.key").unlink()
    ledger = Ledger.open("clinic")
    assert ledger.spent().charges == 4
    assert ledger.read().unchecked == 10
    with pytest.raises(LedgerError, match="is missing") as refused:
        ledger.charge(charge("more"))
    assert "restore the key" in refused.value.hint
    assert find_key() is None, "a new key would hide that the old one is missing"


def test_a_lost_key_can_be_replaced_on_the_record(used: Ledger, home: Path) -> None:
    (home / "config" / "ledger.key").unlink()
    ledger = Ledger.open("clinic")
    ledger.reseal("laptop was stolen")
    ledger.charge(charge("more"))
    again = Ledger.open("clinic")
    assert again.read().unchecked == 10
    assert [e.data["reason"] for e in again.entries() if e.kind == "reseal"] == ["laptop was stolen"]
    after = lines(again)
    again.path.write_bytes(b"".join([*after[:-1], cheaper(after[-1].replace(b":0.5", b":0.25"))]))
    with pytest.raises(LedgerError):
        Ledger.open("clinic").spent()


def test_another_key_is_named_as_such(used: Ledger, home: Path) -> None:
    (home / "config" / "ledger.key").unlink()
    make_key()
    with pytest.raises(LedgerError, match="sealed with another key"):
        Ledger.open("clinic").charge(charge("more"))


def test_a_damaged_key_is_refused(home: Path) -> None:
    make_key()
    (home / "config" / "ledger.key").write_text("abc")
    with pytest.raises(LedgerError, match="hexadecimal"):
        Ledger.open("clinic")


# -- a hostile system ----------------------------------------------------------------------------------------


class FullDisk(Disk):
    """A disk that takes `room` more bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, handle: int, data: bytes) -> None:
        super().write(handle, data[: self.room])
        if len(data) > self.room:
            self.room = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)


def test_a_full_disk_spends_nothing_and_says_so(used: Ledger) -> None:
    before = used.path.read_bytes()
    enough = 2 * len(lines(used)[-2])  # a charge's line and its head take less
    for room in range(0, 400, 7):
        full = Ledger("clinic", used.root, disk=FullDisk(room))
        with pytest.raises(LedgerError, match="No space left"):
            full.charge(charge("more"))
        assert used.path.read_bytes() == before, "retrying on a full disk must not eat the budget"
    Ledger("clinic", used.root, disk=FullDisk(enough)).charge(charge("more"))
    assert Ledger.open("clinic").spent().charges == 5


class ReadOnlyDisk(Disk):
    """A disk that was mounted for reading."""

    def append(self, path: Path, data: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    def truncate(self, path: Path, size: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")


def test_a_read_only_disk_can_be_read_but_not_spent_from(used: Ledger) -> None:
    ledger = Ledger("clinic", used.root, disk=ReadOnlyDisk())
    with pytest.raises(LedgerError, match="Read-only file system"):
        ledger.charge(charge("more"))
    assert ledger.spent().charges == 4


def test_a_file_size_limit_of_the_system_is_a_clear_error(used: Ledger) -> None:
    resource = pytest.importorskip("resource")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            size = used.path.stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, size + 50))
            try:
                used.charge(charge("more"))
            except LedgerError as refused:
                code = 42 if "nothing may be spent" in refused.message else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert Ledger.open("clinic").spent().charges == 4


class UnsureDisk(Disk):
    """A disk whose folder cannot be synced."""

    def sync_folder(self, folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_a_write_that_may_not_last_is_an_error_and_counts(used: Ledger) -> None:
    with pytest.raises(LedgerError, match="counts as spent"):
        Ledger("clinic", used.root, disk=UnsureDisk()).charge(charge("more", 0.25))
    assert Ledger.open("clinic").spent().epsilon_replace_one == 1.25


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_read_only_folder_can_be_read_but_not_spent_from(used: Ledger) -> None:
    folder = used.path.parent
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert Ledger.open("clinic").spent().charges == 4
        with pytest.raises(LedgerError, match="nothing may be spent"):
            Ledger.open("clinic").charge(charge("more"))
    finally:
        folder.chmod(0o755)


def test_a_folder_that_cannot_be_made_is_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("SELPE_LEDGER", str(home / "file"))
    with pytest.raises(LedgerError, match="nothing may be spent") as refused:
        Ledger.open("clinic").set_budget(1.0)
    assert "SELPE_LEDGER" in refused.value.hint


def test_a_ledger_held_by_another_process_times_out_with_a_message(
    used: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "LOCK_SECONDS", 0.05)
    with journal_module.locked(used.path.parent), pytest.raises(LedgerError, match="another process"):
        used.charge(charge("more"))
    used.charge(charge("more"))


def test_a_clock_that_goes_backwards_is_harmless(used: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    class Past(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Past:
            return cls(1999, 1, 1, tzinfo=tz)

    monkeypatch.setattr(journal_module, "datetime", Past)
    used.charge(charge("more"))
    assert used.entries()[-1].time < used.entries()[0].time
    assert used.spent().charges == 5


# -- names and tables ----------------------------------------------------------------------------------------


def test_spellings_of_a_name_are_one_ledger() -> None:
    Ledger.open("Clinic Ä").set_budget(1.0)
    assert Ledger.open("clinic A\u0308").budget is not None
    assert Ledger.names() == ["clinic ä"]


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a\n", "x" * 65, "a.", "-a"])
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Ledger.open(name)


def rows(start: int, end: int) -> list[Record]:
    return [{"text": f"complaint number {n}", "age": n % 90} for n in range(start, end)]


def test_a_table_that_grew_keeps_its_ledger() -> None:
    ledger = opened()
    assert ledger.recognise(fingerprint(rows(0, 300))).overlap is None
    assert ledger.recognise(fingerprint(rows(0, 300))).overlap == 1.0
    grown = ledger.recognise(fingerprint(rows(0, 301))).overlap
    assert grown is not None
    assert 0.9 < grown <= 1.0
    assert [e.data["changed"] for e in ledger.entries() if e.kind == "table"] == [False, True]


@pytest.mark.parametrize(("start", "end"), [(0, 300), (0, 299), (1, 302), (50, 350)])
def test_the_same_rows_under_a_new_name_are_refused(start: int, end: int) -> None:
    opened().recognise(fingerprint(rows(0, 300)))
    other = Ledger.open("other")
    with pytest.raises(BudgetError, match="another name") as refused:
        other.recognise(fingerprint(rows(start, end)[::-1]))
    assert "clinic" in refused.value.message
    assert not other.exists


def test_the_owner_can_insist_once_and_for_all() -> None:
    first = opened()
    first.recognise(fingerprint(rows(0, 300)))
    other = Ledger.open("other")
    other.recognise(fingerprint(rows(0, 300)), insist=True)
    assert other.entries()[-1].data["insisted_over"] == ["clinic"]
    other.recognise(fingerprint(rows(0, 310)))
    first.recognise(fingerprint(rows(0, 300)))
    with pytest.raises(BudgetError):
        Ledger.open("third").recognise(fingerprint(rows(0, 300)))


def test_other_rows_are_not_mistaken_for_known_ones() -> None:
    opened().recognise(fingerprint(rows(0, 300)))
    assert Ledger.open("other").recognise(fingerprint(rows(260, 560))).overlap is None


def test_a_fingerprint_ignores_order_and_number_format_and_hides_without_its_key() -> None:
    table: list[Record] = [{"a": 1, "b": "x ", "c": None}, {"a": 2, "b": "y"}]
    same: list[Record] = [{"b": "y", "a": 2.0}, {"b": "x", "a": 1.0}]
    one, two = Key(b"1" * 32), Key(b"2" * 32)
    assert fingerprint(table, key=one) == fingerprint(same, key=one)
    assert fingerprint(table, key=one).whole != fingerprint([*table, table[0]], key=one).whole
    mine, theirs = fingerprint(table, key=one), fingerprint(table, key=two)
    assert mine.whole != theirs.whole
    assert mine.sketch != theirs.sketch
    with pytest.raises(LedgerError, match="different keys"):
        mine.overlap(theirs)


def test_a_fingerprint_does_not_show_how_many_rows_there_are() -> None:
    def mean(count: int) -> float:
        sketch = fingerprint(rows(0, count), key=Key(b"1" * 32)).sketch
        values = [int.from_bytes(sketch[i : i + 4], "big") for i in range(0, len(sketch), 4)]
        return sum(values) / len(values) / 2**32

    # The mean of 128 uniform numbers stays within 0.5 ± 0.1 (four deviations); kept minima would shrink to 1/n.
    assert all(abs(mean(count) - 0.5) < 0.1 for count in (5, 50, 2000))


# -- any sequence --------------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.tuples(st.just("charge"), st.integers(0, 5), st.sampled_from([0.0, 0.125, 0.25, 0.5, math.inf])),
    st.tuples(st.just("store"), st.integers(0, 5), st.just(0.0)),
    st.tuples(st.just("tear"), st.integers(1, 40), st.just(0.0)),
    st.tuples(st.just("reopen"), st.just(0), st.just(0.0)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=25))
def test_any_sequence_agrees_with_a_model_of_it(actions: list[tuple[str, int, float]], home: Path) -> None:
    for folder in ("ledgers", "config"):
        shutil.rmtree(home / folder, ignore_errors=True)
    ledger = opened(1.0)
    total, receipts, results = 0.0, {}, {}
    for number, (action, which, epsilon) in enumerate(actions):
        selection = f"s{which}"
        if action == "charge":
            fits = math.isinf(epsilon) or epsilon == 0 or total + epsilon <= 1.0
            if selection in results or not fits:
                with pytest.raises((LedgerError, BudgetError)):
                    ledger.charge(charge(selection, epsilon))
            else:
                receipts[selection] = ledger.charge(charge(selection, epsilon))
                total += 0 if math.isinf(epsilon) else epsilon
        elif action == "store" and selection in receipts and selection not in results:
            ledger.store(receipts[selection], {"n": number})
            results[selection] = {"n": number}
        elif action == "tear":
            with ledger.path.open("ab") as file:
                file.write(b"{" * which)
        else:
            ledger = Ledger.open("clinic")
        assert ledger.spent().epsilon_replace_one == total
        assert {s: r for n in range(6) if (r := ledger.stored("run", s := f"s{n}")) is not None} == results
