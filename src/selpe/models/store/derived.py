"""What an engine has made from weights, known again by its hashes: an engine executes that, not the file it came from.

Of its own, since the engine that makes such a folder and the store that verifies it must not know each other. The list
of hashes lies in the folder. It tells damage, and changes by whoever did not think of the list; who may write there may
rewrite both, and then only a new conversion helps (`selpe models rm`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from selpe.models.store.blobs import read_json, sha256_of, write_json

LISTING = "hashes.json"


def record(folder: Path) -> None:
    """Keeps the hash of every file in a folder that an engine has just filled."""
    write_json(folder / LISTING, {name: _stamped(path, sha256_of(path)) for name, path in _files(folder).items()})


def changed(folder: Path, *, thorough: bool = False) -> str:
    """The first file that is not as it was recorded, or not there, or new; '' where all is as it was made.

    A file is hashed again where its size or time is another one, and with `thorough` in any case.
    """
    listing = read_json(folder / LISTING)
    if not listing:
        return LISTING
    files, again = _files(folder), False
    for name in sorted(listing.keys() | files.keys()):
        known, path = listing.get(name), files.get(name)
        if path is None or not isinstance(known, dict):
            return name
        same = not thorough and known == _stamped(path, known.get("sha256"))
        if not same and sha256_of(path) != known.get("sha256"):
            return name
        again |= not same
    if again:
        with suppress(OSError):  # a folder that can only be read costs the same look next time
            record(folder)
    return ""


def is_recorded(folder: Path) -> bool:
    """Whether a folder has such a list. Without one, nothing in it is executed."""
    return (folder / LISTING).is_file()


def _files(folder: Path) -> dict[str, Path]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in found if path != folder / LISTING}


def _stamped(path: Path, sha256: Any) -> dict[str, Any]:
    now = path.stat()
    return {"sha256": sha256, "size": now.st_size, "mtime_ns": now.st_mtime_ns}
