"""The command line in this process: what a user types in, exit code and both streams out."""

from __future__ import annotations

import io
import logging
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from selpe.cli import check, console, init, main


@dataclass(frozen=True)
class Run:
    """What came of a command."""

    code: int
    out: str
    err: str


def run(*words: object) -> Run:
    """Runs `selpe` with these words."""
    console.out.cache_clear()
    console.err.cache_clear()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    code: object = 0
    with (
        patch("selpe.cli._topics", lambda: [init.register, check.register]),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        try:
            main([str(word) for word in words])
        except SystemExit as leave:
            code = leave.code
    root.handlers[:], root.level = handlers, level
    console.MANNERS.json = console.MANNERS.debug = False
    return Run(int(code) if isinstance(code, int) else 1, out.getvalue(), err.getvalue())
