"""`selpe run`, `resume`, `preview`, `runs`, `release`, `watch`: from settings to a release, and back to any run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ConfigError, RunError, StoppedError
from selpe.run.workspace import Workspace

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.run.lifecycle import Run

Settings = Annotated[Path | None, typer.Argument(help="The settings; default: selpe.yaml in this folder.")]
RunName = Annotated[str, typer.Argument(help="The run's folder, or its name.", show_default=False)]
Epsilon = Annotated[float | None, typer.Option(help="The privacy budget ε of this run.", show_default=False)]
Records = Annotated[int | None, typer.Option(help="How many records to write.", show_default=False)]
Llm = Annotated[str | None, typer.Option(help="The model: a name, a GGUF file, or a URL.", show_default=False)]
EncoderName = Annotated[str | None, typer.Option(help="The encoder: minilm, hash, or a URL.", show_default=False)]
Seed = Annotated[int | None, typer.Option(help="Makes all but the noise repeatable.", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="The folder of all runs.", show_default=False)]
Execute = Annotated[
    Literal["local", "ray"] | None,
    typer.Option(help="Write records here, or on a Ray cluster (docs/cluster.md).", show_default=False),
]
Address = Annotated[
    str | None, typer.Option(help="The Ray cluster: local, auto, host:port or ray://host:port.", show_default=False)
]
Workers = Annotated[int | None, typer.Option(min=1, help="How many workers on the cluster.", show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", help="Any setting, as name=value; can be repeated.")]
Watch = Annotated[bool, typer.Option("--watch", help="Serve a page for a browser on this machine.")]
ProfileFlag = Annotated[bool, typer.Option("--profile", help="Show at the end where the time went.")]
Port = Annotated[int, typer.Option(help="The port of the page; default: a free one.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds the commands that do runs and look at them."""
    for command in (run, resume, preview, runs, release, watch):
        app.command(command.__name__)(command)


def run(
    config: Settings = None,
    *,
    epsilon: Epsilon = None,
    records: Records = None,
    llm: Llm = None,
    encoder: EncoderName = None,
    seed: Seed = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The folder of all runs.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call the run; default: data set and time.")] = None,
    method: Annotated[
        Literal["selpe", "paper", "augpe", "wasp", "ctcl", "dpgen", "dpds"] | None,
        typer.Option(help="Our method, or a baseline; paper: ours with --preset paper.", show_default=False),
    ] = None,
    preset: Annotated[
        Literal["paper"] | None,
        typer.Option(help="Settings under one name; paper: our method as in the paper.", show_default=False),
    ] = None,
    execute: Execute = None,
    address: Address = None,
    workers: Workers = None,
    setting: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show plan and estimate, then stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")] = False,
    watch: Watch = False,
    port: Port = 0,
    profile: ProfileFlag = False,
    insist: Annotated[
        bool,
        typer.Option("--same-data-new-ledger", help="Allow rows that are known under another name; recorded."),
    ] = False,
) -> None:
    """Write a synthetic table: plan and estimate first, then the work, then where everything is."""
    flags = _method_flags(method, preset) | assigned(setting or [])
    own = {"epsilon": epsilon, "records": records, "llm": llm, "encoder": encoder, "seed": seed}
    flags |= {name: value for name, value in own.items() if value is not None}  # else they would undo --set
    flags = _with_place(flags, execute, address, workers)
    settings = _load(config, {**flags, "out": str(out_folder.resolve()) if out_folder else None})
    begin(settings, name=name, dry_run=dry_run, yes=yes, watch=watch, port=port, insist=insist, profile=profile)


def begin(
    settings: RunConfig,
    *,
    name: str | None = None,
    ledger: Path | None = None,
    dry_run: bool = False,
    yes: bool = False,
    watch: bool = False,
    port: int = 0,
    insist: bool = False,
    profile: bool = False,
) -> Run | None:
    """Outlook, question, run and result; None after a dry run.

    A model on this machine is opened first and tried for a second or two, unless earlier runs tell how fast it is.
    """
    from contextlib import ExitStack

    from selpe.cli.conduct import conduct, opened
    from selpe.cli.outcome import show_outlook
    from selpe.privacy.ledger import Ledger
    from selpe.run.estimate import is_measurable
    from selpe.run.lifecycle import Run
    from selpe.run.preflight import preflight

    found = preflight(settings, Ledger.open(settings.dataset, root=ledger))
    with ExitStack() as stack:
        session, since = None, time.monotonic()
        measurable = is_measurable(settings, found.estimate) and found.refusal is None
        if measurable and (not dry_run or _is_here(settings.llm)):  # a dry run fetches nothing
            session = stack.enter_context(opened(settings))
            with err().status("measuring how fast the model is here"):
                found = found.measured(session.model)
        opening = time.monotonic() - since
        show_outlook(found)
        if dry_run:
            if not json_mode():
                refused = "" if found.refusal is None else f"; {found.refusal.message}"
                out().print(f"[dim]dry run:[/] nothing was spent{refused}")
            return None
        found.require_budget()
        _confirm(settings, yes=yes)
        made = Run.create(settings, name=name, ledger=ledger)
        outcome = conduct(made, watch=watch, port=port, insist=insist, outlook=found, session=session, opening=opening)
    _conclude(made, outcome, profile=profile)
    return made


def resume(
    name: Annotated[
        str | None, typer.Argument(help="The run's folder or name; default: the last one that is not done.")
    ] = None,
    *,
    execute: Execute = None,
    address: Address = None,
    workers: Workers = None,
    out_folder: Out = None,
    watch: Watch = False,
    port: Port = 0,
    profile: ProfileFlag = False,
) -> None:
    """Continue a run that was interrupted, or write a lost release again. Nothing is done or paid for twice."""
    from selpe.cli.conduct import conduct
    from selpe.run.release import is_lost, require_writable

    found = _find(name, out_folder) if name else _last_open(out_folder)
    found.move(_with_place({}, execute, address, workers))
    if found.manifest.get("state") == "done" and not is_lost(found):
        require_writable(found)
        emit({"done": {"run": found.name, "folder": str(found.folder), "release": str(found.release)}})
        if not json_mode():
            from selpe.cli.outcome import show_places

            out().print(f"'{found.name}' is done already.")
            show_places(found)
        return
    _conclude(found, conduct(found, watch=watch, port=port), profile=profile)


def preview(
    config: Settings = None,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=200, help="How many candidates.")] = 5,
    llm: Llm = None,
    seed: Seed = None,
    setting: Set = None,
    codebook: Annotated[
        bool, typer.Option("--codebook", help="Show what tables of counts would be counted in (docs/measuring.md).")
    ] = False,
    field: Annotated[
        list[str] | None, typer.Option(help="With --codebook: this field alone; can be repeated.", show_default=False)
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="With --codebook: for a table of so many rows.", show_default=False)
    ] = None,
) -> None:
    """Write a few candidates from the schema alone. Reads no private row and spends nothing."""
    from selpe.cli.conduct import opened_model
    from selpe.method.from_settings import preview as candidates_of
    from selpe.schema import Schema

    own = {name: value for name, value in (("llm", llm), ("seed", seed)) if value is not None}
    settings = _load(config, {**assigned(setting or []), **own})
    schema = Schema.load(settings.data_schema)
    if codebook:
        from selpe.cli.codebooks import preview_codebooks

        preview_codebooks(settings, schema, rows=rows, fields=field or (), count=count)
        return
    if field or rows:
        raise ConfigError("--field and --rows are for --codebook")
    with opened_model(settings) as model, err().status(f"writing {count} candidates") as status:
        found = candidates_of(settings, schema, model, count)
        status.stop()
    for candidate in found:
        emit({"record": candidate.record, "guide": candidate.proposal.guide.name, "attempts": candidate.attempts})
    if json_mode():
        return
    from selpe.cli.outcome import show_records

    show_records(schema, [candidate.record for candidate in found])
    lost = count - len(found)
    if lost:
        out().print(f"[yellow]{lost} of {count} were given up after {settings.attempts} tries each.[/]")
    out().print("[dim]From the schema and the model alone: no private row was read, nothing was spent.[/]")


def runs(
    out_folder: Annotated[Path | None, typer.Argument(help="The folder of all runs; default: runs.")] = None,
) -> None:
    """List all runs: state, records, ε and time."""
    from selpe.run.lifecycle import list_runs

    folder = runs_folder(out_folder)
    rows = [_row(manifest) for manifest in list_runs(folder)]
    emit({"folder": str(folder), "runs": rows})
    if json_mode():
        return
    if not rows:
        out().print(f"There are no runs in {folder}.", markup=False)
        return
    _print_runs(rows)


def release(
    name: RunName,
    *,
    to: Annotated[Path | None, typer.Option(help="The zip to write; default: <run>-release.zip here.")] = None,
    out_folder: Out = None,
    not_private_control: Annotated[
        bool, typer.Option("--not-private-control", help="Pack a control that has no guarantee.")
    ] = False,
) -> None:
    """Pack the release into a zip, after a check that nothing else is in it."""
    from selpe.cli.conduct import shown
    from selpe.run.packing import pack_release
    from selpe.run.release import RELEASED

    found = _find(name, out_folder)
    private = found.manifest.get("private") is True
    target = to or Path(f"{found.name}-{'release' if private else 'NOT-PRIVATE'}.zip")
    packed = pack_release(
        found.folder,
        found.manifest,
        found.schema,
        allowed=RELEASED,
        to=target,
        not_private_control=not_private_control,
    )
    emit({"zip": str(target), "sha256": packed.sha256, "files": dict(packed.files), "records": packed.records})
    if json_mode():
        return
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


def watch(name: RunName, *, out_folder: Out = None, port: Port = 0) -> None:
    """Serve a page about a run, running or finished, to a browser on this machine."""
    from selpe.watch import WatchServer, folder_view

    found = _find(name, out_folder)
    with WatchServer(folder_view(found.folder), port=port) as server:
        emit({"watch": server.url})
        if not json_mode():
            out().print(f"[bold]{server.url}[/]\n[dim]Only this machine can see it. Ctrl-C ends it.[/]", soft_wrap=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return


# -- finding things --------------------------------------------------------------------------------------------------


def _load(path: Path | None, flags: dict[str, Any]) -> RunConfig:
    from selpe.config import load_config

    return load_config(path or Path("selpe.yaml"), flags=flags)


def assigned(pairs: list[str]) -> dict[str, Any]:
    """Settings given as name=value or group.name=value, with values read as in the file."""
    from selpe.yaml import parse_yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError("must be name=value", where=f"--set {pair}")
        value = parse_yaml(text, where=f"--set {name.strip()}", error=ConfigError)
        group, dot, inner = name.strip().partition(".")
        known = found.get(group)
        found[group] = {**(known if isinstance(known, dict) else {}), inner: value} if dot else value
    return found


def _method_flags(method: str | None, preset: str | None) -> dict[str, Any]:
    """Flags that say what is done: a method, or a preset of ours."""
    if method != "paper" and preset is None:
        return {"method": method}
    if method not in (None, "selpe", "paper"):
        raise ConfigError("a preset is for our own method, not for a baseline", where=f"--preset {preset}")
    return {"preset": preset or "paper", "method": "selpe"}


def _with_place(flags: dict[str, Any], execute: str | None, address: str | None, workers: int | None) -> dict[str, Any]:
    """The flags, together with those that say where a run is done."""
    group = flags.get("ray")
    asked = {name: value for name, value in (("address", address), ("workers", workers)) if value is not None}
    if execute == "local" and asked:
        raise ConfigError("--address and --workers are for a Ray cluster", hint="leave them out, or --execute ray")
    ray = {**(group if isinstance(group, dict) else {}), **asked}
    place = execute or ("ray" if asked else None)
    return {**flags, **({"execute": place} if place else {}), **({"ray": ray} if ray else {})}


def runs_folder(given: Path | None) -> Path:
    """The folder of all runs: as given, as selpe.yaml says, or `runs`."""
    if given is not None:
        return given
    if Path("selpe.yaml").exists():
        return Path(_load(None, {}).out)
    return Path("runs")


def _find(name: str, out_folder: Path | None) -> Run:
    from selpe.run.lifecycle import Run

    for folder in (Path(name), runs_folder(out_folder) / name):
        if Workspace(folder).is_run:
            return Run.open(folder)
    raise RunError("there is no such run", where=name, hint="`selpe runs` lists them")


def _last_open(out_folder: Path | None) -> Run:
    from selpe.run.lifecycle import Run, list_runs

    waiting = [found for found in list_runs(runs_folder(out_folder)) if found.get("state") != "done"]
    if not waiting:
        raise RunError("there is no run to resume", hint="`selpe runs` lists them")
    return Run.open(Path(waiting[-1]["folder"]))


def _is_here(llm: str) -> bool:
    """Whether a model's weights are on this machine already."""
    from selpe.errors import ModelNotFoundError
    from selpe.models.store.store import ModelStore

    try:
        ModelStore().path(llm.removeprefix("llamacpp:").removeprefix("transformers:"))
    except ModelNotFoundError:
        return False
    return True


# -- saying things ---------------------------------------------------------------------------------------------------


def _confirm(settings: RunConfig, *, yes: bool) -> None:
    spends = settings.epsilon > 0
    if yes or json_mode() or not spends or not sys.stdin.isatty():
        return
    if not typer.confirm("Start?", default=True, err=True):
        raise StoppedError("not started; nothing was spent")


def _conclude(made: Run, outcome: Any, *, profile: bool) -> None:
    from selpe.cli.outcome import show_result
    from selpe.cli.profile import show_profile
    from selpe.privacy.ledger.charges import spent

    total = spent(charge for charge in made.ledger.charges() if charge.run == made.name)
    show_result(made, outcome, spent=total)
    if profile:
        show_profile(made)


def _row(manifest: dict[str, Any]) -> dict[str, Any]:
    from selpe.run.manifest import is_worked_on

    settings = manifest.get("settings", {})
    state = manifest.get("state", "?")
    if state == "running" and not is_worked_on(Path(manifest["folder"])):
        state = "interrupted"  # its process is gone
    return {
        "run": manifest.get("name"), "method": settings.get("method", "selpe"), "state": state,
        "records": manifest.get("records") or settings.get("records"),
        "epsilon": settings.get("epsilon"), "adjacency": settings.get("adjacency"),
        "model": manifest.get("model") or settings.get("llm"), "seconds": manifest.get("seconds"),
        "created": manifest.get("created"), "folder": manifest["folder"], "private": manifest.get("private"),
    }  # fmt: skip


def _print_runs(rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from selpe.cli.outcome import print_table
    from selpe.run.progress import duration

    colours = {"done": "green", "running": "cyan", "interrupted": "yellow", "stopped": "yellow"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, side in (("run", "left"), ("state", "left"), ("records", "right"), ("ε", "right"), ("time", "right"),
                          ("model", "left"), ("begun (UTC)", "left")):  # fmt: skip
        table.add_column(heading, justify=side, no_wrap=heading != "model")  # type: ignore[arg-type]
    for row in rows:
        colour = colours.get(row["state"], "dim")
        note = "" if row["private"] is not False else " [red]not private[/]"
        table.add_row(
            escape(str(row["run"])), f"[{colour}]{row['state']}[/]{note}", f"{row['records'] or 0:,}",
            f"{float(row['epsilon'] or 0):g}", duration(row["seconds"]) if row["seconds"] else "–",
            escape(str(row["model"] or "")), str(row["created"] or "")[:16].replace("T", " "),
        )  # fmt: skip
    print_table(out(), table)
