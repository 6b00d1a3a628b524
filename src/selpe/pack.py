"""Packing a release: only what is on the list, checked file by file, into a zip that proves itself.

Nothing is copied by pattern. The files are named; anything else in the folder, a link, a folder, a file of
another name, stops the packing. What is packed is what was checked: each file is read once.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from selpe.errors import PrivacyError, RunError
from selpe.privacy.card_text import render_markdown
from selpe.schema import Record, Schema
from selpe.table import write_table

SUMS = "SHA256SUMS"
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
    not_private_control: bool = False,
) -> Packed:  # fmt: skip
    """Packs `folder/release` of a finished run into a zip. Refuses whatever is not beyond doubt."""
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
    contents = _read(folder / "release", allowed)
    records = _check(contents, schema)
    card = _check_card(contents, name, private=private)
    _check_summary(contents, schema, records, card, folder)
    sums = {file: hashlib.sha256(raw).hexdigest() for file, raw in sorted(contents.items())}
    contents[SUMS] = "".join(f"{digest}  {file}\n" for file, digest in sums.items()).encode()
    raw = _zip(contents, f"{name}-release" if private else f"{name}-NOT-PRIVATE")
    _write(to, raw)
    return Packed(to, hashlib.sha256(raw).hexdigest(), sums, len(records), private)


def _read(release: Path, allowed: tuple[str, ...]) -> dict[str, bytes]:
    """The bytes of exactly the allowed files; links are not followed, neither to the folder nor to a file."""
    if release.is_symlink() or not release.is_dir():
        raise RunError("there is no release folder", where=str(release))
    with os.scandir(release) as found:
        entries = {entry.name: entry.is_file(follow_symlinks=False) for entry in found}
    strange = sorted(set(entries) - set(allowed)) + sorted(n for n, plain in entries.items() if not plain)
    if strange:
        raise PrivacyError(
            f"the release folder holds something that does not belong there: {', '.join(dict.fromkeys(strange))}",
            where=str(release),
            hint="move it away; only the synthetic table, its schema, its summary and the privacy card may leave",
        )
    if missing := sorted(set(allowed) - set(entries)):
        hint = f"`selpe report {release.parent}` writes the summary anew" if missing == ["summary.html"] else ""
        raise RunError(f"the release is not complete: {', '.join(missing)} missing", where=str(release), hint=hint)
    return {file: _bytes(release / file) for file in allowed}


def _bytes(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            raise PrivacyError("must be an ordinary file of its own, not a link", where=str(path))
        return file.read()


def _check(contents: Mapping[str, bytes], schema: Schema) -> list[Record]:
    """The records, after every file has been found to be exactly what its name says.

    Tables and schema are written anew from the records and must come out the same to the byte, so that nothing can
    hide in a column, a comment or a blank.
    """
    if _json(contents, "schema.json") != json.loads(json.dumps(schema.to_json_schema(), default=str)):
        raise RunError("is not the schema of this run", where="schema.json")
    records = [_record(line, number, schema) for number, line in enumerate(_lines(contents), 1)]
    with TemporaryDirectory() as folder:
        for name in ("synthetic.jsonl", "synthetic.csv"):
            if write_table(records, schema, Path(folder) / name).read_bytes() != contents[name]:
                raise RunError("must hold the records of the run and nothing else, as they were written", where=name)
    return records


def _check_card(contents: Mapping[str, bytes], run: str, *, private: bool) -> dict[str, Any]:
    """The card, which must be of this run, stamped where it promises nothing, and say the same in both its forms."""
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
    contents: Mapping[str, bytes], schema: Schema, records: list[Record], card: Mapping[str, Any], folder: Path
) -> None:
    """The page must be what the other files make of it, to the byte: then it cannot hold anything else."""
    from selpe.report.summary import SUMMARY, summary_page

    if summary_page(schema, records, card).encode() != contents[SUMMARY]:
        hint = f"`selpe report {folder}` writes it anew"
        raise RunError("is not what the other files of the release make of it", where=SUMMARY, hint=hint)


def _json(contents: Mapping[str, bytes], name: str) -> Any:
    """The content of a JSON file that is laid out as we write it."""
    try:
        content = json.loads(contents[name])
    except (ValueError, RecursionError):
        raise RunError("must be JSON", where=name) from None
    if (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode() != contents[name]:
        raise RunError("is not as it was written", where=name)
    return content


def _lines(contents: Mapping[str, bytes]) -> list[str]:
    try:
        return contents["synthetic.jsonl"].decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError:
        raise RunError("must be text in UTF-8", where="synthetic.jsonl") from None


def _record(line: str, number: int, schema: Schema) -> Record:
    """A record that passes the schema."""
    where = f"synthetic.jsonl, line {number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise RunError("must be one JSON object a line", where=where)
    if violations := schema.check(record):
        raise RunError(violations[0].message, where=where)
    return record


def _zip(contents: Mapping[str, bytes], top: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(f"{top}/{name}", _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents[name])
    return target.getvalue()


def _write(to: Path, raw: bytes) -> None:
    part = to.with_name(f".{to.name}.part")
    try:
        part.write_bytes(raw)
        part.replace(to)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RunError(f"the zip cannot be written ({error.strerror})", where=str(to)) from None
