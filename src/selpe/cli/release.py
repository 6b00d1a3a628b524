"""`selpe release`: packs what may leave the house, and asks first where nobody has found it fit to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selpe.cli.console import emit, json_mode, out, waiting
from selpe.cli.questions import require_yes

if TYPE_CHECKING:
    from selpe.run.judgement import Judgement
    from selpe.run.lifecycle import Run
    from selpe.run.packing import Packed


def release(
    name: Annotated[str, typer.Argument(help="The run's folder, or its name.", show_default=False)],
    *,
    to: Annotated[Path | None, typer.Option(help="The zip to write; default: <run>-release.zip here.")] = None,
    out_folder: Annotated[Path | None, typer.Option(help="The folder of all runs.", show_default=False)] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Pack it even if it was judged 'not ready', or never judged.")
    ] = False,
    statement: Annotated[
        str, typer.Option(help="What you want receivers to read about its quality.", show_default=False)
    ] = "",
    not_private_control: Annotated[
        bool, typer.Option("--not-private-control", help="Pack a control that has no guarantee.")
    ] = False,
) -> None:
    """Pack the release into a zip, after a check that nothing else is in it."""
    from selpe.cli.run import find_run
    from selpe.run.judgement import judgement_of, told_to_receivers
    from selpe.run.packing import pack_release
    from selpe.run.release import RELEASED

    found = find_run(name, out_folder)
    judged = judgement_of(found.folder)
    note = told_to_receivers(judged, statement)
    private = found.manifest.get("private") is True
    if private and found.manifest.get("state") == "done":  # else it is refused, whatever is answered
        _ask(found, judged, yes=yes)
    target = to or Path(f"{found.folder.name}-{'release' if private else 'NOT-PRIVATE'}.zip")
    with waiting("checking every file and packing"):
        packed = pack_release(
            found.folder,
            found.manifest,
            found.schema,
            allowed=RELEASED,
            to=target,
            not_private_control=not_private_control,
            judged=note,
        )
    emit({"zip": str(target), "sha256": packed.sha256, "files": dict(packed.files), "records": packed.records})
    if not json_mode():
        _show(packed, target)


def _ask(run: Run, judged: Judgement | None, *, yes: bool) -> None:
    """Asks where the release was found wanting, or was never looked at."""
    from selpe.cli.conduct import shown

    if judged is not None and judged.ready:
        return
    if judged is None:
        what = f"'{run.name}' was never judged (`selpe evaluate {shown(run.folder)}` does that)"
    else:
        what = f"'{run.name}' was judged on {judged.day}: {judged.headline}"
    require_yes(
        f"{what}. Pack it all the same?", yes=yes, unasked=f"{what}; nothing was packed", refused="nothing was packed"
    )


def _show(packed: Packed, target: Path) -> None:
    from selpe.cli.conduct import shown

    console = out()
    for file, digest in packed.files.items():
        console.print(f"[green]✓[/] {file}  [dim]{digest[:16]}…[/]")
    console.print(
        f"[bold]{shown(target)}[/]: {packed.records:,} records, every one checked against the schema; "
        f"{len(packed.files)} files and nothing else.",
        soft_wrap=True,
    )
    if not packed.private:
        console.print("[bold red]This is a control: it is NOT private.[/]")
    console.print(f"[dim]sha256 {packed.sha256}[/]", soft_wrap=True)
