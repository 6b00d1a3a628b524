"""Packing a release: only what is on the list, checked file by file, into a zip that proves itself.

Nothing is copied by pattern. The files are named; anything else in the folder, a link, a folder, a file of another
name, stops the packing. Every byte must be the one that the run has sealed (privacy/sealing.py), and behind that wall
every file must be what its name says. What is packed is what was checked: each file is read once, the tables, which may
be larger than memory, into a folder that nobody else can look into.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from selpe.errors import PrivacyError, RunError
from selpe.intake import write_table
from selpe.intake.lines import RecordLines
from selpe.lasting import put_for_good
from selpe.privacy.card_text import render_markdown
from selpe.privacy.sealing import again, file_sum, proved_seal, require_bytes
from selpe.run.judgement import JUDGED
from selpe.run.measurements import MEASUREMENTS, require_fit
from selpe.run.release import TABLES, released_files
from selpe.run.workspace import ReleaseFolder, Workspace
from selpe.schema import Record, Schema

SUMS = "SHA256SUMS"
_BLOCK = 1 << 20
_TIME = (1980, 1, 1, 0, 0, 0)  # the same release makes the same zip, byte for byte


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed release: where it is, its own hash, and the hash of each file in it."""

    path: Path
    sha256: str
    files: Mapping[str, str]
    records: int
    private: bool


def pack_release(
    folder: Path, manifest: Mapping[str, Any], schema: Schema, *, allowed: tuple[str, ...], to: Path,
    not_private_control: bool = False, judged: str = "",
) -> Packed:  # fmt: skip
    """Packs `folder/release` of a finished run into a zip. Refuses whatever is not beyond doubt.

    `allowed` are the names that a release can have; which of them this one has, its seal says. `judged` is what the
    owner tells receivers of its quality (run/judgement.py); it goes along unsealed.
    """
    name = str(manifest.get("name", folder.name))
    if manifest.get("state") != "done":
        raise RunError("this run is not done, so it has no release", where=name, hint=f"selpe resume {folder}")
    private = manifest.get("private") is True
    if not private and not not_private_control:
        raise PrivacyError(
            "this run is a control without a guarantee; its output is not private",
            where=name,
            hint="if the table is public anyway: --not-private-control",
        )
    seal = proved_seal(manifest)
    allowed = tuple(name for name in released_files(seal.files) if name in allowed)
    with _beside(to) as place:
        release = Workspace(folder).release.folder
        contents = _read(release, allowed, place)
        sums = {file: file_sum(place / file) for file in sorted(allowed)}
        require_bytes(seal, sums, release)
        records = _check(contents, schema, place)
        card = _check_card(contents, name, private=private, written=manifest.get("card"))
        measured = _json(contents, MEASUREMENTS) if MEASUREMENTS in contents else None
        require_fit(measured, card, schema)
        _check_summary(contents, schema, records, card, measured)
        noted = [JUDGED] if judged else []
        if judged:
            ReleaseFolder(place).judged.write_bytes(judged.encode())
            sums = dict(sorted({**sums, JUDGED: file_sum(place / JUDGED)}.items()))
        contents[SUMS] = "".join(f"{digest}  {file}\n" for file, digest in sums.items()).encode()
        ReleaseFolder(place).sums.write_bytes(contents[SUMS])
        _zip([*allowed, *noted, SUMS], place, f"{name}-release" if private else f"{name}-NOT-PRIVATE", to)
        return Packed(to, file_sum(to), sums, len(records), private)


@contextmanager
def _beside(to: Path) -> Iterator[Path]:
    """A folder of our own beside the zip, gone afterwards: where there is room for the zip there is room for it."""
    try:
        own = TemporaryDirectory(prefix=".selpe-", dir=to.parent)
    except OSError as error:
        raise RunError(f"the zip cannot be written ({error.strerror})", where=str(to)) from None
    with own as place:
        yield Path(place)


def _read(release: Path, allowed: tuple[str, ...], place: Path) -> dict[str, bytes]:
    """Copies exactly the allowed files, and gives the bytes of those that are no tables.

    Links are not followed, neither to the folder nor to a file.
    """
    if release.is_symlink() or not release.is_dir():
        raise RunError("there is no release folder", where=str(release), hint=again(release.parent, moved=True))
    with os.scandir(release) as found:
        entries = {entry.name: entry.is_file(follow_symlinks=False) for entry in found}
    strange = sorted(set(entries) - set(allowed)) + sorted(n for n, plain in entries.items() if not plain)
    if strange:
        raise PrivacyError(
            f"the release folder holds something that does not belong there: {', '.join(dict.fromkeys(strange))}",
            where=str(release),
            hint="move it away; only the tables, the schema, the summary, the card and what was measured may leave",
        )
    if missing := sorted(set(allowed) - set(entries)):
        what = f"the release is not complete: {', '.join(missing)} missing"
        raise RunError(what, where=str(release), hint=again(release.parent))
    for file in allowed:
        with _opened(release / file) as source, (place / file).open("xb") as copy:
            shutil.copyfileobj(source, copy, _BLOCK)
    return {file: (place / file).read_bytes() for file in allowed if file not in TABLES}


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            raise PrivacyError("must be an ordinary file of its own, not a link", where=str(path))
        yield file


def _check(contents: Mapping[str, bytes], schema: Schema, place: Path) -> RecordLines:
    """The records, after every file has been found to be exactly what its name says.

    Tables and schema are written anew from the records and must come out the same to the byte, so that nothing can
    hide in a column, a comment or a blank.
    """
    if _json(contents, "schema.json") != json.loads(json.dumps(schema.to_json_schema(), default=str)):
        raise RunError("is not the schema of this run", where="schema.json")
    altered = "must hold the records of the run and nothing else, as they were written"
    tables = ReleaseFolder(place)
    with tables.jsonl.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if f"{schema.dumps(_record(raw, number, schema))}\n".encode() != raw:
                raise RunError(altered, where="synthetic.jsonl")
    records = RecordLines(tables.jsonl)
    again = write_table(records, schema, place / "again.csv")
    if not _same(again, tables.csv):
        raise RunError(altered, where="synthetic.csv")
    again.unlink()
    return records


def _same(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while block := first.read(_BLOCK):
            if block != second.read(_BLOCK):
                return False
        return not second.read(1)


def _check_card(contents: Mapping[str, bytes], run: str, *, private: bool, written: object) -> dict[str, Any]:
    """The card, which must be of this run, stamped where it promises nothing, and say the same in both its forms.

    `written` is the hash that the run noted of it: a card has figures that its other form does not show.
    """
    if written is not None and hashlib.sha256(contents["privacy-card.json"]).hexdigest() != written:
        raise RunError("is not the card that the run has written", where="privacy-card.json")
    card = _json(contents, "privacy-card.json")
    if not isinstance(card, dict) or card.get("run") != run:
        raise RunError("is not the card of this run", where="privacy-card.json")
    if (card.get("stamp") is None) != private:
        raise PrivacyError("the card and the run disagree on whether this is private", where="privacy-card.json")
    try:
        told = render_markdown(card)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise RunError("is not a privacy card", where="privacy-card.json") from None
    if told.encode() != contents["privacy-card.md"]:
        raise RunError("does not say what privacy-card.json says", where="privacy-card.md")
    return card


def _check_summary(
    contents: Mapping[str, bytes],
    schema: Schema,
    records: Sequence[Record],
    card: Mapping[str, Any],
    measured: Mapping[str, Any] | None,
) -> None:
    """The page must be what the other files make of it, to the byte: then it cannot hold anything else."""
    from selpe.report.summary import SUMMARY, summary_page

    if summary_page(schema, records, card, measured).encode() != contents[SUMMARY]:
        raise RunError("is not what the other files of the release make of it", where=SUMMARY)


def _json(contents: Mapping[str, bytes], name: str) -> Any:
    """The content of a JSON file that is laid out as we write it."""
    try:
        content = json.loads(contents[name])
    except (ValueError, RecursionError):
        raise RunError("must be JSON", where=name) from None
    if (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode() != contents[name]:
        raise RunError("is not as it was written", where=name)
    return content


def _record(raw: bytes, number: int, schema: Schema) -> Record:
    """A record that passes the schema."""
    where = f"synthetic.jsonl, line {number}"
    try:
        record = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise RunError("must be text in UTF-8", where=where) from None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise RunError("must be one JSON object a line", where=where)
    if violations := schema.check(record):
        raise RunError(violations[0].message, where=where)
    return record


def _zip(names: Sequence[str], place: Path, top: str, to: Path) -> None:
    """Writes the zip: whole, or not at all."""
    part = to.with_name(f".{to.name}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(names):
                entry = zipfile.ZipInfo(f"{top}/{name}", _TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                entry.file_size = (place / name).stat().st_size
                with (place / name).open("rb") as source, archive.open(entry, "w") as target:
                    shutil.copyfileobj(source, target, _BLOCK)
        put_for_good(part, to)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RunError(f"the zip cannot be written ({error.strerror})", where=str(to)) from None
