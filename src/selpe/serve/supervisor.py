"""The runs of a server: so many at once as there are workers, the others in a queue, each in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from selpe.errors import ExitCode
from selpe.processes import OWN_GROUP, kill_group
from selpe.run.workspace import Workspace
from selpe.serve.limits import Limits
from selpe.serve.refusals import busy
from selpe.serve.store import write_json
from selpe.serve.worker import KILLED_AFTER

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "selpe.serve.worker")
Activity = Literal["queued", "running", "stopping"]


@dataclass(slots=True)
class _RunJob:
    folder: Path
    process: asyncio.subprocess.Process | None = None
    stopping: bool = False
    why: str = ""  # it was stopped or killed; empty where somebody asked for that
    let_go: bool = False  # it has been told to stop, and its time for that is running
    timer: asyncio.TimerHandle | None = None  # for what ends it next


class Supervisor:
    """Starts runs in order, stops them when asked, and lets go of all of them when it is closed."""

    def __init__(self, limits: Limits, *, command: Sequence[str] = COMMAND) -> None:
        self._limits, self._command = limits, tuple(command)
        self._jobs: dict[str, _RunJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False
        self.ended: Callable[[str], None] = lambda run: None  # told of every run whose worker is gone

    def activity(self, run: str) -> Activity | None:
        """What is being done about a run; None where nothing is."""
        job = self._jobs.get(run)
        if job is None:
            return None
        if job.stopping:
            return "stopping"
        return "queued" if run not in self._tasks else "running"

    def require_room(self) -> None:
        """Raises where the queue is full."""
        if len(self._jobs) - len(self._tasks) >= self._limits.queue or self._closed:
            raise busy("too many runs are waiting", hint="try again when one has ended")

    def begin(self, run: str, folder: Path) -> None:
        """Puts a run in the queue; it starts as soon as a worker is free."""
        self.require_room()
        self._jobs[run] = _RunJob(folder)
        self._fill()

    def stop(self, run: str) -> None:
        """Takes a run out of the queue, or asks its worker to stop; it has a while to do so, then it is killed."""
        job = self._jobs.get(run)
        if job is None:
            return
        if run not in self._tasks:
            del self._jobs[run]
            return
        self._end(job)

    async def close(self) -> None:
        """Stops everything. What is not done can be resumed by the next server."""
        self._closed = True
        for run in list(self._jobs):
            self.stop(run)
        if self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        if self._closed:
            return
        for run in list(self._jobs):
            if len(self._tasks) >= self._limits.workers:
                return
            if run not in self._tasks:
                self._tasks[run] = asyncio.create_task(self._care_for(run))

    async def _care_for(self, run: str) -> None:
        job = self._jobs[run]
        try:
            await self._work(run, job)
        except OSError as error:
            _note(job.folder, "the worker cannot be started", kind="system")
            log.error("%s: the worker cannot be started (%s)", run, type(error).__name__)
        finally:
            del self._jobs[run], self._tasks[run]
            self._fill()
            await asyncio.to_thread(self.ended, run)

    async def _work(self, run: str, job: _RunJob) -> None:
        Workspace(job.folder).work.ended.unlink(missing_ok=True)
        # A session of its own: Ctrl-C at the server's terminal is for the server, which stops its runs cleanly.
        job.process = process = await asyncio.create_subprocess_exec(
            *self._command, str(job.folder), str(self._limits.stop_seconds),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True, creationflags=OWN_GROUP,
        )  # fmt: skip
        log.info("%s: started", run)
        if job.stopping:
            self._end(job)
        else:
            job.timer = asyncio.get_running_loop().call_later(self._limits.run_seconds, self._overdue, job)
        code = await process.wait()
        if job.timer:
            job.timer.cancel()
        log.info("%s: ended (%s)", run, _EXITS.get(code, f"code {code}"))
        if job.why and code != ExitCode.DONE:
            _note(job.folder, job.why, kind="killed")
        elif code < 0 and not job.stopping:
            _note(job.folder, f"its process was killed ({_signal(code)})", kind="killed")

    def _overdue(self, job: _RunJob) -> None:
        job.why = f"it was stopped, for a run may take {self._limits.run_seconds / 3600:g} hours at once"
        self._end(job)

    def _end(self, job: _RunJob) -> None:
        """Lets go of a worker, and kills it where it does not end: it may be unable to notice."""
        job.stopping = True
        if job.let_go or job.process is None or job.process.stdin is None:
            return  # asked for twice, it does not get its time twice
        job.let_go = True
        with suppress(OSError):
            job.process.stdin.close()
        if job.timer:
            job.timer.cancel()
        seconds = self._limits.stop_seconds + KILLED_AFTER
        job.timer = asyncio.get_running_loop().call_later(seconds, self._kill, job)

    def _kill(self, job: _RunJob) -> None:
        if job.process is not None and job.process.returncode is None:
            job.why = job.why or f"its process did not stop within {self._limits.stop_seconds:g} s and was killed"
            log.warning("%s: %s", job.folder.name, job.why)
            kill_group(job.process.pid)


_EXITS: Mapping[int, str] = {int(code): code.name.lower() for code in ExitCode}


def _note(folder: Path, message: str, *, kind: str) -> None:
    with suppress(OSError):
        said = {"kind": kind, "message": message, "where": "", "hint": "it can be resumed"}
        write_json(Workspace(folder).work.ended, said)


def _signal(code: int) -> str:
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
