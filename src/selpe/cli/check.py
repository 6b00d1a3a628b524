"""`selpe check`: settings, schema, data, model and disk, each with a tick or with what to do. Never shows a value."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from selpe.cli.console import emit, json_mode, out, waiting
from selpe.errors import ConfigError, ExitCode, SelPEError

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.intake import Reading, RowProblem
    from selpe.intake.options import ReadingOptions
    from selpe.schema import Schema

State = Literal["ok", "note", "wrong"]
_MARKS = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "wrong": "[red]✗[/]"}
_ENOUGH_DISK = 2 * 10**9  # bytes: work files of a run, and a model's prepared weights
FEW_ROWS = 20
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One line of the checklist, with lines below it where there is more to say."""

    what: str
    state: State
    said: str
    hint: str = ""
    lines: tuple[str, ...] = ()


def register(app: typer.Typer) -> None:
    """Adds `selpe check`."""
    app.command("check")(check)


def check(
    config: Annotated[Path | None, typer.Argument(help="The settings; default: selpe.yaml in this folder.")] = None,
    *,
    schema: Annotated[Path | None, typer.Option(help="A schema to check, instead of the settings'.")] = None,
    data: Annotated[str | None, typer.Option(help="A table to check, instead of the settings'.")] = None,
    sheet: Annotated[str | None, typer.Option(help="The sheet of a workbook, by name or counted from 1.")] = None,
    encoding: Annotated[str | None, typer.Option(help="The text encoding, when it is not found by itself.")] = None,
) -> None:
    """Check settings, schema, data, model and disk; say what is not ready and what to do about it."""
    from selpe.run.preflight import setting_notes

    findings: list[CheckLine] = []
    settings = _settings(config, schema is None or data is None, findings)
    loaded = _schema(schema or (Path(settings.data_schema) if settings else None), findings)
    source = data or (settings.data if settings else None)
    if source is not None:
        how = _options(settings, other_table=data is not None)
        how = replace(how, sheet=sheet or how.sheet, encoding=encoding or how.encoding)
        with waiting("reading the table"):
            _data(source, loaded, findings, how)
    if settings is not None:
        if loaded is not None:
            findings.extend(CheckLine("advice", "note", note) for note in setting_notes(settings, loaded))
        if settings.execute == "ray":
            _cluster(settings.ray.address, findings)
        else:
            _model(_chosen(settings, loaded, findings), findings)
        _disk(Path(settings.out), findings)
    _render(findings)
    if any(finding.state == "wrong" for finding in findings):
        sys.exit(ExitCode.BAD_INPUT)


def _settings(path: Path | None, needed: bool, findings: list[CheckLine]) -> RunConfig | None:
    from selpe.config import load_config

    path = path or Path("selpe.yaml")
    if not needed and not path.exists():
        return None
    if needed and not path.exists():
        raise ConfigError(
            "there is no such file",
            where=str(path),
            hint="`selpe init data.csv` writes one; or check two files with --schema and --data.",
        )
    try:
        settings = load_config(path)
    except SelPEError as error:
        findings.append(_failed("settings", error))
        return None
    findings.append(
        CheckLine("settings", "ok", f"{path.name}: data set '{settings.dataset}', ε = {settings.epsilon:g}")
    )
    return settings


def _options(settings: RunConfig | None, *, other_table: bool) -> ReadingOptions:
    """How to read the table: as a run would. Another table than the settings' has neither its query nor its sheet."""
    from selpe.intake.options import ReadingOptions

    how = ReadingOptions() if settings is None else ReadingOptions.of(settings)
    return replace(how, query=None, sheet=None) if other_table else how


def _schema(path: Path | None, findings: list[CheckLine]) -> Schema | None:
    from selpe.schema import Schema

    if path is None:
        return None
    try:
        schema = Schema.load(path)
    except SelPEError as error:
        findings.append(_failed("schema", error))
        return None
    said = f"{path.name}: {len(schema.fields)} fields, {len(schema.rules)} rules, "
    said += f"label '{schema.label}'" if schema.label else "no label"
    findings.append(CheckLine("schema", "ok", said))
    open_fields = schema.unconfirmed
    if open_fields:
        findings.append(
            CheckLine(
                "confirmed",
                "wrong",
                f"{len(open_fields)} fields are drafts: {', '.join(open_fields)}",
                "Go through them in a page: `selpe studio`; or here: `selpe init --ask`. Are bounds and values public?",
            )
        )
    else:
        findings.append(CheckLine("confirmed", "ok", "every field is confirmed as public"))
    bare = [field.name for field in schema.fields if not field.description]
    if bare:
        hint = "Describe each in a sentence: the model knows the fields by their descriptions."
        findings.append(CheckLine("described", "note", f"no description: {', '.join(bare)}", hint))
    return schema


def _data(source: str, schema: Schema | None, findings: list[CheckLine], how: ReadingOptions) -> None:
    from selpe.intake.core import COUNTED

    try:
        table = how.table(source)
        reading = None if schema is None else how.reading(table, schema)
    except SelPEError as error:
        findings.append(_failed("data", error))
        return
    total = len(table) + len(table.broken)
    if reading is None:
        findings.append(
            CheckLine("data", "note", f"{table.source}: {total:,} rows read, but there is no schema to fit")
        )
        return
    if reading.problems:
        said = f"{table.source}: {reading.dropped:,} of {total:,} rows do not fit the schema"
        abstain = how.skip_bad_rows and bool(reading.records)
        said += " and will abstain: they count, and choose nothing" if abstain else ""
        hint = f"Correct the rows or the schema ({COUNTED[table.counting]})."
        findings.append(CheckLine("data", "note" if abstain else "wrong", said, hint, _lines(reading.problems)))
    else:
        findings.append(CheckLine("data", "ok", f"{table.source}: all {total:,} rows fit the schema"))
    findings.extend(_remarks(reading))


def _lines(problems: tuple[RowProblem, ...]) -> tuple[str, ...]:
    shown = tuple(problem.message for problem in problems[:_MOST_LINES])
    more = len(problems) - len(shown)
    return (*shown, f"… and {more} more kinds of problem") if more else shown


def _remarks(reading: Reading) -> list[CheckLine]:
    remarks = [CheckLine("reading", "note", note) for note in reading.notes]
    if len(reading.records) < FEW_ROWS:
        hint = "So few rows can say next to nothing through the noise: `selpe plan` shows what is left of them."
        remarks.append(CheckLine("size", "note", f"fewer than {FEW_ROWS} rows fit the schema", hint))
    return remarks


def _cluster(address: str, findings: list[CheckLine]) -> None:
    """The workers open the model on their nodes; what can be told here is whether they can be asked."""
    if find_spec("ray") is None:
        findings.append(
            CheckLine("model", "wrong", "Ray is not installed", "pip install 'selpe[ray]', here and on all nodes.")
        )
        return
    findings.append(CheckLine("model", "note", f"on a Ray cluster ({address}), not contacted by this check"))


def _chosen(settings: RunConfig, schema: Schema | None, findings: list[CheckLine]) -> str:
    """The model of the settings, with a line on the one that 'auto' stands for now."""
    from selpe.run.writer import settle_writer

    found, choice = settle_writer(settings, schema)
    if choice is not None:
        findings.append(CheckLine("model", "ok", f"auto takes {choice.llm}. {choice.why}", choice.advice))
    return found.llm


def _model(llm: str, findings: list[CheckLine]) -> None:
    if llm == "fake":
        findings.append(
            CheckLine(
                "model",
                "note",
                "the fake model: its records follow the schema and mean nothing",
                "Name a real one as `llm`, or none; `selpe run` takes the fake one with --allow-fake only.",
            )
        )
        return
    if "://" in llm:
        findings.append(CheckLine("model", "note", f"a server at {_host(llm)}, not contacted by this check"))
        return
    from selpe.models.names import require_names
    from selpe.models.store.store import ModelStore

    try:
        require_names([llm])
    except SelPEError as error:
        findings.append(_failed("model", error))
        return
    try:
        place = ModelStore().path(llm)
    except SelPEError:
        said = f"'{llm}' is not on this machine yet"
        findings.append(CheckLine("model", "note", said, f"`selpe models pull {llm}` fetches it; a run does so too."))
        return
    findings.append(CheckLine("model", "ok", f"'{llm}' is here ({place.name})"))


def _host(url: str) -> str:
    """Only the host of a URL: the part before it may be a password, the part after it a key."""
    return url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2]


def _disk(folder: Path, findings: list[CheckLine]) -> None:
    there = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    free = shutil.disk_usage(there).free
    said = f"{free / 10**9:.1f} GB free for {folder.name}/"
    if free < _ENOUGH_DISK:
        hint = f"Free some space, or set 'out' to another disk ({_ENOUGH_DISK // 10**9} GB are wanted)."
        findings.append(CheckLine("disk", "wrong", said, hint))
    else:
        findings.append(CheckLine("disk", "ok", said))


def _failed(what: str, error: SelPEError) -> CheckLine:
    return CheckLine(what, "wrong", error.said, error.hint)


def _render(findings: list[CheckLine]) -> None:
    emit(
        {
            "ok": all(finding.state != "wrong" for finding in findings),
            "findings": [
                {
                    "what": finding.what,
                    "state": finding.state,
                    "said": finding.said,
                    "hint": finding.hint,
                    "lines": list(finding.lines),
                }
                for finding in findings
            ],
        }
    )
    if json_mode():
        return
    from rich.markup import escape

    console = out()
    if not console.is_terminal:  # each line whole, for logs
        for finding in findings:
            console.print(f"{_MARKS[finding.state]} {finding.what:<10} {escape(finding.said)}")
            for line in _below(finding):
                console.print(f"             {line}")
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        said = "\n".join([escape(finding.said), *_below(finding)])
        table.add_row(_MARKS[finding.state], finding.what, said)
    console.print(table)


def _below(finding: CheckLine) -> list[str]:
    from rich.markup import escape

    hint = [f"[dim]→ {escape(finding.hint)}[/]"] if finding.hint else []
    return [*(escape(line) for line in finding.lines), *hint]
