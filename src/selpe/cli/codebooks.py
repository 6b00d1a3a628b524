"""`selpe preview --codebook`: what a run would count in, before it counts anything. Public, and free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.method.codebooks import Codebook
    from selpe.privacy.measure_plan import MeasurePlan
    from selpe.schema import Schema

ASSUMED_ROWS = 200  # where neither the settings nor the caller say how many rows there are
LEAST_POOL = 24  # candidates: texts and bins of numbers come from them
_SHOWN = 16  # codes of a field on the terminal
_WIDE = 110  # columns of a table that goes into a log


def preview_codebooks(
    settings: RunConfig, schema: Schema, *, rows: int | None, fields: Sequence[str], count: int
) -> None:  # fmt: skip
    """Shows the codebooks of every field that may be measured, or of those named. The table is not opened."""
    from selpe.cli.conduct import opened_model
    from selpe.method.from_settings import plan_of
    from selpe.method.from_settings import preview_codebooks as codebooks_of
    from selpe.run.estimate import stand_in_guides
    from selpe.run.session import open_encoder

    units = rows or settings.rows or ASSUMED_ROWS
    made = plan_of(settings, schema, units=units, guides=len(stand_in_guides(settings, schema)))
    if made.measure is None:
        _say_nothing(made.warnings, off=settings.measure == "off")
        return
    wanted = _wanted(made.measure, fields)
    pool = max(count, LEAST_POOL)
    with opened_model(settings) as model, err().status(f"writing {pool} candidates and phrases") as status:
        encoder = open_encoder(settings.encoder)
        found = codebooks_of(settings, schema, model, encoder, made.measure, pool=pool, fields=wanted)
        status.stop()
    for book in found:
        emit({"codebook": book.to_dict() | {"size": book.size}})
    if not json_mode():
        _show(found, schema)
        _explain(made.measure, units, stated=bool(rows or settings.rows))


def _wanted(measure: MeasurePlan, fields: Sequence[str]) -> list[str]:
    known = measure.fields or measure.candidates
    for name in fields:
        if name not in known:
            raise ConfigError(
                f"'{name}' would not be measured", where="--field", hint=f"these may be: {', '.join(known)}"
            )
    return list(fields or known)


def _say_nothing(warnings: Sequence[str], *, off: bool) -> None:
    why = "the setting 'measure' is off" if off else next((one for one in warnings if "measured" in one), "")
    emit({"codebook": None, "why": why})
    if not json_mode():
        out().print(f"Nothing would be measured: {why}" if off else why, markup=False)


def _show(found: Sequence[Codebook], schema: Schema) -> None:
    from rich.markup import escape
    from rich.table import Table

    from selpe.cli.outcome import print_table

    console = out()
    for book in found:
        field = schema.field(book.name)
        console.print(f"[bold]{escape(field.title)}[/] [dim]({field.kind}, {book.size} codes)[/]")
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="dim", justify="right", no_wrap=True, min_width=3)
        table.add_column(overflow="ellipsis", no_wrap=True)
        for number, code in enumerate(book.words[:_SHOWN], 1):
            table.add_row(str(number), escape(code))
        if book.size > _SHOWN:
            table.add_row("…", f"[dim]and {book.size - _SHOWN} more (all with --json)[/]")
        print_table(console, table, None if console.is_terminal else _WIDE)
        console.print()


def _explain(measure: MeasurePlan, units: int, *, stated: bool) -> None:
    of = f"a table of {units:,} rows" + ("" if stated else " (assumed; say --rows)")
    later = " A second look makes texts finer where rows are." if len(measure.looks) > 1 else ""
    out().print(f"[dim]For {of}. Texts are counted in the cluster nearest in meaning, shown by a few texts.{later}[/]")
    out().print("[dim]From the schema and the model alone: no private row was read, nothing was spent.[/]")
