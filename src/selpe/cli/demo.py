"""`selpe demo`: the whole job on a shipped example, in its own folder and with its own budget."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import typer

from selpe.cli.console import emit, json_mode, out
from selpe.errors import ConfigError, RunError
from selpe.owner_only import copy, make_folder

if TYPE_CHECKING:
    from selpe.run.lifecycle import Run

# Comments of hotel guests come first: a small model knows how people write them.
Example: TypeAlias = Literal["hotel", "triage", "credit", "anliegen", "maintenance"]
EXAMPLES: tuple[Example, ...] = get_args(Example)  # the first is taken where none is asked for
# What plays the private table; a test holds the numbers to the files.
TABLES: dict[Example, str] = {
    "hotel": "150 invented comment cards of a hotel",
    "triage": "150 invented arrivals at an emergency clinic",
    "credit": "150 invented applications for a loan",
    "anliegen": "98 invented concerns of citizens, in German,",
    "maintenance": "80 invented reports of a maintenance team, long and without a label,",
}
MOST_RECORDS = 60
SECONDS = 170.0  # of three minutes, the start and the checks apart; on a slow machine fewer records are written
_FILES = ("private.csv", "test.csv", "schema.yaml", "selpe.yaml")
_MOST_FOLDERS = 1000


def register(app: typer.Typer) -> None:
    """Adds `selpe demo`."""
    app.command("demo")(demo)


def demo(
    *,
    example: Annotated[
        Example,
        typer.Option(
            help="A hotel's comment cards, a clinic's arrivals, loans, a town's concerns (German), or long reports."
        ),
    ] = EXAMPLES[0],
    records: Annotated[
        int | None,
        typer.Option(
            min=4, max=2000, show_default=False, help="How many records; default: 60, or what three minutes allow."
        ),
    ] = None,
    llm: Annotated[str, typer.Option(help="The model; 'fake' needs no weights and means nothing.")] = "smollm2",
    encoder: Annotated[str | None, typer.Option(help="The encoder; hash with the fake model.")] = None,
    epsilon: Annotated[float, typer.Option(help="The privacy budget ε.")] = 2.0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="A new folder; default: selpe-demo here.", show_default=False)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Serve a page for a browser on this machine.")] = False,
) -> None:
    """Do the whole job on an example: invented records, such as comment cards, become a private synthetic table."""
    from selpe.cli.beginning import begin
    from selpe.cli.conduct import shown
    from selpe.config import load_config

    folder = _new_folder(out_folder)
    for name in _FILES:
        copy(example_folder(example) / name, folder / name)
    _say(
        "1", f"{TABLES[example]} play the private table: {shown(folder / 'private.csv')}",
        f"their schema (fields, ranges, rules) is public: {shown(folder / 'schema.yaml')}",
    )  # fmt: skip
    _say(
        "2", "The model writes from the schema alone; the table is only ever counted and voted with, under noise",
        "first a look at how fast this machine is, so that the demo ends after about three minutes",
    )  # fmt: skip
    flags: dict[str, Any] = {
        "records": records or MOST_RECORDS,
        "llm": llm,
        "epsilon": epsilon,
        "guide_sample": 3,
        "multiplicity": 2,
    }
    flags |= {"encoder": encoder or ("hash" if llm == "fake" else "minilm")}
    # The example's budget is kept in its own folder: a second demo starts again, and no real ledger is used.
    made = begin(
        load_config(folder / "selpe.yaml", flags=flags),
        ledger=folder / "ledger",
        yes=True,
        watch=watch,
        allow_fake=True,
        within=SECONDS if records is None else None,
    )
    if made is not None:
        if not json_mode():
            out().print()
        _say("3", "The result, checked by a grammar that shares no code with the generator")
        _validate(made)


def example_folder(name: str) -> Path:
    """The folder of a shipped example: in the installed package, or in the checkout it is run from."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples" / name, package.parents[1] / "examples" / name):
        if (folder / "selpe.yaml").is_file():
            return folder
    raise RunError("the example is missing from this installation", where=name, hint="install selpe again")


def _new_folder(wanted: Path | None) -> Path:
    """A fresh folder: as asked, or the first of selpe-demo, selpe-demo-2 … that is not there. Nothing is deleted."""
    names = [wanted] if wanted else [Path(f"selpe-demo{f'-{i}' if i > 1 else ''}") for i in range(1, _MOST_FOLDERS)]
    for folder in names:
        try:
            make_folder(folder, new=True)
        except FileExistsError:
            if wanted is not None and wanted.is_dir() and not any(wanted.iterdir()):
                return wanted
            continue
        except OSError as error:
            raise ConfigError(f"the folder cannot be made ({error.strerror})", where=str(folder)) from None
        return folder
    raise ConfigError("there is something already", where=str(names[-1]), hint="give --out a folder that is new")


def _validate(made: Run) -> None:
    """Reads the release and checks every record; the headline of the card is last."""
    from selpe.evaluation.validity import score
    from selpe.schema import Schema

    schema = Schema.load(made.config.data_schema)
    lines = made.workspace.release.jsonl.read_text(encoding="utf-8").split("\n")[:-1]
    report = score(lines, schema)
    classes = Counter(str(json.loads(line)[schema.label]) for line in lines) if schema.label else Counter()
    card = json.loads(made.workspace.release.card.read_text(encoding="utf-8"))
    headline = card["guarantee"]["statement"]
    emit({"validity": report.as_dict(), "classes": dict(classes), "card": headline})
    if not json_mode():
        counted = ", ".join(f"{label}: {count}" for label, count in sorted(classes.items()))
        mark = "[green]✓[/]" if report.s_cfg == 1.0 else "[red]✗[/]"
        out().print(f"  {mark} S-CFG {report.s_cfg:.0%}: {report.rules} of {report.total} records are valid, rules too")
        if counted:
            out().print(f"  [green]✓[/] records per class: {counted}")
        out().print(f"  [green]✓[/] {headline}", soft_wrap=True)
        out().print()
        out().print(
            "Your own table: [bold]selpe init patients.csv[/], then [bold]selpe check[/] and [bold]selpe run[/]"
        )
    if report.s_cfg < 1.0:
        raise RunError("some records are not valid", where=made.name, hint="please tell us: this must not happen")


def _say(step: str, *lines: str) -> None:
    if json_mode():
        return
    console = out()
    console.print(f"[bold cyan]{step}[/]  {lines[0]}", soft_wrap=True)
    for line in lines[1:]:
        console.print(f"   [dim]{line}[/]", soft_wrap=True)
    console.print()
