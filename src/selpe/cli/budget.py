"""`selpe budget`: what was spent on a table, by which runs, and how much may be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selpe.cli.console import emit, err, json_mode, out, plain_console
from selpe.errors import BudgetError, ConfigError, DataError

if TYPE_CHECKING:
    from rich.table import Table

    from selpe.privacy.ledger import Budget, Ledger
    from selpe.privacy.ledger.journal import Entry

_BAR = 30

Dataset = Annotated[str, typer.Argument(help="The data set's name, as in `dataset:` of the run settings.")]


def register(app: typer.Typer) -> None:
    """Adds `selpe budget` and its commands."""
    budget = typer.Typer(no_args_is_help=True, help="What was spent on a table, and how much may be.")
    budget.command("show")(show)
    budget.command("set")(set_cap)
    budget.command("history")(history)
    budget.command("free")(free)
    budget.command("reseal")(reseal)
    app.add_typer(budget, name="budget")


def show(
    dataset: Annotated[str | None, typer.Argument(help="One data set; all of them without it.")] = None,
) -> None:
    """Shows what was spent and what is left, under both neighbour relations."""
    from selpe.privacy.ledger import Ledger, ledger_root

    names = [dataset] if dataset else Ledger.names()
    ledgers = [_known(name) if dataset else Ledger.open(name) for name in names]
    summaries = [summary(ledger) for ledger in ledgers]
    if json_mode():
        emit(summaries[0] if dataset else {"datasets": summaries})
        return
    if not summaries:
        out().print(f"No table has a ledger in {ledger_root()} yet.", markup=False, soft_wrap=True)
    for found in summaries:
        _render(found)


def set_cap(
    dataset: Dataset,
    *,
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent on this table.")],
    adjacency: Annotated[str, typer.Option(help="What ε is about: replace-one or add-remove.")] = "replace-one",
    delta: Annotated[float, typer.Option(help="The most δ; needed for Gaussian noise and DP-SGD.")] = 0.0,
    composition: Annotated[
        str | None, typer.Option(help="basic (sums), joint (Rényi) or gaussian (exact); joint where delta is above 0.")
    ] = None,
    widen: Annotated[bool, typer.Option("--raise", help="Allow more than was promised before.")] = False,
    reason: Annotated[str, typer.Option(help="Why; recorded for good. Needed with --raise.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Sets the cap on a table. It can be lowered at any time; raising it is recorded with its reason."""
    from selpe.privacy.ledger import Budget, Ledger
    from selpe.privacy.ledger.charges import COMPOSITIONS

    if adjacency not in ("replace-one", "add-remove"):
        raise ConfigError("adjacency must be 'replace-one' or 'add-remove'", where="--adjacency")
    if composition not in (None, *COMPOSITIONS):
        raise ConfigError(f"composition must be one of {', '.join(COMPOSITIONS)}", where="--composition")
    chosen: Any = composition or ("joint" if delta > 0 else "basic")
    wanted = Budget(epsilon, adjacency, delta, chosen)  # type: ignore[arg-type]
    ledger = Ledger.open(dataset)
    before = ledger.budget
    if widen and before is not None and wanted.widens(before):
        _confirm_raise(before, wanted, reason, yes=yes)
    ledger.set_budget(
        wanted.epsilon, wanted.adjacency, delta, composition=wanted.composition, widen=widen, reason=reason
    )
    emit(summary(ledger))
    if not json_mode():
        _render(summary(ledger))


def history(
    dataset: Dataset,
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Say how far the ledger could be checked.")] = False,
) -> None:
    """Lists every entry of a ledger, and checks each line."""
    ledger = _known(dataset)
    reading = ledger.read()
    verdict = {
        "entries": len(reading.entries),
        "chain": "whole",
        "seals_checked": len(reading.entries) - reading.unchecked,
        "seals_unchecked": reading.unchecked,
        "key": reading.sealed_by,
        "torn_bytes": len(reading.torn),
    }
    if json_mode():
        numbers = _numbers(reading.entries)
        listed = [
            {"seq": e.seq, "time": e.time, "kind": e.kind, **e.data}
            | ({"number": numbers[e.seq]} if e.seq in numbers else {})
            for e in reading.entries
        ]
        emit({"dataset": ledger.dataset, "file": str(ledger.path), "verified": verdict, "entries": listed})
        return
    _list(reading.entries)
    if verify:
        _render_verdict(ledger, verdict)
    elif reading.torn or reading.unchecked:
        err().print("[yellow]Not everything could be checked; see --verify.[/]")


def free(
    dataset: Dataset,
    runs: Annotated[list[str] | None, typer.Argument(help="The runs; all that no process works on without it.")] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Frees what dead runs have reserved. What they spent stays spent; they can be resumed if the rest fits."""
    ledger = _known(dataset)
    held = {row["run"]: row for row in reserved(ledger)}
    for run in runs or []:
        if run not in held:
            raise ConfigError("this run has nothing reserved", where=run, hint=f"selpe budget show {dataset}")
        if held[run]["working"]:
            raise ConfigError("a process works on this run", where=run, hint="stop it first; what it drew stays spent")
    chosen = runs or [run for run, row in held.items() if not row["working"]]
    if chosen and not yes:
        _confirm_free([held[run] for run in chosen])
    for run in chosen:
        ledger.settle(run, "freed")
    emit({"freed": chosen, **summary(ledger)})
    if not json_mode():
        out().print(f"freed: {', '.join(chosen) or 'nothing'}", markup=False)
        _render(summary(ledger))


def reseal(
    dataset: Dataset,
    reason: Annotated[str, typer.Option(help="What happened to the old key; recorded for good.")],
) -> None:
    """Accepts a ledger as it is under the present key, when the key that signed it is lost."""
    ledger = _known(dataset)
    ledger.reseal(reason)
    emit(summary(ledger))
    if not json_mode():
        out().print(f"{ledger.dataset} is sealed with the present key from here on.")


def summary(ledger: Ledger) -> dict[str, Any]:
    """Everything `show` says, as plain data."""
    from selpe.privacy.ledger.charges import spent_by

    reading = ledger.read()
    total, cap, charges = ledger.spent(), ledger.budget, ledger.charges()
    used = cap.used(charges) if cap else None
    taken = cap.used([*charges, *ledger.reserved()])[0] if cap else None
    return {
        "dataset": ledger.dataset,
        "budget": cap.to_dict() if cap else None,
        "used": {"epsilon": used[0], "delta": used[1]} if used else None,
        "left": max(0.0, cap.epsilon - used[0]) if cap and used else None,
        "free": max(0.0, cap.epsilon - taken) if cap and taken is not None else None,
        "reserved": reserved(ledger),
        "spent": {
            "epsilon_add_remove": total.epsilon_add_remove,
            "epsilon_replace_one": total.epsilon_replace_one,
            "delta": total.delta,
        },
        "by_run": spent_by(charges),
        "charges": total.charges,
        "without_result": total.without_result,
        "units": list(total.units),
        "not_private": total.not_private,
        "seals": "checked" if not reading.unchecked else "not all could be checked",
        "torn": bool(reading.torn),
        "file": str(ledger.path),
    }


def reserved(ledger: Ledger) -> list[dict[str, Any]]:
    """What runs have reserved and not drawn yet, and whether a process of this machine works on them."""
    from selpe.run.manifest import is_worked_on

    cap = ledger.budget
    return [
        {
            "run": held.run,
            "epsilon": cap.used(held.charges)[0] if cap else 0.0,
            "since": held.since,
            "folder": held.folder,
            "working": is_worked_on(Path(held.folder)),
        }
        for held in ledger.reservations().values()
    ]


# -- rendering ------------------------------------------------------------------------------------------------------


def _render(found: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = out()
    cap, spent = found["budget"], found["spent"]
    console.print(f"[bold]{escape(found['dataset'])}[/]")
    if cap:
        share = found["used"]["epsilon"] / cap["epsilon"] if cap["epsilon"] else 1.0
        console.print(f"  {_bar(share)} ε {found['used']['epsilon']:.4g} of {cap['epsilon']:g}", end="")
        delta = f", δ {found['used']['delta']:.3g} of {cap['delta']:g}" if cap["delta"] else ""
        console.print(f"{delta} ({cap['adjacency']}, {cap['composition']} composition)")
    else:
        console.print("  no budget set yet: the next run that spends sets it")
    table = Table(box=None, padding=(0, 2))
    for name, right in (("run", "left"), ("charges", "right"), ("ε replace-one", "right"), ("ε add-remove", "right")):
        table.add_column(name, justify=right)  # type: ignore[arg-type]
    for run, row in found["by_run"].items():
        cells = (f"{row[name]:.4g}" for name in ("epsilon_replace_one", "epsilon_add_remove"))
        table.add_row(escape(run), str(row["charges"]), *cells)
    table.add_row(
        "all", str(found["charges"]), f"{spent['epsilon_replace_one']:.4g}", f"{spent['epsilon_add_remove']:.4g}"
    )
    _print(table)
    for held in found["reserved"]:
        state = "running" if held["working"] else "no process works on it"
        text = f"{held['run']}: ε {held['epsilon']:.4g} reserved since {held['since'][:16].replace('T', ' ')}, {state}"
        console.print(f"  {text}", markup=False, highlight=False)
    for remark in _remarks(found):
        console.print(f"  [yellow]{escape(remark)}[/]")


def _remarks(found: dict[str, Any]) -> list[str]:
    lost = found["without_result"]
    remarks = {
        "A control without noise (ε = ∞) has read this table: its output is not a private release.": found[
            "not_private"
        ],
        f"{lost} charge(s) without a stored result: lost in a crash, or still running. They count.": lost,
        f"What dead runs have reserved: finish them (`selpe resume`), or `selpe budget free {found['dataset']}`.": any(
            not held["working"] for held in found["reserved"]
        ),
        "The last line was torn by a crash. It was never used, and is moved aside at the next write.": found["torn"],
        "The key is missing or another one: an edit might go unnoticed. See `selpe budget history --verify`.": (
            found["seals"] != "checked"
        ),
    }
    return [text for text, holds in remarks.items() if holds]


def _bar(share: float) -> str:
    full = min(_BAR, round(max(0.0, share) * _BAR))
    colour = "green" if share < 0.75 else "yellow" if share < 1 - 1e-9 else "red"
    return f"[{colour}]{'█' * full}[/][dim]{'░' * (_BAR - full)}[/]"


def _list(entries: tuple[Entry, ...]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    for name in ("#", "time (UTC)", "entry", "what"):
        table.add_column(name)
    numbers = _numbers(entries)
    for entry in entries:
        kind = f"{entry.kind} {numbers[entry.seq]}" if entry.seq in numbers else entry.kind
        table.add_row(str(entry.seq), entry.time[:19].replace("T", " "), kind, escape(_told(entry)))
    _print(table)


def _numbers(entries: tuple[Entry, ...]) -> dict[int, int]:
    """The numbers by which privacy cards and seals know charges and releases: each kind counted by itself."""
    found: dict[int, int] = {}
    for kind in ("charge", "release"):
        found |= {entry.seq: number for number, entry in enumerate((e for e in entries if e.kind == kind), 1)}
    return found


def _print(table: Table) -> None:
    console = out()
    # A pipe or a log has no width to fold columns into: lines stay whole there.
    wide = console if console.is_terminal else plain_console(file=console.file, width=1000)
    wide.print(table)


def _told(entry: Entry) -> str:
    """One entry in words; as it stands where it does not hold what it must, as in a ledger that somebody rewrote."""
    try:
        return _what(entry)
    except (LookupError, TypeError, ValueError, AttributeError):
        return f"not understood: {json.dumps(dict(entry.data), ensure_ascii=False)}"


def _what(entry: Entry) -> str:
    """One entry in words."""
    data = entry.data
    match entry.kind:
        case "charge":
            price = f"ε {data['epsilon_replace_one']} replace-one, {data['epsilon_add_remove']} add-remove"
            price += f", δ {data['delta']:g}" if data["delta"] else ""
            return f"{data['run']} / {data['selection']}: {price} ({data['mechanism']})"
        case "result":
            return f"{data['run']} / {data['selection']}: stored, paid by #{data['charge']}"
        case "release":
            return f"{data['run']}: {len(data['files'])} files, sealed"
        case "budget":
            raised = f" RAISED: {data['reason']}" if data["raised"] else ""
            return f"ε {data['epsilon']:g}, δ {data['delta']:g}, {data['adjacency']}, {data['composition']}{raised}"
        case "table":
            overlap = data["overlap"]
            seen = "first seen" if overlap is None else f"changed, about {overlap:.0%} of the rows in common"
            over = f"; owner insisted although known as {', '.join(data['insisted_over'])}"
            return seen + (over if data["insisted_over"] else "")
        case "reserve":
            return f"{data['run']}: {len(data['charges'])} charge(s) set aside"
        case "settle":
            return f"{data['run']}: {data['outcome']}; nothing is set aside for it any more"
        case "repair":
            return f"{data['bytes']} torn bytes moved to {data['kept']}"
        case _:
            return json.dumps({k: v for k, v in data.items() if k != "key"}, ensure_ascii=False)


def _render_verdict(ledger: Ledger, verdict: dict[str, Any]) -> None:
    console = out()
    console.print(f"{verdict['entries']} entries in {ledger.path}: the chain is whole, and the head agrees.")
    if verdict["seals_unchecked"]:
        console.print(
            f"[yellow]{verdict['seals_unchecked']} seals could not be checked: key {verdict['key']} is not here.[/]"
        )
    else:
        console.print("Every seal holds.")
    if verdict["torn_bytes"]:
        console.print(f"[yellow]{verdict['torn_bytes']} torn bytes at the end: a write was cut short; never used.[/]")


def _confirm_raise(before: Budget, wanted: Budget, reason: str, *, yes: bool) -> None:
    if not reason.strip():
        raise BudgetError("raising a budget needs a reason, which is recorded", hint='add --reason "why"')
    if yes:
        return
    if not sys.stdin.isatty():
        raise BudgetError("raising a budget must be confirmed", hint="add --yes")
    change = f"from ε {before.epsilon:g} ({before.adjacency}) to ε {wanted.epsilon:g} ({wanted.adjacency})"
    if not typer.confirm(f"Raise the budget {change}? Everything released so far becomes less private", err=True):
        raise BudgetError("the budget was not raised")


def _confirm_free(rows: list[dict[str, Any]]) -> None:
    names = ", ".join(f"{row['run']} (ε {row['epsilon']:.4g})" for row in rows)
    if not sys.stdin.isatty():
        raise BudgetError(f"freeing what is reserved must be confirmed: {names}", hint="add --yes")
    if not typer.confirm(f"Free what these runs have reserved? {names}", err=True):
        raise BudgetError("nothing was freed")


def _known(dataset: str) -> Ledger:
    from selpe.privacy.ledger import Ledger

    ledger = Ledger.open(dataset)
    if not ledger.exists:
        raise DataError(
            "no ledger of this name",
            where=ledger.dataset,
            hint=f"known: {', '.join(Ledger.names()) or 'none yet'}; set a budget to start one",
        )
    return ledger
