"""The server's folder: uploaded tables and schemas under names of one strict form, and where runs lie.

A name is letters, digits, dashes and underscores, so no name leads out of the folder; what it leads to is checked again
after links are resolved. An upload is collected under a random name and put in its place whole, so that a reader sees
the old table or the new one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from selpe.errors import ConfigError
from selpe.lasting import put_for_good, sync_folder
from selpe.owner_only import FILE_MODE, make_folder, open_bytes, write_whole
from selpe.run.workspace import Workspace
from selpe.serve.refusals import RefusedError, conflict, missing

TABLE_NAME = r"^[a-z0-9][a-z0-9_-]{0,47}$"
RUN_NAME = r"^[a-z0-9][a-z0-9_-]{0,99}$"
TableFormat = Literal["csv", "jsonl", "parquet"]
TABLE_TYPES: dict[str, TableFormat] = {
    "text/csv": "csv", "application/x-ndjson": "jsonl", "application/jsonl": "jsonl",
    "application/vnd.apache.parquet": "parquet",
}  # fmt: skip
SCHEMA_TYPES = {"application/yaml": "yaml", "application/json": "json"}
_ABOUT = "about.json"


@dataclass(frozen=True, slots=True)
class StoredTable:
    """An uploaded table: where it lies and what is publicly known of it. A new upload has a new version."""

    name: str
    folder: Path
    format: TableFormat
    bytes: int
    version: str
    uploaded: str
    schema_file: str = ""

    @property
    def data(self) -> Path:
        """The private file."""
        return self.folder / f"table-{self.version}.{self.format}"

    @property
    def schema(self) -> Path:
        """The schema's file."""
        if not self.schema_file:
            raise conflict("schema", "this table has no schema yet", where=self.name, hint="PUT one to …/schema")
        return self.folder / self.schema_file

    def described(self) -> dict[str, Any]:
        """What is kept about the table beside it."""
        return {"format": self.format, "bytes": self.bytes, "version": self.version, "uploaded": self.uploaded,
                "schema_file": self.schema_file}  # fmt: skip


class Store:
    """The folder of one server. One process at a time holds it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.runs = self.root / "runs"
        self._tables, self._incoming = self.root / "tables", self.root / "incoming"
        try:
            for folder in (self.root, self.runs, self._tables, self._incoming):
                make_folder(folder)
        except OSError as error:
            raise ConfigError(f"the server's folder cannot be made ({error.strerror})", where=str(root)) from None
        self._lock = self._held()
        self._tidy()

    def close(self) -> None:
        """Lets go of the folder."""
        self._lock.release()

    # -- tables ---------------------------------------------------------------------------------------------------

    def tables(self) -> list[StoredTable]:
        """All tables, by name."""
        names = sorted(path.name for path in self._tables.iterdir() if re.fullmatch(TABLE_NAME, path.name))
        return [table for name in names if (table := self._find(name)) is not None]

    def table(self, name: str) -> StoredTable:
        """The table of this name."""
        found = self._find(name)
        if found is None:
            raise missing("table", name)
        return found

    def place_table(self, name: str, arrived: Path, form: TableFormat) -> tuple[StoredTable, bool]:
        """The table that an upload has become, and whether its name is new. Its schema stays."""
        known = self._find(name)
        folder = _inside(self._tables, name, TABLE_NAME, "table")
        make_folder(folder)
        made = StoredTable(
            name, folder, form, arrived.stat().st_size, secrets.token_hex(8), _now(),
            known.schema_file if known else "",
        )  # fmt: skip
        put_for_good(arrived, made.data)  # before anything points to it, and before the old one goes
        self._describe(made)
        return made, known is None

    def place_schema(self, table: StoredTable, arrived: Path, suffix: str) -> StoredTable:
        """The table with the schema that an upload has become."""
        made = replace(table, schema_file=f"schema-{secrets.token_hex(8)}.{suffix}")
        put_for_good(arrived, table.folder / made.schema_file)
        self._describe(made)
        return made

    def remove(self, table: StoredTable) -> None:
        """Deletes a table and its schema. Its ledger stays, whatever happens to the table."""
        (table.folder / _ABOUT).unlink(missing_ok=True)
        if table.folder.is_dir():
            sync_folder(table.folder)  # else a power cut could bring its name back without its rows
        shutil.rmtree(table.folder, ignore_errors=True)

    # -- uploads and runs -----------------------------------------------------------------------------------------

    async def collect(self, chunks: AsyncIterator[bytes], *, limit: int) -> Path:
        """The file that a body has been written to, piece by piece; refused as soon as it is too long."""
        path = self._incoming / secrets.token_hex(16)
        size = 0
        try:
            with open_bytes(path, "xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > limit:
                        raise too_large(limit)
                    file.write(chunk)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
        except OSError as error:
            path.unlink(missing_ok=True)
            raise RefusedError(
                HTTPStatus.INSUFFICIENT_STORAGE, "disk", f"the upload cannot be kept ({error.strerror})"
            ) from None
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        if not size:
            path.unlink(missing_ok=True)
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "data", "the upload is empty")
        return path

    def run(self, name: str) -> Path:
        """The folder of a run that exists."""
        folder = _inside(self.runs, name, RUN_NAME, "run")
        if not Workspace(folder).is_run:
            raise missing("run", name)
        return folder

    # -- inside ---------------------------------------------------------------------------------------------------

    def _held(self) -> Any:
        from filelock import FileLock, Timeout

        lock = FileLock(self.root / "lock", mode=FILE_MODE)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ConfigError("another server works in this folder", where=str(self.root)) from None
        return lock

    def _tidy(self) -> None:
        """Clears away what a crash has left half done: uploads under way, and files that nothing points to."""
        for path in self._incoming.iterdir():
            path.unlink()
        for folder in self._tables.iterdir():
            table = self._find(folder.name) if re.fullmatch(TABLE_NAME, folder.name) else None
            if table is None:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self._keep_only_current(table)

    def _find(self, name: str) -> StoredTable | None:
        folder = _inside(self._tables, name, TABLE_NAME, "table")
        try:
            content = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            return StoredTable(name, folder, **content)
        except (OSError, ValueError, TypeError):
            return None

    def _describe(self, table: StoredTable) -> None:
        write_json(table.folder / _ABOUT, table.described())
        self._keep_only_current(table)

    def _keep_only_current(self, table: StoredTable) -> None:
        current = {_ABOUT, table.data.name, table.schema_file}
        for path in table.folder.iterdir():
            if path.name not in current:
                with suppress(OSError):
                    path.unlink()


def too_large(limit: int) -> RefusedError:
    """The refusal of a body that is longer than allowed."""
    size = f"{limit / 2**20:.0f} MB" if limit >= 2**20 else f"{limit / 1024:.0f} kB"
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"at most {size} may be sent here")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a small file at once or not at all, and returns once it is on the disk."""
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=2))


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a small file; None where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _inside(parent: Path, name: str, pattern: str, what: str) -> Path:
    """The place of a name in a folder: the name has the one allowed form, and leads nowhere else by a link."""
    if not re.fullmatch(pattern, name):
        raise missing(what, name)
    path = parent / name
    if path.resolve().parent != parent or path.is_symlink():
        raise missing(what, name)
    return path


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
