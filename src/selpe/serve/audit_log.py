"""The audit log of a server: who asked what of which table, what was spent and what was refused, in lines only added.

    audit/log.jsonl    one line of canonical JSON each: seq, time, kind, data, sum, mac

`sum` is the SHA-256 of the sum before it and the line's content, and `mac` its HMAC under a subkey of the owner's key.
A note beside the key (`Anchor`) says how far the log has come, so that lines cut off its end are missed.

It is not a ledger's journal, which is read whole at every write and acknowledges each line: a log grows for ever, so
it is read once and continued from there, and lines that wait together are written together.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO

from selpe.errors import AuditError
from selpe.owner_only import FILE_MODE, make_folder
from selpe.privacy.ledger.anchor import Anchor, Mark
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.journal import GENESIS, canonical
from selpe.privacy.ledger.key import Key

VERSION = 1
FOLDER = "audit"
OPEN, REPAIR = "open", "repair"
_LOCK_SECONDS = 30.0
_FIELDS = {"v", "seq", "time", "kind", "data", "sum", "mac"}
_LONGEST = 2**20  # bytes of a line: ours have some hundred


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log, checked."""

    seq: int
    time: str
    kind: str
    data: Mapping[str, Any]
    sum: str


@dataclass(frozen=True, slots=True)
class End:
    """How far a log goes: the bytes, number and sum of its last whole line, the sum of its first, and what is torn."""

    size: int = 0
    seq: int = 0
    sum: str = GENESIS
    first: str = ""
    sealed_by: str = ""
    torn: bytes = b""


class AuditLog:
    """One log in a folder of its own. Several processes may add to it, one after the other."""

    def __init__(self, folder: Path, key: Key | None, *, disk: Disk | None = None) -> None:
        self.folder, self.key = folder, key
        self.path = folder / "log.jsonl"
        self._disk = disk or Disk()
        self._end: End | None = None
        self._turn = threading.Lock()

    @property
    def mark(self) -> Mark | None:
        """What is noted beside the key of how far the log has come; None where nothing is."""
        return Anchor(self.folder, self.key).read() if self.key else None

    def read(self, each: Callable[[LogLine], object] = lambda line: None) -> End:
        """The end of the log, once `each` was told of every whole line. Raises AuditError at the first that is wrong.

        It needs no lock: the note is read before the log, which only ever grows.
        """
        return self._read(End(), self.mark, each)

    def append(self, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> list[LogLine]:
        """The lines of these kinds and contents, once all are on the disk; raises AuditError where they are not.

        What is torn at the end was never acknowledged: it is moved aside, and a line says so.
        """
        with self._turn, self._held():
            end = self._caught_up()
            first = [] if end.seq else [(OPEN, {"log": VERSION})]
            return self._written(end, [*first, *self._mended(end), *entries])[-len(entries) :]

    def renew(self, reason: str) -> Path | None:
        """Begins the log anew, for an owner whose log is damaged or gone; where the old one is now, if it was there."""
        with self._turn, self._held():
            aside = self.folder / f"log-until-{datetime.now(timezone.utc):%Y%m%d-%H%M%S-%f}.jsonl"
            kept = self.path.exists()
            before = self.mark
            try:
                if kept:
                    self._disk.replace(self.path, aside)
            except OSError as error:
                raise self._unwritable(error) from None
            told = {"reason": reason, "kept": aside.name if kept else None}
            noted = {"seq": before.seq, "sum": before.sum} if before else None
            self._written(End(), [(OPEN, {"log": VERSION, **told, "before": noted})])
            return aside if kept else None

    # -- reading ----------------------------------------------------------------------------------------------------

    def _read(self, end: End, mark: Mark | None, each: Callable[[LogLine], object]) -> End:
        if self.path.exists():
            with self._opened() as file:
                file.seek(end.size)
                while (raw := file.readline(_LONGEST)).endswith(b"\n"):
                    line, end = self._checked(raw, end)
                    if mark and mark.seq == line.seq and (mark.sum, mark.first) != (line.sum, end.first):
                        raise self._wrong(f"line {line.seq} is not the one that was written")
                    each(line)
                if len(raw) == _LONGEST:
                    raise self._wrong(f"line {end.seq + 1} (from byte {end.size}) is damaged")
                end = replace(end, torn=raw)
        if mark and mark.seq > end.seq:
            raise self._wrong(f"{mark.seq} lines were written, and the last that is left is line {end.seq}")
        return end

    def _checked(self, raw: bytes, end: End) -> tuple[LogLine, End]:
        seq, where = end.seq + 1, f"line {end.seq + 1} (from byte {end.size})"
        try:
            fields = json.loads(raw)
            whole = isinstance(fields, dict) and set(fields) == _FIELDS and canonical(fields).encode() + b"\n" == raw
        except (ValueError, RecursionError):
            whole = False
        if not whole or not _of_their_kinds(fields):
            raise self._wrong(f"{where} is damaged")
        if fields["v"] != VERSION:
            raise AuditError(f"{where} is of another version of the log", where=str(self.path), hint="update SelPE")
        line = LogLine(fields["seq"], fields["time"], fields["kind"], fields["data"], fields["sum"])
        if line.seq != seq or line.sum != _sum(end.sum, line):
            raise self._wrong(f"{where} does not follow from the one before: lines were changed, moved or taken out")
        opening = line.kind == OPEN
        if opening != (seq == 1):
            raise self._wrong(f"{where} is not what a log has there")
        sealed_by = str(line.data.get("key", "")) if opening else end.sealed_by
        if self.key and self.key.id == sealed_by and not hmac.compare_digest(fields["mac"], _mac(self.key, line.sum)):
            raise self._wrong(f"{where} has a wrong seal: it was not written with the owner's key")
        return line, End(end.size + len(raw), seq, line.sum, end.first or line.sum, sealed_by)

    def _caught_up(self) -> End:
        """The end of the log, with what other processes have added since this one looked last."""
        known = self._end or End()
        if known.size and (not self.path.exists() or self.path.stat().st_size < known.size):
            raise self._wrong(f"{known.seq} lines were written, and not all of them are left")
        end = self._read(known, None if self._end else self.mark, lambda line: None)
        self._writing_key(end.sealed_by)
        return end

    # -- writing ----------------------------------------------------------------------------------------------------

    def _mended(self, end: End) -> list[tuple[str, Mapping[str, Any]]]:
        """The line that says what torn bytes were moved aside; none where there are none."""
        if not end.torn:
            return []
        aside = self.folder / f"torn-{end.seq + 1}-{hashlib.sha256(end.torn).hexdigest()[:8]}"
        try:
            self._disk.overwrite(aside, end.torn)
            self._disk.truncate(self.path, end.size)
        except OSError as error:
            raise self._unwritable(error) from None
        return [(REPAIR, {"bytes": len(end.torn), "kept": aside.name})]

    def _written(self, end: End, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> list[LogLine]:
        key, made, raw = self._writing_key(end.sealed_by), [], b""
        seq, last, first = end.seq, end.sum, end.first
        for kind, data in entries:
            seq += 1
            plain = json.loads(canonical({**data, "key": key.id} if kind == OPEN else data))
            time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            last = _sum(last, LogLine(seq, time, kind, plain, ""))
            line = LogLine(seq, time, kind, plain, last)
            made.append(line)
            first = first or last
            fields = {"v": VERSION, "seq": seq, "time": time, "kind": kind, "data": plain, "sum": last}
            raw += canonical({**fields, "mac": _mac(key, last)}).encode() + b"\n"
        try:
            self._disk.append(self.path, raw)
            if not end.seq:
                self._disk.sync_folder(self.folder)
        except OSError as error:
            # Nobody was told of these lines, and we hold the lock. What stays is mended at the next write.
            with suppress(OSError):
                self._disk.truncate(self.path, end.size)
            self._end = None
            raise self._unwritable(error) from None
        self._end = End(end.size + len(raw), seq, last, first, key.id)
        Anchor(self.folder, key, disk=self._disk).move(Mark(first, seq, last))
        return made

    def _writing_key(self, sealed_by: str) -> Key:
        if self.key is None or sealed_by not in ("", self.key.id):
            raise AuditError(
                "the key that seals the audit log is not here, so nothing can be added to it",
                where=str(self.path), hint="restore the key file; if it is lost: selpe server renew-log --reason …",
            )  # fmt: skip
        return self.key

    @contextmanager
    def _held(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            make_folder(self.folder)
            lock = FileLock(self.folder / "lock", timeout=_LOCK_SECONDS, mode=FILE_MODE)
            lock.acquire()
        except Timeout:
            raise AuditError("another process holds the audit log", where=str(self.folder), hint="try again") from None
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") as file:
                yield file
        except OSError as error:
            raise AuditError(f"the audit log cannot be read ({error.strerror})", where=str(self.path)) from None

    def _unwritable(self, error: OSError) -> AuditError:
        said = f"the audit log cannot be written ({error.strerror or 'write failed'}), so nothing may be done"
        return AuditError(said, where=str(self.folder), hint="make room on the disk, or make the folder writable")

    def _wrong(self, what: str) -> AuditError:
        hint = "look at it with `selpe server verify-log`; restore it from a backup, or begin anew by renew-log"
        return AuditError(f"the audit log is not whole: {what}", where=str(self.path), hint=hint)


def _of_their_kinds(fields: Mapping[str, Any]) -> bool:
    texts = all(isinstance(fields[name], str) for name in ("time", "kind", "sum", "mac"))
    return texts and type(fields["seq"]) is int and isinstance(fields["data"], dict)


def _sum(previous: str, line: LogLine) -> str:
    content = canonical({"seq": line.seq, "time": line.time, "kind": line.kind, "data": line.data})
    return hashlib.sha256(f"{previous}\n{content}".encode()).hexdigest()


def _mac(key: Key, total: str) -> str:
    return hmac.new(key.derive("audit log"), total.encode(), hashlib.sha256).hexdigest()
