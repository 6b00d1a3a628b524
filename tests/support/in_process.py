"""The command line in this process: quick, and patches of a test hold for it."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from selpe.cli import console, main


class Result(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Both streams."""
        return self.out + self.err

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What was printed with --json."""
        return [json.loads(line) for line in self.out.splitlines()]


def selpe(*words: object) -> Result:
    """Runs a command."""
    for stream in (console.out, console.err):
        stream.cache_clear()
    code: object = 0
    mask = os.umask(0o077)  # a command may set it for its whole process, which here is that of all tests
    os.umask(mask)
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main([str(word) for word in words])
        except SystemExit as leave:
            code = leave.code
    console.MANNERS.json = console.MANNERS.debug = False
    os.umask(mask)
    return Result(int(code) if isinstance(code, int) else 1, out.getvalue(), err.getvalue())
