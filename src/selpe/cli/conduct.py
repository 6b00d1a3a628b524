"""Doing a run for somebody at a terminal: models opened, progress shown, Ctrl-C obeyed, the page served."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from selpe.cli.console import emit, err, json_mode
from selpe.errors import ExitCode, SelPEError, StoppedError
from selpe.events import together

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.models.base import ChatModel
    from selpe.models.store.download import Progress
    from selpe.run.lifecycle import Run
    from selpe.run.outcome import Outcome
    from selpe.run.preflight import Preflight
    from selpe.run.session import Session


def conduct(
    run: Run,
    *,
    watch: bool = False,
    port: int = 0,
    insist: bool = False,
    outlook: Preflight | None = None,
    session: Session | None = None,
    opening: float = 0.0,
) -> Outcome:
    """Executes a run and shows it. Ends with exit code 130 when the user stops it.

    `session` is for who has opened it already, in `opening` seconds; else it is opened here.
    """
    from selpe.cli.display import showing
    from selpe.models.base import Counting
    from selpe.models.machine import usable_cores
    from selpe.run.profile import Profiler
    from selpe.run.progress import Meter

    profiler = Profiler(cores=usable_cores(), before=opening)
    cancel = threading.Event()
    with ExitStack() as stack:
        try:
            table, plan = (outlook.table, outlook.plan) if outlook else (None, None)
            run.begin(source=table, insist=insist, plan=plan)
            session = session or stack.enter_context(opened(run.config))
            model = session.model
            computed = (lambda: model.computed) if isinstance(model, Counting) else None
            profiler.opened(computed)
            meter = Meter(
                epsilon=run.config.epsilon,
                adjacency=run.config.adjacency,
                expected=None if outlook is None else outlook.estimate,
                computed=computed,
            )
            if watch:
                _serve(stack, run, meter, port)
            listen = together(profiler.listen, stack.enter_context(showing(meter)))
            stack.enter_context(stopping_at_ctrl_c(cancel))
            outcome = run.execute(**session.parts(), emit=listen, cancel=cancel)
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
    with suppress(OSError):  # the run is done, whether or not there is room to tell where its time went
        profiler.profile().save(run.workspace.profile)
    return outcome


@contextmanager
def opened(config: RunConfig) -> Iterator[Session]:
    """The session of the settings; what is fetched for it is shown while it is opened."""
    from selpe.run import session

    with ExitStack() as opening:
        bar = _fetching(opening, config)
        with session.opened(config, progress=bar) as found:
            opening.close()
            yield found


@contextmanager
def opened_model(config: RunConfig) -> Iterator[ChatModel]:
    """The language model of the settings, fetched and prepared with a progress bar, closed at the end."""
    from selpe.run.session import executing

    with ExitStack() as opening:
        bar = _fetching(opening, config)
        with executing(config, bar) as executor:
            model = executor.model(config.llm)
            opening.close()
            yield model


def _fetching(opening: ExitStack, config: RunConfig) -> Progress:
    """A bar that shows what is fetched until `opening` is closed."""
    from selpe.cli.fetch_bar import fetch_bar

    if config.execute == "ray" and not json_mode():
        err().print(f"[dim]waiting for workers on Ray ({config.ray.address}), {config.ray.workers} asked for[/]")
    return opening.enter_context(fetch_bar())


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
    # With `nohup`, SIGHUP stays ignored. A shell's '&' ignores SIGINT too, but a user who sends one wants to stop.
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
    except (RuntimeError, OSError):  # in the middle of a write, or the terminal is gone; the run stops in any case
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
