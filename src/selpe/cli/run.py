"""`selpe run`, `resume`, `preview`, `runs`, `release`, `watch`: from settings to a release, and back to any run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from selpe.cli.beginning import begin, begin_control, conclude
from selpe.cli.console import emit, err, json_mode, out
from selpe.cli.release import release
from selpe.errors import ConfigError, RunError, did_you_mean
from selpe.run.workspace import Workspace, workspaces

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.run.lifecycle import Run
    from selpe.schema import Schema

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
AllowFake = Annotated[
    bool,
    typer.Option(
        "--allow-fake", envvar="SELPE_ALLOW_FAKE", help="Spend ε on records of the fake model, which mean nothing."
    ),
]
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
        Literal["selpe", "paper", "augpe", "wasp", "ctcl", "dpgen", "dpds", "aim", "mst", "prior"] | None,
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
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Spend without asking; needed where there is no terminal.")
    ] = False,
    control: Annotated[
        str | None,
        typer.Option(help="Repeat this run with its own plan and ε = 0, to compare with.", show_default=False),
    ] = None,
    allow_fake: AllowFake = False,
    watch: Watch = False,
    port: Port = 0,
    profile: ProfileFlag = False,
    insist: Annotated[
        bool,
        typer.Option("--same-data-new-ledger", help="Allow rows that are known under another name; recorded."),
    ] = False,
) -> None:
    """Write a synthetic table: plan and estimate first, then the work, then where everything is."""
    how: dict[str, Any] = {"name": name, "dry_run": dry_run, "yes": yes, "watch": watch, "port": port, "insist": insist}
    how |= {"profile": profile, "allow_fake": allow_fake}
    if control is not None:
        given = (config, epsilon, records, llm, encoder, seed, method, preset, execute, address, workers)
        changed = bool(setting) or any(one is not None for one in given)
        begin_control(find_run(control, out_folder), changed=changed, **how)
        return
    flags = _method_flags(method, preset) | assigned(setting or [])
    own = {"epsilon": epsilon, "records": records, "llm": llm, "encoder": encoder, "seed": seed}
    flags |= {name: value for name, value in own.items() if value is not None}  # else they would undo --set
    flags = _with_place(flags, execute, address, workers)
    begin(_load(config, {**flags, "out": str(out_folder.resolve()) if out_folder else None}), **how)


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

    found = find_run(name, out_folder) if name else _last_open(out_folder)
    found.move(_with_place({}, execute, address, workers))
    if found.manifest.get("state") == "done" and not is_lost(found):
        require_writable(found)
        emit({"done": {"run": found.name, "folder": str(found.folder), "release": str(found.release)}})
        if not json_mode():
            from selpe.cli.outcome import show_places

            out().print(f"'{found.name}' is done already.")
            show_places(found)
        return
    conclude(found, conduct(found, watch=watch, port=port), profile=profile)


def preview(
    config: Settings = None,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=200, help="How many candidates to show.")] = 5,
    llm: Llm = None,
    seed: Seed = None,
    setting: Set = None,
    codebook: Annotated[
        bool, typer.Option("--codebook", help="Show what tables of counts would be counted in (docs/measuring.md).")
    ] = False,
    grade: Annotated[
        bool, typer.Option("--grade/--no-grade", help="Say by 32 candidates whether this model will do, or not.")
    ] = True,
    field: Annotated[
        list[str] | None, typer.Option(help="With --codebook: this field alone; can be repeated.", show_default=False)
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="With --codebook: for a table of so many rows.", show_default=False)
    ] = None,
) -> None:
    """Write a few candidates from the schema alone, and grade them. Reads no private row and spends nothing."""
    from selpe.cli.conduct import opened_model
    from selpe.cli.grades import graded_sample, show_grade
    from selpe.cli.writer import settled
    from selpe.method.from_settings import preview as candidates_of
    from selpe.run.grades import SAMPLE
    from selpe.schema import Schema

    own = {name: value for name, value in (("llm", llm), ("seed", seed)) if value is not None}
    settings = _load(config, {**assigned(setting or []), **own})
    schema = Schema.load(settings.data_schema)
    _mind_draft(settings, schema)
    settings, _ = settled(settings, schema, ask=True)
    if codebook:
        from selpe.cli.codebooks import preview_codebooks

        preview_codebooks(settings, schema, rows=rows, fields=field or (), count=count)
        return
    if field or rows:
        raise ConfigError("--field and --rows are for --codebook")
    asked, judged = count, None
    if grade:
        asked = max(count, SAMPLE)
        found, judged = graded_sample(settings, schema, asked)
    else:
        with opened_model(settings) as model, err().status(f"writing {count} candidates"):
            found = candidates_of(settings, schema, model, count)
    lost, found = asked - len(found), found[:count]
    for candidate in found:
        emit({"record": candidate.record, "guide": candidate.proposal.guide.name, "attempts": candidate.attempts})
    if not json_mode():
        from selpe.cli.records_shown import show_whole

        show_whole(schema, [candidate.record for candidate in found])
    if lost and not json_mode():
        out().print(f"[yellow]{lost} of {asked} were given up after {settings.attempts} tries each.[/]")
    if judged is not None:
        show_grade(settings, judged)
    if not json_mode():
        out().print("[dim]From the schema and the model alone: no private row was read, nothing was spent.[/]")


def _mind_draft(settings: RunConfig, schema: Schema) -> None:
    """Says that a draft is a draft. Its bounds and values come from private rows, so no server gets to see it."""
    if not schema.unconfirmed:
        return
    if any("://" in llm for llm in settings.llms) or settings.execute == "ray":
        schema.require_confirmed()
    draft_warning(schema)


def draft_warning(schema: Schema) -> None:
    """What a run will say of a schema that is not confirmed, said before any work goes into it."""
    if schema.unconfirmed and not json_mode():
        names = ", ".join(schema.unconfirmed)
        err().print(
            f"[yellow]•[/] This schema is a draft: `selpe run` will not start before you have confirmed {names}.",
            soft_wrap=True,
        )


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


def watch(name: RunName, *, out_folder: Out = None, port: Port = 0) -> None:
    """Serve a page about a run, running or finished, to a browser on this machine."""
    from selpe.watch import WatchServer, folder_view

    found = find_run(name, out_folder)
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


def find_run(name: str, out_folder: Path | None) -> Run:
    """The run that a word names: its folder, or its name."""
    from selpe.run.lifecycle import Run

    for folder in (Path(name), runs_folder(out_folder) / name):
        if Workspace(folder).is_run:
            return Run.open(folder)
    known = [place.folder.name for place in workspaces(runs_folder(out_folder))]
    raise RunError("there is no such run", where=name, hint=f"{did_you_mean(name, known)}`selpe runs` lists them.")


def _last_open(out_folder: Path | None) -> Run:
    from selpe.run.lifecycle import Run, list_runs

    waiting = [found for found in list_runs(runs_folder(out_folder)) if found.get("state") != "done"]
    if not waiting:
        raise RunError("there is no run to resume", hint="`selpe runs` lists them")
    return Run.open(Path(waiting[-1]["folder"]))


# -- saying things ---------------------------------------------------------------------------------------------------


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
