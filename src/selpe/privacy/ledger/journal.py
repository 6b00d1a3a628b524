"""An append-only, sealed file of JSON lines that survives a crash at any byte and notices every edit.

Three things are written for an entry, in this order, under an operating-system lock:

1. its line, at the end of `ledger.jsonl`, then fsync;
2. the head (`head.json`: last number and checksum, sealed), to a draft, then fsync;
3. the draft put in the head's place, then the folder fsynced. Only now is the entry *acknowledged*.

So a crash can leave a torn last line, or a whole line that the head does not know yet; neither was
acknowledged, and nobody has acted on it. It can never leave a head that knows more than the file does: that
is a deleted line, and is refused, as is any line whose checksum does not follow from the one before it.

Each line carries `sum` = SHA-256 of the previous sum and the line's canonical content, and `mac` = HMAC of
`sum` under the owner's key. The plain chain tells damage from health without the key; the mac stops somebody
who recomputes the chain.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from selpe.errors import LedgerError
from selpe.owner_only import FILE_MODE, make_folder
from selpe.privacy.ledger.anchor import Anchor, Mark
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.key import Key

VERSION = 1
GENESIS = "0" * 64
LOCK_SECONDS = 30.0
_LINE_FIELDS = {"v", "seq", "time", "kind", "data", "sum", "mac"}
_SEALING = ("open", "reseal")  # the kinds that say which key seals them and the lines after them


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal, checked."""

    seq: int
    time: str
    kind: str
    data: Mapping[str, Any]
    sum: str


@dataclass(frozen=True, slots=True)
class JournalReading:
    """What a journal says: its entries, how far they were checked, and what a crash left behind."""

    entries: tuple[Entry, ...] = ()
    size: int = 0
    torn: bytes = b""
    sealed_by: str = ""
    unchecked: int = 0

    @property
    def last_sum(self) -> str:
        """The checksum that the next line continues from."""
        return self.entries[-1].sum if self.entries else GENESIS


def canonical(value: Any) -> str:
    """JSON text that is the same for equal values, on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Journal:
    """One sealed file in a folder of its own."""

    def __init__(
        self, folder: Path, name: str, key: Key | None, *, disk: Disk | None = None, lasting: bool = False
    ) -> None:
        """`lasting` says that a journal was never meant to be deleted: one that is gone is then not begun anew."""
        self.folder = folder
        self.name = name
        self.path = folder / "ledger.jsonl"
        self.head_path = folder / "head.json"
        self.key = key
        self._disk = disk or Disk()
        self._cache: tuple[bytes, JournalReading] = (b"", JournalReading())
        self.lasting = lasting
        self._anchor = self._anchor_of(key) if key else None

    @property
    def exists(self) -> bool:
        """Whether anything was ever written here."""
        return self.path.exists() or self.head_path.exists()

    def read(self) -> JournalReading:
        """All entries, checked against the chain, the seals and the head; needs no lock."""
        mark = self._anchor.read() if self._anchor else None
        try:
            # Note, head, file, in this order: the file only ever grows, so it is as new as what was read before it.
            head, raw = _bytes_of(self.head_path), _bytes_of(self.path) or b""
        except OSError as error:
            raise LedgerError("the ledger cannot be read", where=str(self.path)) from error
        reading = self._parse(raw)
        first = reading.entries[0] if reading.entries else None
        if first and (first.kind != "open" or first.data.get("dataset") != self.name):
            raise LedgerError(
                "this file is the ledger of another data set",
                where=str(self.path),
                hint="a ledger was copied or renamed; put it back under its own name",
            )
        self._check_head(head, reading)
        if mark is not None and reading.entries:
            self._check_mark(mark, reading)
        return reading

    @contextmanager
    def writing(self, *, resealing: bool = False, begin_anew: str = "") -> Iterator[Writer]:
        """Holds the lock, re-reads the file, mends a torn end, and gives the right to append.

        `begin_anew` is the owner's reason to begin a journal although an earlier one in its place is gone.
        """
        self._make_folder()
        with locked(self.folder):
            reading = self.read()
            key = self._sealing_key(reading, resealing=resealing)
            lost = self._lost(begin_anew) if not reading.entries else None
            writer = Writer(self, self._disk, key, reading, self._anchor_of(key))
            mended = writer.cut_torn_end()
            if not writer.entries:
                writer.open(self.name)
            if lost is not None:
                writer.append("note", {"text": f"an earlier ledger of {lost.seq} lines is gone: {begin_anew}"})
            if mended:
                writer.append("repair", mended)
            yield writer

    def _anchor_of(self, key: Key) -> Anchor:
        return Anchor(self.folder, key, disk=self._disk, lasting=self.lasting)

    def _lost(self, begin_anew: str) -> Mark | None:
        """What is known of a journal that is gone from here; raises unless it may be begun anew."""
        mark = self._anchor.read() if self._anchor and self.lasting else None
        if mark is not None and not begin_anew:
            raise LedgerError(
                f"the ledger of this data set is gone: it had {mark.seq} lines. A new one would forget what was spent",
                where=str(self.path),
                hint="restore its folder from a backup. If it cannot be had: "
                f'selpe budget set {shlex.quote(self.name)} --epsilon … --raise --reason "why"',
            )
        return mark

    def _make_folder(self) -> None:
        if self.folder.is_dir():
            return
        try:
            make_folder(self.folder)
        except OSError as error:
            raise _unwritable(self.folder) from error

    def _sealing_key(self, reading: JournalReading, *, resealing: bool) -> Key:
        if self.key is None:
            raise LedgerError(
                f"the key that seals this ledger (id {reading.sealed_by}) is missing: it can be read, not added to",
                where=str(self.path),
                hint="restore the key file, or accept the ledger as it stands with `selpe budget reseal`",
            )
        if reading.entries and reading.sealed_by != self.key.id and not resealing:
            raise LedgerError(
                f"this ledger is sealed with another key (id {reading.sealed_by}, yours is {self.key.id})",
                where=str(self.path),
                hint="restore the key it was sealed with, or accept it as it stands with `selpe budget reseal`",
            )
        return self.key

    # -- checking -------------------------------------------------------------------------------------------

    def _parse(self, raw: bytes) -> JournalReading:
        known, before = self._cache
        # Bytes equal to those checked last time need no second check.
        start = before if known and raw.startswith(known) else JournalReading()
        entries, sealed_by, unchecked = list(start.entries), start.sealed_by, start.unchecked
        position, previous = start.size, start.last_sum
        while (end := raw.find(b"\n", position)) >= 0:
            entry, mac = self._parse_line(raw[position:end], len(entries) + 1, previous)
            if entry.kind in _SEALING:
                sealed_by = str(entry.data.get("key", ""))
            if self.key is None or self.key.id != sealed_by:
                unchecked += 1
            elif not hmac.compare_digest(mac, _seal(self.key, "line", entry.sum)):
                raise self._edited(entry.seq, "its seal is wrong")
            entries.append(entry)
            position, previous = end + 1, entry.sum
        reading = JournalReading(tuple(entries), position, raw[position:], sealed_by, unchecked)
        self._cache = (raw[:position], reading)
        return reading

    def _parse_line(self, line: bytes, seq: int, previous: str) -> tuple[Entry, str]:
        try:
            fields = json.loads(line)
            again = canonical(fields).encode()
        except (ValueError, RecursionError):
            raise self._edited(seq, "it is not JSON") from None
        if not isinstance(fields, dict) or set(fields) != _LINE_FIELDS or not _of_their_kinds(fields):
            raise self._edited(seq, "its fields are not those of a ledger line")
        if fields["v"] != VERSION:
            raise LedgerError(
                f"line {seq} was written by another version of the ledger format",
                where=str(self.path),
                hint="update SelPE",
            )
        # The very bytes are compared, so that nothing can hide in spacing, escapes or repeated names.
        if again != line:
            raise self._edited(seq, "it is not in canonical form")
        entry = Entry(fields["seq"], fields["time"], fields["kind"], fields["data"], fields["sum"])
        if entry.seq != seq:
            raise self._edited(seq, f"it is numbered {entry.seq}: a line is missing or moved")
        if entry.sum != _chain(previous, entry.seq, entry.time, entry.kind, entry.data):
            raise self._edited(seq, "its checksum does not follow from the line before it")
        return entry, str(fields["mac"])

    def _check_head(self, head: bytes | None, reading: JournalReading) -> None:
        count = len(reading.entries)
        if head is None:
            if count:  # the head is there before the first line
                raise self._refused("the head file of the ledger is missing")
            return
        try:
            fields = json.loads(head)
            seq, total, mac, key_id = fields["seq"], fields["sum"], fields["mac"], fields["key"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._refused("the head file of the ledger is damaged") from None
        if not isinstance(seq, int) or seq < 0 or (seq == 0 and count > 1):
            raise self._refused("the head file of the ledger is damaged")
        if seq > count:
            raise self._refused(f"{seq} entries were acknowledged, but only {count} are in the ledger")
        if total != (reading.entries[seq - 1].sum if seq else GENESIS):
            raise self._refused(f"line {seq} is not the one that was acknowledged")
        if not seq and not count:
            return  # a creation that was cut short before its first line
        # The head is sealed with the key of the line it names; else a forger could name a key nobody has.
        sealing = [str(e.data.get("key", "")) for e in reading.entries[: max(1, seq)] if e.kind in _SEALING]
        ours = self.key if self.key is not None and self.key.id == sealing[-1] else None
        wrong = ours and not hmac.compare_digest(str(mac), _seal(ours, "head", f"{seq}:{total}"))
        if key_id != sealing[-1] or wrong:
            raise self._refused("the head file of the ledger was edited")

    def _check_mark(self, mark: Mark, reading: JournalReading) -> None:
        count = len(reading.entries)
        if mark.first != reading.entries[0].sum:
            raise self._refused("this is not the ledger that was written here last")
        if mark.seq > count or reading.entries[mark.seq - 1].sum != mark.sum:
            raise self._refused(f"an older copy was put in its place: {mark.seq} lines were written, it has {count}")

    def _edited(self, seq: int, why: str) -> LedgerError:
        return self._refused(f"line {seq} of the ledger was edited or damaged: {why}")

    def _refused(self, what: str) -> LedgerError:
        return LedgerError(
            f"{what}. Nothing can be spent until it is whole again",
            where=str(self.path),
            hint="look at it with `selpe budget history --verify`, and restore the folder from a backup",
        )


class Writer:
    """The right to append to a journal, held together with its lock."""

    def __init__(self, journal: Journal, disk: Disk, key: Key, reading: JournalReading, anchor: Anchor) -> None:
        self._journal = journal
        self._anchor = anchor
        self._disk = disk
        self.key = key
        self._size = reading.size
        self._last = reading.last_sum
        self._torn = reading.torn
        self.entries = list(reading.entries)

    def open(self, name: str) -> None:
        """Writes the first line. The head comes before it, so that a line without a head is never an honest one."""
        self._anchor.forget()
        try:
            # Whoever made the folder may have died before its name was on the disk.
            self._disk.sync_folder(self._journal.folder.parent)
            self._write_head(0, GENESIS)
        except OSError as error:
            raise _unwritable(self._journal.folder) from error
        self.append("open", {"dataset": name})

    def append(self, kind: str, data: Mapping[str, Any]) -> Entry:
        """The entry, once it is on the disk and acknowledged."""
        plain = json.loads(canonical(data))
        if kind in _SEALING:
            plain["key"] = self.key.id
        seq, time = len(self.entries) + 1, datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        total = _chain(self._last, seq, time, kind, plain)
        line = {"v": VERSION, "seq": seq, "time": time, "kind": kind, "data": plain, "sum": total}
        raw = canonical({**line, "mac": _seal(self.key, "line", total)}).encode() + b"\n"
        self._write(raw, seq, total)
        entry = Entry(seq, time, kind, plain, total)
        self.entries.append(entry)
        self._size += len(raw)
        self._last = total
        self._anchor.move(Mark(self.entries[0].sum, seq, total))
        return entry

    def cut_torn_end(self) -> dict[str, Any] | None:
        """Moves a torn end into a side file; returns the note to make of it, or None where there was none.

        A torn line was never acknowledged, so nobody has acted on it, and cutting it understates nothing.
        """
        if not self._torn:
            return None
        digest = hashlib.sha256(self._torn).hexdigest()
        aside = self._journal.folder / f"torn-{len(self.entries) + 1}-{digest[:8]}"
        try:
            self._disk.overwrite(aside, self._torn)
            self._disk.truncate(self._journal.path, self._size)
        except OSError as error:
            raise LedgerError(
                "the ledger ends in a torn line, which cannot be moved aside",
                where=str(self._journal.path),
                hint="make room on the disk, or make the folder writable",
            ) from error
        note = {"bytes": len(self._torn), "sha256": digest, "kept": aside.name}
        self._torn = b""
        return note

    def _write(self, raw: bytes, seq: int, total: str) -> None:
        journal, disk = self._journal, self._disk
        try:
            disk.append(journal.path, raw)
            if seq == 1:
                disk.sync_folder(journal.folder)
            self._write_head(seq, total)
        except OSError as error:
            # Not acknowledged, and we hold the lock: taking the line back is safe. If even that fails, it
            # stays as a torn line (mended later) or as a whole one (counted as spent).
            with suppress(OSError):
                disk.truncate(journal.path, self._size)
            raise LedgerError(
                f"the ledger cannot be written ({error.strerror or 'write failed'}), so nothing may be spent",
                where=str(journal.path),
                hint="make room on the disk, or make the folder writable",
            ) from error
        try:
            disk.sync_folder(journal.folder)
        except OSError as error:
            raise LedgerError(
                "the ledger was written, but the system cannot say that it will last; the entry counts as spent",
                where=str(journal.path),
            ) from error

    def _write_head(self, seq: int, total: str) -> None:
        draft = self._journal.folder / "head.new"
        mac = _seal(self.key, "head", f"{seq}:{total}")
        self._disk.overwrite(draft, canonical({"seq": seq, "sum": total, "mac": mac, "key": self.key.id}).encode())
        self._disk.replace(draft, self._journal.head_path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds an operating-system lock on a folder; the system releases it when its holder dies, however it dies."""
    from filelock import FileLock, Timeout

    try:
        lock = FileLock(folder / "lock", timeout=LOCK_SECONDS, mode=FILE_MODE)
        lock.acquire()
    except Timeout as error:
        raise LedgerError(
            f"another process has held this ledger for {LOCK_SECONDS:.0f} seconds",
            where=str(folder),
            hint="wait for the other run to finish; a process that died has released it already",
        ) from error
    except OSError as error:
        raise _unwritable(folder) from error
    try:
        yield
    finally:
        lock.release()


def _unwritable(folder: Path) -> LedgerError:
    return LedgerError(
        "the ledger cannot be written, so nothing may be spent",
        where=str(folder),
        hint="make the folder writable, or name another one in SELPE_LEDGER",
    )


def _bytes_of(path: Path) -> bytes | None:
    """What a file holds; None where there is none. A disk that cannot say whether there is one has an error."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _of_their_kinds(fields: Mapping[str, Any]) -> bool:
    texts = all(isinstance(fields[name], str) for name in ("time", "kind", "sum", "mac"))
    return texts and type(fields["seq"]) is int and isinstance(fields["data"], dict)


def _chain(previous: str, seq: int, time: str, kind: str, data: Mapping[str, Any]) -> str:
    content = canonical({"seq": seq, "time": time, "kind": kind, "data": data})
    return hashlib.sha256(f"{previous}\n{content}".encode()).hexdigest()


def _seal(key: Key, what: str, text: str) -> str:
    return hmac.new(key.derive("ledger seal"), f"{what}:{text}".encode(), hashlib.sha256).hexdigest()
