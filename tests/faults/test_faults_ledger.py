"""Ledgers that somebody has rewritten: without the owner's key they can be read, or refused; never spent from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults_world import damaged, fuzz, ledger, make_project, ours_or_fine, places, require_tidy, twisted
from in_process import selpe
from selpe.errors import LedgerError, SelPEError
from selpe.privacy.ledger import Charge
from selpe.privacy.ledger.journal import GENESIS, _chain, canonical


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose table was spent on."""
    folder = make_project(tmp_path_factory.mktemp("used"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places(folder).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        done = selpe("run", "--name", "mine", "--yes", "--set", "budget=8")
        assert done.code == 0, done.err
        yield folder


def rewritten(lines: list[dict[str, Any]]) -> tuple[bytes, bytes]:
    """A ledger and its head with a chain that holds, as somebody without the key can write it."""
    previous, raw = GENESIS, b""
    for number, line in enumerate(lines, start=1):
        total = _chain(previous, number, line["time"], line["kind"], line["data"])
        raw += canonical({**line, "seq": number, "sum": total, "mac": "0" * 64}).encode() + b"\n"
        previous = total
    first = lines[0]["data"]
    key = first.get("key", "") if isinstance(first, dict) else ""
    return raw, canonical({"seq": len(lines), "sum": previous, "mac": "0" * 64, "key": key}).encode()


def looked_at(folder: Path) -> None:
    """Everything that reads a ledger; nothing may be charged to it."""
    found = ledger(folder)
    for look in (found.entries, found.charges, found.spent, lambda: found.budget, lambda: found.stored("mine", "x")):
        ours_or_fine(look)
    with pytest.raises(SelPEError):
        found.charge(Charge("other", "s", "test", 0.05, 0.1))


@fuzz
@given(data=st.data())
def test_a_ledger_rewritten_without_the_key_is_read_or_refused_and_never_charged(
    used: Path, data: st.DataObject
) -> None:
    place = used / "ledger" / "desk"
    before = {path: path.read_bytes() for path in (place / "ledger.jsonl", place / "head.json", used / "key")}
    lines = [json.loads(line) for line in before[place / "ledger.jsonl"].splitlines()]
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number] = {**lines[number], "data": data.draw(twisted(lines[number]["data"]))}
    try:
        for path, raw in zip(before, rewritten(lines), strict=False):
            path.write_bytes(raw)
        looked_at(used)  # with the key: the seals are wrong
        (used / "key").unlink()
        looked_at(used)
        require_tidy(selpe("budget", "show", "desk"), 0, 2, 3)
        require_tidy(selpe("budget", "history", "desk"), 0, 2, 3)
    finally:
        for path, raw in before.items():
            path.write_bytes(raw)
            path.chmod(0o600)


@fuzz
@given(data=st.data())
def test_no_run_begins_on_a_damaged_ledger(used: Path, data: st.DataObject) -> None:
    place = used / "ledger" / "desk"
    path = place / data.draw(st.sampled_from(("ledger.jsonl", "head.json")))
    before = path.read_bytes()
    raw = data.draw(damaged(before).filter(lambda raw: raw != before))
    try:
        path.write_bytes(raw)
        refused = ours_or_fine(ledger(used).entries)
        # What a crash can leave, a torn last line that was never acknowledged, is the one thing that is mended.
        assert isinstance(refused, LedgerError) or raw.startswith(before)
        if refused is not None:
            require_tidy(selpe("run", "--dry-run", "--epsilon", "0.5"), 3)
    finally:
        path.write_bytes(before)
