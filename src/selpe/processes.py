"""Child processes that the terminal's Ctrl-C does not reach, and how they are asked to stop, on every system.

POSIX gives such a child a session of its own (`start_new_session`), which Windows ignores; Windows gives it a group
of its own (`creationflags`), which is nothing elsewhere. Windows can send no Ctrl-C to a group, only its Ctrl-Break.
A child whose standard input is a pipe from its parent can be let go of instead: it stops when the pipe ends, also
where the parent was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading

from selpe.errors import ExitCode

OWN_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
PLEASE_STOP: int = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)


def stop_when_let_go(cancel: threading.Event, patience: float) -> None:
    """Waits, in a thread, for the end of standard input; asks for a stop, and ends the process where none comes."""

    def wait() -> None:
        # Not by sys.stdin: a thread that waits in it would hold its lock when the interpreter shuts down.
        while os.read(0, 1):
            continue
        cancel.set()
        threading.Event().wait(patience)
        os._exit(ExitCode.INTERRUPTED)

    threading.Thread(target=wait, daemon=True).start()
