"""`selpe data`: the paper's data sets and some of other kinds, from the files as their publishers ship them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.experiments.loaders.load import LoadedDataset
    from selpe.models.base import ChatModel

Source = Annotated[Path, typer.Argument(help="The publisher's file, or the folder it came in.", show_default=False)]
To = Annotated[Path | None, typer.Option("--out", help="The folder to write to; default: the name of the data set.")]
Seed = Annotated[int, typer.Option(min=0, help="Which split.")]
Private = Annotated[int, typer.Option(min=1, max=5000, help="Private rows a class.")]
PrivateInAll = Annotated[int, typer.Option("--private", min=1, max=5000, help="Private rows; there are no classes.")]
Leaks = Annotated[
    bool | None,
    typer.Option(
        "--with-leaks/--without-leaks", help="Keep or drop fields that give the class away.", show_default=False
    ),
]
Enrich = Annotated[
    str, typer.Option(help="Longer texts: auto, off, template, or a model on this machine (never a remote one).")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(no_args_is_help=True, help="Data sets of the experiments: table, schema and splits.")
    for name, command in (
        ("water", water), ("mimic-ed", mimic_ed), ("ktas", ktas), ("loan", loan), ("jobs", jobs), ("b2w", b2w),
        ("cfpb", cfpb),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="data")


def water(path: Source, out_folder: To = None, *, seed: Seed = 0, private: Private = 20, leaks: Leaks = None,
          force: Force = False) -> None:  # fmt: skip
    """Reviews of water bottles, ratings 1 to 5. `title` almost reveals the rating; it is kept, as in the paper."""
    _do("water", path, out_folder, seed=seed, private=private, leaks=leaks, enrich="off", force=force)


def mimic_ed(path: Source, out_folder: To = None, *, seed: Seed = 0, private: Private = 20, leaks: Leaks = None,
             enrich: Enrich = "auto", force: Force = False) -> None:  # fmt: skip
    """MIMIC-IV-ED triage, acuity 1 to 5: triage.csv(.gz) with edstays beside it, the folder, or the open demo."""
    _do("mimic-ed", path, out_folder, seed=seed, private=private, leaks=leaks, enrich=enrich, force=force)


def ktas(path: Source, out_folder: To = None, *, seed: Seed = 0, private: Private = 20, leaks: Leaks = None,
         enrich: Enrich = "auto", force: Force = False) -> None:  # fmt: skip
    """Triage in two Korean emergency departments, acuity 1 to 5: an open stand-in for MIMIC-IV-ED."""
    _do("ktas", path, out_folder, seed=seed, private=private, leaks=leaks, enrich=enrich, force=force)


def loan(path: Source, out_folder: To = None, *, seed: Seed = 0, private: Private = 20, leaks: Leaks = None,
         enrich: Enrich = "auto", force: Force = False) -> None:  # fmt: skip
    """LendingClub loans, grades A to G: LendingClub's own files, or openintro's table."""
    _do("loan", path, out_folder, seed=seed, private=private, leaks=leaks, enrich=enrich, force=force)


def jobs(path: Source, out_folder: To = None, *, seed: Seed = 0, private: Private = 20, force: Force = False) -> None:
    """Job advertisements (EMSCAD), of which one in ten is a fraud: as many rows in all, and the rare class rare."""
    _do("jobs", path, out_folder, seed=seed, private=private, leaks=None, enrich="off", force=force)


def b2w(path: Source, out_folder: To = None, *, seed: Seed = 0, private: Private = 20, leaks: Leaks = None,
        force: Force = False) -> None:  # fmt: skip
    """Reviews of a Brazilian shop in Portuguese (B2W-Reviews01), ratings 1 to 5, with days and several texts."""
    _do("b2w", path, out_folder, seed=seed, private=private, leaks=leaks, enrich="off", force=force)


def cfpb(path: Source, out_folder: To = None, *, seed: Seed = 0, private: PrivateInAll = 100,
         force: Force = False) -> None:  # fmt: skip
    """Consumers' complaints about banks (CFPB): stories of 300 to 600 characters, two days, and no label."""
    _do("cfpb", path, out_folder, seed=seed, private=private, leaks=None, enrich="off", force=force)


def _do(
    name: str,
    path: Path,
    out_folder: Path | None,
    *,
    seed: int,
    private: int,
    leaks: bool | None,
    enrich: str,
    force: bool,
) -> None:
    from selpe.experiments.loaders import loader_of
    from selpe.experiments.loaders.load import load
    from selpe.experiments.loaders.write import write

    folder = out_folder or Path(name)
    if (folder / "schema.yaml").exists() and not force:
        raise ConfigError("there is a data set already", where=str(folder), hint="--force overwrites it")
    loader = loader_of(name)
    with _opened(enrich) as model, err().status(f"reading {path.name}"):
        loaded = load(loader, path, seed=seed, private=private, leaks=leaks, enrich=enrich, model=model)
        write(loaded, folder, loader=loader, seed=seed)
    _report(loaded, folder)


@contextmanager
def _opened(enrich: str) -> Iterator[ChatModel | None]:
    """The model that rewrites texts, where one is named."""
    from selpe.experiments.loaders.enrich import AUTO, OFF, TEMPLATE, require_local

    if enrich in (AUTO, OFF, TEMPLATE):
        yield None
        return
    from selpe.cli.fetch_bar import fetch_bar
    from selpe.run.session import open_model

    require_local(enrich)
    with fetch_bar() as bar:
        model = open_model(enrich, progress=bar)
    try:
        yield model
    finally:
        model.close()


def _report(loaded: LoadedDataset, folder: Path) -> None:
    sides = {side: loaded.counts(side) for side in loaded.sides}
    emit(
        {
            "data": {
                "name": loaded.name, "folder": str(folder), "rows": loaded.rows, "sides": sides,
                "records": {side: len(records) for side, records in loaded.sides.items()},
                "fields": list(loaded.schema.names), "dirt": dict(loaded.dirt), "notes": list(loaded.notes),
            }
        }
    )  # fmt: skip
    if json_mode():
        return
    from rich.table import Table

    from selpe.cli.conduct import shown
    from selpe.cli.outcome import print_table

    table = Table("rows", *loaded.schema.labels, "all", box=None, pad_edge=False, header_style="bold")
    for side, counts in sides.items():
        table.add_row(side, *(f"{count:,}" for count in counts.values()), f"{len(loaded.sides[side]):,}")
    console, label = out(), loaded.schema.label
    said = "there is no label" if label is None else f"the class is '{label}'"
    console.print(f"[bold]{loaded.title}[/]: {loaded.rows:,} rows read; {said}")
    print_table(console, table)
    for what, count in sorted(loaded.dirt.items()):
        console.print(f"[dim]{count:,} × {what}[/]", highlight=False)
    for note in loaded.notes:
        console.print(f"[yellow]•[/] {note}", highlight=False)
    console.print(f"Written to [bold]{shown(folder)}[/]; README.md there says what was done.")
