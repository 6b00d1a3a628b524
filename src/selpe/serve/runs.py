"""The runs of a server as they stand: what was asked, how far each is, and what stopped those that are not done."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from selpe.errors import SelPEError
from selpe.privacy.ledger.charges import Charge
from selpe.run.manifest import is_worked_on
from selpe.run.workspace import Workspace
from selpe.serve.refusals import missing, without_places
from selpe.serve.store import Store, write_json
from selpe.serve.supervisor import Supervisor

log = logging.getLogger(__name__)

State = Literal["waiting", "queued", "running", "stopping", "done", "interrupted", "failed", "cancelled", "rejected"]
ACTIVE: tuple[State, ...] = ("queued", "running", "stopping")
OPEN: tuple[State, ...] = ("waiting", *ACTIVE, "interrupted")  # these need their table as it is
HOLDS_NOTHING: tuple[State, ...] = ("waiting", "failed", "cancelled", "rejected")  # of all others ε stays reserved


@dataclass(frozen=True, slots=True)
class ShelvedRun:
    """One run as it stands."""

    name: str
    folder: Path
    state: State
    manifest: Mapping[str, Any]
    accepted: Mapping[str, Any]
    ended: Mapping[str, Any] | None

    @property
    def table(self) -> str:
        """The table it is about."""
        return str(self.accepted["table"])

    @property
    def approval(self) -> Mapping[str, Any] | None:
        """What a second person has said to it; None where nobody is asked."""
        found: Mapping[str, Any] | None = self.accepted.get("approval")
        return found

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What it will be charged in all, by its plan."""
        return tuple(Charge.from_dict({**charge, "run": self.name}) for charge in self.accepted["charges"])

    def described(self) -> dict[str, Any]:
        """What a client is told of it."""
        settings, manifest = self.manifest["settings"], self.manifest
        finished = self.state == "done"
        return {
            "run": self.name, "table": self.table, "state": self.state, "method": settings["method"],
            "llm": self.accepted["llm"], "encoder": self.accepted["encoder"], "records": settings["records"],
            "epsilon": float(settings["epsilon"]), "delta": settings["delta"], "adjacency": settings["adjacency"],
            "seed": settings["seed"], "submitted": self.accepted["submitted"], "finished": manifest.get("finished"),
            "seconds": manifest.get("seconds"), "private": manifest.get("private") if finished else None,
            "spent": manifest.get("spent") if finished else None,
            "counts": manifest.get("counts") if finished else None,
            "error": None if finished or self.ended is None else _told(self.ended, self.folder),
            "budget": settings.get("budget"), "submitted_by": self.accepted.get("client"),
            "approval": None if self.approval is None else dict(self.approval),
        }  # fmt: skip


def _told(ended: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What stopped a run, without the places that its worker knew."""
    root = str(folder.parent.parent)
    return {name: without_places(text, root) if isinstance(text, str) else text for name, text in ended.items()}


def _approval_state(accepted: Mapping[str, Any]) -> str | None:
    """How far an approval is. Whatever is no approval counts as one that waits, so that damage gives nothing away."""
    approval = accepted.get("approval")
    if approval is None:
        return None
    return str(approval.get("state")) if isinstance(approval, dict) else "waiting"


class Shelf:
    """Finds runs and says how they stand. Files that have not changed are not read again."""

    def __init__(self, store: Store, supervisor: Supervisor) -> None:
        self._store, self._supervisor = store, supervisor
        self._read: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._judged: dict[Path, tuple[Mapping[str, Any], Mapping[str, Any], bool]] = {}
        self._orphans: set[str] = set()
        self._clear_unaccepted()
        # Workers of a server that died just now may still be stopping.
        self._orphans = {run.name for run in self.all() if run.state == "interrupted" and is_worked_on(run.folder)}

    def all(self) -> list[ShelvedRun]:
        """Every run, the first submitted first."""
        folders = [path for path in self._store.runs.iterdir() if path.is_dir()]
        found = [run for folder in folders if (run := self._look(folder)) is not None]
        return sorted(found, key=lambda run: (str(run.accepted["submitted"]), run.name))

    def of(self, table: str) -> list[ShelvedRun]:
        """Every run on a table."""
        return [run for run in self.all() if run.table == table]

    def find(self, name: str) -> ShelvedRun:
        """The run of this name."""
        folder = self._store.run(name)
        found = self._look(folder)
        if found is None:
            raise missing("run", name)
        return found

    def accept(self, folder: Path, record: Mapping[str, Any]) -> None:
        """Keeps what was agreed to about a run."""
        write_json(Workspace(folder).work.accepted, record)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _look(self, folder: Path) -> ShelvedRun | None:
        place = Workspace(folder)
        accepted, manifest = self._json(place.work.accepted), self._json(place.manifest)
        if accepted is None or manifest is None:
            return None
        ended = self._json(place.work.ended)
        state = self._state(folder.name, folder, manifest, accepted, ended)
        run = ShelvedRun(folder.name, folder, state, manifest, accepted, ended)
        return run if self._whole(run) else None

    def _whole(self, run: ShelvedRun) -> bool:
        """Whether a run's files say what they must. One that is damaged must not hide all others; it is left alone."""
        known = self._judged.get(run.folder)
        if known is None or known[0] is not run.manifest or known[1] is not run.accepted:
            from selpe.serve.shapes import RunAbout

            try:
                RunAbout(**run.described())
                whole = isinstance(run.charges, tuple)
            except (LookupError, TypeError, ValueError, AttributeError):
                log.warning("the files of run %s are damaged; it is left out", run.name)
                whole = False
            self._judged[run.folder] = known = (run.manifest, run.accepted, whole)
        return known[2]

    def _state(
        self, name: str, folder: Path, manifest: Mapping[str, Any], accepted: Mapping[str, Any], ended: Any
    ) -> State:
        if manifest.get("state") == "done":
            return "done"
        if activity := self._supervisor.activity(name):
            return activity
        if name in self._orphans:
            if is_worked_on(folder):
                return "stopping"
            self._orphans.discard(name)
        approval = _approval_state(accepted)
        if approval == "refused":
            return "rejected"
        if accepted.get("cancelled"):
            return "cancelled"
        if approval not in (None, "given"):
            return "waiting"
        return "failed" if ended is not None and ended.get("kind") != "killed" else "interrupted"

    def _json(self, path: Path) -> dict[str, Any] | None:
        try:
            about = path.stat()
            stamp = (about.st_mtime_ns, about.st_size)
            known = self._read.get(path)
            if known is None or known[0] != stamp:
                known = (stamp, json.loads(path.read_text(encoding="utf-8")))
                self._read[path] = known
            return known[1] if isinstance(known[1], dict) else None
        except (OSError, ValueError, RecursionError):
            return None

    def _clear_unaccepted(self) -> None:
        """Removes runs that a crash kept from being accepted: they never began, and nobody was told of them."""
        for folder in self._store.runs.iterdir():
            place = Workspace(folder)
            if place.is_run and not place.work.accepted.is_file():
                from selpe.run.lifecycle import Run

                with suppress(SelPEError):  # a damaged one must not keep the server from starting
                    Run.open(folder).discard()
