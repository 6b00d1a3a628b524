"""What can be said of an audit log: whether it is whole, whether runs and ledgers agree with it, what nobody can tell.

Nothing is changed by looking, and a server that works on the folder need not be stopped for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selpe.errors import AuditError, ConfigError, SelPEError
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import spent_by
from selpe.privacy.ledger.key import find_key
from selpe.run.verify import Check
from selpe.run.workspace import WorkFolder, workspaces
from selpe.serve.audit_log import FOLDER, OPEN, REPAIR, AuditLog, End, LogLine
from selpe.serve.store import read_json
from selpe.serve.trail import ANSWERED, APPROVED, ASKED, REFUSED, SPENT, STARTED, SUBMITTED

NO_KEY = "whether somebody has written all of it anew: that takes the key which seals it, and it is not here"
CANNOT = (
    "whether somebody who has both the key and these files has written it anew: note the number and the sum of its "
    "last line where they cannot reach it, and give them with --noted later",
    "what was done with the server's files or at the command line, past the server",
    "who held a token: it knows clients by their tokens, and not who was given one",
)
NO_NOTE = "whether lines are missing at its end: the note beside the key is not here, or is of another log"


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What was found, what could not be, and the last line, to be noted elsewhere."""

    checks: tuple[Check, ...]
    cannot: tuple[str, ...]
    lines: int
    last: str

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.state != "wrong" for check in self.checks)


@dataclass(slots=True)
class _Told:
    """What the lines say, as far as it can be held against something else."""

    submitted: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    approved: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    spent: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)  # changes asked for that have no answer yet
    cut: int = 0  # changes that never got one: the server was ended in between
    mended: int = 0
    back: list[int] = field(default_factory=list)  # lines whose clock is behind the line before
    noted: str | None = None  # the sum of the line that somebody has noted
    first_time: str = ""  # when a log was begun anew
    last_time: str = ""

    def take(self, line: LogLine, noted: int) -> None:
        """Takes one line in."""
        kept = {SUBMITTED: self.submitted, APPROVED: self.approved, SPENT: self.spent}
        if line.kind in kept:
            kept[line.kind][str(line.data.get("run"))] = line.data
        elif line.kind == ASKED:
            self.open.add(line.seq)
        elif line.kind in (ANSWERED, REFUSED):
            self.open.discard(line.data.get("asked", 0))
        elif line.kind == STARTED:
            self.cut, self.open = self.cut + len(self.open), set()
        elif line.kind == REPAIR:
            self.mended += 1
        elif line.kind == OPEN and "reason" in line.data:
            self.first_time = line.time
        if line.time < self.last_time:
            self.back.append(line.seq)
        self.last_time = line.time
        if line.seq == noted:
            self.noted = line.sum


def verify_log(root: Path, *, noted: tuple[int, str] | None = None) -> AuditVerdict:
    """What can be said of the log in a server's folder; `noted` is the number and the sum of a line from elsewhere."""
    log, told = AuditLog(root / FOLDER, find_key()), _Told()
    if not log.path.exists() and log.mark is None:
        raise ConfigError(
            "there is no audit log", where=str(root), hint="a server keeps one from the first token of a client on"
        )
    try:
        end = log.read(lambda line: told.take(line, noted[0] if noted else 0))
    except AuditError as error:
        return AuditVerdict((Check("lines", "wrong", error.message),), CANNOT, 0, "")
    checks = [Check("lines", "ok", f"{end.seq} lines, each follows from the one before"), *_seals(log, end)]
    checks += [*_endings(log, end, told), *_remarks(told)]
    if noted:
        checks.append(_noted(told, *noted))
    checks += _against_runs(root, told)
    cannot = [NO_KEY] if any(one.state == "unchecked" and one.what == "seals" for one in checks) else [CANNOT[0]]
    cannot += [NO_NOTE] if log.mark is None else []
    return AuditVerdict(tuple(checks), (*cannot, *CANNOT[1:]), end.seq, end.sum)


def _seals(log: AuditLog, end: End) -> list[Check]:
    if log.key is None or log.key.id != end.sealed_by:
        return [Check("seals", "unchecked", f"the key that seals it (id {end.sealed_by}) is not here")]
    return [Check("seals", "ok", "every line was sealed with the key that is here")]


def _endings(log: AuditLog, end: End, told: _Told) -> list[Check]:
    """The end: what the note beside the key says, and what a crash has torn."""
    found = [Check("end", "ok", "the note beside the key agrees")]
    if log.mark is None:
        found = [Check("end", "unchecked", "there is no note about this log beside the key")]
    if end.torn:
        said = f"{len(end.torn)} bytes behind line {end.seq} are torn: a write is under way, or was cut short"
        found.append(Check("end", "unchecked", said))
    return found


def _remarks(told: _Told) -> list[Check]:
    found = []
    if told.first_time:
        said = f"the log was begun anew at {told.first_time}: what came before is in the file that was moved away"
        found.append(Check("beginning", "unchecked", said))
    if told.mended:
        found.append(Check("torn ends", "unchecked", f"{told.mended} write(s) were cut short, moved aside and noted"))
    if told.cut or told.open:
        said = f"{told.cut + len(told.open)} change(s) were asked for and have no answer: under way, or the server died"
        found.append(Check("answers", "unchecked", said))
    if told.back:
        said = f"the clock was set back {len(told.back)} time(s), first at line {told.back[0]}"
        found.append(Check("times", "unchecked", said))
    return found


def _noted(told: _Told, number: int, total: str) -> Check:
    if told.noted is None:
        return Check("noted line", "wrong", f"there is no line {number} any more")
    if not told.noted.startswith(total):
        return Check("noted line", "wrong", f"line {number} is not the one that was noted: it was written anew")
    return Check("noted line", "ok", f"line {number} is the one that was noted")


def _against_runs(root: Path, told: _Told) -> list[Check]:
    """Whether every run of a client was submitted, approved where it had to be, and has spent what the log says."""
    accepted = {place.folder.name: _accepted(place.work) for place in workspaces(root / "runs")}
    mine = {run: known for run, known in accepted.items() if "client" in known}
    runs = {run: str(known.get("table")) for run, known in mine.items()}
    runs |= {run: str(data.get("table")) for run, data in told.submitted.items()}
    charges = _charges(set(runs.values()))
    lookers: tuple[tuple[str, Callable[[str], str | None]], ...] = (
        ("submissions", lambda run: _unsubmitted(run, told, mine)),
        ("approvals", lambda run: _unapproved(run, told, charges.get(runs[run], {}))),
        ("charges", lambda run: _unlike(run, told, charges.get(runs[run], {}))),
    )
    found = []
    for what, look in lookers:
        wrong = [Check(what, "wrong", said) for run in sorted(runs) if (said := look(run))]
        found += wrong or [Check(what, "ok", f"{len(runs)} run(s) agree")]
    unread = [table for table, known in charges.items() if known is None]
    return found + [Check("ledgers", "unchecked", f"the ledger of {table} cannot be read") for table in sorted(unread)]


def _accepted(work: WorkFolder) -> dict[str, Any]:
    return read_json(work.accepted) or {}


def _charges(tables: set[str]) -> dict[str, dict[str, dict[str, float]] | None]:
    """What each run was charged, by table; None where a ledger cannot be read."""
    found: dict[str, dict[str, dict[str, float]] | None] = {}
    for table in tables:
        try:
            found[table] = spent_by(Ledger.open(table).charges())
        except SelPEError:
            found[table] = None
    return found


def _unsubmitted(run: str, told: _Told, mine: Mapping[str, Mapping[str, Any]]) -> str | None:
    known = mine.get(run)
    if run not in told.submitted:
        before = str((known or {}).get("submitted", "")) < told.first_time
        return None if before else f"{run} is among the runs, and no line says who submitted it"
    if known is not None and known.get("client") != told.submitted[run].get("client"):
        return f"{run} was submitted by another client than its folder says"
    return None


def _unapproved(run: str, told: _Told, charges: Mapping[str, Any] | None) -> str | None:
    submitted, approved = told.submitted.get(run), told.approved.get(run)
    if submitted is None or not submitted.get("waits") or run not in (charges or {}):
        return None
    if approved is None:
        return f"{run} has spent ε, and no line says who approved it"
    if approved.get("person") == submitted.get("person"):
        return f"{run} was submitted and approved by the same person"
    return None


def _unlike(run: str, told: _Told, charges: Mapping[str, Any] | None) -> str | None:
    spent = told.spent.get(run)
    if spent is None or charges is None:
        return None
    if (charges.get(run) or {}).get("charges", 0) < spent.get("charges", 0):
        return f"{run}: the log knows of {spent.get('charges')} charges, its ledger of fewer"
    return None
