"""What makes files outlive a power cut: the one place where bytes and names are brought to the disk.

A file system may keep a new name and lose the bytes behind it, or keep the bytes and lose the name. So what must last
is written in this order: the bytes under another name, synced; the name put in place; the folder of the name synced.
A module of its own, below `owner_only` and `operating_system`: both build on it, and neither may import the other.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

# Windows refuses to replace a file while somebody reads it, which here takes milliseconds; other systems do not mind.
_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if os.name == "nt" else ()
_NO_SUCH_CALL = (errno.EINVAL, getattr(errno, "ENOTSUP", errno.EINVAL), errno.ENOSYS)


def sync_file(path: Path) -> None:
    """Returns once the bytes of a file are on the disk."""
    handle = os.open(path, (os.O_RDWR | getattr(os, "O_BINARY", 0)) if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Returns once the names in a folder are on the disk, where the system can say so (Windows has no such call)."""
    if os.name == "nt":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # whoever may write into a folder need not be allowed to read it
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:  # some disks, mostly far away ones, know this call for files alone
            raise
    finally:
        os.close(handle)


def make_folders(folder: Path) -> None:
    """Makes a folder and the missing ones above it, for good."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        sync_folder(place.parent)


def put_in_place(draft: Path, target: Path) -> None:
    """Puts one file or folder in the place of another, at once or not at all, as soon as the system lets us."""
    for pause in _PAUSES:
        try:
            draft.replace(target)
            return
        except PermissionError:
            time.sleep(pause)
    draft.replace(target)


def put_for_good(draft: Path, target: Path) -> None:
    """Puts a file, or a folder of files, in its place; it is there for good, whole, when this returns."""
    if draft.is_dir():
        for path in draft.iterdir():
            if path.is_file():
                sync_file(path)
        sync_folder(draft)
    else:
        sync_file(draft)
    put_in_place(draft, target)
    sync_folder(target.parent)
