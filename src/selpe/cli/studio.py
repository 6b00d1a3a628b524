"""`selpe studio`: a page on this machine in which a draft becomes a schema, a plan, a run and a report."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.studio.desk import CommandDesk

_CONFIG = "selpe.yaml"


def register(app: typer.Typer) -> None:
    """Adds `selpe studio`."""
    app.command("studio")(studio)


def studio(
    where: Annotated[
        str, typer.Argument(help="A table, a folder with selpe.yaml in it, or the settings; default: this folder.")
    ] = ".",
    *,
    out_folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="For a table: the folder of the two files; default: this one.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="For a table: the column that says a record's class.")] = None,
    port: Annotated[int, typer.Option(help="The port of the page; default: a free one.", show_default=False)] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Open a page on this machine: confirm the draft, add examples and rules, plan, run, and read the report."""
    serve_studio(_settings(where, out_folder, label), port=port, open_page=open_page)


def serve_studio(config: Path, *, port: int = 0, open_page: bool = True) -> None:
    """Serves the page of a project until Ctrl-C. A run that was started goes on."""
    from selpe.studio.project import Project
    from selpe.studio.server import StudioServer
    from selpe.studio.studio import Studio

    project = Project(config)
    project.read()  # what cannot be read is said here, before there is a page
    made = Studio(project)
    with StudioServer(made, port=port) as server:
        emit({"studio": server.url})
        if not json_mode():
            out().print(f"[bold]{server.url}[/]", soft_wrap=True)
            out().print(
                "[dim]Only this machine can see it, and only by this address. Ctrl-C ends the page, not a run.[/]",
                soft_wrap=True,
            )
        if open_page and _has_browser():
            import webbrowser

            webbrowser.open(server.url)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            _say_what_goes_on(made.desk, config)
    made.desk.close()


def _settings(where: str, out_folder: Path | None, label: str | None) -> Path:
    """The settings that a word names; for a table they are drafted where there are none yet."""
    path = Path(where)
    if "://" not in where and (path.is_dir() or path.suffix.lower() in (".yaml", ".yml")):
        if out_folder is not None or label is not None:
            raise ConfigError("--out and --label are for a table", where=where)
        config = path / _CONFIG if path.is_dir() else path
        if not config.is_file():
            raise ConfigError(
                "there is no such file", where=str(config), hint="`selpe studio patients.csv` drafts one from a table"
            )
        return config
    return _drafted(where, out_folder or Path(), label)


def _drafted(data: str, folder: Path, label: str | None) -> Path:
    from selpe.cli.init import draft_files, report
    from selpe.config import load_config

    config = folder / _CONFIG
    if not config.exists():
        report(*draft_files(data, folder, label=label), asked=True)
        return config
    known = load_config(config).data
    if label is not None or Path(known).resolve() != Path(data).resolve():
        raise ConfigError(
            "there are settings already" if label else "there are settings for another table already",
            where=str(config),
            hint=f"`selpe studio {folder}` opens them; --out takes another folder for this table",
        )
    return config


def _has_browser() -> bool:
    """Whether a browser with windows can be there: one that takes the terminal over would be no help."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _say_what_goes_on(desk: CommandDesk, config: Path) -> None:
    found = desk.active_run()
    if found is None:
        return
    run, pid = found
    emit({"goes_on": {"run": run, "process": pid}})
    if not json_mode():
        err().print(f"[yellow]The run '{run}' goes on without the page[/] (process {pid}).", soft_wrap=True)
        err().print(f"  see it:  selpe studio {config.parent}", soft_wrap=True, markup=False)
        err().print(f"  stop it: kill -INT {pid}   (nothing finished is lost; selpe resume goes on)", soft_wrap=True)
