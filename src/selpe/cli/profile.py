"""`selpe run --profile`: where the time of a run went, as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from selpe.cli.console import emit, json_mode, out
from selpe.cli.outcome import print_table
from selpe.run.progress import duration

if TYPE_CHECKING:
    from rich.table import Table

    from selpe.run.lifecycle import Run


def show_profile(run: Run) -> None:
    """The profile of a run that has just been done."""
    found: dict[str, Any] = json.loads(run.workspace.profile.read_text(encoding="utf-8"))
    emit({"profile": found})
    if json_mode():
        return
    console = out()
    console.print()
    print_table(console, _table(found))
    for line in _remarks(found):
        console.print(line, highlight=False, soft_wrap=True)


def _table(found: Mapping[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", no_wrap=True)
    for heading in ("seconds", "cores idle", "answers", "read cold", "read shared", "written", "forced"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stage in (*found["stages"], found["total"]):
        counts = [stage[name] for name in ("answers", "cold", "shared", "written", "forced")]
        cells = [f"{stage['seconds']:.1f}", f"{stage['idle']:.0%}"]
        cells += [f"{count:,}" if count else "" for count in counts]
        table.add_row(escape(stage["stage"]), *cells, style="bold" if stage is found["total"] else "")
    return table


def _remarks(found: Mapping[str, Any]) -> list[str]:
    first, written = found["first_record"], found["total"]["written"]
    lines = [] if first is None else [f"first record after {duration(first)}, the model being open"]
    share = sum(found["thrown"].values()) / max(1, written)
    lines.append(f"thrown away: {share:.1%} of the tokens written{_reasons(found['thrown'])}")
    if found["retries"]:
        lines.append(f"tried again: {sum(found['retries'].values()):,}{_reasons(found['retries'])}")
    if found["replayed"]:
        lines.append(f"{found['replayed']:,} answers came from the disk and cost nothing")
    return [f"[dim]{line}[/]" for line in lines]


def _reasons(counts: Mapping[str, int]) -> str:
    order = sorted(counts.items(), key=lambda item: -item[1])
    return f" ({', '.join(f'{reason} {count:,}' for reason, count in order)})" if counts else ""
