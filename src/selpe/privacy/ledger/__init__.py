"""The ledger of one table: what was spent on it, by which runs, and what came out.

It belongs to the data set, not to a run. A charge is on the disk before the data is read; a result is on the
disk before it is used. A charge whose result was lost in a crash stays paid for. A stored result is final: its
selection can be neither charged nor drawn again. A run reserves what it will be charged before its first look.
"""

from __future__ import annotations

import os
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

from selpe.config import Adjacency
from selpe.errors import BudgetError, ConfigError, LedgerError
from selpe.owner_only import make_folder
from selpe.privacy.ledger.anchor import known_ledgers
from selpe.privacy.ledger.charges import Budget, Charge, Composition, Receipt, Spent, spent
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.fingerprint import Fingerprint
from selpe.privacy.ledger.journal import Entry, Journal, JournalReading, Writer, locked
from selpe.privacy.ledger.key import Key, find_key, make_key
from selpe.privacy.ledger.reservations import RESERVE, SETTLE, Reservation, open_reservations

__all__ = ["Budget", "Charge", "Entry", "Ledger", "Receipt", "RunAccount", "Spent", "ledger_root"]

T = TypeVar("T")
ENV_ROOT = "SELPE_LEDGER"
SAME_ROWS = 0.3  # share of common rows from which a table under a new name counts as the same table


class Ledger:
    """What was spent on one named table. Opening creates nothing; the first write does."""

    def __init__(self, dataset: str, root: Path, *, disk: Disk | None = None) -> None:
        self.dataset = _checked_name(dataset)
        self.root = root
        self._disk = disk
        self._folder = root / quote(self.dataset, safe="")
        self._take_key(find_key())

    @classmethod
    def open(cls, dataset: str, *, root: Path | None = None) -> Ledger:
        """The ledger of this data set, under `root`, `$SELPE_LEDGER` or the user's data folder."""
        return cls(dataset, root or ledger_root())

    @classmethod
    def names(cls, root: Path | None = None) -> list[str]:
        """The data sets that have a ledger here."""
        root = root or ledger_root()
        if not root.is_dir():
            return []
        found = (p for p in root.iterdir() if (p / "ledger.jsonl").exists() or (p / "head.json").exists())
        return sorted(unquote(p.name) for p in found)

    def __str__(self) -> str:
        return self.dataset if self.root == ledger_root() else f"{self.dataset} in {self.root}"

    @property
    def exists(self) -> bool:
        """Whether anything was recorded for this data set."""
        return self._journal.exists

    @property
    def path(self) -> Path:
        """The file itself."""
        return self._journal.path

    # -- reading --------------------------------------------------------------------------------------------

    def read(self) -> JournalReading:
        """The whole file, checked, with what could not be checked and what a crash left behind."""
        if self._journal.key is None:
            self._take_key(find_key())
        return self._journal.read()

    def entries(self) -> list[Entry]:
        """Every entry ever made, in order."""
        return list(self.read().entries)

    def charges(self) -> list[Charge]:
        """Every charge ever made, in order."""
        return _charges(self.entries())

    def spent(self) -> Spent:
        """What everything charged comes to, under both neighbour relations."""
        entries = self.entries()
        return spent(_charges(entries), results=len(_results(entries)))

    def elsewhere(self) -> dict[str, Spent | None]:
        """What was spent on these rows under names that the owner insisted on; None where that ledger is gone."""
        mine, there = _agreed(self.entries()), {name: Ledger(name, self.root) for name in self.names(self.root)}
        others = {name for name, ledger in there.items() if self.dataset in _agreed(ledger.entries())}
        return {name: there[name].spent() if name in there else None for name in sorted(mine | others)}

    @property
    def budget(self) -> Budget | None:
        """The cap in force, or None while there is none."""
        return _budget(self.entries())

    def stored(self, run: str, selection: str) -> dict[str, Any] | None:
        """The result of an earlier selection of this run, or None."""
        found = _results(self.entries()).get((run, selection))
        return None if found is None else dict(found.data["result"])

    def released(self, run: str) -> Entry | None:
        """The line that says what a run has released, or None."""
        return _releases(self.entries()).get(run)

    # -- writing --------------------------------------------------------------------------------------------

    def charge(self, charge: Charge) -> Receipt:
        """A receipt, once the charge is on the disk; raises before anything is spent if it does not fit."""
        with self._writing() as writer:
            if (charge.run, charge.selection) in _results(writer.entries):
                raise LedgerError(
                    f"selection {charge.selection} of run {charge.run} has a stored result and cannot be drawn again",
                    where=self.dataset,
                    hint="use the stored result",
                )
            if charge.run in _releases(writer.entries):
                raise LedgerError(
                    f"run {charge.run} has been released, so nothing more can be drawn for it",
                    where=self.dataset,
                    hint="is the private table the one that the run was made from? Else start a new run",
                )
            budget = _budget(writer.entries)
            if budget is not None:
                budget.require_room(
                    _charges(writer.entries),
                    [charge],
                    dataset=self.dataset,
                    what=f"selection {charge.selection}",
                    outcome="It was not made",
                    reserved=_reserved(writer.entries, but=charge.run),
                )
            elif charge.private and not charge.free:
                raise _no_budget(self.dataset)
            entry = writer.append("charge", charge.to_dict())
        return Receipt(self.dataset, entry.seq, entry.sum, charge)

    def reserve(self, run: str, charges: Sequence[Charge], *, folder: str = "", cap: Budget | None = None) -> None:
        """Sets aside what a run will be charged; raises BudgetError where it does not fit beside all other runs.

        What has a stored result needs nothing set aside. A later call for the same run stands for the earlier one.
        `folder` is where the run lives, for the owner to find it; `cap` becomes the budget where there is none yet.
        """
        priced = [charge for charge in charges if charge.private and not charge.free]
        if not priced:
            return
        with self._writing() as writer:
            drawn = _results(writer.entries)
            wanted = tuple(charge for charge in priced if (run, charge.selection) not in drawn)
            held = _held(writer.entries).get(run)
            if not wanted or (held is not None and held.charges == wanted):
                return
            budget = _budget(writer.entries) or cap
            if budget is None:
                raise _no_budget(self.dataset)
            budget.require_room(
                _charges(writer.entries),
                wanted,
                dataset=self.dataset,
                reserved=_reserved(writer.entries, but=run),
            )
            if _budget(writer.entries) is None:
                writer.append("budget", {**budget.to_dict(), "raised": False, "reason": ""})
            writer.append(RESERVE, Reservation(run, wanted, folder).to_dict())

    def settle(self, run: str, outcome: Literal["done", "given up", "freed"]) -> Reservation | None:
        """Ends the reservation of a run, and gives what of it was not drawn; None where there is none.

        What was charged stays charged.
        """
        if not self.exists:
            return None
        with self._writing() as writer:
            held = _held(writer.entries).get(run)
            if held is not None:
                writer.append(SETTLE, {"run": run, "outcome": outcome})
            return held

    def reservations(self) -> dict[str, Reservation]:
        """What runs have set aside and not drawn yet, by run."""
        return _held(self.entries())

    def reserved(self, *, but: str = "") -> list[Charge]:
        """All charges that runs have set aside and not drawn yet, those of one run left out."""
        return _reserved(self.entries(), but=but)

    def store(self, receipt: Receipt, result: Mapping[str, Any]) -> None:
        """Keeps the result that a receipt paid for; returns once it is on the disk."""
        name = (receipt.charge.run, receipt.charge.selection)
        with self._writing() as writer:
            paid = writer.entries[receipt.seq - 1] if receipt.seq <= len(writer.entries) else None
            if paid is None or paid.sum != receipt.sum or paid.kind != "charge":
                raise LedgerError("this receipt is not from this ledger", where=self.dataset)
            if any(e.kind == "result" and e.data["charge"] == receipt.seq for e in writer.entries):
                raise LedgerError("this receipt was used before; one charge pays for one draw", where=self.dataset)
            if name in _results(writer.entries):
                raise LedgerError(
                    f"selection {name[1]} of run {name[0]} has a stored result already",
                    where=self.dataset,
                    hint="another process took the same run up; use the stored result",
                )
            data = {"run": name[0], "selection": name[1], "charge": receipt.seq, "result": _plain(dict(result))}
            writer.append("result", data)

    def account(self, run: str) -> RunAccount:
        """This ledger as one run sees it."""
        return RunAccount(self, run)

    def set_budget(
        self,
        epsilon: float,
        adjacency: Adjacency = "replace-one",
        delta: float = 0.0,
        *,
        composition: Composition | None = None,
        widen: bool = False,
        reason: str = "",
    ) -> Budget:
        """The new cap, recorded. Whatever could allow more than before needs `widen` and a reason."""
        budget = Budget(epsilon, adjacency, delta, composition or ("joint" if delta > 0 else "basic"))
        with self._writing(begin_anew=reason.strip() if widen else "") as writer:
            before = _budget(writer.entries)
            if before == budget:
                return budget
            wider = before is not None and budget.widens(before)
            if before is not None and wider and not (widen and reason.strip()):
                raise BudgetError(
                    f"the budget is ε {before.epsilon:g} ({before.adjacency}); raising it weakens a promise",
                    where=self.dataset,
                    hint='if you mean it: selpe budget set … --raise --reason "why"',
                )
            writer.append("budget", {**budget.to_dict(), "raised": wider, "reason": reason.strip()})
        return budget

    def note(self, text: str) -> None:
        """Records a remark."""
        with self._writing() as writer:
            writer.append("note", {"text": text})

    def record_release(self, run: str, files: Mapping[str, str]) -> Entry:
        """The line with the hashes of what a run releases, on the disk. A run has one release: it is never replaced."""
        with self._writing() as writer:
            known = _releases(writer.entries).get(run)
            if known is None:
                return writer.append("release", {"run": run, "files": dict(files)})
            if known.data["files"] != dict(files):
                raise LedgerError(
                    f"run {run} has been released with other files",
                    where=self.dataset,
                    hint="a run has one release; start a new run under another name",
                )
            return known

    def reseal(self, reason: str) -> None:
        """Accepts the ledger as it stands under the present key, for an owner whose old key is lost."""
        if not reason.strip():
            raise ConfigError("resealing a ledger needs a reason, which is recorded")
        self._take_key(make_key())
        with self._journal.writing(resealing=True) as writer:
            writer.append("reseal", {"reason": reason.strip()})

    def recognise(self, table: Fingerprint, *, insist: bool = False) -> Recognition:
        """Records which table this is; refuses one whose rows are mostly those of another data set's.

        A table that has changed keeps its ledger. `insist` is the owner's word that the common rows are to be counted
        twice.
        """
        _make_root(self.root)
        # One lock for all ledgers: two new names for one table must not be looked up at the same moment.
        with locked(self.root):
            strangers, remarks = self._compared(table)
            here = [other for other in strangers if other.root == self.root]
            if here and not insist:
                names = ", ".join(other.dataset for other in here)
                raise BudgetError(
                    f"these rows are known under another name ({names}); a new name would start anew",
                    where=self.dataset,
                    hint=f"use `dataset: {here[0].dataset}`, or insist with --same-data-new-ledger (it is recorded)",
                )
            remarks += [f"these rows are known as '{other}', too: what was spent there is not counted here"
                        for other in strangers]  # fmt: skip
            with self._writing() as writer:
                overlap = _record_table(writer, table, [other.dataset for other in here])
        return Recognition(overlap, tuple(remarks))

    # -- inside ---------------------------------------------------------------------------------------------

    def _writing(self, *, begin_anew: str = "") -> AbstractContextManager[Writer]:
        if self._journal.key is None:
            # A ledger that exists has a key somewhere; making a new one would only hide that it is missing.
            self._take_key(find_key() if self.exists else make_key())
        return self._journal.writing(begin_anew=begin_anew)

    def _take_key(self, key: Key | None) -> None:
        # A ledger in a folder of its own, such as a demo's, is deleted with it and may begin anew.
        lasting = self.root.resolve() == ledger_root().resolve()
        self._journal = Journal(self._folder, self.dataset, key, disk=self._disk, lasting=lasting)

    def _compared(self, table: Fingerprint) -> tuple[list[Ledger], list[str]]:
        """The ledgers that hold mostly these rows without the owner's word, and what to tell of others."""
        agreed, strangers, remarks = _agreed(self.entries()), [], []
        for other in self._others():
            entries = other.entries()
            common = _common(entries, table)
            if common is None:
                remarks.append(f"'{other}' was made with another key: whether it holds the same rows is not known")
            elif 0 < common < SAME_ROWS:
                remarks.append(f"some of these rows are known as '{other}', too: what was spent there is not counted")
            elif common and other.dataset not in agreed and self.dataset not in _agreed(entries):
                strangers.append(other)
        return strangers, remarks

    def _others(self) -> list[Ledger]:
        """The ledgers of other data sets: in the same folder, and in others that this key was used with for good."""
        here = [Ledger(name, self.root) for name in self.names(self.root) if name != self.dataset]
        roots = {folder.parent for folder in known_ledgers() if folder.parent != self.root.resolve()}
        lasting = self._journal.lasting  # a demo's ledger knows of no other, and is known to none
        return here + [Ledger(name, root) for root in sorted(roots) for name in self.names(root) if lasting]


@dataclass(frozen=True, slots=True)
class Recognition:
    """What a ledger makes of a table: the share of rows in common with the one seen last under this name (None for
    the first), and what its owner should know of other ledgers."""

    overlap: float | None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunAccount:
    """One run's view of a ledger: it charges, and finds its own results again."""

    ledger: Ledger
    run: str

    def charge(self, charge: Charge) -> Receipt:
        """A receipt for one draw of this run."""
        if charge.run != self.run:
            raise LedgerError("a run can only charge for itself", where=self.ledger.dataset)
        return self.ledger.charge(charge)

    def stored(self, selection: str) -> dict[str, Any] | None:
        """The result of an earlier selection of this run, or None."""
        return self.ledger.stored(self.run, selection)

    def store(self, receipt: Receipt, result: Mapping[str, Any]) -> None:
        """Keeps the result that a receipt paid for."""
        self.ledger.store(receipt, result)


def ledger_root() -> Path:
    """The folder of all ledgers: `$SELPE_LEDGER`, else `ledgers` in the user's data folder."""
    if named := os.environ.get(ENV_ROOT):
        return Path(named)
    from platformdirs import user_data_path

    return user_data_path("selpe", appauthor=False) / "ledgers"


def _read_as(entry: Entry, read: Callable[[Mapping[str, Any]], T]) -> T:
    """What a line says. One that is sealed always says it; one of a ledger whose key is not here need not."""
    try:
        return read(entry.data)
    except (LookupError, TypeError, ValueError, AttributeError):
        what = f"line {entry.seq} of the ledger does not hold what a '{entry.kind}' must hold"
        raise LedgerError(what, hint="restore the folder of the ledger from a backup") from None


def _charges(entries: Iterable[Entry]) -> list[Charge]:
    def charge(data: Mapping[str, Any]) -> Charge:
        found = Charge.from_dict(data)
        texts = (found.run, found.selection, found.mechanism, found.unit, found.note)
        if not all(isinstance(text, str) for text in texts) or not isinstance(found.delta, (int, float)):
            raise TypeError
        return found

    return [_read_as(e, charge) for e in entries if e.kind == "charge"]


def _results(entries: Iterable[Entry]) -> dict[tuple[str, str], Entry]:
    def name(data: Mapping[str, Any]) -> tuple[str, str]:
        return str(data["run"]), str(data["selection"])

    return {_read_as(e, name): e for e in entries if e.kind == "result"}


def _releases(entries: Iterable[Entry]) -> dict[str, Entry]:
    def run(data: Mapping[str, Any]) -> str:
        if not all(isinstance(text, str) for text in (*data["files"], *data["files"].values())):
            raise TypeError
        return str(data["run"])

    return {_read_as(e, run): e for e in entries if e.kind == "release"}


def _budget(entries: Iterable[Entry]) -> Budget | None:
    last = None
    for entry in entries:
        if entry.kind == "budget":
            last = entry
    if last is None:
        return None
    names = ("epsilon", "adjacency", "delta", "composition")
    return _read_as(last, lambda data: Budget(**{name: data[name] for name in names}))


def _held(entries: Sequence[Entry]) -> dict[str, Reservation]:
    try:
        return open_reservations(entries)
    except (LookupError, TypeError, ValueError, AttributeError):
        hint = "restore the folder of the ledger from a backup"
        raise LedgerError("a line of the ledger does not hold what a reservation must hold", hint=hint) from None


def _reserved(entries: Sequence[Entry], *, but: str) -> list[Charge]:
    return [charge for run, held in _held(entries).items() if run != but for charge in held.charges]


def _no_budget(dataset: str) -> BudgetError:
    return BudgetError(
        "this data set has no budget yet, so nothing can be spent on it",
        where=dataset,
        hint=f"set one: selpe budget set {shlex.quote(dataset)} --epsilon 1",
    )


def _tables(entries: Iterable[Entry]) -> list[Fingerprint]:
    return [_read_as(e, lambda data: Fingerprint.from_dict(data["table"])) for e in entries if e.kind == "table"]


def _common(entries: Iterable[Entry], table: Fingerprint) -> float | None:
    """The largest share of rows that a table has in common with those of a ledger; None where keys differ."""
    known = _tables(entries)
    comparable = [one.overlap(table) for one in known if one.key == table.key]
    return max(comparable) if comparable else None if known else 0.0


def _agreed(entries: Iterable[Entry]) -> set[str]:
    """The data sets with which this one may share rows, on the owner's word."""
    found = [_read_as(e, lambda data: set(data["insisted_over"])) for e in entries if e.kind == "table"]
    return set().union(*found)


def _record_table(writer: Writer, table: Fingerprint, insisted_over: list[str]) -> float | None:
    seen = _tables(writer.entries)
    comparable = bool(seen) and seen[-1].key == table.key
    overlap = seen[-1].overlap(table) if comparable else None
    if not comparable or insisted_over or seen[-1].whole != table.whole:
        changed = bool(seen) and seen[-1].whole != table.whole
        data = {"table": table.to_dict(), "changed": changed, "overlap": overlap}
        writer.append("table", {**data, "insisted_over": insisted_over})
    return overlap


def _make_root(root: Path) -> None:
    try:
        make_folder(root)
    except OSError as error:
        raise LedgerError("the folder of the ledgers cannot be made", where=str(root)) from error


def _plain(value: Any) -> Any:
    """The value in JSON's own types: array scalars and tuples are common in results."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value


def _checked_name(dataset: str) -> str:
    """The name in one spelling: names that differ only in case or Unicode form are one data set."""
    name = unicodedata.normalize("NFC", dataset).casefold()
    allowed = all(c.isalnum() or c in "._- " for c in name)
    if not name or len(name) > 64 or not allowed or not name[0].isalnum() or name[-1] in ". ":
        raise ConfigError(
            "a data set's name must be 1 to 64 letters, digits, spaces, dots, dashes or underscores, "
            "and must start with a letter or digit"
        )
    return name
