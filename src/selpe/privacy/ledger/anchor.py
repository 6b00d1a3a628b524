"""How far a ledger had come, noted beside the owner's key: an older copy put in its place is noticed.

A ledger's own files cannot tell that all of them were put back together. The note lies elsewhere, with the key, and
only ever moves on. Whoever can write there, too, can put back both: a backup of the whole machine is not noticed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selpe.owner_only import make_folder
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.key import Key, key_path


@dataclass(frozen=True, slots=True)
class Mark:
    """The last line that was acknowledged, and the first one, by which a ledger is known."""

    first: str
    seq: int
    sum: str


class Anchor:
    """The note about the ledger in one folder."""

    def __init__(self, folder: Path, key: Key, *, disk: Disk | None = None, lasting: bool = False) -> None:
        self._folder = str(folder.resolve())
        self._key, self._lasting = key, lasting
        self._disk = disk or Disk()
        self._path = anchors_folder() / f"{hashlib.sha256(self._folder.encode()).hexdigest()[:32]}.json"

    def read(self) -> Mark | None:
        """What was noted; None where nothing was, or where the note is not ours."""
        try:
            content = json.loads(self._path.read_bytes())
            mark = Mark(str(content["first"]), int(content["seq"]), str(content["sum"]))
            return mark if hmac.compare_digest(str(content["mac"]), self._seal(mark)) else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def forget(self) -> None:
        """Removes the note: another ledger begins in its place."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def move(self, mark: Mark) -> None:
        """Notes how far the ledger has come. What cannot be written is not noted: the ledger itself is on the disk."""
        content: dict[str, Any] = {"ledger": self._folder, "first": mark.first, "seq": mark.seq, "sum": mark.sum}
        content |= {"lasting": self._lasting}
        draft = self._path.with_suffix(".new")
        try:
            make_folder(self._path.parent)
            self._disk.overwrite(draft, json.dumps({**content, "mac": self._seal(mark)}).encode())
            self._disk.replace(draft, self._path)
        except OSError:
            return

    def _seal(self, mark: Mark) -> str:
        text = f"{self._folder}\n{mark.first}\n{mark.seq}\n{mark.sum}"
        return hmac.new(self._key.derive("ledger anchor"), text.encode(), hashlib.sha256).hexdigest()


def anchors_folder() -> Path:
    """Where the notes of all ledgers of the key lie."""
    return key_path().with_suffix(".anchors")


def known_ledgers() -> list[Path]:
    """The folders of all lasting ledgers that were ever written under the key, as far as noted and still there."""
    found = []
    for path in sorted(anchors_folder().glob("*.json")) if anchors_folder().is_dir() else []:
        try:
            content = json.loads(path.read_bytes())
            folder, lasting = Path(content["ledger"]), content["lasting"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if lasting and (folder / "ledger.jsonl").is_file():
            found.append(folder)
    return found
