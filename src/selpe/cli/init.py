"""`selpe init`: a draft schema.yaml and selpe.yaml from a table, to be reviewed by a person."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selpe.cli.check import FEW_ROWS
from selpe.cli.console import emit, json_mode, out, waiting
from selpe.errors import ConfigError, SelPEError
from selpe.owner_only import make_folder, write_text

if TYPE_CHECKING:
    from selpe.intake.draft import Draft

_SCHEMA, _CONFIG = "schema.yaml", "selpe.yaml"


def register(app: typer.Typer) -> None:
    """Adds `selpe init`."""
    app.command("init")(init)


def init(
    data: Annotated[
        str | None,
        typer.Argument(
            help="The table: csv, tsv, jsonl, json, parquet, xlsx, or a database URL. To go on with a draft: nothing.",
            show_default=False,
        ),
    ] = None,
    *,
    label: Annotated[str | None, typer.Option(help="The column that says a record's class.")] = None,
    out_folder: Annotated[Path, typer.Option("--out", "-o", help="The folder to write the two files to.")] = Path(),
    public: Annotated[bool, typer.Option("--public", help="The table is public: nothing needs confirming.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    name: Annotated[str | None, typer.Option(help="What to call the data set; default: the file's name.")] = None,
    query: Annotated[str | None, typer.Option(help="The SQL query, when the table is in a database.")] = None,
    sheet: Annotated[str | None, typer.Option(help="The sheet of a workbook, by name or counted from 1.")] = None,
    encoding: Annotated[str | None, typer.Option(help="The text encoding, when it is not found by itself.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="What separates cells, when the header does not tell.")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Then go through the draft here, question by question.")] = False,
    web: Annotated[bool, typer.Option("--web", help="Then open the draft in a page, as `selpe studio` does.")] = False,
) -> None:
    """Draft schema.yaml and selpe.yaml from a table, for a person to review."""
    if ask and web:
        raise ConfigError("--ask and --web are two ways to do the same", hint="leave one of them out")
    targets = [out_folder / _SCHEMA, out_folder / _CONFIG]
    goes_on = (ask or web) and not force and all(path.exists() for path in targets)
    if not goes_on:
        if data is None:
            raise ConfigError("name the table to draft from", hint="selpe init patients.csv")
        options = {"name": name, "query": query, "sheet": sheet, "encoding": encoding, "delimiter": delimiter}
        report(*draft_files(data, out_folder, label=label, public=public, force=force, **options), asked=ask or web)
    if ask:
        from selpe.cli.ask import go_through

        go_through(targets[1])
    if web:
        from selpe.cli.studio import serve_studio

        serve_studio(targets[1])


def draft_files(
    data: str,
    out_folder: Path,
    *,
    label: str | None = None,
    public: bool = False,
    force: bool = False,
    name: str | None = None,
    query: str | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> tuple[Draft, list[Path]]:
    """Drafts and writes the two files; the draft, and where they are."""
    from selpe.intake.draft import draft_schema
    from selpe.intake.draft.conventions import cell_form, text_form
    from selpe.intake.draft.render import config_text
    from selpe.intake.options import ReadingOptions
    from selpe.privacy.units import public_figure, units_in

    targets = [out_folder / _SCHEMA, out_folder / _CONFIG]
    _refuse_overwriting(targets, force)
    text = text_form(data, encoding=encoding, delimiter=delimiter)
    # Read as the settings will have it read, so that the draft is of the table that a run will see.
    with waiting("reading the table"):
        table = ReadingOptions(query, sheet, text.encoding, text.delimiter).table(data)
        dataset = _dataset(name or _stem(data))
        draft = draft_schema(table, name=dataset, label=label, public=public)
    config = config_text(
        draft,
        dataset=dataset,
        data=_location(data, out_folder),
        query=query,
        sheet=sheet,
        text=text,
        cells=cell_form(table, draft.columns),
        rows=public_figure(units_in(table, draft.unit)),
    )
    _write(targets, [draft.to_yaml(), config])
    return draft, targets


def _refuse_overwriting(targets: list[Path], force: bool) -> None:
    there = [str(path) for path in targets if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{' and '.join(there)} exist already", hint="Use --force to overwrite, or --out for another folder."
        )


def _stem(data: str) -> str:
    return data.partition("://")[2].rpartition("/")[2] if "://" in data else Path(data).stem


def _dataset(name: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:80]
    return slug or "records"


def _location(data: str, folder: Path) -> str:
    """How selpe.yaml refers to the table: relative to itself where that stays near, without passwords."""
    if "://" in data:
        return re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", data)
    path = Path(data).resolve()
    try:
        near = Path(os.path.relpath(path, folder.resolve()))
    except ValueError:  # another drive
        return path.as_posix()
    return near.as_posix()


def _write(targets: list[Path], texts: list[str]) -> None:
    problem: SelPEError | None = None
    try:
        make_folder(targets[0].parent)
        for path, text in zip(targets, texts, strict=True):
            write_text(path, text)  # a draft has learned from private rows
    except OSError as error:
        problem = ConfigError(f"the file cannot be written ({error.strerror})", where=str(targets[0].parent))
    if problem is not None:
        raise problem


def report(draft: Draft, targets: list[Path], *, asked: bool = False) -> None:
    """Says what was drafted; and what to do next, unless a person is asked for it at once."""
    emit(
        {
            "schema": str(targets[0]),
            "config": str(targets[1]),
            "rows": draft.rows,
            "columns": [
                {"name": column.name, "kind": column.kind, "notes": list(column.notes)} for column in draft.columns
            ],
            "likely_labels": list(draft.likely_labels),
            "unit": draft.unit,
            "unconfirmed": list(draft.schema.unconfirmed),
            "notes": list(draft.notes),
        }
    )
    if json_mode():
        return
    from rich.markup import escape

    console = out()
    _print_columns(draft)
    for note in draft.notes:
        console.print(f"[dim]{escape(note)}[/]")
    console.print()
    console.print(f"wrote {escape(str(targets[0]))} and {escape(str(targets[1]))}")
    for step in [] if asked else _next_steps(draft):
        console.print(f"  → {escape(step)}")


def _print_columns(draft: Draft) -> None:
    """A grid on a terminal; elsewhere one whole line a column."""
    from rich.markup import escape
    from rich.table import Table as Grid

    console = out()
    if not console.is_terminal:
        width = max(len(column.name) for column in draft.columns)
        for column in draft.columns:
            line = f"{column.name:<{width}}  {column.kind:<10}  {'; '.join(column.notes)}"
            console.print(escape(line.rstrip()))
        return
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for heading in ("column", "drafted as", "noticed"):
        grid.add_column(heading)
    for column in draft.columns:
        style = "" if column.field is not None else "dim"
        grid.add_row(escape(column.name), column.kind, escape("; ".join(column.notes)), style=style)
    console.print(grid)


def _next_steps(draft: Draft) -> list[str]:
    steps = []
    if draft.rows < FEW_ROWS:
        steps.append(f"fewer than {FEW_ROWS} rows: noise will hide nearly all that they say; bring more if you can")
    if draft.schema.label is None and draft.likely_labels:
        steps.append(
            f"if records have classes, name the field that says them as `label`, such as '{draft.likely_labels[0]}'"
        )
    if draft.unit is not None:
        steps.append(
            f"'{draft.unit}' repeats: selpe.yaml names it as the unit of privacy, so each of them is protected"
        )
    if draft.schema.unconfirmed:
        steps.append("go through it in a page: selpe studio (or here, question by question: selpe init --ask)")
        steps.append(
            "or open schema.yaml: replace bounds and values that only this table could tell, describe each field in a "
            "sentence, and delete its line 'confirmed: false'"
        )
    steps.append("open selpe.yaml: look at how the table is read, and whether its number of records may be known")
    steps.append("then run: selpe check")
    return steps
