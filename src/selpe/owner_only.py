"""Files and folders that their owner alone can read and write, whatever the umask says.

Beside its release a run keeps what was computed from private rows, or what would help to undo the noise. A new file has
the rights that the process's umask leaves it, on most systems the right of every user of the machine to read it. The
umask is no way out: it belongs to the whole process, and the library works inside other people's programs and between
their threads. So whatever is written for the owner is opened here, with its rights from the first byte on.

Systems without such rights, such as Windows, are asked for nothing.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal, TextIO, cast

from selpe.lasting import put_for_good, sync_file, sync_folder

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_SHARED_FOLDER, _SHARED_FILE = 0o755, 0o644
_OTHERS = 0o077


def make_folder(path: Path, *, new: bool = False) -> None:
    """Makes a folder for the owner alone, and the missing ones above it, for good. One that is there stays as it is.

    With `new` it must not be there yet: FileExistsError.
    """
    missing = [path] if new else []
    missing += [folder for folder in (path, *path.parents) if folder not in missing and not folder.exists()]
    if not missing and not path.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            if new and folder == path:
                raise
        else:
            folder.chmod(FOLDER_MODE)  # a umask can take rights from the owner, too
            sync_folder(folder.parent)


def open_owned(path: str | os.PathLike[str], flags: int) -> int:
    """An open file of the owner alone; one that is there loses the rights of others before a byte is written.

    Fit to be the `opener` of `open`. Devices and pipes keep their rights.
    """
    found = os.open(path, flags, FILE_MODE)
    if hasattr(os, "fchmod"):
        mode = os.fstat(found).st_mode
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) != FILE_MODE:
            with suppress(PermissionError):  # a file of somebody else, or a disk that knows no rights
                os.fchmod(found, FILE_MODE)
    return found


def open_text(path: Path, mode: Literal["w", "x", "a"] = "w", *, newline: str | None = None) -> TextIO:
    """A text file in UTF-8, of the owner alone."""
    return cast(TextIO, open(path, mode, encoding="utf-8", newline=newline, opener=open_owned))


def open_bytes(path: Path, mode: Literal["wb", "xb", "ab"] = "wb") -> BinaryIO:
    """A file of bytes, of the owner alone."""
    return cast(BinaryIO, open(path, mode, opener=open_owned))


def write_text(path: Path, text: str) -> None:
    """Writes a text file of the owner alone."""
    with open_text(path) as file:
        file.write(text)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file of the owner alone."""
    with open_bytes(path) as file:
        file.write(content)


def write_whole(path: Path, text: str) -> None:
    """Writes a text file of the owner alone: at once or not at all, and for good."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        write_text(draft, text)
        put_for_good(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def claim(path: Path) -> None:
    """Makes sure that a file is there and is the owner's alone, for a library that will open it by its name."""
    os.close(open_owned(path, os.O_WRONLY | os.O_CREAT))


def copy(source: Path, target: Path) -> None:
    """Copies a file's bytes into a file of the owner alone, for good."""
    claim(target)
    shutil.copyfile(source, target)
    sync_file(target)
    sync_folder(target.parent)


def tighten(folder: Path, *, keep: str = "") -> None:
    """Takes the rights of others from a folder and all that lies in it, but for the part named `keep`.

    Folders of earlier versions have them. Links are left alone, and so is what belongs to somebody else.
    """
    for place, folders, files in os.walk(folder):
        if keep in folders:
            folders.remove(keep)
        for path in (Path(place), *(found for name in files if not (found := Path(place, name)).is_symlink())):
            with suppress(OSError):
                if (mode := stat.S_IMODE(path.stat().st_mode)) & _OTHERS:
                    path.chmod(mode & ~_OTHERS)


def share(folder: Path) -> None:
    """Lets others read a folder of files as far as the folders above it let them: for what is made to be released."""
    for path in folder.iterdir():
        path.chmod(_SHARED_FILE)
    folder.chmod(_SHARED_FOLDER)
