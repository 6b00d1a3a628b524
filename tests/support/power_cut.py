"""What a disk may hold after a power cut, by what was written to it: a model of a file system that promises little.

Bytes last once their file was synced, and names once their folder was. What is not synced yet may be there or not, one
by one and in any order: a new name without the bytes behind it, zeros in their place, a part of a write. A rename is
there as a whole or not at all. SQLite's statements are taken as its makers promise them: as a whole or not at all, and
on the disk at the latest when the next one is.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from watched_disk import Call, Doing, Watched

FOLDER = -1
SCRATCH = re.compile(r"(^|/)(\.selpe-[^/]*|[^/]*\.?lock)(/|$)")
T = TypeVar("T")
Edit = tuple[int, str, int | None]  # in this folder, this name: the file or folder of this number, or nothing


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call has changed: bytes of a file, or names; a sync, which makes earlier ones last; or a mark."""

    kind: str  # bytes, size, whole, names, sync, mark
    place: str = ""
    file: int = 0
    offset: int = 0
    data: bytes = b""
    edits: tuple[Edit, ...] = ()
    time: int = 0
    mark: Any = None

    @property
    def is_names(self) -> bool:
        return self.kind == "names"


@dataclass(frozen=True, slots=True)
class File:
    """The bytes of a file and its time; a folder has none."""

    data: bytes = b""
    time: int = 0


@dataclass
class Disk:
    """A disk as it is when every write so far has arrived: which number has which name, and what a number holds."""

    names: dict[tuple[int, str], int] = field(default_factory=dict)
    files: dict[int, File | None] = field(default_factory=lambda: {0: None})

    @classmethod
    def of(cls, root: Path) -> Disk:
        """The disk as a folder is now."""
        found, numbers = cls(), {str(root): 0}
        for place, folders, files in os.walk(root):
            for name in sorted((*folders, *files)):
                path, number = f"{place}/{name}", len(found.files)
                found.names[(numbers[place], name)] = numbers[path] = number
                about = Path(path).stat()
                data = None if stat.S_ISDIR(about.st_mode) else File(Path(path).read_bytes(), about.st_mtime_ns)
                found.files[number] = data
        return found

    def number(self, path: str) -> int | None:
        """The number of what lies at a path."""
        found: int | None = 0
        for part in () if path == "." else path.split("/"):
            found = None if found is None else self.names.get((found, part))
        return found

    def at(self, path: str) -> tuple[int, str]:
        """The folder and the name of a path."""
        head, _, name = path.rpartition("/")
        folder = self.number(head or ".")
        assert folder is not None, path
        return folder, name

    def apply(self, effect: Effect, *, zeros: bool = False) -> None:
        """Lets an effect arrive; with `zeros`, a file's new size and time without its bytes."""
        if effect.kind == "names":
            for folder, name, number in effect.edits:
                if number is not None:
                    self.names[(folder, name)] = number
                else:
                    self.names.pop((folder, name), None)
        elif effect.kind in ("bytes", "size", "whole"):
            before = (self.files.get(effect.file) or File()).data
            data = bytes(len(effect.data)) if zeros else effect.data
            if effect.kind == "bytes":
                start = before[: effect.offset].ljust(effect.offset, b"\0")
                before = start + data + before[effect.offset + len(data) :]
            elif effect.kind == "size":
                before = before[: effect.offset].ljust(effect.offset, b"\0")
            else:
                before = data
            self.files[effect.file] = File(before, effect.time)

    def copy(self) -> Disk:
        return Disk(dict(self.names), dict(self.files))

    def tree(self) -> dict[str, tuple[int, File | None]]:
        """What can be reached, by path."""
        inside: dict[int, list[tuple[str, int]]] = {}
        for (folder, name), number in self.names.items():
            inside.setdefault(folder, []).append((name, number))
        found: dict[str, tuple[int, File | None]] = {}
        todo = [("", 0)]
        while todo:
            path, number = todo.pop()
            for name, child in inside.get(number, ()):
                place = f"{path}/{name}" if path else name
                found[place] = (child, self.files.get(child, File()))
                if self.files.get(child, File()) is None:
                    todo.append((place, child))
        return found

    def digest(self) -> bytes:
        """The same for disks that hold the same under the same names, scratch and locks aside: nobody reads them."""
        found = hashlib.sha256()
        for path, (_, file) in sorted(self.tree().items()):
            if SCRATCH.search(path):
                continue
            found.update(f"{path}\0".encode() + (b"folder" if file is None else _digest(file.data)))
        return found.digest()

    def lay_out(self, root: Path) -> None:
        """Makes a folder hold this, and nothing else."""
        for path in root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        first: dict[int, Path] = {}
        for name, (number, file) in sorted(self.tree().items()):
            path = root / name
            if file is None:
                path.mkdir(mode=0o700)
            elif number in first:
                os.link(first[number], path)
            else:
                path.write_bytes(file.data)
                path.chmod(0o600)
                os.utime(path, ns=(file.time, file.time))
                first[number] = path


@lru_cache(10_000)
def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@dataclass(frozen=True, slots=True)
class _Done:
    """A call that was done: where from, on which handle, and of a write where it went and how much of it."""

    call: Call
    place: str
    handle: int
    offset: int
    written: int

    @property
    def time(self) -> int:
        return os.fstat(self.handle).st_mtime_ns


class Recorder:
    """What happened to the files below a folder, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before = Disk.of(root)
        self.effects: list[Effect] = []
        self._now = self.before.copy()
        self._held: dict[int, int] = {}
        self.watched = Watched(root, self.seen)

    def mark(self, said: Any) -> None:
        """Notes what somebody outside knows from now on."""
        self._add(Effect("mark", mark=said))

    def seen(self, call: Call, do: Doing) -> Any:
        """Does a call and notes what it has changed."""
        if call.kind in ("read", "list", "stat", "chmod"):
            return do()
        place = call.place
        end = self._end(call) if call.kind == "write" else 0
        result = do()
        number = result if call.kind in ("open", "create") else call.number
        done = _Done(call, place, number, end, result if call.kind == "write" else 0)
        getattr(self, f"_{call.kind}", lambda _: None)(done)
        return result

    def _add(self, effect: Effect) -> None:
        self.effects.append(effect)
        self._now.apply(effect)

    def _end(self, call: Call) -> int:
        """Where a write goes: the end of a file that is appended to, else where its handle stands."""
        import fcntl

        if fcntl.fcntl(call.number, fcntl.F_GETFL) & os.O_APPEND:
            return os.fstat(call.number).st_size
        return os.lseek(call.number, 0, os.SEEK_CUR)

    def _open(self, done: _Done) -> None:
        known = self._now.number(done.call.path)
        assert known is not None, done
        self._held[done.handle] = known

    def _create(self, done: _Done) -> None:
        known = self._now.number(done.call.path)
        if known is None:
            known = max(self._now.files) + 1
            self._now.files[known] = File(b"", done.time)
            self._name(done, (*self._now.at(done.call.path), known))
        if done.call.flags & os.O_TRUNC and (self._now.files[known] or File()).data:
            self._add(Effect("size", done.place, known, 0, time=done.time))
        self._held[done.handle] = known

    def _close(self, done: _Done) -> None:
        self._held.pop(done.handle, None)

    def _write(self, done: _Done) -> None:
        data = done.call.data[: done.written]
        self._add(Effect("bytes", done.place, self._held[done.handle], done.offset, data, time=done.time))

    def _truncate(self, done: _Done) -> None:
        self._add(Effect("size", done.place, self._held[done.handle], done.call.size, time=done.time))

    def _fsync(self, done: _Done) -> None:
        self._add(Effect("sync", done.place, self._held[done.handle]))

    def _rename(self, done: _Done) -> None:
        number = self._now.number(done.call.path)
        assert number is not None, done
        self._name(done, (*self._now.at(done.call.path), None), (*self._now.at(done.call.to), number))

    def _link(self, done: _Done) -> None:
        self._name(done, (*self._now.at(done.call.to), self._now.number(done.call.path)))

    def _unlink(self, done: _Done) -> None:
        self._name(done, (*self._now.at(done.call.path), None))

    _rmdir = _unlink

    def _mkdir(self, done: _Done) -> None:
        number = max(self._now.files) + 1
        self._now.files[number] = None
        self._name(done, (*self._now.at(done.call.path), number), file=FOLDER)

    def _sqlite(self, done: _Done) -> None:
        path, number = self.root / done.call.path, self._now.number(done.call.path)
        data = path.read_bytes() if path.is_file() else b""
        assert number is not None, done
        if data != (self._now.files[number] or File()).data and not path.with_name(f"{path.name}-journal").exists():
            self._add(Effect("whole", done.place, number, data=data, time=path.stat().st_mtime_ns))

    def _name(self, done: _Done, *edits: Edit, file: int = 0) -> None:
        self._add(Effect("names", done.place, file, edits=edits))


# -- cuts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """A power cut: after how many effects, what of the pending ones has arrived, and the disk that is left."""

    after: int
    way: str
    disk: Disk


@dataclass(frozen=True, slots=True)
class Recording:
    """The effects of a life on a disk."""

    before: Disk
    effects: tuple[Effect, ...]

    def marks(self, after: int) -> list[Any]:
        """What was known outside after so many effects."""
        return [effect.mark for effect in self.effects[:after] if effect.kind == "mark"]

    def pending(self, after: int) -> list[int]:
        """The effects that no sync has made last yet."""
        return _pending(self.effects[:after])

    def moments(self, size: int) -> list[int]:
        """After which effects to cut: of calls of one place at most `size`, spread evenly; all of them with 0."""
        by_place: dict[str, list[int]] = {}
        for number, effect in enumerate(self.effects, 1):
            by_place.setdefault(f"{effect.kind}:{alike(effect.place)}", []).append(number)
        return sorted(number for found in by_place.values() for number in spread(found, size))

    def cuts(self, after: int, width: int) -> Iterator[Cut]:
        """What the disk may hold when the power goes after so many effects; of the newest `width` each on its own."""
        pending = self.pending(after)
        names = [n for n in pending if self.effects[n].is_names]
        data = [n for n in pending if not self.effects[n].is_names]
        lasting = self._on(after, set(pending))
        yield Cut(after, "all", self._on(after, set()))
        yield Cut(after, "nothing unsynced", lasting)
        if not pending:
            return
        yield Cut(after, "names alone", self._on(after, set(data)))
        blank = {n for n in data if self.effects[n].kind != "whole"}
        yield Cut(after, "names and zeros", self._on(after, set(), zeros=blank))
        yield Cut(after, "bytes alone", self._on(after, set(names)))
        last = pending[-1]
        torn = self.effects[last]
        if last == after - 1 and torn.kind == "bytes":
            for part in sorted({1, len(torn.data) // 2, len(torn.data) - 1} - {0, len(torn.data)}):
                half = {last: replace(torn, data=torn.data[:part])}
                yield Cut(after, f"torn after {part}", self._on(after, set(), instead=half))
        for one in pending[-width:] if width else ():
            yield Cut(after, f"all but {one}", self._on(after, {one}))
            yield Cut(after, f"{one} alone", self._on(after, set(pending) - {one}))

    def _fresh(self) -> Disk:
        disk = self.before.copy()
        for effect in self.effects:
            if effect.kind == "names" and effect.file == FOLDER:
                number = effect.edits[0][2]
                assert number is not None
                disk.files[number] = None
        return disk

    def _on(
        self, after: int, without: set[int], *, zeros: Iterable[int] = (), instead: Mapping[int, Effect] | None = None
    ) -> Disk:
        """The disk with all effects so far but some, in the order in which they were made."""
        disk, blank, other = self._fresh(), set(zeros), instead or {}
        for number, effect in enumerate(self.effects[:after]):
            if number not in without:
                disk.apply(other.get(number, effect), zeros=number in blank)
        return disk


def _pending(effects: Sequence[Effect]) -> list[int]:
    synced: set[int] = set()
    later: set[int] = set()
    found = []
    for number in range(len(effects) - 1, -1, -1):
        effect = effects[number]
        if effect.kind == "sync":
            synced.add(effect.file)
        elif effect.kind == "names":
            if not any(folder in synced for folder, _, _ in effect.edits):
                found.append(number)
        elif effect.kind == "whole":  # the next statement finds the one before on the disk
            if effect.file not in synced | later:
                found.append(number)
            later.add(effect.file)
        elif effect.kind in ("bytes", "size") and effect.file not in synced:
            found.append(number)
    return found[::-1]


def spread(found: Sequence[T], size: int) -> list[T]:
    """At most `size` of them, the first and the last among them, the others evenly between; all of them with 0."""
    if size == 0 or len(found) <= size:
        return list(found)
    last = len(found) - 1
    return [found[round(i * last / (size - 1))] for i in range(size)] if size > 1 else [found[-1]]


def alike(place: str) -> str:
    """A place without what makes each name of its kind another one: random letters and numbers."""
    return "".join("#" if letter.isdigit() else letter for letter in place)


def explore(
    recording: Recording,
    *,
    size: int,
    width: int,
    survives: Callable[[Cut, list[Any]], None],
    most: int = 0,
    part: tuple[int, int] = (0, 1),
) -> Iterator[tuple[Cut, str]]:
    """Every different disk that cuts can leave, each with what was wrong after it; '' where all was well.

    `most` bounds how many are tried, spread evenly over them; 0 is no bound. `part` is (i, n): the i-th of n parts.
    """
    known: dict[bytes, Cut] = {}
    for after in recording.moments(size):
        for cut in recording.cuts(after, width):
            known[cut.disk.digest()] = cut  # of equal disks the latest: the most is known of it outside
    for cut in spread(sorted(known.values(), key=lambda cut: cut.after), most)[part[0] :: part[1]]:
        try:
            survives(cut, recording.marks(cut.after))
        except AssertionError as problem:
            yield cut, str(problem) or "?"
        else:
            yield cut, ""
