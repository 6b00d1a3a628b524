"""A server for a team: several persons with tokens of their own, a log, and a second person where wanted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.key import make_key
from selpe.serve.audit_log import FOLDER, AuditLog, LogLine
from selpe.serve.clients import Clients, Role
from selpe.serve.limits import Limits
from selpe.serve.trail import Trail
from serve_world import CSV, ONE_STEP, YAML, House, csv_of, rows
from small_world import SCHEMA

# ann submits, bob approves, eve reads; `ann-2` is another token of ann's, and dan may do everything.
PEOPLE: Mapping[str, tuple[str, list[Role]]] = {
    "ann": ("ann", ["submit"]), "bob": ("bob", ["approve"]), "eve": ("eve", ["read"]),
    "ann-2": ("ann", ["approve", "read"]), "dan": ("dan", ["submit", "approve", "read"]),
}  # fmt: skip


class Team(House):
    """A server without a socket for these people."""

    def __init__(
        self, root: Path, limits: Limits | None = None, *, second_person: bool = False, disk: Disk | None = None,
        clock: Callable[[], float] | None = None, tokens: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.clients = Clients(root)
        self.tokens = tokens or {}
        if not self.clients.exist:
            with self.clients.changing() as changed:
                for name, (person, roles) in PEOPLE.items():
                    self.tokens[name] = changed.make(name, person, roles)[1]
        self.log = AuditLog(root / FOLDER, make_key(), disk=disk)
        trail = Trail(self.log, **({"clock": clock} if clock else {}))
        super().__init__(root, limits, door=self.clients, trail=trail, second_person=second_person)

    def by(
        self, name: str, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """The answer to one request of somebody's."""
        return self.ask(
            method, path, headers={"Authorization": f"Bearer {self.tokens[name]}", **(headers or {})}, **more
        )

    def take_in(self, name: str = "desk", records: Any = None) -> None:
        """Uploads a table with its schema, as ann."""
        content = csv_of(rows() if records is None else records, self.root.parent)
        assert self.by("ann", "PUT", f"/v1/tables/{name}", content=content, headers=CSV).status_code in (200, 201)
        done = self.by("ann", "PUT", f"/v1/tables/{name}/schema", content=SCHEMA.to_yaml(), headers=YAML)
        assert done.status_code == 200, done.text

    def submit_by(self, name: str, table: str = "desk", **settings: Any) -> httpx.Response:
        """Somebody asks for a run."""
        headers = {"Idempotency-Key": settings.pop("key")} if "key" in settings else None
        return self.by(name, "POST", f"/v1/tables/{table}/runs", json={**ONE_STEP, **settings}, headers=headers)

    def until(self, run: str, *states: str, seconds: float = 120.0) -> str:
        """The state of a run, once it is one of these."""
        end = time.monotonic() + seconds
        while (state := self.state_of(run)) not in states:
            if time.monotonic() > end:
                raise TimeoutError(f"{run} is {state}, not {states}")
            self.do(asyncio.sleep(0.05))
        return state

    def state_of(self, run: str) -> str:
        """How a run stands."""
        return str(self.by("eve", "GET", f"/v1/runs/{run}").json()["state"])

    def lines(self, *kinds: str) -> list[LogLine]:
        """What the log says, of these kinds or all, as anybody with the key would read it."""
        found: list[LogLine] = []
        AuditLog(self.root / FOLDER, make_key()).read(found.append)
        return [line for line in found if not kinds or line.kind in kinds]
