"""What a client can have done: tables taken in, checked and planned for, runs accepted, stopped and resumed.

What a run will spend is reserved in the table's ledger when it is accepted, so that neither two requests nor a run at
the command line can take the same ε. A run that needs the approval of a second person reserves nothing before it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from selpe.config import RunConfig
from selpe.errors import BudgetError, SelPEError
from selpe.owner_only import copy
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Charge, spent_by
from selpe.privacy.sealing import file_sum, require_whole
from selpe.run.manifest import read_manifest
from selpe.run.preflight import cap_of, spends
from selpe.run.workspace import Workspace
from selpe.serve.admission import TableBudget, account_of
from selpe.serve.approval import WAITING, decided, granted, require_second_person
from selpe.serve.clients import Client
from selpe.serve.limits import Operator
from selpe.serve.reading import Reader
from selpe.serve.refusals import busy, conflict, from_child, missing
from selpe.serve.runs import ACTIVE, HOLDS_NOTHING, OPEN, Shelf, ShelvedRun
from selpe.serve.settings import ReadingSettings, RunSettings, aliases, run_config
from selpe.serve.store import TABLE_NAME, Store, StoredTable, TableFormat
from selpe.serve.supervisor import Supervisor
from selpe.serve.trail import APPROVED, REJECTED, SPENT, SUBMITTED, Trail, who

log = logging.getLogger("selpe.serve")


@dataclass(frozen=True, slots=True)
class ProposedRun:
    """A run that has not been asked for yet: its settings, its plan, and what it will be charged."""

    config: RunConfig
    said: Mapping[str, Any]

    def charges(self, run: str) -> list[Charge]:
        """What it will be charged in all."""
        return [Charge.from_dict({**charge, "run": run}) for charge in self.said["charges"]]


class Desk:
    """One server's work, apart from how it is asked for."""

    def __init__(
        self, store: Store, operator: Operator, reader: Reader, supervisor: Supervisor, trail: Trail | None = None, *,
        viewer: Reader | None = None,
    ) -> None:  # fmt: skip
        self.store, self.operator = store, operator
        self.trail = trail or Trail()
        self.trail.begin(second_person=operator.second_person)
        self.shelf = Shelf(store, supervisor)
        self.closing = False  # streams end when this is set
        # Pages have a reader of their own, so that looking on does not wait for uploads.
        self._reader, self._viewer, self._supervisor = reader, viewer or reader, supervisor
        self._admitting = asyncio.Lock()
        # Uploads hold their table alone, so that somebody who uploads without end keeps nobody from other tables.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._packed: dict[str, str] = {}  # the SHA-256 of each zip that this server has made
        supervisor.ended = self._ended
        for run in self.shelf.all():  # a server that died may have had no time for it
            self._ended(run.name)

    async def close(self) -> None:
        """Stops all work; runs that are not done can be resumed by the next server."""
        self.closing = True
        await asyncio.gather(self._supervisor.close(), self._reader.close(), self._viewer.close())
        await self.trail.close()
        self.store.close()

    def names(self, what: str, asked: Mapping[str, str]) -> dict[str, str]:
        """The table and the run that a request is about, as far as there are any: other words are not for the log."""
        with suppress(SelPEError):
            if "run" in asked:
                found = self.shelf.find(asked["run"])
                return {"run": found.name, "table": found.table}
            if "table" in asked:
                if what == "upload_table" and re.fullmatch(TABLE_NAME, asked["table"]):
                    return {"table": asked["table"]}  # there will be one
                return {"table": self.store.table(asked["table"]).name}
        return {}

    # -- tables ---------------------------------------------------------------------------------------------------

    async def put_table(self, name: str, body: AsyncIterator[bytes], form: TableFormat) -> tuple[StoredTable, bool]:
        """The table that was uploaded, and whether its name is new."""
        self._require_free(name)
        arrived = await self.store.collect(body, limit=self.operator.limits.table_bytes)
        try:
            async with self._table(name):
                self._require_free(name)
                return await asyncio.to_thread(self.store.place_table, name, arrived, form)
        finally:
            arrived.unlink(missing_ok=True)

    async def put_schema(
        self, name: str, body: AsyncIterator[bytes], suffix: str
    ) -> tuple[StoredTable, dict[str, Any]]:
        """The table with its new schema, and what the schema says."""
        self.store.table(name)
        arrived = await self.store.collect(body, limit=self.operator.limits.schema_bytes)
        draft = arrived.rename(arrived.with_name(f"{arrived.name}.{suffix}"))
        try:
            said = await self._reader.ask("schema", keep=False, upload=name, path=str(draft))
            async with self._table(name):
                table = self.store.table(name)
                return await asyncio.to_thread(self.store.place_schema, table, draft, suffix), said
        finally:
            draft.unlink(missing_ok=True)

    async def schema(self, name: str) -> dict[str, Any]:
        """What a table's schema says."""
        return await self._reader.ask("schema", upload=name, path=str(self.store.table(name).schema))

    async def remove_table(self, name: str) -> None:
        """Deletes a table that no unfinished run needs."""
        async with self._table(name):
            table = self.store.table(name)
            self._require_idle(name)
            await asyncio.to_thread(self.store.remove, table)

    async def check(self, name: str, settings: ReadingSettings) -> dict[str, Any]:
        """How a table fits its schema."""
        table, options = self.store.table(name), settings.model_dump()
        job: dict[str, Any] = {"data": str(table.data), "schema": str(table.schema), "options": options}
        said = await self._reader.ask("check", upload=name, **job)
        ready = not said["problems"] or (options["skip_bad_rows"] and said["fit"] > 0)
        return {**said, "ok": bool(ready and not said["unconfirmed"])}

    # -- plans and budgets ----------------------------------------------------------------------------------------

    async def outlook(self, table: StoredTable, settings: RunSettings) -> ProposedRun:
        """What a run would do. Spends nothing."""
        config = run_config(settings, table, self.operator, str(self.store.runs))
        asked = config.model_dump(mode="json", by_alias=True)
        return ProposedRun(config, await self._reader.ask("plan", upload=table.name, settings=asked))

    async def plan(self, name: str, settings: RunSettings) -> dict[str, Any]:
        """The plan of a run, its price, and whether the budget allows it now."""
        found = await self.outlook(self.store.table(name), settings)
        account = await self.account(name)
        refusal = None
        try:
            self._require_budget(account, found, "this run")
        except BudgetError as error:
            refusal = error.message
        said = {key: found.said[key] for key in ("plan", "estimate", "warnings", "verdict")}
        return {**said, "allowed": refusal is None, "refusal": refusal, "budget_free": account.free}

    async def account(self, name: str) -> TableBudget:
        """The state of a table's budget."""
        return await asyncio.to_thread(lambda: account_of(Ledger.open(name)))

    async def budget(self, name: str) -> dict[str, Any]:
        """What was spent on a table, by which runs, and what is set aside. Outlives the table."""
        account = await self.account(name)
        if account.cap is None and not account.charges:
            self.store.table(name)
        cap = account.cap
        return {
            "table": name,
            "budget": cap.to_dict() if cap else None,
            "used": account.used if cap else None,
            "left": account.left,
            "free": account.free,
            "by_run": spent_by(account.charges),
            "set_aside": [one.run for one in account.held],
        }

    # -- runs -----------------------------------------------------------------------------------------------------

    async def submit(
        self, name: str, settings: RunSettings, key: str | None = None, *, by: Client
    ) -> tuple[ShelvedRun, bool]:
        """A run, accepted and in the queue, and whether it is new: a repeated key gives the run it gave before."""
        whose = who(by) if self.trail.kept else {}  # a server of one token knows nobody by name
        asked = hashlib.sha256(json.dumps(settings.model_dump(), sort_keys=True).encode()).hexdigest()
        if key and (known := self._submitted(name, key, asked, whose)):
            return known, False
        table = self.store.table(name)
        found = await self.outlook(table, settings)
        await asyncio.to_thread(
            import_module, "selpe.run.lifecycle"
        )  # takes seconds at first: not while others wait for the lock
        async with self._table(name), self._admitting:
            if key and (known := self._submitted(name, key, asked, whose)):
                return known, False
            self._require_same(self.store.table(name), table)
            waits = self.operator.second_person and spends(found.config)
            self._require_place(waits=waits)
            run = f"{name}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(6)}"
            record = {
                "table": name, "version": table.version, "submitted": _now(), "key": key, "asked": asked,
                "charges": [charge.to_dict() for charge in found.charges(run)], **aliases(settings, self.operator),
                **whose, **(WAITING if waits else {}),
            }  # fmt: skip
            folder = await asyncio.to_thread(self._create, found, table, run, record)
            if not waits:
                self._supervisor.begin(run, folder)
        return self.shelf.find(run), True

    async def approve(self, run: str, by: Client) -> ShelvedRun:
        """A run that waited, in the queue now: somebody else than its submitter has agreed to what it will spend."""
        async with self._table(self.shelf.find(run).table), self._admitting:
            found = self._waiting(run)
            require_second_person(found, by)
            self._require_same_version(found)
            self._supervisor.require_room()
            await asyncio.to_thread(self._approve, found, by)
            self._supervisor.begin(run, found.folder)
        return self.shelf.find(run)

    async def reject(self, run: str, by: Client) -> ShelvedRun:
        """A run that waited, refused for good."""
        async with self._admitting:
            found = self._waiting(run)
            await asyncio.to_thread(self.trail.write, REJECTED, **who(by), run=run, table=found.table)
            await asyncio.to_thread(self.shelf.accept, found.folder, decided(found, by, given=False))
        return self.shelf.find(run)

    async def cancel(self, run: str) -> ShelvedRun:
        """The run, asked to stop or taken out of the queue; what was set aside for it is free once it has stopped."""
        async with self._admitting:
            found = self.shelf.find(run)
            if found.state in ("done", "rejected"):
                raise conflict("run", f"this run is {found.state}", where=run)
            await asyncio.to_thread(self.shelf.accept, found.folder, {**found.accepted, "cancelled": True})
            self._supervisor.stop(run)
            await asyncio.to_thread(self._settle, run)
        return self.shelf.find(run)

    async def resume(self, run: str) -> ShelvedRun:
        """A run that is not done, in the queue again. What is done is neither done nor paid for again."""
        async with self._table(self.shelf.find(run).table), self._admitting:
            found = self.shelf.find(run)
            if found.state in ("done", "waiting", "rejected", *ACTIVE):
                raise conflict("run", f"this run is {found.state}", where=run)
            self._require_same_version(found)
            waits = not granted(found)
            self._require_place(waits=waits)
            if not waits:
                await asyncio.to_thread(self._reserve_again, found)
            await asyncio.to_thread(self.shelf.accept, found.folder, {**found.accepted, "cancelled": False})
            if not waits:
                self._supervisor.begin(run, found.folder)
        return self.shelf.find(run)

    async def release(self, run: str) -> tuple[Path, str]:
        """The packed release of a run and its SHA-256; every byte of it is compared with the seal at every request."""
        found = self.shelf.find(run)
        if found.state != "done":
            raise conflict("run", "this run is not done, so it has no release", where=run)
        place = Workspace(found.folder)
        if not place.release.folder.is_dir():
            raise missing("release", run)
        target = place.work.packed
        if not await asyncio.to_thread(self._still_packed, found.folder, target, self._packed.get(run)):
            job: dict[str, Any] = {"run": str(found.folder), "to": str(target)}
            said = await self._reader.ask("pack", keep=False, upload=found.table, **job)
            self._packed[run] = str(said["sha256"])
        return target, self._packed[run]

    async def view(self, run: str) -> dict[str, Any]:
        """What the page of a run shows."""
        return await self._viewer.ask("view", keep=False, upload=run, run=str(self.store.run(run)))

    # -- inside ---------------------------------------------------------------------------------------------------

    def _still_packed(self, folder: Path, target: Path, digest: str | None) -> bool:
        """Whether the zip is the one that was made. Raises where the release is not as the run has sealed it."""
        try:
            require_whole(Workspace(folder).release.folder, read_manifest(folder) or {})
        except SelPEError as error:
            raise from_child(error.as_dict(), str(self.store.root)) from None
        return digest is not None and target.is_file() and file_sum(target) == digest

    def _table(self, name: str) -> asyncio.Lock:
        """What whoever changes a table, or what depends on it, holds meanwhile."""
        lock = self._locks[name] = self._locks.get(name) or asyncio.Lock()
        return lock

    def _require_free(self, name: str) -> None:
        """Raises where a table may not be uploaded under this name now."""
        names = {table.name for table in self.store.tables()}
        names |= {other for other, lock in self._locks.items() if lock.locked() and other != name}  # on their way
        if name not in names and len(names) >= self.operator.limits.tables:
            raise conflict("limit", f"this server keeps at most {self.operator.limits.tables} tables")
        self._require_idle(name)

    def _require_idle(self, name: str) -> None:
        if waiting := [run.name for run in self.shelf.of(name) if run.state in OPEN]:
            raise conflict(
                "run", "runs on this table are not over", where=waiting[0], hint="finish or cancel them first"
            )

    def _require_same_version(self, found: ShelvedRun) -> None:
        if self.store.table(found.table).version != found.accepted["version"]:
            raise conflict(
                "run", "the table has been replaced since this run began", where=found.name, hint="start a new one"
            )

    def _require_place(self, *, waits: bool) -> None:
        """Raises where too many runs are in the queue, or wait for a second person."""
        if not waits:
            self._supervisor.require_room()
        elif len([run for run in self.shelf.all() if run.state == "waiting"]) >= self.operator.limits.queue:
            raise busy("too many runs wait for approval", hint="try again when some are decided about")

    def _waiting(self, run: str) -> ShelvedRun:
        found = self.shelf.find(run)
        if found.state != "waiting":
            raise conflict("approval", f"this run is {found.state}; it does not wait for approval", where=run)
        return found

    def _require_same(self, now: StoredTable, then: StoredTable) -> None:
        if (now.version, now.schema_file) != (then.version, then.schema_file):
            raise conflict("run", "the table has been replaced in the meantime", where=now.name, hint="try again")

    def _require_budget(self, account: TableBudget, found: ProposedRun, run: str) -> None:
        if spends(found.config):
            account.require_room(account.cap or cap_of(found.config), found.charges(run))

    def _ended(self, run: str) -> None:
        """Sees to a run that nobody works on now: what it holds without need is freed, what it has spent is told."""
        self._settle(run)
        try:
            if self.trail.kept:
                self._tell_spent(self.shelf.find(run))
        except SelPEError as error:  # it is told at the next start
            log.error("%s: what it has spent is not in the audit log (%s)", run, error.kind)

    def _tell_spent(self, found: ShelvedRun) -> None:
        """Tells the log what a run was charged in all by now, where that is more than was told before."""
        if "client" not in found.accepted:
            return  # of the time before there were clients
        total = spent_by(Ledger.open(found.table).charges()).get(found.name)
        if total is not None and total["charges"] != self.trail.spent.get(found.name, {}).get("charges"):
            self.trail.write(SPENT, run=found.name, table=found.table, state=found.state, **total)

    def _settle(self, run: str) -> None:
        """Frees what a run has reserved and will not draw, because it was cancelled, has failed or was not approved."""
        with suppress(SelPEError):  # a ledger that cannot be written must not keep the server from its work
            found = self.shelf.find(run)
            if found.state in HOLDS_NOTHING:
                Ledger.open(found.table).settle(run, "given up")

    def _approve(self, found: ShelvedRun, by: Client) -> None:
        """Reserves what a run will spend, as it is otherwise done when one is accepted; before it, the log is told."""
        from selpe.run.lifecycle import Run

        config, ledger = Run.open(found.folder).config, Ledger.open(found.table)
        account = account_of(ledger)
        account.require_room(account.cap or cap_of(config), found.charges)
        self.trail.write(APPROVED, **who(by), run=found.name, table=found.table, epsilon=config.epsilon)
        ledger.reserve(found.name, found.charges, folder=str(found.folder), cap=cap_of(config))
        try:
            self.shelf.accept(found.folder, decided(found, by, given=True))
        except BaseException:
            ledger.settle(found.name, "given up")
            raise

    def _reserve_again(self, found: ShelvedRun) -> None:
        """Reserves the rest of a run that was given up; one that is merely interrupted has it still."""
        ledger = Ledger.open(found.table)
        held = ledger.reservations() if ledger.exists else {}
        if found.name in held or ledger.budget is None:
            return
        try:
            ledger.reserve(found.name, found.charges, folder=str(found.folder))
        except BudgetError:
            begun = any(charge.run == found.name for charge in ledger.charges())
            # A run that lost paid draws in a crash continues with less, unless others have reserved what is left.
            if not begun or held:
                raise

    def _create(self, found: ProposedRun, table: StoredTable, run: str, record: Mapping[str, Any]) -> Path:
        """The folder of a run that is accepted: its ε is reserved before anybody is told so.

        One that waits for approval has only been seen to fit.
        """
        from selpe.run.lifecycle import Run

        schema = Workspace(self.store.runs / run).own_schema(table.schema.suffix)
        made = Run.create(found.config.model_copy(update={"data_schema": str(schema)}), name=run)
        try:
            copy(table.schema, schema)
            ledger = Ledger.open(found.config.dataset)
            if spends(found.config):
                self._require_budget(account_of(ledger), found, run)
            self._tell_submitted(found, run, record)
            if spends(found.config) and "approval" not in record:
                ledger.reserve(run, found.charges(run), folder=str(made.folder), cap=cap_of(found.config))
            self.shelf.accept(made.folder, record)
        except BaseException:
            made.discard()
            raise
        return made.folder

    def _tell_submitted(self, found: ProposedRun, run: str, record: Mapping[str, Any]) -> None:
        config, whose = found.config, {name: record[name] for name in ("client", "person") if name in record}
        self.trail.write(
            SUBMITTED, **whose, run=run, table=record["table"], epsilon=config.epsilon, delta=config.delta,
            adjacency=config.adjacency, budget=config.budget, records=config.records, waits="approval" in record,
        )  # fmt: skip

    def _submitted(self, name: str, key: str, asked: str, whose: Mapping[str, str]) -> ShelvedRun | None:
        """The run of an earlier submission with this key, by the same client: others may happen to use the same one."""
        for run in self.shelf.of(name):
            if run.accepted.get("key") == key and run.accepted.get("client") == whose.get("client"):
                if not hmac.compare_digest(str(run.accepted["asked"]), asked):
                    raise conflict("run", "this key was used for other settings", where=run.name)
                return run
        return None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
