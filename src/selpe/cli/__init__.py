"""The command line: typer and rich at the edge, our own errors and exit codes, nothing heavy until it is needed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

import typer

from selpe.cli.console import MANNERS, emit, err
from selpe.errors import ConfigError, ExitCode, SelPEError
from selpe.operating_system import refusal
from selpe.version import __version__


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"selpe {__version__}\n")
        raise typer.Exit


def build() -> typer.Typer:
    """The whole command line as one typer application."""
    app = typer.Typer(
        name="selpe",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Synthetic tables of structured text records, differentially private by construction.",
    )
    app.callback()(_options)
    for register in _topics():
        register(app)
    return app


def _options(
    verbose: int = typer.Option(0, "-v", "--verbose", count=True, help="Say more; twice for even more."),
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
    as_json: bool = typer.Option(False, "--json", help="One JSON line per result, for machines."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    MANNERS.verbose, MANNERS.debug, MANNERS.json = verbose, debug, as_json
    if verbose:
        import logging

        from rich.logging import RichHandler

        level = logging.DEBUG if verbose > 1 else logging.INFO
        logging.basicConfig(level=level, format="%(message)s", handlers=[RichHandler(console=err(), show_path=False)])


def _topics() -> list[Callable[[typer.Typer], None]]:
    """The commands in the order in which a newcomer needs them."""
    from selpe.cli import (
        budget,
        check,
        data,
        demo,
        doctor,
        evaluate,
        experiment,
        init,
        models,
        plan,
        run,
        schema,
        serve,
        server,
        studio,
        verify,
    )

    topics = (
        demo,
        init,
        studio,
        check,
        schema,
        plan,
        run,
        verify,
        evaluate,
        budget,
        models,
        serve,
        server,
        doctor,
        data,
        experiment,
    )
    return [topic.register for topic in topics]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and leaves with its exit code. Users see a traceback only with --debug."""
    _open_missing_streams()
    _allow_any_encoding()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    # `--json` and `--debug` may stand anywhere: behind a subcommand is where most people type them.
    early = [flag for flag in ("--json", "--debug") if flag in argv]
    argv = early + [word for word in argv if word not in early]
    MANNERS.words = tuple(argv)
    code = _code(argv)
    for stream in (sys.stdout, sys.stderr):
        _let_go_where_broken(stream)
    sys.exit(code)


def _code(argv: list[str]) -> int:
    """Does a command, and says what went wrong; its exit code."""
    try:
        code = build()(args=argv, prog_name="selpe", standalone_mode=False)
        sys.stdout.flush()  # else what cannot be written would be noticed only when nobody can say so any more
        return code if isinstance(code, int) else ExitCode.DONE
    except SelPEError as error:
        _show(error)
        return error.exit_code
    except typer.Exit as leave:
        return leave.exit_code
    except (KeyboardInterrupt, typer.Abort):
        with suppress(OSError):
            err().print("[yellow]interrupted[/]; what was finished is kept")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.DONE  # the reader of our output has gone (`selpe … | head`): nothing left to say
    except (OSError, MemoryError) as error:
        _show(refusal(error))
        return ExitCode.FAILED
    except UnicodeEncodeError as error:
        _show(_unwritable(error))
        return ExitCode.BAD_INPUT
    except Exception as error:
        return _unexpected(error)


def _open_missing_streams() -> None:
    """Opens nothing at all in the place of a standard stream that was closed (`selpe … >&-`, a service, a window).

    Else the next file that is opened would have its number, and whatever a library prints would land in a ledger.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    for name, mode in (("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb")):
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8"))


def _allow_any_encoding() -> None:
    """Lets a stream that has no ε (a pipe on Windows, a plain C locale) show a question mark instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _let_go_where_broken(stream: TextIO) -> None:
    """Sends what a full or closed stream still holds nowhere: the interpreter would fail once more at its end."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _show(error: SelPEError) -> None:
    """An error for people on standard error, and for machines on standard output. Either may be what is broken."""
    if MANNERS.debug:
        with suppress(OSError):
            err().print_exception()
    with suppress(OSError):
        emit({"error": error.as_dict()})
    from rich.markup import escape

    with suppress(OSError):
        err().print(f"[bold red]error[/] {escape(error.said)}")
        if error.hint:
            err().print(f"[dim]what to do:[/] {escape(error.hint)}")


def _unwritable(error: UnicodeEncodeError) -> ConfigError:
    """The error for a text that this process cannot write; the text itself is not repeated, nor could it be."""
    return ConfigError(
        f"a text, such as the name of a file, has characters that the encoding '{error.encoding}' does not have",
        hint="set PYTHONUTF8=1, or a locale that knows UTF-8 (LC_ALL=C.UTF-8), or rename the file",
    )


def _unexpected(error: Exception) -> int:
    """Usage errors keep typer's own message; anything else is a bug, and only its type is reported.

    The message of a foreign exception may quote a cell of a private table, so it is never shown.
    """
    show = getattr(error, "show", None)
    # By shape and not by class: some versions of typer bring their own copy of click's exceptions along.
    if callable(show) and hasattr(error, "format_message"):
        with suppress(OSError):
            show()
        return ExitCode.BAD_INPUT
    with suppress(OSError):
        if MANNERS.debug:
            err().print_exception()
        emit({"error": {"kind": "bug", "message": type(error).__name__, "where": "", "hint": ""}})
        err().print(f"[bold red]error[/] an unexpected {type(error).__name__} stopped the command")
        err().print("[dim]what to do:[/] run it again with --debug for the details, and tell us")
    return ExitCode.FAILED
