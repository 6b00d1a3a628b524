"""Programs in a process of their own that is watched: every attempt to speak to another machine is blocked and told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from selpe.models.store.store import ModelStore

# Runs before anything else in the child: every socket and process that Python code opens passes by an audit hook.
_GUARD = """
import json, sys
LOCAL = ("127.0.0.1", "::1", "localhost", None)
attempts = []

def guard(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None  # otherwise a socket of the file system
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = args[0].decode() if isinstance(args[0], bytes) else args[0]
    elif event == "subprocess.Popen" and any(word in str(args[1]) for word in ("lscpu", "cpuinfo")):
        return  # joblib counts cores
    elif event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"):
        host = f"process {args[:2]}"  # a child could speak for us, as a sender of telemetry does
    else:
        return
    if host not in LOCAL:
        attempts.append(f"{event} {host}")
        raise OSError("blocked by the test")

sys.addaudithook(guard)
"""

_TELL = """
import threading, time
time.sleep(0.5)  # a sender in the background may need a moment
print(json.dumps({"attempts": attempts, "telemetry": "openvino_telemetry" in sys.modules,
                  "threads": [t.name for t in threading.enumerate()]}))
"""


def outcome(program: str, home: Path, *prefix: str) -> dict[str, Any]:
    """What a guarded child process with a home folder of its own reports."""
    kept = {"SELPE_CACHE": str(ModelStore().root.parent), "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    environment = {**os.environ, **kept, "SELPE_OFFLINE": "", "HF_HUB_OFFLINE": ""}
    done = subprocess.run(
        [*prefix, sys.executable, "-c", _GUARD + program + _TELL],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
