"""Several processes for one grid: this one, and others of the same command, which stop when this one ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from selpe.cli.console import MANNERS
from selpe.owner_only import make_folder, open_bytes
from selpe.processes import OWN_GROUP

PATIENCE = 120.0  # seconds that a process has to stop in, once it was let go of
FOLDER = "jobs"
_all_cores: set[int] = set()  # those that this process had before it kept to its share


@contextmanager
def kept_to_cores(job: int, jobs: int) -> Iterator[None]:
    """Keeps this process to its share of the cores, where there are enough and the system can do it.

    Threads of models wait for each other by spinning: two processes on the same cores are slower than one.
    """
    if not hasattr(os, "sched_getaffinity") or jobs == 1:
        yield
        return
    before = os.sched_getaffinity(0)
    _all_cores.update(before)
    mine = sorted(before)[job * len(before) // jobs : (job + 1) * len(before) // jobs]
    os.sched_setaffinity(0, mine or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def others_at_work(jobs: int, root: Path) -> Iterator[None]:
    """Has `jobs` − 1 more processes do what this command does; what they say goes into files below `root`.

    One that fails or dies costs only time: this process does its remaining cells.
    """
    with ExitStack() as stack:
        for job in range(1, jobs):
            stack.enter_context(_other(job, root / FOLDER))
        yield


@contextmanager
def _other(job: int, folder: Path) -> Iterator[None]:
    make_folder(folder)
    with open_bytes(folder / f"{job}.log") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "selpe", *MANNERS.words, "--job", str(job)],
            stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True, creationflags=OWN_GROUP,
        )  # fmt: skip
        if _all_cores:  # a child has its parent's cores, and is to choose its share among all of them
            os.sched_setaffinity(process.pid, _all_cores)
        try:
            yield
        finally:
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
            try:
                process.wait(2 * PATIENCE)  # it ends by itself after half of that, unless it cannot even do that
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
