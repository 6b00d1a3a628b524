"""Child processes that the terminal's Ctrl-C does not reach, and how they are asked to stop, on every system.

POSIX gives such a child a session of its own (`start_new_session`), which Windows ignores; Windows gives it a group
of its own (`creationflags`), which is nothing elsewhere. Windows can send no Ctrl-C to a group, only its Ctrl-Break.
A child whose standard input is a pipe from its parent can be let go of instead: it stops when the pipe ends, also
where the parent was killed. One that cannot stop any more, because C code holds its interpreter or because it was
stopped by a signal, is killed: by its parent (`kill_group`), or where that is gone by a guard of its own
(`end_with_parent`).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress

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


def kill_group(pid: int) -> None:
    """Ends a child that has a session of its own, with all that it has started; nothing it does can prevent that."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)  # TerminateProcess
        else:
            os.killpg(pid, signal.SIGKILL)


def end_with_parent(patience: float) -> None:
    """Has this process killed `patience` seconds after its parent is gone or has let go of it, whatever it does then.

    A second process looks after that: a thread could not while C code holds the interpreter, and the signal by which
    Linux tells of a parent's death would leave no time for a clean end. Call it before there are threads. Where there
    is no fork (Windows), `stop_when_let_go` alone has to do.
    """
    if sys.platform == "win32":
        return
    watched = os.getpid()
    with suppress(OSError):  # no room for one more process: the parent's own limits still hold
        ended, _open = os.pipe()  # the other end stays open as long as this process lives
        if os.fork():
            os.close(ended)
            return
        try:
            os.setsid()  # what stops or kills the group of the watched process is not for this one
            os.closerange(1, ended)  # a pipe that this one kept open would hide the end of the other
            os.closerange(ended + 1, 1024)
            _guard(watched, ended, patience)
        finally:
            os._exit(ExitCode.DONE)


if sys.platform != "win32":

    def _guard(watched: int, ended: int, patience: float) -> None:
        """Waits for the parent's end, then for the watched process's own; kills it where that does not come."""
        hung_up = select.poll()  # asks for hang-ups alone, so that nothing is read that is not for this process
        hung_up.register(0, 0)
        hung_up.register(ended, 0)
        if ended in dict(hung_up.poll()):
            return
        hung_up.unregister(0)
        # Once the watched process is gone this one has another parent, so no other process can be hit.
        if not hung_up.poll(1000 * patience) and os.getppid() == watched:
            if os.getpgid(watched) == watched:
                kill_group(watched)
            else:
                os.kill(watched, signal.SIGKILL)
