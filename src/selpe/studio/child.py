"""Commands of ours as child processes: what is done from the page is done by the same code as from the terminal.

A child has a session of its own: neither Ctrl-C at the studio nor the end of the studio reaches it. What it says goes
to a file, so that it can go on speaking when nobody listens any more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from selpe.errors import ExitCode
from selpe.owner_only import open_bytes
from selpe.processes import OWN_GROUP, PLEASE_STOP

_MOST_BYTES = 50_000_000  # of output that is looked at


class Child:
    """One `selpe --json …`, running or ended."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.words, self._log = tuple(words), log
        self._asked_to_stop = False
        with open_bytes(log, "wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "selpe", "--json", *words],
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL,
                start_new_session=True, creationflags=OWN_GROUP, env=os.environ | {"PYTHONUTF8": "1"},
            )  # fmt: skip
        # Waited for in a thread, so that it does not stay behind as a zombie when nobody asks for its state.
        threading.Thread(target=self._process.wait, name="selpe-child", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process, for a person who wants to stop it without the studio."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is still at work."""
        return self._process.poll() is None

    @property
    def state(self) -> str:
        """running, stopping, done, stopped or failed."""
        if self.running:
            return "stopping" if self._asked_to_stop else "running"
        code = self._process.returncode
        if code == ExitCode.DONE:
            return "done"
        return "stopped" if code == ExitCode.INTERRUPTED or self._asked_to_stop else "failed"

    def stop(self) -> None:
        """Asks for a clean stop; asked a second time, it ends at once. Both are safe at any moment."""
        self._asked_to_stop = True
        with suppress(OSError):
            self._process.send_signal(PLEASE_STOP)

    def wait(self, seconds: float) -> None:
        """Waits for its end, at most so long."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def said(self) -> Iterator[dict[str, Any]]:
        """The lines of its output so far, oldest first."""
        with self._log.open("rb") as file:
            raw = file.read(_MOST_BYTES)
        for line in raw.split(b"\n")[:-1]:
            with suppress(ValueError):
                content = json.loads(line)
                if isinstance(content, dict):
                    yield content

    def last(self, key: str) -> Any:
        """What it said last under a key; None where it has not."""
        found = None
        for line in self.said():
            found = line.get(key, found)
        return found

    def as_dict(self) -> dict[str, Any]:
        """How it stands, as plain data."""
        error = self.last("error") if not self.running else None
        state = self.state
        if state == "failed" and error is None:
            error = {"kind": "killed", "message": "the command ended without a word", "where": "", "hint": ""}
        return {"state": state, "pid": self.pid, "error": error}
