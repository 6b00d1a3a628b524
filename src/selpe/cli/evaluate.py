"""`selpe evaluate`, `report`, `compare`: is a synthetic table useful, faithful and private, and which run is best?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ConfigError
from selpe.owner_only import write_text
from selpe.run.workspace import InternalFolder, Workspace

if TYPE_CHECKING:
    from selpe.intake.options import ReadingOptions
    from selpe.models.encoders.base import Encoder
    from selpe.report.evaluate import Evaluation

LINE_EVERY = 10.0  # seconds between lines of progress where there is no terminal
_COLOURS = {"good": "green", "fair": "yellow", "poor": "red", "alarm": "bold red", "unknown": "dim"}

What = Annotated[
    str, typer.Argument(help="A run (its folder or name), or any synthetic table with --schema.", show_default=False)
]
Test = Annotated[Path | None, typer.Option(help="Real records to test on; default: `test` of the run's settings.")]
Holdout = Annotated[Path | None, typer.Option(help="Real records that were not used, to set attacks against.")]
Private = Annotated[Path | None, typer.Option(help="The private table; default: where the run found it.")]
NoPrivate = Annotated[bool, typer.Option("--no-private", help="Leave the private table alone: no attacks.")]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="The schema, for a table that is not from a run.")]
Views = Annotated[str, typer.Option(help="Models that are trained: minilm, boosted, roberta, tabstar.")]
Control = Annotated[str | None, typer.Option(help="A run with ε = 0, to see what the private table added.")]
EncoderName = Annotated[str | None, typer.Option("--encoder", help="The encoder; default: the run's, or minilm.")]
Seeds = Annotated[int, typer.Option(min=1, max=100, help="Trainings to average over.")]
DayFirst = Annotated[
    bool | None,
    typer.Option("--day-first/--month-first", help="What 03/04/2024 is: 3 April, or 4 March.", show_default=False),
]
Decimal = Annotated[Literal[".", ","] | None, typer.Option(help="The decimal mark of numbers.", show_default=False)]
BlankBadCells = Annotated[
    bool, typer.Option("--blank-bad-cells", help="Read cells that do not fit as missing, in optional fields.")
]
Encoding = Annotated[str | None, typer.Option(help="The text encoding of the tables.", show_default=False)]
ShowReal = Annotated[bool, typer.Option("--show-real", help="Show real records beside synthetic ones.")]
To = Annotated[Path | None, typer.Option("--to", help="The folder to write to; default: internal/ of the run.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


def register(app: typer.Typer) -> None:
    """Adds the commands that evaluate synthetic tables."""
    for command in (evaluate, report, compare):
        app.command(command.__name__)(command)


def evaluate(
    what: What,
    *,
    test: Test = None,
    holdout: Holdout = None,
    private: Private = None,
    no_private: NoPrivate = False,
    schema: SchemaFile = None,
    views: Views = "minilm,boosted",
    control: Control = None,
    encoder: EncoderName = None,
    seeds: Seeds = 1,
    day_first: DayFirst = None,
    decimal: Decimal = None,
    blank_bad_cells: BlankBadCells = False,
    encoding: Encoding = None,
    show_real: ShowReal = False,
    to: To = None,
    open_page: Open = False,
) -> None:
    """Evaluate a synthetic table: utility, fidelity, attacks. The report is internal: it reads private rows."""
    from selpe.report.evaluate import judge_material, require_outside_release
    from selpe.report.gather import gather
    from selpe.schema import Schema

    source = _located(what)
    target = to or (Workspace(source).internal.folder if source.is_dir() else Path(f"{source.stem}-evaluation"))
    require_outside_release(target)
    chosen = _views(views)
    with _progress() as tell:
        tell("reading", 0.0)
        material = gather(
            source,
            schema=None if schema is None else Schema.load(schema),
            test=test,
            private=False if no_private else private,
            holdout=holdout,
            control=None if control is None else _located(control),
            reading=_reading(source, day_first, decimal, blank_bad_cells, encoding),
        )
        opened = _encoder(encoder, source)
        found = judge_material(
            material, encoder=opened, views=chosen, seeds=seeds, show_real=show_real, progress=tell
        )  # fmt: skip
    _conclude(found, found.write(target), open_page=open_page)


def report(what: What, *, open_page: Open = False) -> None:
    """Write the internal report of a run again from its evaluation, and say where the summary of its release is."""
    from selpe.privacy.sealing import require_whole
    from selpe.run.lifecycle import Run

    folder = _located(what)
    if not Workspace(folder).is_run:
        raise ConfigError("this is not a run", where=what, hint="`selpe runs` lists them")
    run = Run.open(folder)
    places: dict[str, Path] = {}
    if run.manifest.get("state") == "done":
        require_whole(run.release, run.manifest)
        places["summary"] = run.workspace.release.summary
    if run.workspace.internal.evaluation.is_file():
        places["report"] = _rendered(folder, run.schema)
    emit({"report": {name: str(path) for name, path in places.items()}})
    if not json_mode():
        _show_pages(places, what)
    if open_page and places:
        _open(places.get("report") or places["summary"])


def compare(
    what: Annotated[list[str], typer.Argument(help="Two or more evaluated runs.", show_default=False)],
    *,
    to: Annotated[Path, typer.Option("--to", help="The page to write.")] = Path("comparison.html"),
    open_page: Open = False,
) -> None:
    """Compare evaluated runs: one table and one chart. The page is internal."""
    from selpe.report.compare import compare_page, compared
    from selpe.report.evaluate import require_outside_release

    if len(what) < 2:
        raise ConfigError("there must be at least two runs to compare", hint="`selpe runs` lists them")
    require_outside_release(to)
    rows = compared([_evaluation(name) for name in what])
    try:
        write_text(to, compare_page(rows))
    except OSError as error:
        raise ConfigError(f"the page cannot be written ({error.strerror})", where=str(to)) from None
    emit({"comparison": {"page": str(to), "runs": rows}})
    if not json_mode():
        _show_comparison(rows, to)
    if open_page:
        _open(to)


# -- finding things --------------------------------------------------------------------------------------------------


def _located(what: str) -> Path:
    """The run or table that a word names: a path, or the name of a run."""
    from selpe.cli.run import runs_folder

    for path in (Path(what), runs_folder(None) / what):
        if path.exists():
            return path
    raise ConfigError("there is no such run or table", where=what, hint="`selpe runs` lists the runs")


def _views(text: str) -> list[str]:
    from selpe.evaluation.views import VIEWS

    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name.partition(":")[0] not in VIEWS]
    if unknown or not chosen:
        raise ConfigError(f"views must be of {', '.join(VIEWS)}", where="--views")
    return chosen


def _reading(
    source: Path, day_first: bool | None, decimal: Literal[".", ","] | None, blank_bad_cells: bool, encoding: str | None
) -> ReadingOptions | None:
    """How the tables are read: as asked, and else as a run reads its own; None where nothing was asked."""
    from dataclasses import replace

    from selpe.intake.options import ReadingOptions
    from selpe.run.lifecycle import Run

    asked: dict[str, Any] = {"day_first": day_first, "decimal": decimal, "encoding": encoding}
    asked = {name: value for name, value in asked.items() if value is not None}
    asked |= {"blank_bad_cells": True} if blank_bad_cells else {}
    if not asked:
        return None
    known = ReadingOptions.of(Run.open(source).config) if Workspace(source).is_run else ReadingOptions()
    return replace(known, unit=None, **asked)


def _encoder(given: str | None, source: Path) -> Encoder:
    """The encoder that was asked for, else the run's own."""
    from selpe.cli.fetch_bar import fetch_bar
    from selpe.run.lifecycle import Run
    from selpe.run.session import open_encoder

    name = given or (Run.open(source).config.encoder if source.is_dir() else "minilm")
    with fetch_bar() as bar:
        return open_encoder(name, progress=bar)


def _evaluation(what: str) -> dict[str, Any]:
    """The evaluation of a run, or of a folder that `selpe evaluate` wrote."""
    folder = _located(what)
    for path in (folder, Workspace(folder).internal.evaluation, InternalFolder(folder).evaluation):
        if path.is_file():
            try:
                content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
                content["verdict"]["headline"]
            except (OSError, ValueError, KeyError, TypeError):
                raise ConfigError("this is not an evaluation", where=str(path)) from None
            return content
    raise ConfigError("this run has not been evaluated yet", where=what, hint=f"selpe evaluate {what} --test test.csv")


def _rendered(folder: Path, schema: Any) -> Path:
    from selpe.report.render import report_page

    content = _evaluation(str(folder))
    page = Workspace(folder).internal.report
    try:
        write_text(page, report_page(content, schema))
    except (KeyError, TypeError):
        raise ConfigError(
            "the evaluation is of another version", where=str(folder), hint="`selpe evaluate` makes it again"
        ) from None
    return page


# -- saying things ---------------------------------------------------------------------------------------------------


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A listener that shows how far the evaluation is: a bar, lines now and then, or JSON."""
    if json_mode():
        yield lambda stage, share: emit({"progress": {"stage": stage, "share": round(share, 3)}})
        return
    if not err().is_terminal:
        yield _lines()
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", justify="left"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda stage, share: bar.update(task, description=f"{stage:<44}"[:44], completed=share)


def _lines() -> Callable[[str, float], None]:
    last, told = time.monotonic() - LINE_EVERY, ""

    def tell(stage: str, share: float) -> None:
        nonlocal last, told
        part = stage.partition(":")[0]
        if part == told and time.monotonic() - last < LINE_EVERY:
            return
        last, told = time.monotonic(), part
        err().print(f"{100 * share:3.0f} % {stage}", markup=False)

    return tell


def _conclude(found: Evaluation, page: Path, *, open_page: bool) -> None:
    content = found.content
    emit(
        {
            "evaluation": {
                "verdict": content["verdict"], "tables": content["tables"], "report": str(page),
                "data": str(InternalFolder(page.parent).evaluation), "seconds": content["seconds"],
            }
        }
    )  # fmt: skip
    if not json_mode():
        _show_verdict(content, page)
    if open_page:
        _open(page)


def _show_verdict(content: Mapping[str, Any], page: Path) -> None:
    from rich.markup import escape

    from selpe.cli.conduct import shown
    from selpe.cli.outcome import grid, print_table

    console, verdict, rows = out(), content["verdict"], grid()
    console.print(f"[{_COLOURS[verdict['grade']]}]{escape(verdict['headline'])}[/]")
    console.print()
    for finding in verdict["findings"]:
        colour = _COLOURS[finding["grade"]]
        rows.add_row(finding["question"], f"[{colour}]{escape(finding['answer'])}[/]. {escape(finding['sentence'])}")
    graded = [part for finding in verdict["findings"] for part in finding["parts"]]
    short = [part for part in graded if part["grade"] in ("fair", "poor") or part["name"] == "echoes"]
    for place, part in enumerate(short):
        said = f"{escape(part['title'])}: {part['shown']}, [{_COLOURS[part['grade']]}]{part['grade']}[/]"
        rows.add_row("" if place else f"{len(graded)} figures graded", f"{said} [dim]({escape(part['rule'])})[/]")
    for place, step in enumerate(verdict["steps"]):
        rows.add_row("" if place else "What to do next", escape(step.replace("`", "")))
    rows.add_row("Report", f"{escape(shown(page))} [bold red]internal, not for release[/]")
    print_table(console, rows)
    for note in content["notes"]:
        console.print(f"[yellow]•[/] {escape(note.replace('`', ''))}", soft_wrap=True)


def _show_pages(places: Mapping[str, Path], what: str) -> None:
    from rich.markup import escape

    from selpe.cli.conduct import shown

    about = {"summary": "may be released", "report": "[bold red]internal, not for release[/]"}
    for name, path in places.items():
        out().print(f"{escape(shown(path))}  {about[name]}", soft_wrap=True)
    if "report" not in places:
        out().print(f"[dim]It has not been evaluated yet: selpe evaluate {escape(what)} --test test.csv[/]")


def _show_comparison(rows: Sequence[Mapping[str, Any]], page: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    from selpe.cli.conduct import shown
    from selpe.cli.outcome import print_table
    from selpe.report.compare import COLUMNS

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run")
    for _, heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for row in rows:
        colour = _COLOURS[row["grade"]]
        cells = [row["shown"][key] for key, _ in COLUMNS]
        table.add_row(escape(row["name"]), *cells, f"[{colour}]{escape(row['headline'])}[/]")
    print_table(out(), table)
    if len({row["tested_on"] for row in rows}) > 1:
        out().print("[yellow]•[/] These runs were not tested on the same records: their figures cannot be compared.")
    out().print(f"{escape(shown(page))}  [bold red]internal, not for release[/]", soft_wrap=True)


def _open(page: Path) -> None:
    import webbrowser

    webbrowser.open(page.resolve().as_uri())
