"""Files kept by their SHA-256: each content once, read-only, shown under any number of names by hard links."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selpe.lasting import make_folders, put_in_place, sync_file, sync_folder
from selpe.models.store.download import CHUNK, SourceError
from selpe.owner_only import write_whole


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Blobs:
    """The files of a store."""

    root: Path

    def path(self, sha256: str) -> Path:
        """Where the file of that hash lies, whether it is there or not."""
        return self.root / "blobs" / sha256

    def part(self, key: str) -> Path:
        """Where a file under way collects its bytes."""
        return self.root / "partial" / f"{key}.part"

    def make_folders(self) -> None:
        """Makes the folders that a fetch writes to."""
        for name in ("blobs", "partial"):
            make_folders(self.root / name)

    def accept(self, part: Path, sha256: str) -> str:
        """The hash of a finished part, which is a blob from now on. A part of another hash is deleted instead."""
        found = sha256_of(part)
        if sha256 and found != sha256:
            part.unlink()
            raise SourceError("the file handed over has another hash than the pinned one; it was thrown away")
        sync_file(part)
        part.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        put_in_place(part, self.path(found))
        sync_folder(self.root / "blobs")
        return found

    def whole(self, sha256: str) -> bool:
        """True when the file of that hash is here and still has it; a damaged one is deleted."""
        blob = self.path(sha256)
        if not blob.exists():
            return False
        if sha256_of(blob) == sha256:
            return True
        self.delete(sha256)
        return False

    def link(self, sha256: str, name: Path) -> None:
        """Shows a blob under another name: a hard link, or a copy where the file system has none."""
        blob = self.path(sha256)
        if name.exists() and name.samefile(blob):
            return
        make_folders(name.parent)
        new = name.with_name(f"{name.name}.new-{os.getpid()}")
        new.unlink(missing_ok=True)
        try:
            os.link(blob, new)
        except OSError:
            shutil.copy2(blob, new)
            sync_file(new)
        unlink(name)
        new.replace(name)
        sync_folder(name.parent)

    def delete(self, sha256: str) -> None:
        """Deletes the file of that hash."""
        unlink(self.path(sha256))


def unlink(path: Path) -> None:
    """Deletes a file, also a read-only one on Windows, also one that is not there."""
    with suppress(FileNotFoundError):
        if os.name == "nt":
            path.chmod(stat.S_IWRITE)
        path.unlink()


def bytes_under(folder: Path) -> int:
    """The bytes that a folder takes, each file counted once however many names it has.

    Others may be at work in it: what goes away between the listing and the look is not counted.
    """
    seen: dict[tuple[int, int], int] = {}
    for place, _, names in os.walk(folder):  # not `rglob`, which fails where a folder goes away
        for name in names:
            with suppress(OSError):
                info = Path(place, name).stat()
                seen[(info.st_dev, info.st_ino)] = info.st_size
    return sum(seen.values())


def write_json(path: Path, value: Any) -> None:
    """Writes a small JSON file so that a reader sees the old one or the new one, never half of it."""
    make_folders(path.parent)
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False))


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None when there is no such file or no object in it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
