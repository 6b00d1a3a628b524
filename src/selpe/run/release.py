"""Writing a run's release, whole and sealed; and writing the same one again, to the byte, where it was lost.

The order is what keeps it whole. Files are written beside their place and synced, then the ledger gets a line with
their hashes, then the seal is written and synced, then the folder is put in its place, and only then does the manifest
say `done`. A process or a machine that dies on the way leaves a run that is not done, and that `selpe resume` finishes.

What is not a table is kept in `work/` as well: a card tells what had been spent when it was written, so it cannot be
made again later. Once the ledger has the hashes, a run can write nothing but the very same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import RunError
from selpe.intake import write_table
from selpe.intake.lines import RecordLines
from selpe.lasting import sync_file
from selpe.owner_only import make_folder, share
from selpe.privacy.card import build_card, render_markdown
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.sealing import SEAL, Seal, file_sum, proved_seal, require_whole, seal_release
from selpe.run.measurements import MEASUREMENTS, measurements_file
from selpe.run.workspace import ReleaseFolder
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from selpe.run.lifecycle import Run
    from selpe.run.methods import Synthesized

TABLES = ("synthetic.csv", "synthetic.jsonl")
RELEASED = ("privacy-card.json", "privacy-card.md", "schema.json", SEAL, "summary.html", MEASUREMENTS, *TABLES)
SOMETIMES = (MEASUREMENTS,)  # of runs that have measured tables
SEALED = tuple(name for name in RELEASED if name != SEAL)


def released_files(sealed: Iterable[str]) -> tuple[str, ...]:
    """The files of the release whose seal names these: those of every run, and what this one has besides."""
    names = set(sealed)
    return tuple(name for name in RELEASED if name not in SOMETIMES or name in names)


def require_writable(run: Run) -> None:
    """Raises unless this run may write its release: for the first time, or the one it has sealed once more.

    Asked before any work: a release that was changed stays as it is until its owner has moved it away.
    """
    if run.manifest.get("state") == "done" or "seal" in run.manifest:
        proved_seal(run.manifest)
        if os.path.lexists(run.release):
            require_whole(run.release, run.manifest)
    known = _known(run)
    gone = [name for name in _texts(known) if known and _hash(_kept(run) / name) != known.get(name)]
    if gone:
        raise RunError(
            f"this run has been released, and its copy of {gone[0]} is gone or was changed",
            where=str(_kept(run)),
            hint="put the folder back from a backup, or start a new run under another name",
        )


def is_lost(run: Run) -> bool:
    """Whether a finished run has no release folder any more."""
    return run.manifest.get("state") == "done" and not os.path.lexists(run.release)


def write_release(run: Run, schema: Schema, made: Synthesized) -> tuple[Sequence[Record], Seal]:
    """Writes `release/` as a whole, and gives its records and its seal. A reader sees all of it or nothing."""
    part = run.workspace.work.unfinished.folder
    if part.exists():
        _clear(part)
    make_folder(part)
    known = _known(run)
    records = _write_tables(run, schema, made, part)
    names = _texts(known if known else _besides(made))
    if known:
        for name in names:
            shutil.copyfile(_kept(run) / name, part / name)
    else:
        _write_texts(run, schema, made, part, len(records))
        _keep(run, part, names)
    files = {name: file_sum(part / name) for name in (*names, *TABLES)}
    _require_same(run, files, known)
    for name in files:
        sync_file(part / name)
    Disk().sync_folder(part)
    seal = seal_release(run.ledger, run.name, files)
    Disk().overwrite(part / SEAL, seal.to_bytes())
    share(part)
    Disk().sync_folder(part)
    if "seal" in run.manifest and run.release.exists():
        _clear(part)  # it was found whole before, and this is the same
    else:
        _put_in_place(run, part)
    return (records if made.whole is None else RecordLines(run.workspace.release.jsonl)), seal


def _put_in_place(run: Run, part: Path) -> None:
    if run.release.exists():
        _clear(run.release)  # of a life that ended before its run was done
    part.rename(run.release)
    for folder in (part.parent, run.folder):
        Disk().sync_folder(folder)


def _write_tables(run: Run, schema: Schema, made: Synthesized, part: Path) -> Sequence[Record]:
    place = ReleaseFolder(part)
    if made.whole is None:
        records: Sequence[Record] = run.ordered(made.records)
        write_table(records, schema, place.jsonl)
    else:
        records = made.whole.write(place.jsonl)
    write_table(records, schema, place.csv)
    return records


def _write_texts(run: Run, schema: Schema, made: Synthesized, part: Path, records: int) -> None:
    from selpe.report.summary import write_summary

    place = ReleaseFolder(part)
    place.schema.write_text(_json(schema.to_json_schema()), encoding="utf-8")
    card = build_card(
        schema=schema,
        config=run.config,
        run=run.name,
        ledger=run.ledger,
        selections=made.drawn,
        model=str(run.manifest.get("model", "")),
        encoder=str(run.manifest.get("encoder", "")),
        records=records,
        inferred=run.manifest.get("inferred", ()),
        measured=made.measurements,
    )
    if made.measurements is not None:
        place.measurements.write_text(_json(measurements_file(made.measurements, card)), encoding="utf-8")
    place.card.write_text(_json(card), encoding="utf-8")
    place.card_text.write_text(render_markdown(card), encoding="utf-8")
    write_summary(part, schema)


# -- the same release once more ---------------------------------------------------------------------------------------


def _known(run: Run) -> Mapping[str, str]:
    """The hashes that the ledger has of this run's release; none where it has not been sealed yet."""
    entry = run.ledger.released(run.name)
    return {} if entry is None else entry.data["files"]


def _kept(run: Run) -> Path:
    return run.workspace.work.released.folder


def _besides(made: Synthesized) -> tuple[str, ...]:
    return () if made.measurements is None else (MEASUREMENTS,)


def _texts(sealed: Iterable[str]) -> tuple[str, ...]:
    """What is sealed and is not a table."""
    return tuple(name for name in released_files(sealed) if name not in (SEAL, *TABLES))


def _keep(run: Run, part: Path, names: Iterable[str]) -> None:
    """Copies what cannot be made again into `work/`, on the disk before the ledger has its hashes."""
    make_folder(_kept(run))
    for name in names:
        Disk().overwrite(_kept(run) / name, (part / name).read_bytes())
    for folder in (_kept(run), _kept(run).parent):
        Disk().sync_folder(folder)


def _require_same(run: Run, files: Mapping[str, str], known: Mapping[str, str]) -> None:
    other = [name for name in files if known and files[name] != known.get(name)]
    if other:
        card = json.loads(run.workspace.work.released.card.read_text(encoding="utf-8"))
        raise RunError(
            f"what is stored does not give the {other[0]} that this run has released",
            where=run.name,
            hint=f"the release was made with selpe {card['versions']['selpe']}: write it again with that version, the "
            "same model and encoder, and the files of work/ as they were",
        )


def _hash(path: Path) -> str:
    try:
        return file_sum(path)
    except OSError:
        return ""


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2, default=str) + "\n"
