"""Failing disks: every call of a run that touches a file is made to fail, one at a time, in every way that a disk has.

    python benchmarks/io_faults.py [--kind ENOSPC] [--size 3]

A budget is set, a run is done and its release packed by the command line, with the fake model. Call number k is failed,
for every k: the disk is full (once, or from then on), it reports an error (once, or from then on), a signal interrupts
the call, or only a half of the bytes gets through. After each

- every command ended well or with an error of ours: a message, an exit code, no traceback, no foreign exception;
- nothing in the ledger is understated: whatever was charged before a draw is there;
- with a disk that works again, going on ends with the same release to the byte.

`--size` says how many of the calls of one place are failed (0: all of them). It prints a row of the table of
docs/reliability.md for each kind of failure, and every call after which something was wrong.
"""

from __future__ import annotations

import argparse
import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import night_world as night
from in_process import Result
from in_process import selpe as command
from power_cut import Disk, alike, spread
from watched_disk import CHANGING, LOOKING, SQLITE, Call, Doing, Watched

GROWING = ("create", "write", "fsync", "mkdir", "rename", "link", SQLITE)
SLOW = ("create", "open", "write", "read", "fsync", "truncate")
COMMANDS = (night.WIDE, night.BEGIN, night.PACK)


Tell = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """A way in which calls of some kinds fail. `for_good`: all that come later fail as well."""

    name: str
    calls: tuple[str, ...]
    errno: int = 0
    for_good: bool = False

    def happen(self, call: Call, do: Doing, *, first: bool) -> Any:
        """What comes of a call that fails this way."""
        if self.errno == 0:
            return do(max(1, (len(call.data) or call.size) // 2) if call.data or call.size else None)
        if call.kind == "write" and self.for_good and first and len(call.data) > 1:
            return do(len(call.data) // 2)  # what there is room for is written; the next attempt says that it is full
        if call.kind == "close":
            do()
        if call.kind == SQLITE:
            full = self.errno == errno.ENOSPC
            raise sqlite3.OperationalError("database or disk is full" if full else "disk I/O error")
        raise OSError(self.errno, os.strerror(self.errno), call.path)


FAILURES = (
    Failure("ENOSPC, once", GROWING, errno.ENOSPC),
    Failure("ENOSPC, from then on", GROWING, errno.ENOSPC, for_good=True),
    Failure("EIO, once", (*CHANGING, *LOOKING), errno.EIO),
    Failure("EIO, from then on", (*CHANGING, *LOOKING), errno.EIO, for_good=True),
    Failure("EINTR", SLOW, errno.EINTR),
    Failure("a half of the bytes", ("write", "read")),
)
HEAD = """| failure | calls that can | failed | ended with our error | foreign | understated | went on, same bytes |
|---|---|---|---|---|---|---|"""


@dataclass
class Found:
    """What came of a way of failing."""

    name: str
    calls: int = 0
    failed: int = 0
    refused: int = 0
    foreign: int = 0
    understated: int = 0
    wrong: int = 0

    @property
    def row(self) -> str:
        went_on = f"{self.failed - self.wrong:,} of {self.failed:,}"
        return (
            f"| {self.name} | {self.calls:,} | {self.failed:,} | {self.refused:,} | {self.foreign} "
            f"| {self.understated} | {went_on} |"
        )


@dataclass
class Disturbed:
    """A disk on which one call fails, or all from then on; `places` are the calls that could."""

    failure: Failure
    at: int = -1
    places: list[str] = field(default_factory=list)

    def seen(self, call: Call, do: Doing) -> Any:
        if call.kind not in self.failure.calls:
            return do()
        number = len(self.places)
        self.places.append(call.place if self.at < 0 else "")
        if self.at >= 0 and (number == self.at or (number > self.at and self.failure.for_good)):
            return self.failure.happen(call, do, first=number == self.at)
        return do()


def lived(root: Path, failure: Failure, at: int = -1) -> tuple[list[Result], list[Any], list[str]]:
    """A life on a disk that fails: what the commands said, what could be drawn, and where calls were made."""

    def work() -> tuple[list[Result], list[Any], list[str]]:
        disk, told, said = Disturbed(failure, at), list[Any](), list[Result]()
        with Watched(root, disk.seen).watching(), night.telling(told.append):
            for words in COMMANDS:
                said.append(command(*words))
                if said[-1].code != 0:
                    break
                told.append(("done", words[0]))
        return said, told, disk.places

    found: tuple[list[Result], list[Any], list[str]] = night.in_child(work)
    return found


def foreign(said: Sequence[Result]) -> str:
    """What a command said that is not ours to say, or an exit code without a word; '' where all is as it should be."""
    for result in said:
        if result.code not in (0, 1, 2, 3) or "Traceback" in result.said or "unexpected" in result.err:
            return f"exit code {result.code}: {result.err[-1500:]}"
        if result.code and "error" not in result.err:
            return f"exit code {result.code} without a reason: {result.err[-500:]}"
    return ""


def tried(failure: Failure, *, size: int, most: int = 0, tell: Tell = lambda _: None) -> Found:
    """All calls that can fail in this way, each failed once; what went wrong is told."""
    with night.place() as folder, night.project(folder, **night.SMALL) as root:
        clean = Disk.of(root)
        night.whole_life(lambda _: None)  # everything is loaded in this process once, and not by each child
        expected = night.released(root)
        clean.lay_out(root)
        _, _, places = lived(root, failure)
        by_place: dict[str, list[int]] = {}
        for number, where in enumerate(places):
            by_place.setdefault(alike(where), []).append(number)
        found = Found(failure.name, len(places))
        chosen = sorted(number for numbers in by_place.values() for number in spread(numbers, size))
        for at in spread(chosen, most):
            clean.lay_out(root)
            said, told, _ = lived(root, failure, at)
            found.failed += 1
            found.refused += said[-1].code != 0
            if strange := foreign(said):
                found.foreign += 1
                tell(f"{failure.name} at {at}, {places[at]}: {strange}")
            try:
                night.in_child(lambda told=told: stands(root, told, expected))  # type: ignore[misc]
            except AssertionError as problem:
                found.wrong += 1
                found.understated += str(problem).startswith("understated")
                tell(f"{failure.name} at {at}, {places[at]}: {str(problem)[-1500:]} {said[-1].err[-600:]}")
        return found


def stands(root: Path, told: list[Any], expected: Any) -> None:
    """Nothing is understated, what was said to be done is done, and going on ends right."""
    night.require_not_understated(root, told)
    night.require_standing(root, told)
    night.require_right_end(root, told, expected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", help="only failures whose name has this in it")
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--most", type=int, default=0, help="at most so many calls of each kind; 0: all")
    options = parser.parse_args()
    print(HEAD, flush=True)
    wrong = 0
    for failure in FAILURES:
        if options.kind is None or options.kind in failure.name:
            found = tried(failure, size=options.size, most=options.most, tell=lambda said: print(said, flush=True))
            print(found.row, flush=True)
            wrong += found.wrong + found.foreign
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
