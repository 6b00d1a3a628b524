"""Child processes that the terminal's Ctrl-C does not reach, and how they are asked to stop, on every system.

POSIX gives such a child a session of its own (`start_new_session`), which Windows ignores; Windows gives it a group
of its own (`creationflags`), which is nothing elsewhere. Windows can send no Ctrl-C to a group, only its Ctrl-Break.
"""

from __future__ import annotations

import signal
import subprocess

OWN_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
PLEASE_STOP: int = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)
