"""What the user sees before a run and after it: the outlook, the result, a few records, and where everything is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from selpe.cli.conduct import shown
from selpe.cli.console import emit, json_mode, out, plain_console
from selpe.run.progress import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from selpe.config import RunConfig
    from selpe.privacy.ledger.charges import Spent
    from selpe.run.estimate import Estimate
    from selpe.run.lifecycle import Run
    from selpe.run.methods import SpendingPlan
    from selpe.run.outcome import Outcome
    from selpe.run.preflight import Preflight
    from selpe.schema import Field, Record, Schema

_SHOWN = 5
_LONGEST = 400  # letters of a cell; texts are wrapped
_WIDE = 110  # columns of a table that goes into a log


def show_outlook(found: Preflight) -> None:
    """Plan and estimate, in a few lines."""
    emit({"outlook": found.as_dict()})
    if json_mode():
        return
    from rich.markup import escape

    plan, expected, config = found.plan, found.estimate, found.config
    console, rows = out(), grid()
    classes = f" in {len(found.schema.labels)} classes" if found.schema.labels else ""
    stated = " (as stated)" if config.rows else ""
    rows.add_row("table", f"{escape(config.dataset)}: {plan.units:,} {_protected(found)}{stated}")
    core = f"; private choices on {config.core:,}" if config.method == "selpe" and plan.records > config.core else ""
    rows.add_row("records", f"{plan.records:,} to write{classes}, from {expected.candidates:,} candidates{core}")
    if config.method != "selpe":
        rows.add_row("method", f"{config.method}, a baseline")
    rows.add_row("privacy", _price(found))
    rows.add_row("plan", ", ".join(plan.steps()))
    if measured := _measured(plan):
        rows.add_row("measured", measured)
    rows.add_row("model", f"{escape(config.llm)}, encoder {escape(config.encoder)}")
    rows.add_row("time", f"about [bold]{duration(expected.seconds)}[/] [dim]({expected.basis})[/]")
    rows.add_row("tokens", tokens_line(expected))
    print_table(console, rows)
    if plan.verdict:
        console.print(f"[dim]{escape(plan.verdict)}[/]")
    for warning in found.warnings:
        console.print(f"[yellow]•[/] {escape(warning)}")
    console.print()


def _measured(plan: SpendingPlan) -> str:
    """What will be counted and how noisily; '' where nothing is."""
    from rich.markup import escape

    from selpe.privacy.measure_words import measuring_steps
    from selpe.privacy.plan import Plan

    last = measuring_steps(plan)[-1:] if isinstance(plan, Plan) else []
    return "".join(f"{escape(one.what)}; {one.noise} rows a cell [dim](to expect: {one.expected})[/]" for one in last)


def _protected(found: Preflight) -> str:
    unit = found.config.unit
    return "records, each one protected" if unit is None else f"values of '{unit}', each with all its records protected"


def _price(found: Preflight) -> str:
    config = found.config
    if math.isinf(config.epsilon):
        return "[bold red]none: ε = ∞ is a control; its output is not private[/]"
    if config.epsilon == 0:
        return "ε = 0: a control that does not look at the table"
    left = "the whole budget of this table" if found.left is None else f"of {found.left:.4g} left on this table"
    if found.left is None and config.budget:
        left = f"of a budget of {config.budget:g} on this table"
    after = found.left_after
    left += "" if after is None else ": no further run will be possible" if after == 0 else f"; {after:.4g} stays left"
    delta = f", δ = {config.delta:g}" if config.delta else ""
    return f"[bold]ε = {config.epsilon:g}[/]{delta} ({config.adjacency}{_apart(config)}), {left}"


def _apart(config: RunConfig) -> str:
    """What a run under add-remove does not cover where it is planned from the true number of units."""
    revealed = config.adjacency == "add-remove" and config.rows is None
    return "" if not revealed else ", the number of records apart" if config.unit is None else ", their number apart"


def tokens_line(expected: Estimate) -> str:
    """What will be read and written, and what that costs where there are prices."""
    shared = f" ({_thousands(expected.cached_tokens)} of them shared)" if expected.cached_tokens else ""
    cost = "" if expected.cost is None else f", about {expected.cost:,.2f} by your prices"
    read, written = _thousands(expected.prompt_tokens), _thousands(expected.completion_tokens)
    return f"about {read} read{shared}, {written} written{cost}"


def show_result(run: Run, outcome: Outcome, *, spent: Spent) -> None:
    """The end of a run: its result, a few of the records, where everything is, and what to do next."""
    manifest: Any = outcome.manifest
    counts = manifest["counts"]
    emit(
        {
            "done": {
                "run": run.name, "folder": str(run.folder), "release": str(run.release),
                "records": len(outcome.records), "seconds": manifest["seconds"], "private": manifest["private"],
                "epsilon": spent.epsilon(run.config.adjacency), "adjacency": run.config.adjacency,
                "delta": spent.delta, "counts": counts, "method": run.config.method,
                "guide": manifest.get("guide"), "bundle": manifest.get("bundle"),
                "measured": run.workspace.release.measurements.exists(),
            }
        }
    )  # fmt: skip
    if json_mode():
        return
    console = out()
    retries, lost = sum(counts["retries"].values()), sum(counts["given_up"].values())
    speed = counts["completion_tokens"] / max(0.1, manifest["seconds"])
    console.print(
        f"[bold green]✓[/] [bold]{len(outcome.records):,} records[/] in {duration(manifest['seconds'])}, "
        f"{_promise(run, outcome, spent)}"
    )
    console.print(
        f"[dim]{counts['candidates']:,} candidates, {retries:,} retries, {lost:,} given up; "
        f"{speed:,.0f} tokens/s{_chosen_guide(manifest)}[/]"
    )
    if manifest.get("missing"):
        console.print(
            f"[yellow]{sum(manifest['missing'].values()):,} fewer than asked for: nothing new came any more.[/]"
        )
    console.print()
    from selpe.cli.records_shown import telling

    if len(outcome.records) > _SHOWN:
        console.print(f"[dim]{_SHOWN} of them, of every class those that read best:[/]")
    show_records(outcome.schema, telling(outcome.schema, outcome.records, _SHOWN))
    console.print()
    show_places(run)


def _chosen_guide(manifest: Any) -> str:
    from rich.markup import escape

    return f"; guide '{escape(manifest['guide'])}'" if manifest.get("guide") else ""


def _promise(run: Run, outcome: Outcome, spent: Spent) -> str:
    if not outcome.manifest["private"]:
        return "[bold red]not private (a control)[/]"
    delta = f", δ = {spent.delta:g}" if spent.delta else ""
    return (
        f"ε = {spent.epsilon(run.config.adjacency):.4g}{delta} ({run.config.adjacency}{_apart(run.config)}) "
        f"spent on '{run.config.dataset}'"
    )


def show_places(run: Run) -> None:
    """Where the files of a run are and what to do with them."""
    console, rows = out(), grid()
    release = run.workspace.release
    rows.add_row("synthetic table", f"{shown(release.csv)} [dim](and .jsonl)[/]")
    rows.add_row("privacy card", f"{shown(release.card_text)} [dim](summary.html shows it with the table)[/]")
    if release.measurements.exists():
        rows.add_row("what was measured", f"{shown(release.measurements)} [dim](noisy counts, free to use)[/]")
    rows.add_row("everything else", f"{shown(run.folder)} [dim]is not for release[/]")
    rows.add_row("judge it", f"selpe evaluate {shown(run.folder)}{'' if run.config.test else ' --test test.csv'}")
    rows.add_row("pack it", f"selpe release {shown(run.folder)}")
    print_table(console, rows)


def show_records(schema: Schema, records: Sequence[Record]) -> None:
    """A few records as a table: the label and the texts first, as many columns as fit."""
    console = out()
    width = console.width if console.is_terminal else _WIDE
    fields = _chosen(schema, width)
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", expand=True, width=width)
    for field in fields:
        table.add_column(
            escape(field.title),
            no_wrap=field.kind != "text",
            overflow="ellipsis",
            ratio=4 if field.kind == "text" else None,
        )
    for record in records:
        table.add_row(*(escape(_cell(field, record)) for field in fields))
    print_table(console, table, width)
    hidden = len(schema.fields) - len(fields)
    if hidden:
        console.print(f"[dim]… and {hidden} more field{'s' if hidden > 1 else ''}[/]")


def _chosen(schema: Schema, width: int) -> list[Field]:
    """Label, then texts, then the others, while there is room; shown in the schema's order behind the label."""
    order = sorted(schema.fields, key=lambda field: (field.name != schema.label, field.kind != "text"))
    taken: list[Field] = []
    room = width
    for field in order:
        need = 26 if field.kind == "text" else max(len(field.title), 10) + 2
        if need > room and taken:
            continue
        taken.append(field)
        room -= need
    return sorted(taken, key=lambda field: (field.name != schema.label, schema.names.index(field.name)))


def _cell(field: Field, record: Record) -> str:
    value = record.get(field.name)
    if value is None:
        return "–"
    text = " ".join(str(value).split()) if not isinstance(value, bool) else ("yes" if value else "no")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def grid() -> Table:
    """A table without lines or headings: names on the left, values on the right."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_table(console: Console, table: Table, width: int | None = None) -> None:
    """Prints a table; off a terminal it gets room enough for its lines to stay whole."""
    if console.is_terminal:
        console.print(table)
    else:
        plain_console(file=console.file, width=width or 400).print(table)


def _thousands(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{max(1, round(count / 1000)):,} k"
