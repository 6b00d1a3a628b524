"""Doing a run for somebody at a terminal: models opened, progress shown, Ctrl-C obeyed, the page served."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from selpe.cli.console import emit, err, json_mode
from selpe.errors import ExitCode, SelPEError, StoppedError

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.execute import Executor
    from selpe.models.base import ChatModel
    from selpe.run.lifecycle import Outcome, Run


def conduct(run: Run, *, watch: bool = False, port: int = 0, insist: bool = False, source: Any = None) -> Outcome:
    """Executes a run and shows it. Leaves with exit code 130 when the user stops it."""
    from selpe.cli.display import showing
    from selpe.run.progress import Meter

    meter = Meter(epsilon=run.config.epsilon, adjacency=run.config.adjacency)
    cancel = threading.Event()
    with ExitStack() as stack:
        try:
            run.begin(source=source, insist=insist)
            parts = stack.enter_context(opened(run.config))
            if watch:
                _serve(stack, run, meter, port)
            listen = stack.enter_context(showing(meter))
            stack.enter_context(stopping_at_ctrl_c(cancel))
            return run.execute(**parts, source=source, emit=listen, cancel=cancel, insist=insist)
        except StoppedError:
            stack.close()
            _say_how_to_go_on(run)
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        except (SelPEError, KeyboardInterrupt):
            stack.close()
            run.discard()
            if run.manifest.get("state") == "stopped":
                _say_how_to_go_on(run)
            raise


def llms_of(config: RunConfig) -> tuple[str, ...]:
    """The models that a run of these settings uses, its own first."""
    return (config.llm, *config.wasp.models) if config.method == "wasp" else (config.llm,)


@contextmanager
def opened(config: RunConfig) -> Iterator[dict[str, Any]]:
    """Models and encoders of the settings as `Run.execute` takes them, opened where the settings say."""
    with _executor(config) as (executor, opening):
        with opening:
            model, *others = [executor.model(llm) for llm in llms_of(config)]
            encoder = executor.encoder()
            public_encoder = executor.public_encoder(encoder)
        yield {"model": model, "models": others, "encoder": encoder, "public_encoder": public_encoder}


@contextmanager
def opened_model(config: RunConfig) -> Iterator[ChatModel]:
    """The language model of the settings, fetched and prepared with a progress bar, closed at the end."""
    with _executor(config) as (executor, opening):
        with opening:
            model = executor.model(config.llm)
        yield model


@contextmanager
def _executor(config: RunConfig) -> Iterator[tuple[Executor, ExitStack]]:
    """What opens models, and a stack that is to be left when they are open: it shows what is fetched until then."""
    from selpe.cli.fetch_bar import fetch_bar
    from selpe.execute import executing

    with ExitStack() as opening:
        bar = opening.enter_context(fetch_bar())
        if config.execute == "ray" and not json_mode():
            err().print(f"[dim]waiting for workers on Ray ({config.ray.address}), {config.ray.workers} asked for[/]")
        with executing(config, bar) as executor:
            yield executor, opening


@contextmanager
def stopping_at_ctrl_c(cancel: threading.Event) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM, or SIGHUP) asks for a clean stop; the second one ends the process at once.

    That is safe at any moment: answers, charges and choices are on the disk before they are used.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # SIGHUP is POSIX's alone, SIGBREAK is Windows'
    named = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    asked = [signal.Signals(getattr(signal, name)) for name in named if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in asked}
    # `nohup` means it. A shell's '&' has SIGINT ignored too, but whoever sends one to a process means to stop it.
    numbers = [number for number in asked if number.name != "SIGHUP" or before[number] is not signal.SIG_IGN]

    def first(number: int, frame: object) -> None:
        cancel.set()
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        _tell("stopping after the answers in flight; Ctrl-C again stops at once")

    for number in numbers:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _tell(text: str) -> None:
    try:
        err().show_cursor(True)  # the second Ctrl-C leaves no time for it
        err().print(f"[yellow]{text}[/]")
    except (RuntimeError, OSError):  # in the middle of a write, or the terminal is gone; the run stops all the same
        return


def _serve(stack: ExitStack, run: Run, meter: Any, port: int) -> None:
    from selpe.watch import WatchServer, live_view

    server = stack.enter_context(WatchServer(live_view(run.folder, meter), port=port))
    emit({"watch": server.url})
    if not json_mode():
        err().print(f"Watch it in a browser on this machine: [bold]{server.url}[/]")


def _say_how_to_go_on(run: Run) -> None:
    command = f"selpe resume {shown(run.folder)}"
    emit({"stopped": {"run": run.name, "folder": str(run.folder), "resume": command}})
    if not json_mode():
        err().print(f"[yellow]stopped[/]; nothing finished is lost. Go on with:\n  [bold]{command}[/]", soft_wrap=True)


def shown(path: Path) -> str:
    """A path as short as it can be written from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
