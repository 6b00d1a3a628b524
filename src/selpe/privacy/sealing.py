"""The seal of a release: which bytes a run has released, bound to the ledger and signed with the owner's key.

A seal names every file by its SHA-256, the run's line in the ledger and the charges behind it. It is kept in the
manifest and beside the files (`seal.json`), and the ledger has a line with the same hashes. A release is taken only
where all three agree with the bytes on the disk. Nothing here seals what it finds: only a run that writes its release
does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from selpe.errors import PrivacyError
from selpe.privacy.ledger import Ledger, ledger_root
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.ledger.journal import canonical
from selpe.privacy.ledger.key import Key, find_key

FORMAT = "selpe-seal/1"
SEAL = "seal.json"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Seal:
    """What a run has released. Fit to publish: nothing in it is computed from private rows.

    That is why charges and releases are counted by themselves (the third charge of the ledger) and not by the numbers
    of their lines: the ledger has a line more where a table has changed, so those numbers would tell whether it has.
    And it is why the ledger's own checksums are not released: they run over the fingerprints of tables.
    """

    dataset: str
    run: str
    files: Mapping[str, str]
    release: int  # which of the ledger's releases it is, from 1
    charges: tuple[int, ...]  # which of the ledger's charges are this run's, from 1
    digest: str  # of those charges as the card tells them
    key: str
    mac: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The seal as plain data. With `sum` anybody notices damage; `mac`, which takes the key, proves something."""
        said = {**self._content(), "mac": self.mac}
        return {**said, "sum": hashlib.sha256(canonical(said).encode()).hexdigest()}

    def to_bytes(self) -> bytes:
        """The seal as its file holds it."""
        return (json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n").encode()

    @classmethod
    def from_dict(cls, content: Any, *, where: str = SEAL) -> Seal:
        """The seal that plain data states; raises PrivacyError where it is not exactly one."""
        try:
            names = ("dataset", "run", "files", "key", "mac")
            told = {name: content[name] for name in names}
            ledger = content["ledger"]
            seal = cls(**told, release=ledger["release"], charges=tuple(ledger["charges"]), digest=ledger["digest"])
            texts = (seal.dataset, seal.run, seal.digest, seal.key, seal.mac, *seal.files, *seal.files.values())
            numbers = (seal.release, *seal.charges)
            whole = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
            if not whole or seal.to_dict() != content:
                raise ValueError
        except (LookupError, TypeError, ValueError, AttributeError):
            raise PrivacyError("this is not the seal of a release, or it was changed", where=where) from None
        return seal

    def signed(self, key: Key) -> Seal:
        """The seal under a key."""
        return replace(self, key=key.id, mac=replace(self, key=key.id)._mac(key))

    def require_signed_by(self, key: Key | None) -> None:
        """Raises PrivacyError unless this key has signed it."""
        if key is None or key.id != self.key:
            here = "is not here" if key is None else f"is not the one here (id {key.id})"
            raise PrivacyError(
                f"the seal cannot be checked: the owner's key that made it (id {self.key}) {here}",
                where=self.run,
                hint="restore the key file (docs/budget.md)",
            )
        if not hmac.compare_digest(self.mac, self._mac(key)):
            raise PrivacyError("the seal was changed after the run", where=self.run, hint=_FROM_BACKUP)

    def _content(self) -> dict[str, Any]:
        ledger = {"release": self.release, "charges": list(self.charges), "digest": self.digest}
        said = {"format": FORMAT, "dataset": self.dataset, "run": self.run, "files": dict(self.files)}
        return {**said, "ledger": ledger, "key": self.key}

    def _mac(self, key: Key) -> str:
        content = canonical(self._content()).encode()
        return hmac.new(key.derive("release seal"), content, hashlib.sha256).hexdigest()


_FROM_BACKUP = "put the run's manifest and its ledger back from a backup, or make the table with a new run"


# -- charges as a card tells them -------------------------------------------------------------------------------------


def told_charges(charges: Iterable[Charge], run: str) -> list[dict[str, Any]]:
    """A run's charges as its card tells them; `number` counts all charges of the ledger, from 1."""
    return [{"number": number, **_told(charge)} for number, charge in enumerate(charges, 1) if charge.run == run]


def digest_of(told: Iterable[Mapping[str, Any]]) -> str:
    """The SHA-256 of charges as a card tells them, the same on every machine."""
    return hashlib.sha256(canonical(list(told)).encode()).hexdigest()


def _told(charge: Charge) -> dict[str, Any]:
    return {
        "selection": charge.selection,
        "mechanism": charge.mechanism,
        "epsilon_replace_one": _number(charge.epsilon_replace_one),
        "epsilon_add_remove": _number(charge.epsilon_add_remove),
        "delta": charge.delta,
    }


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else "inf"


# -- sealing and proving ----------------------------------------------------------------------------------------------


def seal_release(ledger: Ledger, run: str, files: Mapping[str, str]) -> Seal:
    """The seal of a run's files, after the ledger has their hashes on the disk. The same again for the same files."""
    ledger.record_release(run, files)
    key = find_key()
    if key is None:
        raise PrivacyError("the owner's key has vanished, so the release cannot be sealed", where=run)
    told = told_charges(ledger.charges(), run)
    numbers = tuple(charge["number"] for charge in told)
    seal = Seal(ledger.dataset, run, dict(files), _release_number(ledger, run), numbers, digest_of(told), key.id)
    return seal.signed(key)


def require_in_ledger(seal: Seal, ledger: Ledger, key: Key | None) -> None:
    """Raises PrivacyError unless the ledger, under this key, has the release and the charges that a seal names."""
    # The last line's seal covers the whole chain before it, so a ledger whose end is ours is ours.
    if key is None or ledger.read().sealed_by != key.id:
        raise PrivacyError(
            "the ledger is not sealed with the key that is here", where=ledger.dataset, hint=_FROM_BACKUP
        )
    entry = ledger.released(seal.run)
    if entry is None or ledger.dataset != seal.dataset:
        raise PrivacyError("the ledger has no such release", where=seal.run, hint=_FROM_BACKUP)
    if entry.data["files"] != dict(seal.files) or _release_number(ledger, seal.run) != seal.release:
        raise PrivacyError("the ledger knows this release with other files", where=seal.run, hint=_FROM_BACKUP)
    told = told_charges(ledger.charges(), seal.run)
    if digest_of(told) != seal.digest or tuple(charge["number"] for charge in told) != seal.charges:
        raise PrivacyError("the ledger has other charges of this run than its seal", where=seal.run, hint=_FROM_BACKUP)


def proved_seal(manifest: Mapping[str, Any]) -> Seal:
    """The seal in a run's manifest, signed by the owner's key and known to the ledger; raises PrivacyError else."""
    name = str(manifest.get("name", ""))
    if manifest.get("seal") is None:
        raise PrivacyError(
            "this run has no seal: an earlier version has made it, or its manifest was changed",
            where=name,
            hint="nothing can vouch for its release any more; make the table with a new run",
        )
    seal = Seal.from_dict(manifest["seal"], where="manifest.json")
    if seal.run != name:
        raise PrivacyError("the seal in the manifest is that of another run", where=name, hint=_FROM_BACKUP)
    key = find_key()
    seal.require_signed_by(key)
    root = Path(str(manifest.get("ledger") or ledger_root()))
    require_in_ledger(seal, Ledger.open(str(manifest["settings"].get("dataset")), root=root), key)
    return seal


def require_whole(release: Path, manifest: Mapping[str, Any]) -> Seal:
    """The seal of a finished run whose release folder is, to the byte, what the run wrote; raises PrivacyError else."""
    seal = proved_seal(manifest)
    if release.is_symlink() or not release.is_dir():
        raise PrivacyError("there is no release folder", where=str(release), hint=again(release.parent, moved=True))
    with os.scandir(release) as found:
        plain = {entry.name: entry.is_file(follow_symlinks=False) for entry in found}
    if strange := sorted(name for name, file in plain.items() if not file or name not in (*seal.files, SEAL)):
        raise _changed(release, strange[0], "does not belong there")
    for name in (*seal.files, SEAL):
        if name not in plain:
            raise _changed(release, name, "is missing")
    require_bytes(seal, {name: file_sum(release / name) for name in plain}, release)
    return seal


def require_bytes(seal: Seal, sums: Mapping[str, str], release: Path) -> None:
    """Raises PrivacyError, with the file's name, unless these hashes are those of the seal and of its own file."""
    expected = {**seal.files, SEAL: hashlib.sha256(seal.to_bytes()).hexdigest()}
    for name in sorted({*expected, *sums}):
        if sums.get(name) != expected.get(name):
            raise _changed(release, name, "is not what the run has written: it was changed after the run")


def again(folder: Path, *, moved: bool = False) -> str:
    """What to do about a release that is lost or changed."""
    first = "" if moved else "move the folder release/ away; "
    return f"{first}`selpe resume {folder}` writes it again from what is stored"


def _changed(release: Path, name: str, what: str) -> PrivacyError:
    return PrivacyError(what, where=str(release / name), hint=again(release.parent))


def file_sum(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _release_number(ledger: Ledger, run: str) -> int:
    runs = [entry.data["run"] for entry in ledger.entries() if entry.kind == "release"]
    return runs.index(run) + 1
