"""Doing a grid for a user at a terminal: estimate first, a bar while it runs, tables at the end, how to continue."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ExitCode, SelPEError, StoppedError

if TYPE_CHECKING:
    from selpe.experiments.blocks import Block
    from selpe.experiments.cells import Bench
    from selpe.experiments.designs import Ask
    from selpe.experiments.grid import Cell
    from selpe.experiments.outlook import GridOutlook
    from selpe.experiments.sources import Source
    from selpe.models.base import ChatModel

_NARROW = frozenset({"ε asked", "spreads", "recall", "TPR kernel", "records"})  # columns that a terminal does without


def do_grid(
    name: str,
    ask: Ask,
    sources: Mapping[str, Source],
    *,
    encoder: str,
    on: str,
    train_python: Path | None,
    out_folder: Path,
    redo: bool,
    show: bool,
    dry_run: bool,
    job: int = 0,
    jobs: int = 1,
) -> None:
    """Does an experiment, or the rest of it, and shows its tables. Of several processes, the first shows them."""
    from selpe.cli.conduct import stopping_at_ctrl_c
    from selpe.cli.grid_display import showing
    from selpe.cli.jobs import others_at_work
    from selpe.experiments.conduct import conduct, pending
    from selpe.experiments.designs import DESIGNS
    from selpe.experiments.outlook import outlook

    cancel = threading.Event()
    cells = list(DESIGNS[name](ask))
    made = _bench(
        ask,
        cells,
        sources,
        encoder=encoder,
        on=on,
        train_python=train_python,
        root=out_folder,
        cancel=cancel,
        redo=redo,
    )
    with made as bench:
        if job:
            _take_part(cells, bench, cancel, job, jobs)
            return
        with err().status("preparing the data"):
            todo = pending(cells, bench)
            expected = outlook(cells, todo, bench)
        _show_outlook(name, expected, cells, bench)
        if show and expected.done:
            _finish(name, ask, cells, bench, {})
        elif show and not json_mode():
            out().print("Nothing of it is done yet.")
        if dry_run or show:
            return
        failed: dict[str, str] = {}
        try:
            with (
                others_at_work(min(jobs, len(todo)), bench.root),
                showing(len(todo)) as listener,
                stopping_at_ctrl_c(cancel),
            ):
                failed = conduct(cells, bench, listener, jobs=jobs).failed
        except StoppedError:
            _finish(name, ask, cells, bench, failed)
            _say_how_to_go_on()
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        except SelPEError:
            _finish(name, ask, cells, bench, failed)
            raise
        _finish(name, ask, cells, bench, failed)
    if failed:
        raise typer.Exit(int(ExitCode.FAILED))


def _take_part(cells: Sequence[Cell], bench: Bench, cancel: threading.Event, job: int, jobs: int) -> None:
    """Does cells for the process that started this one, without output; a cell that fails here is tried there again."""
    from selpe.cli.jobs import PATIENCE
    from selpe.experiments.conduct import conduct
    from selpe.processes import stop_when_let_go

    stop_when_let_go(cancel, PATIENCE)
    conduct(cells, bench, job=job, jobs=jobs)


def _bench(
    ask: Ask, cells: Sequence[Cell], sources: Mapping[str, Source], *, encoder: str, on: str,
    train_python: Path | None, root: Path, cancel: threading.Event, redo: bool,
) -> Bench:  # fmt: skip
    """The place where cells are done; settings that cannot work fail now."""
    from selpe.cli.fetch_bar import fetch_bar
    from selpe.evaluation.views import open_view
    from selpe.evaluation.views.embedding import Embeddings
    from selpe.experiments.cells import Bench
    from selpe.experiments.judging import CellJudge
    from selpe.experiments.trained import TrainPython
    from selpe.run.session import open_encoder, open_model

    with fetch_bar() as bar:
        opened = open_encoder(encoder, progress=bar)
    train = None
    if train_python is not None:
        train = TrainPython(train_python)
        train.require()

    def model(llm: str) -> ChatModel:
        with fetch_bar() as bar:
            return open_model(llm, progress=bar)

    bench = Bench(
        root=root,
        sources=sources,
        judge=CellJudge.of(
            opened,
            ask.size.views,
            on=on,
            most=ask.size.most_test,
            allowed=str(ask.settings.get("allow_private_text_to") or ""),
        ),
        encoder=opened,
        encoder_name=encoder,
        open_model=model,
        pool=max(cell.private for cell in cells),
        train=train,
        cancel=cancel,
        redo=redo,
    )
    first = next(iter(sources.values())).split(root / "data", ask.seeds[0], bench.pool)
    for view in ask.size.views:
        open_view(view, first.schema, Embeddings(opened)).require()
    return bench


# -- before ----------------------------------------------------------------------------------------------------------


def _show_outlook(name: str, expected: GridOutlook, cells: Sequence[Cell], bench: Bench) -> None:
    from selpe.experiments.conduct import refused

    skipped = refused(cells, bench)
    emit({"outlook": {"experiment": name, **expected.as_dict(), "skipped": skipped}})
    if json_mode():
        return
    from rich.markup import escape

    from selpe.cli.conduct import shown
    from selpe.cli.outcome import grid, print_table
    from selpe.report.words import compact
    from selpe.run.progress import duration

    console, rows = out(), grid()
    splits = {(cell.data, cell.seed): bench.split(cell) for cell in cells}
    for data in dict.fromkeys(cell.data for cell in cells):
        (split, *others) = [split for (known, _), split in splits.items() if known == data]
        sizes = f"{len(split.side('private')):,} private, {len(bench.judge.rows(split)):,} to measure on"
        rows.add_row("data", f"{escape(data)}: {sizes}, {1 + len(others)} split{'s' if others else ''}")
    left = expected.cells - expected.done
    rows.add_row("cells", f"{left:,} to do" + (f", {expected.done:,} done already" if expected.done else ""))
    if left:
        rows.add_row("time", f"at most about [bold]{duration(expected.seconds)}[/] [dim]({escape(expected.basis)})[/]")
        rows.add_row("tokens", f"at most about {compact(expected.tokens)} to write; cells share answers")
        slow = sorted(expected.slowest.items(), key=lambda pair: -pair[1])[:3]
        rows.add_row("slowest", ", ".join(f"{escape(row)} {duration(seconds)}" for row, seconds in slow))
    rows.add_row("folder", f"{escape(shown(bench.root))} [dim](own ledgers; not for release)[/]")
    print_table(console, rows)
    for method, why in skipped.items():
        console.print(f"[yellow]skipped[/] {escape(method)}: {escape(why)}")
    if expected.older:
        said = f"{expected.older:,} finished cells were done by another version of the code; --redo does them again"
        console.print(f"[yellow]•[/] {said}")
    if any(source.own for source in bench.sources.values()):
        console.print(
            "[yellow]•[/] Every cell spends its ε on your rows, outside of your budget's ledger. Use what you see here "
            "to choose a method, and release nothing of it."
        )
    console.print()


# -- at the end ------------------------------------------------------------------------------------------------------


def _finish(name: str, ask: Ask, cells: Sequence[Cell], bench: Bench, failed: Mapping[str, str]) -> None:
    """Writes what there is and shows it."""
    from selpe.experiments.conduct import gathered, refused
    from selpe.experiments.outputs import write_outputs
    from selpe.experiments.results import gather
    from selpe.experiments.tables import Setting

    folder = bench.root / name
    results = gather(cells, gathered(cells, bench), bench.key)
    if not results.points:
        return
    setting = Setting(
        experiment=name,
        size=ask.size.name,
        llms=ask.llms,
        encoder=bench.encoder_name,
        views=ask.size.views,
        on=bench.judge.on,
        seeds=ask.seeds,
        per_class=max(map(ask.per_class, ask.data)),
        epsilons=ask.epsilons,
        papers={data: source.paper for data, source in bench.sources.items()},
        skipped=refused(cells, bench),
        failed=failed,
    )
    blocks = write_outputs(results, setting, folder)
    files = sorted(path.name for path in folder.iterdir() if path.suffix in (".md", ".csv", ".parquet", ".svg"))
    emit({"experiment": {"name": name, "folder": str(folder), "files": files, "cells": len(cells),
                         "done": results.done, "failed": dict(failed), "skipped": dict(setting.skipped)}})  # fmt: skip
    if not json_mode():
        _show(name, blocks, folder, files)


def _show(name: str, blocks: Sequence[Block], folder: Path, files: Sequence[str]) -> None:
    from rich.markup import escape

    from selpe.cli.conduct import shown
    from selpe.experiments.blocks import Text

    console = out()
    for block in blocks:
        if isinstance(block, Text):
            if block.content == "Every figure":  # the page has them
                break
            style = "bold" if block.level else "dim"
            console.print(f"[{style}]{escape(block.content)}[/]", soft_wrap=True)
        else:
            _print_block(block)
            console.print()
    console.print(
        f"[bold]{shown(folder / 'table.md')}[/] has everything; in the same folder: {', '.join(files)}", soft_wrap=True
    )


def _print_block(block: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    from selpe.cli.outcome import print_table

    console = out()
    keep = [
        place for place, heading in enumerate(block.headings) if not (console.is_terminal and heading in _NARROW)
    ]  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place in keep:
        table.add_column(escape(block.headings[place]), justify="left" if place == 0 else "right")
    for row in block.rows:
        table.add_row(*(_styled(row[place]) for place in keep))
    print_table(console, table)


def _styled(cell: str) -> str:
    """Markdown's bold as a terminal's."""
    from rich.markup import escape

    before, star, rest = escape(cell).partition("**")
    inside, _, after = rest.partition("**")
    return f"{before}[bold]{inside}[/]{after}" if star else before


def _say_how_to_go_on() -> None:
    emit({"stopped": {"resume": "the same command"}})
    if not json_mode():
        err().print("[yellow]stopped[/]; finished cells are kept. The same command continues.")
