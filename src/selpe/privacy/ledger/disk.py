"""The few file operations a journal needs, each one a place where a process can die."""

from __future__ import annotations

import os
from pathlib import Path

from selpe.lasting import put_in_place
from selpe.owner_only import open_owned

_BINARY = getattr(os, "O_BINARY", 0)


class Disk:
    """Plain durable file operations. Tests replace single methods to die, or to run out of space, in the middle."""

    def append(self, path: Path, data: bytes) -> None:
        """Adds bytes at the end of a file, creating it if need be, and returns once they are on the disk."""
        handle = open_owned(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY)
        try:
            self.write(handle, data)
            self.sync(handle)
        finally:
            os.close(handle)

    def overwrite(self, path: Path, data: bytes) -> None:
        """Writes a whole file anew and returns once it is on the disk; not atomic."""
        handle = open_owned(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | _BINARY)
        try:
            self.write(handle, data)
            self.sync(handle)
        finally:
            os.close(handle)

    def truncate(self, path: Path, size: int) -> None:
        """Cuts a file to its first `size` bytes, durably."""
        handle = os.open(path, os.O_WRONLY | _BINARY)
        try:
            os.ftruncate(handle, size)
            self.sync(handle)
        finally:
            os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        """Puts one file in the place of another, at once or not at all."""
        put_in_place(source, target)

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in a folder durable, where the system can (Windows needs no such call)."""
        if os.name == "nt":
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            self.sync(handle)
        finally:
            os.close(handle)

    def write(self, handle: int, data: bytes) -> None:
        """Writes all the bytes; the system may take them in pieces."""
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]

    def sync(self, handle: int) -> None:
        """Returns once the system says that the bytes are on the disk."""
        os.fsync(handle)
