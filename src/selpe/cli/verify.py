"""`selpe verify`: what a receiver can check in a release, with a tick or what is wrong, and what cannot be checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selpe.cli.console import emit, json_mode, out
from selpe.errors import ExitCode

if TYPE_CHECKING:
    from selpe.run.verify import Verified

_MARKS = {"ok": "[green]✓[/]", "unchecked": "[yellow]•[/]", "wrong": "[red]✗[/]"}


def register(app: typer.Typer) -> None:
    """Adds `selpe verify`."""
    app.command("verify")(verify)


def verify(
    release: Annotated[Path, typer.Argument(help="A release: its folder, or the packed zip.", show_default=False)],
    *,
    ledger: Annotated[
        Path | None, typer.Option(help="The folder of the ledgers, for the owner; default: the usual place.")
    ] = None,
) -> None:
    """Check a release that you were given: hashes, records, card and charges. Needs neither key nor ledger."""
    from selpe.run.verify import verify_release

    found = verify_release(release, ledgers=ledger)
    emit(
        {
            "release": str(release),
            "ok": found.ok,
            "findings": [
                {"what": one.what, "state": one.state, "said": one.said, "file": one.file} for one in found.findings
            ],
            "cannot": list(found.cannot),
        }
    )
    if not json_mode():
        _show(found)
    if not found.ok:
        raise typer.Exit(int(ExitCode.BAD_INPUT))


def _show(found: Verified) -> None:
    from rich.markup import escape

    console = out()
    for one in found.findings:
        file = f"{one.file}: " if one.file else ""
        console.print(f"{_MARKS[one.state]} {one.what:<15} {escape(file + one.said)}", soft_wrap=True)
    said = (
        "[green]It agrees with itself.[/]" if found.ok else "[bold red]Do not use it: it is not as it was written.[/]"
    )
    console.print(f"{said} What this cannot show:")
    for line in found.cannot:
        console.print(f"  [dim]•[/] {escape(line)}", soft_wrap=True)
