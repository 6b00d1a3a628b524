"""`selpe doctor`: what this machine can run, and what to expect of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from selpe.cli.console import emit, err, json_mode, out

if TYPE_CHECKING:
    from selpe.models.machine import Machine
    from selpe.models.speed import Speed

_EXAMPLES = (200, 2_000)
_SLOW_CANDIDATES = 8
_SLOW_BYTES = 500_000_000


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(doctor)


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Skip the measurement.")] = False,
    model: Annotated[str, typer.Option("--llm", help="The model to measure.")] = "smollm2",
) -> None:
    """Shows what this machine can run: engines, processor, memory, cached models, and measured speed."""
    from selpe.models.machine import ENGINES, this_machine
    from selpe.models.store.store import ModelStore, offline

    machine, store = this_machine(), ModelStore()
    held = store.list()
    findings: dict[str, Any] = {
        "machine": {name: getattr(machine, name) for name in machine.__slots__},
        "engines": [
            {"name": e.name, "available": e.available, "versions": e.versions, "purpose": e.purpose} for e in ENGINES
        ],
        "store": {"path": str(store.root), "models": {m.name: m.size for m in held}, "offline": offline()},
    }
    if not json_mode():
        _show_machine(machine)
        _show_engines()
        _show_store(store.root, {m.name: m.size for m in held}, offline())
    speed, engine, note = (None, "", "skipped by --quick") if quick else _measured(model, store)
    if speed is not None and machine.busy:
        note = f"other work keeps this machine busy (load {machine.load:.1f}): expect more when it is idle"
    findings["speed"] = _speed_as_dict(model, engine, speed, note)
    emit(findings)
    if not json_mode():
        _show_speed(model, engine, speed, note)


def _measured(name: str, store: Any) -> tuple[Speed | None, str, str]:
    """The measured speed and the engine, or why there is none."""
    from selpe.cli.fetch_bar import fetch_bar
    from selpe.errors import ModelNotFoundError
    from selpe.models.speed import measure
    from selpe.run.session import open_model

    slow = False
    if not name.startswith(("http://", "https://")) and name != "fake":
        try:
            weights = store.path(name.removeprefix("llamacpp:").removeprefix("transformers:"))
            slow = weights.is_dir() or weights.stat().st_size > _SLOW_BYTES
        except ModelNotFoundError as problem:
            return None, "", f"{problem.message}. {problem.hint}"
    with fetch_bar() as bar:
        opened = open_model(name, store=store, progress=bar)
    try:
        if not json_mode():
            err().print("[dim]measuring …[/]")
        engine = str(getattr(opened, "engine", opened.name))
        return measure(opened, _SLOW_CANDIDATES if slow else 32), engine, ""
    finally:
        opened.close()


def _speed_as_dict(model: str, engine: str, speed: Speed | None, note: str) -> dict[str, Any]:
    if speed is None:
        return {"model": model, "note": note}
    return {
        "model": model,
        "engine": engine,
        "tokens_per_second": round(speed.tokens_per_second, 1),
        "candidates_per_second": round(speed.candidates_per_second, 2),
        "expected_seconds": {str(n): round(speed.seconds_for(n)) for n in _EXAMPLES},
        "note": note,
    }


def _show_machine(machine: Machine) -> None:
    sets = ", ".join(machine.instruction_sets) or "none that speed models up"
    memory = f"{machine.memory / 2**30:.1f} GiB" if machine.memory else "unknown"
    free = f", {machine.free_memory / 2**30:.1f} GiB free" if machine.free_memory else ""
    _heading("machine")
    _line("system", machine.system)
    _line("processor", machine.processor)
    _line("cores", f"{machine.cores}, of which this process may use {machine.usable_cores:g}")
    _line("instructions", sets)
    _line("memory", f"{memory}{free}")
    _line("graphics", machine.gpu or "none that model servers could use")


def _show_engines() -> None:
    from selpe.models.machine import ENGINES

    _heading("engines")
    for engine in ENGINES:
        if engine.available:
            found = ", ".join(f"{package} {version}" for package, version in engine.versions.items())
            _line(engine.name, f"{engine.purpose} ({found})")
        else:
            _line(engine.name, f"not installed: {engine.remedy}")


def _show_store(root: object, sizes: dict[str, int], is_offline: bool) -> None:
    _heading("models")
    for name, size in sizes.items():
        _line(name, f"{size / 1e6:,.0f} MB")
    if not sizes:
        _line("none yet", "the first run fetches the default, or: selpe models pull smollm2 minilm")
    _line("store", f"{root}{' (network use is off)' if is_offline else ''}")


def _show_speed(model: str, engine: str, speed: Speed | None, note: str) -> None:
    _heading("speed")
    if speed is None:
        _line(model, f"not measured: {note}")
        return
    rates = f"{speed.tokens_per_second:,.0f} tokens/s, {speed.candidates_per_second:.1f} candidates/s"
    _line(model, f"{rates} ({engine}, {speed.candidates} candidates in {speed.seconds:.1f} s)")
    for records in _EXAMPLES:
        _line(f"{records:,} records", f"about {_duration(speed.seconds_for(records))} of generation")
    if note:
        out().print(f"[yellow]{note}[/]")
    out().print("[dim]for a five-field record at three candidates per record; larger schemas take longer[/]")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _heading(text: str) -> None:
    out().print(f"[bold]{text}[/]")


def _line(name: str, text: str) -> None:
    from rich.markup import escape

    out().print(f"  {name:<20} {escape(text)}", soft_wrap=True)
