"""Every call by which Python reads or changes files below a folder, shown to whoever asks: to record it, or to fail it.

The functions of `os` are replaced for the time of a `with`, and so is `open`, whose files then go through the replaced
`os.open` and `os.write`. SQLite makes its calls in C: each of its statements counts as one call. Python 3.10 is not
supported: its pathlib keeps copies of these functions.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import selpe

SOURCE = str(Path(selpe.__file__).parent)
CHANGING = ("create", "write", "fsync", "truncate", "rename", "link", "unlink", "mkdir", "rmdir", "chmod", "sqlite")
LOOKING = ("open", "read", "list", "stat", "close")
SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Call:
    """A call on a file or folder below the watched one. `path` and `to` are relative to it; `number` is a handle."""

    kind: str
    path: str
    to: str = ""
    number: int = -1
    size: int = 0
    flags: int = 0
    data: bytes = b""

    @property
    def place(self) -> str:
        """Where in the product the call was made, and on what: calls of one place are alike."""
        frame: Any = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(SOURCE):
            frame = frame.f_back
        at = "?" if frame is None else f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
        return f"{at}:{self.kind}:{self.to or self.path}"


class Doing(Protocol):
    """Does a call; of a write or a read at most `limit` bytes."""

    def __call__(self, limit: int | None = None) -> Any: ...


Seen = Callable[[Call, Doing], Any]


class Watched:
    """The calls below a folder, each handed to `seen` with the means to do it."""

    def __init__(self, root: Path, seen: Seen) -> None:
        self.root = os.path.realpath(root)
        self._seen = seen
        self._paths: dict[int, str] = {}
        self._lock = threading.RLock()
        self._real = {name: getattr(os, name) for name in _REPLACED}
        self._open = builtins.open
        self._busy = threading.local()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches for the time of a `with`."""
        kept = [(os, name, real) for name, real in self._real.items()]
        kept += [(builtins, "open", builtins.open), (io, "open", io.open), (sqlite3, "connect", sqlite3.connect)]
        kept += [(shutil, "_USE_CP_SENDFILE", getattr(shutil, "_USE_CP_SENDFILE", False))]
        try:
            for name in _REPLACED:
                setattr(os, name, getattr(self, f"os_{name}"))
            builtins.open = io.open = self._opened
            sqlite3.connect = self._connected  # type: ignore[assignment]
            shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
            yield
        finally:
            for owner, name, real in kept:
                setattr(owner, name, real)

    def inside(self, path: Any, dir_fd: int | None = None) -> str | None:
        """A path relative to the watched folder, or None where it lies elsewhere."""
        if isinstance(path, int):
            return self._paths.get(path)
        text = os.fsdecode(path)
        if dir_fd is not None:
            if (base := self._paths.get(dir_fd)) is None:
                return None
            text = f"{self.root}/{base}/{text}"
        whole = os.path.normpath(text if text.startswith("/") else f"{Path.cwd()}/{text}")
        if whole == self.root:
            return "."
        return whole[len(self.root) + 1 :] if whole.startswith(self.root + "/") else None

    def real(self, name: str) -> Any:
        """The function of `os` itself."""
        return self._real[name]

    def _ask(self, call: Call, do: Doing) -> Any:
        if getattr(self._busy, "now", False):
            return do()
        with self._lock:
            self._busy.now = True
            try:
                return self._seen(call, do)
            finally:
                self._busy.now = False

    def _plain(self, kind: str, name: str, path: Any, rest: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """A call that names one path."""
        here = self.inside(path, more.get("dir_fd"))
        if here is None:
            return self._real[name](path, *rest, **more)
        size = rest[0] if kind == "truncate" else 0
        number = path if isinstance(path, int) else -1
        return self._ask(
            Call(kind, here, number=number, size=size), lambda limit=None: self._real[name](path, *rest, **more)
        )

    # -- the functions of os ------------------------------------------------------------------------------------------

    def _really_open(self, path: Any, flags: int, mode: int, dir_fd: int | None) -> int:
        found: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        return found

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        here = self.inside(path, dir_fd)
        if here is None:
            return self._really_open(path, flags, mode, dir_fd)
        kind = "create" if flags & (os.O_CREAT | os.O_TRUNC) else "open"
        call = Call(kind, here, flags=flags)
        found: int = self._ask(call, lambda limit=None: self._really_open(path, flags, mode, dir_fd))
        self._paths[found] = here
        return found

    def os_close(self, number: int) -> None:
        here = self._paths.pop(number, None)
        if here is None:
            self._real["close"](number)
        else:
            self._ask(Call("close", here, number=number), lambda limit=None: self._real["close"](number))

    def os_write(self, number: int, data: Any) -> int:
        if (here := self._paths.get(number)) is None:
            return int(self._real["write"](number, data))
        raw = bytes(data)
        call = Call("write", here, number=number, data=raw)
        return int(self._ask(call, lambda limit=None: self._real["write"](number, raw[:limit])))

    def os_read(self, number: int, size: int) -> bytes:
        if (here := self._paths.get(number)) is None:
            return bytes(self._real["read"](number, size))
        call = Call("read", here, number=number, size=size)
        found = self._ask(call, lambda limit=None: self._real["read"](number, size if limit is None else limit))
        return bytes(found)

    def os_fsync(self, number: int) -> None:
        self._plain("fsync", "fsync", number, (), {})

    def os_ftruncate(self, number: int, size: int) -> None:
        self._plain("truncate", "ftruncate", number, (size,), {})

    def os_fchmod(self, number: int, mode: int) -> None:
        self._plain("chmod", "fchmod", number, (mode,), {})

    def os_chmod(self, path: Any, mode: int, **more: Any) -> None:
        self._plain("chmod", "chmod", path, (mode,), more)

    def os_unlink(self, path: Any, **more: Any) -> None:
        self._plain("unlink", "unlink", path, (), more)

    os_remove = os_unlink

    def os_mkdir(self, path: Any, mode: int = 0o777, **more: Any) -> None:
        self._plain("mkdir", "mkdir", path, (mode,), more)

    def os_rmdir(self, path: Any, **more: Any) -> None:
        self._plain("rmdir", "rmdir", path, (), more)

    def os_stat(self, path: Any, **more: Any) -> os.stat_result:
        found: os.stat_result = self._plain("stat", "stat", path, (), more)
        return found

    def os_lstat(self, path: Any, **more: Any) -> os.stat_result:
        found: os.stat_result = self._plain("stat", "lstat", path, (), more)
        return found

    def os_scandir(self, path: Any = ".") -> Any:
        return self._plain("list", "scandir", path, (), {})

    def os_listdir(self, path: Any = ".") -> Any:
        return self._plain("list", "listdir", path, (), {})

    def _two(self, kind: str, name: str, source: Any, target: Any, more: dict[str, Any]) -> None:
        here, there = self.inside(source), self.inside(target)
        if here is None and there is None:
            self._real[name](source, target, **more)
        else:
            self._ask(Call(kind, here or "", there or ""), lambda limit=None: self._real[name](source, target, **more))

    def os_replace(self, source: Any, target: Any, **more: Any) -> None:
        self._two("rename", "replace", source, target, more)

    def os_rename(self, source: Any, target: Any, **more: Any) -> None:
        self._two("rename", "rename", source, target, more)

    def os_link(self, source: Any, target: Any, **more: Any) -> None:
        self._two("link", "link", source, target, more)

    # -- open, and SQLite ---------------------------------------------------------------------------------------------

    def _opened(  # noqa: PLR0917
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        """`open`, built from the same parts around a file whose writes are seen."""
        if self.inside(file) is None or getattr(self._busy, "now", False):
            return self._open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Raw(self, file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering in (-1, 1) else buffering
        if "+" in mode:
            whole: Any = io.BufferedRandom(raw, size)
        else:
            whole = io.BufferedReader(raw, size) if "r" in mode else io.BufferedWriter(raw, size)
        if "b" in mode:
            return whole
        text = io.TextIOWrapper(whole, encoding or "locale", errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    def _connected(self, path: Any, **more: Any) -> sqlite3.Connection:
        found = self.inside(path)
        if found is None:
            return sqlite3.Connection(path, **more)
        watched, here = self, found

        class Connection(sqlite3.Connection):
            def execute(self, *words: Any) -> sqlite3.Cursor:
                found = watched._ask(Call(SQLITE, here), lambda limit=None: sqlite3.Connection.execute(self, *words))
                return found  # type: ignore[no-any-return]

            def executemany(self, *words: Any) -> sqlite3.Cursor:
                found = watched._ask(
                    Call(SQLITE, here), lambda limit=None: sqlite3.Connection.executemany(self, *words)
                )
                return found  # type: ignore[no-any-return]

            def __exit__(self, *words: Any) -> Any:
                return watched._ask(Call(SQLITE, here), lambda limit=None: sqlite3.Connection.__exit__(self, *words))

        return Connection(path, **more)


_REPLACED = (
    "open", "close", "write", "read", "fsync", "ftruncate", "fchmod", "chmod", "unlink", "remove", "mkdir", "rmdir",
    "stat", "lstat", "scandir", "listdir", "replace", "rename", "link",
)  # fmt: skip


class _Raw(io.FileIO):
    """A file whose opening, reads, writes and end are seen."""

    def __init__(self, watched: Watched, file: Any, mode: str, closefd: bool, opener: Any) -> None:
        self._watched, self._left = watched, not closefd
        super().__init__(file, mode, closefd, opener or (lambda path, flags: os.open(path, flags, 0o666)))

    def write(self, data: Any) -> int:
        return os.write(self.fileno(), data)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self.fileno(), size)
        return size

    def readinto(self, buffer: Any) -> int:
        number = self.fileno()
        call = Call("read", self._watched._paths.get(number, ""), number=number, size=len(buffer))
        view = memoryview(buffer)
        found = self._watched._ask(call, lambda limit=None: super(_Raw, self).readinto(view[:limit]))
        return int(found)

    def readall(self) -> bytes:
        number = self.fileno()
        call = Call("read", self._watched._paths.get(number, ""), number=number)
        found = self._watched._ask(call, lambda limit=None: super(_Raw, self).readall())
        return bytes(found)

    def close(self) -> None:
        if self.closed or self._left:
            super().close()
            return
        number = self.fileno()
        here = self._watched._paths.pop(number, "")
        self._watched._ask(Call("close", here, number=number), lambda limit=None: super(_Raw, self).close())
