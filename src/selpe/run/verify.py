"""What a receiver can check of a release without the owner's key or ledger, and what the owner can check besides.

Everything here is about whether a release agrees with itself, file by file and figure by figure. What that cannot show
is said as plainly as what it shows.
"""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Literal

from selpe.errors import ConfigError, RunError, SelPEError
from selpe.intake.text import CELL_LIMIT
from selpe.privacy.card_text import render_markdown
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.key import find_key
from selpe.privacy.sealing import SEAL, Seal, digest_of, file_sum, require_in_ledger
from selpe.run.judgement import JUDGED
from selpe.run.measurements import MEASUREMENTS, require_fit
from selpe.run.packing import SUMS
from selpe.run.release import RELEASED, SOMETIMES, released_files
from selpe.run.workspace import ReleaseFolder
from selpe.schema import Record, Schema, Value
from selpe.version import __version__

State = Literal["ok", "wrong", "unchecked"]
_BLOCK = 1 << 20
_LARGE = 2 * 10**9  # bytes, from which a zip keeps sizes in fields of their own
_CLOSE = 1 + 1e-9  # shares of an ε do not add up to it exactly in floating point
_DAMAGED = (OSError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, csv.Error)

_KNOWN = (*RELEASED, JUDGED, SUMS)

NOT_THE_OWNERS = "that the seal is the owner's: that takes the owner's key, and nobody else should have it"
CANNOT = (
    "that nothing else was spent on the table: the ledger stays with the owner; the card says what it held then",
    "that the program was SelPE and was run as it is: whoever has the key can seal anything by hand",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, and the file that is wrong where one is."""

    what: str
    state: State
    said: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """Everything that was found, and what could not be."""

    findings: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.state != "wrong" for finding in self.findings)

    @property
    def cannot(self) -> tuple[str, ...]:
        """What was not shown, whatever was found."""
        owned = any(finding.what == "owner's key" and finding.state == "ok" for finding in self.findings)
        return CANNOT if owned else (NOT_THE_OWNERS, *CANNOT)


class _NotHereError(Exception):
    """Something that cannot be checked here."""


def verify_release(path: Path, *, ledgers: Path | None = None) -> Verified:
    """What can be said of a release: its folder, or the zip that `selpe release` has packed.

    `ledgers` is the folder of the ledgers, for the owner; without it they are looked for in the usual place.
    """
    checks: dict[str, Callable[[Path], str]] = {
        "files": _files,
        "hashes": _hashes,
        "table": _table,
        "card": _card,
        "charges": _charges,
        "measurements": _measurements,
        "owner's key": _key,
        "owner's ledger": lambda folder: _ledger(folder, ledgers),
    }
    try:
        with _unpacked(path) as folder:
            return Verified(tuple(_finding(what, check, folder) for what, check in checks.items()))
    except (RunError, zipfile.BadZipFile, NotImplementedError) as error:
        said = error.message if isinstance(error, RunError) else "this zip cannot be read"
        return Verified((Check("files", "wrong", said, path.name),))


def _finding(what: str, check: Callable[[Path], str], folder: Path) -> Check:
    try:
        return Check(what, "ok", check(folder))
    except _NotHereError as reason:
        return Check(what, "unchecked", str(reason))
    except SelPEError as error:
        return Check(what, "wrong", error.message, error.where)
    except _DAMAGED:
        return Check(what, "wrong", "a file is damaged, or of another version")


# -- a folder or a zip ------------------------------------------------------------------------------------------------


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The files of a release in a folder: its own, or one for as long as this lasts."""
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise ConfigError("there is no such release", where=str(path), hint="give its folder, or the packed zip")
    with TemporaryDirectory(prefix="selpe-verify-") as place, zipfile.ZipFile(path) as archive:
        _require_ours(archive, path.stat().st_size, shutil.disk_usage(place).free)
        for entry in archive.infolist():
            with archive.open(entry) as source, (Path(place) / PurePosixPath(entry.filename).name).open("xb") as copy:
                shutil.copyfileobj(source, copy, _BLOCK)
        yield Path(place)


def _require_ours(archive: zipfile.ZipFile, size: int, room: int) -> None:
    """Raises unless a zip holds the files of a release in one folder, and no byte that belongs to none of them."""
    entries = archive.infolist()
    names = [PurePosixPath(entry.filename) for entry in entries]
    strange = [name for name in names if len(name.parts) != 2 or name.name not in _KNOWN]
    if strange or len({name.parts[0] for name in names}) != 1 or len(set(names)) != len(names):
        raise RunError("the zip holds something that does not belong there, or not one folder of files")
    whole = sum(entry.file_size for entry in entries)
    if whole > room:
        raise RunError(f"there is no room on the disk to unpack it ({whole:,} bytes)")
    # Each file has a local and a central header (30 and 46 bytes) with its name in each; the zip ends with 22 bytes.
    told = 22 + sum(76 + 2 * len(entry.filename.encode()) + entry.compress_size for entry in entries)
    spare = 100 * len(entries) if whole > _LARGE else 0
    if not told <= size <= told + spare:
        raise RunError("the zip holds bytes that belong to none of its files")


# -- what a receiver can check ----------------------------------------------------------------------------------------


def _files(folder: Path) -> str:
    with os.scandir(folder) as found:
        plain = {entry.name: entry.is_file(follow_symlinks=False) for entry in found}
    for name in sorted(plain):
        if not plain[name] or name not in _KNOWN:
            raise RunError("does not belong into a release", where=name)
    wanted = released_files(plain)
    for name in wanted:
        if name not in plain:
            raise RunError("is missing", where=name)
    if JUDGED in plain and SUMS not in plain:
        raise RunError("belongs into a packed release only", where=JUDGED)
    noted = f", and {JUDGED}, the owner's word on its quality, which no seal vouches for" if JUDGED in plain else ""
    return f"{len(wanted)} files, and nothing else{noted}"


def _hashes(folder: Path) -> str:
    seal = _seal(folder)
    names = released_files(seal.files)
    if {*seal.files, SEAL} != set(names):
        raise RunError("names other files than a release has", where=SEAL)
    if unsealed := [name for name in SOMETIMES if name not in names and (folder / name).exists()]:
        raise RunError(f"is not among the files that {SEAL} names", where=unsealed[0])
    other = [name for name, expected in seal.files.items() if file_sum(folder / name) != expected]
    if other:
        raise RunError(f"not as {SEAL} says", where=", ".join(other))
    listed = ReleaseFolder(folder).sums
    if not listed.exists():
        return f"every file is the one that {SEAL} names"
    listed_names = sorted([*names, JUDGED] if (folder / JUDGED).exists() else names)
    sums = "".join(f"{file_sum(folder / name)}  {name}\n" for name in listed_names)
    if listed.read_bytes() != sums.encode():
        raise RunError("does not name the files as they are", where=SUMS)
    return f"every file is the one that {SEAL} and {SUMS} name"


def _table(folder: Path) -> str:
    schema = Schema.from_json_schema(_json(folder, "schema.json"))
    count = 0
    with ReleaseFolder(folder).csv.open(encoding="utf-8", newline="") as file:
        csv.field_size_limit(CELL_LIMIT)
        rows = csv.reader(file, strict=True)
        if tuple(next(rows, [])) != schema.names:
            raise RunError("has other columns than schema.json", where="synthetic.csv")
        for record, row in zip_longest(_records(folder, schema), rows):
            if record is None or row is None or not _same(record, row, schema):
                raise RunError("does not hold the records of synthetic.jsonl", where=f"synthetic.csv, row {count + 1}")
            count += 1
    if _json(folder, "privacy-card.json")["release"]["records"] != count:
        raise RunError("tells another number of records", where="privacy-card.json")
    return f"{count:,} records, every one valid under schema.json; both tables hold the same"


def _records(folder: Path, schema: Schema) -> Iterator[Record]:
    with ReleaseFolder(folder).jsonl.open("rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"synthetic.jsonl, line {number}"
            try:
                record = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict) or tuple(record) != schema.names:
                raise RunError("must be one JSON object with the fields of schema.json", where=where)
            if violations := schema.check(record):
                raise RunError(violations[0].message, where=where)
            yield record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key that comes twice")
    return dict(pairs)


def _same(record: Record, row: list[str], schema: Schema) -> bool:
    return len(row) == len(schema.names) and all(
        _cell(record[name], cell) for name, cell in zip(schema.names, row, strict=True)
    )


def _cell(value: Value, cell: str) -> bool:
    """Whether a cell of the csv says what a record says."""
    if isinstance(value, bool) or value is None:
        return cell == {None: "", True: "true", False: "false"}[value]
    return cell == value if isinstance(value, str) else Decimal(cell) == Decimal(str(value))


def _card(folder: Path) -> str:
    card, seal = _json(folder, "privacy-card.json"), _seal(folder)
    dataset = unicodedata.normalize("NFC", card["dataset"]).casefold()
    if (card["run"], dataset) != (seal.run, seal.dataset):
        raise RunError("is the card of another run than the seal's", where="privacy-card.json")
    promise = f"{card['stamp']}: {card['guarantee']['statement']}" if card["stamp"] else card["guarantee"]["statement"]
    if render_markdown(card).encode() != ReleaseFolder(folder).card_text.read_bytes():
        made = str(card["versions"]["selpe"])
        if made != __version__:
            raise _NotHereError(
                f"made by selpe {made}, which may put the card into other words than this version. {promise}"
            )
        raise RunError("does not say what privacy-card.json says", where="privacy-card.md")
    return f"both forms say the same. {promise}"


def _charges(folder: Path) -> str:
    card, seal, where = _json(folder, "privacy-card.json"), _seal(folder), "privacy-card.json"
    charges, guarantee = card["charges"], card["guarantee"]
    numbers = [charge["number"] for charge in charges]
    if digest_of(charges) != seal.digest or card["ledger"]["digest"] != seal.digest:
        raise RunError("has other charges than those that were sealed", where=where)
    if numbers != list(seal.charges) or numbers != card["ledger"]["charges"]:
        raise RunError("names other charges of the ledger than the seal", where=where)
    exact = all(charge["delta"] == 0 for charge in charges)
    for relation, stated in guarantee["epsilon"].items():
        total = math.fsum(float(charge[f"epsilon_{relation}"]) for charge in charges)
        if not _adds_up(float(stated), total, exact=exact) and not _without_noise(card, stated):
            raise RunError("states another ε than its charges add up to", where=where)
        if card["stamp"] is None and charges and total and f"ε = {float(stated):.6g}" not in guarantee["statement"]:
            raise RunError("states another ε in words than in figures", where=where)
    added = "they add up to what the card states" if exact else "they add up to no less than the card states"
    return f"{len(charges)}, numbers {_numbers(numbers)} of the owner's ledger; {added}"


def _measurements(folder: Path) -> str:
    schema = Schema.from_json_schema(_json(folder, "schema.json"))
    there = ReleaseFolder(folder).measurements.exists()
    found = _json(folder, MEASUREMENTS) if there else None
    require_fit(found, _json(folder, "privacy-card.json"), schema)
    if found is None:
        return "none: this run measured no tables"
    many = sum(len(look["tables"]) for look in found["looks"])
    return f"{many} table{'' if many == 1 else 's'} of noisy counts, as the card says"


def _adds_up(stated: float, total: float, *, exact: bool) -> bool:
    """Sums of pure ε are exact. Gaussian noise composes to less than its sum, and a card does not say enough of it."""
    return stated <= total * _CLOSE and (not exact or total <= stated * _CLOSE)


def _without_noise(card: Mapping[str, Any], stated: Any) -> bool:
    return card["stamp"] is not None and stated == "inf"


def _numbers(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers) or "none"


# -- what the owner can check besides ---------------------------------------------------------------------------------


def _key(folder: Path) -> str:
    seal, key = _seal(folder), find_key()
    if key is None or key.id != seal.key:
        raise _NotHereError(f"the key that sealed it (id {seal.key}) is not here")
    seal.require_signed_by(key)
    return f"the seal is signed with the key that is here (id {key.id})"


def _ledger(folder: Path, ledgers: Path | None) -> str:
    seal, key = _seal(folder), find_key()
    if key is None or key.id != seal.key:
        raise _NotHereError("without the key that sealed it a ledger proves nothing")
    ledger = Ledger.open(seal.dataset, root=ledgers)
    if not ledger.exists:
        raise _NotHereError(f"there is no ledger of '{seal.dataset}' here")
    require_in_ledger(seal, ledger, key)
    return f"release {seal.release} of '{seal.dataset}', with these files and these charges"


# -- reading ----------------------------------------------------------------------------------------------------------


def _seal(folder: Path) -> Seal:
    seal = Seal.from_dict(_json(folder, SEAL))
    if seal.to_bytes() != (folder / SEAL).read_bytes():
        raise RunError("is not laid out as it was written", where=SEAL)
    return seal


def _json(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"), object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError):
        raise RunError("is missing, or is not JSON", where=name) from None
