"""The audit log as a file: chained, sealed, continued by several processes, and honest about where it is cut."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selpe.errors import AuditError
from selpe.privacy.ledger.anchor import Anchor, anchors_folder
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.key import Key, make_key
from selpe.serve.audit_log import AuditLog, LogLine

posix = pytest.mark.skipif(sys.platform == "win32", reason="rights, fork and signals of POSIX")


@pytest.fixture
def key() -> Key:
    return make_key()


@pytest.fixture
def log(tmp_path: Path, key: Key) -> AuditLog:
    return AuditLog(tmp_path / "audit", key)


def filled(log: AuditLog, count: int = 5) -> bytes:
    """A log with so many lines behind its first; its bytes."""
    log.append([("asked", {"n": n}) for n in range(count)])
    return log.path.read_bytes()


def lines_of(log: AuditLog) -> list[LogLine]:
    found: list[LogLine] = []
    AuditLog(log.folder, log.key).read(found.append)
    return found


def test_lines_are_numbered_chained_and_for_the_owner_alone(log: AuditLog) -> None:
    first = log.append([("asked", {"what": "plan"}), ("answered", {"status": 200})])
    log.append([("asked", {"what": "check"})])
    found = lines_of(log)
    assert [line.seq for line in found] == [1, 2, 3, 4]
    assert [line.kind for line in found] == ["open", "asked", "answered", "asked"]
    assert first == found[1:3]
    if sys.platform != "win32":
        assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(log.folder.stat().st_mode) == 0o700


def changed(raw: bytes) -> bytes:
    return raw.replace(b'"n":2', b'"n":7')


def resummed(raw: bytes) -> bytes:
    """A line changed by somebody who computes the whole chain again, and has no key."""
    import hashlib

    from selpe.privacy.ledger.journal import canonical

    out, last = [], "0" * 64
    for text in changed(raw).splitlines():
        fields = json.loads(text)
        content = canonical({name: fields[name] for name in ("seq", "time", "kind", "data")})
        last = hashlib.sha256(f"{last}\n{content}".encode()).hexdigest()
        out.append(canonical({**fields, "sum": last}).encode() + b"\n")
    return b"".join(out)


def without(number: int) -> Callable[[bytes], bytes]:
    def cut(raw: bytes) -> bytes:
        lines = raw.splitlines(keepends=True)
        return b"".join(lines[: number - 1] + lines[number:])

    return cut


def swapped(raw: bytes) -> bytes:
    lines = raw.splitlines(keepends=True)
    lines[2], lines[3] = lines[3], lines[2]
    return b"".join(lines)


def spaced(raw: bytes) -> bytes:
    return raw.replace(b'{"n":2}', b'{"n": 2}')


def first_twice(raw: bytes) -> bytes:
    return raw.splitlines(keepends=True)[0] + raw


EDITS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a value": (changed, "line 4"),
    "a value, sums computed again": (resummed, "line 4|wrong seal"),
    "the first line gone": (without(1), "line 1"),
    "a line gone": (without(3), "line 3"),
    "the last line gone": (without(6), "6 lines were written, and the last that is left is line 5"),
    "all lines gone": (lambda raw: b"", "6 lines were written, and the last that is left is line 0"),
    "two lines swapped": (swapped, "line 3"),
    "a blank": (spaced, "line 4"),
    "the first line twice": (first_twice, "line 2"),
    "no JSON": (lambda raw: raw.replace(b'"n":2', b'"n"'), "line 4"),
    "a list": (lambda raw: raw + b"[]\n", "line 7"),
    "another version": (lambda raw: raw.replace(b'"v":1}', b'"v":2}', 1), "line 1"),
    "a line without an end": (lambda raw: raw + b"x" * 2**21, "line 7"),
}


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_is_found_at_its_line_and_nothing_is_added_behind_it(log: AuditLog, name: str) -> None:
    edit, where = EDITS[name]
    raw = filled(log)
    log.path.write_bytes(edit(raw))
    assert log.path.read_bytes() != raw
    fresh = AuditLog(log.folder, log.key)
    with pytest.raises(AuditError, match=where):
        fresh.read()
    with pytest.raises(AuditError):
        fresh.append([("asked", {})])
    assert log.path.read_bytes() == edit(raw)


def test_a_log_that_is_gone_is_not_begun_anew_unless_its_owner_says_so(log: AuditLog) -> None:
    raw = filled(log)
    log.path.unlink()
    with pytest.raises(AuditError, match="6 lines were written"):
        log.append([("asked", {})])
    fresh = AuditLog(log.folder, log.key)
    with pytest.raises(AuditError, match="6 lines were written"):
        fresh.append([("asked", {})])
    log.path.write_bytes(raw[:-30])
    aside = fresh.renew("the disk was lost")
    assert aside is not None
    assert aside.read_bytes() == raw[:-30]
    assert lines_of(fresh)[0].data["reason"] == "the disk was lost"
    assert lines_of(fresh)[0].data["before"]["seq"] == 6
    fresh.append([("asked", {})])
    assert len(lines_of(fresh)) == 2


def test_an_older_copy_in_its_place_is_found(log: AuditLog) -> None:
    older = filled(log)
    filled(log)
    log.path.write_bytes(older)
    with pytest.raises(AuditError, match="11 lines were written, and the last that is left is line 6"):
        AuditLog(log.folder, log.key).read()


def test_without_the_note_a_cut_end_cannot_be_told(log: AuditLog) -> None:
    raw = filled(log)
    for path in anchors_folder().iterdir():
        path.unlink()
    log.path.write_bytes(without(6)(raw))
    assert AuditLog(log.folder, log.key).read().seq == 5


def test_a_log_of_another_key_can_be_read_and_not_added_to(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(log)
    for other in (None, Key(b"o" * 32)):
        stranger = AuditLog(log.folder, other)
        assert stranger.read().seq == 6
        with pytest.raises(AuditError, match="key"):
            stranger.append([("asked", {})])


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_a_write_that_was_cut_short_is_moved_aside_and_said(log: AuditLog, kept: int) -> None:
    before = filled(log)
    log.append([("asked", {"lost": True})])
    torn = log.path.read_bytes()[len(before) :][:kept] if kept else b""
    log.path.write_bytes(before + torn)
    Anchor(log.folder, log.key or Key(b""), disk=Disk()).forget()  # it moves when the line is on the disk, not before
    fresh = AuditLog(log.folder, log.key)
    assert fresh.read().torn == torn
    fresh.append([("asked", {"after": True})])
    found = lines_of(log)
    assert [line.kind for line in found[6:]] == (["repair", "asked"] if torn else ["asked"])
    if torn:
        assert (log.folder / found[6].data["kept"]).read_bytes() == torn


class Failing(Disk):
    """A disk that takes half of what is written, or nothing, and then takes nothing back."""

    def __init__(self, *, stuck: bool) -> None:
        self.stuck, self.full = stuck, False

    def write(self, handle: int, data: bytes) -> None:
        if not self.full:
            return super().write(handle, data)
        os.write(handle, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, path: Path, size: int) -> None:
        if self.stuck and self.full:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(path, size)


@pytest.mark.parametrize("stuck", [False, True])
def test_a_full_disk_refuses_and_the_log_goes_on_when_there_is_room(tmp_path: Path, key: Key, stuck: bool) -> None:
    disk = Failing(stuck=stuck)
    log = AuditLog(tmp_path / "audit", key, disk=disk)
    before = filled(log)
    disk.full = True
    with pytest.raises(AuditError, match="No space left"):
        log.append([("asked", {"lost": True})] * 3)
    assert log.path.read_bytes().startswith(before)
    disk.full = False
    log.append([("asked", {"after": True})])
    assert lines_of(log)[-1].data == {"after": True}


ADDS = """
import sys
from pathlib import Path
from selpe.privacy.ledger.key import make_key
from selpe.serve.audit_log import AuditLog
log = AuditLog(Path(sys.argv[1]), make_key())
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[3])):
    log.append([("asked", {"who": sys.argv[2], "n": n}), ("answered", {"who": sys.argv[2], "n": n})])
    print(n, flush=True)
"""


def adding(folder: Path, who: str, count: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", ADDS, str(folder), who, str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_and_several_threads_add_to_one_log(log: AuditLog) -> None:
    processes = [adding(log.folder, who, 15) for who in ("first", "second")]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    def add(who: int) -> None:
        for n in range(10):
            log.append([("asked", {"who": who, "n": n}), ("answered", {"who": who, "n": n})])

    threads = [threading.Thread(target=add, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.communicate(timeout=300)
        assert process.returncode == 0
    found = lines_of(log)
    assert len(found) == 1 + 2 * (2 * 15 + 3 * 10)
    for who in ("first", "second", 0, 1, 2):
        mine = [line.data["n"] for line in found if line.data.get("who") == who]
        assert mine == sorted(mine)
    told = found[1:]  # what was added together stands together
    assert all(a.data == b.data for a, b in zip(told[::2], told[1::2], strict=True))


@posix
def test_a_process_that_is_killed_leaves_a_log_which_has_all_that_it_acknowledged(log: AuditLog) -> None:
    for _ in range(2):
        process = adding(log.folder, "killed", 100_000)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        acknowledged = [process.stdout.readline() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=300)
        last = int((acknowledged + rest.splitlines())[-1])
        before = len(lines_of(log))
        fresh = AuditLog(log.folder, log.key)
        fresh.append([("asked", {"who": "next"})])
        found = lines_of(log)
        assert len(found) in (before + 1, before + 2)  # with a line about what was torn, or without
        mine = [line.data["n"] for line in found if line.kind == "answered"]
        assert last in mine


class DyingError(Exception):
    """The process is gone."""


class Mortal(Disk):
    """A disk whose process dies at its n-th call, with some bytes of a write done."""

    def __init__(self, last: int, share: float) -> None:
        self.left, self.share = last, share

    def _call(self, method: str, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise DyingError
        return getattr(super(), method)(*arguments)

    def write(self, handle: int, data: bytes) -> None:
        self.left -= 1
        if self.left == 0:
            os.write(handle, data[: int(len(data) * self.share)])
            raise DyingError
        super().write(handle, data)

    def sync(self, handle: int) -> None:
        self._call("sync", handle)

    def replace(self, source: Path, target: Path) -> None:
        self._call("replace", source, target)

    def sync_folder(self, folder: Path) -> None:
        self._call("sync_folder", folder)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999, 1.0])
def test_a_kill_at_any_write_leaves_a_log_that_goes_on_with_all_that_was_acknowledged(
    tmp_path: Path, key: Key, share: float
) -> None:
    last, finished = 0, False
    while not finished:
        last += 1
        log = AuditLog(tmp_path / f"audit-{last}", key, disk=Mortal(last, share))
        acknowledged = 0
        try:
            for n in range(3):
                log.append([("asked", {"n": n}), ("answered", {"n": n})])
                acknowledged = n + 1
            finished = True
        except DyingError:
            pass
        fresh = AuditLog(log.folder, key)
        fresh.append([("asked", {"after": True})])
        found = [line.data.get("n") for line in lines_of(fresh) if line.kind == "answered"]
        assert found[:acknowledged] == list(range(acknowledged))
        assert lines_of(fresh)[-1].data == {"after": True}
    assert last > 10
