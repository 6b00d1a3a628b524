"""Power cuts, simulated: what a life writes and syncs is recorded, and disks are laid out as cuts may leave them.

    python benchmarks/power_cuts.py [--life run] [--size 3] [--width 3]

A disk may keep what was not synced, lose it, tear it, or keep a name without the bytes behind it: what is tried is told
in tests/support/power_cut.py. After each cut

- nothing in the ledger is understated: whatever was charged before a draw is there;
- what its owner was told to be done is done: a run, its release, a zip, an upload, a submitted run, a fetched model;
- going on ends with the same bytes as the life that nobody cut, and draws nothing again that was stored.

`--size` says after how many of the calls of one place to cut (0: after every call), `--width` how many of the newest
writes that are not synced are lost, or kept, each on its own. It prints a row of the table of docs/reliability.md for
each life, and every disk that did not end right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import night_world as night
from power_cut import Cut, Disk, Recording, explore

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Life:
    """Something that is done below a folder, and what must stand after a cut. `survives` is asked in a child."""

    name: str
    world: Callable[[Path], AbstractContextManager[Path]]
    lived: Callable[[night.Say], None]
    kept: Callable[[Path], Any]
    survives: Callable[[Path, list[Any], Any], None]


@dataclass
class Found:
    """What came of the cuts of a life."""

    name: str
    effects: int = 0
    disks: int = 0
    wrong: int = 0
    understated: int = 0

    @property
    def row(self) -> str:
        right = f"{self.disks - self.wrong:,} of {self.disks:,}"
        return f"| {self.name} | {self.effects:,} | {self.disks:,} | {right} | {self.understated} |"


def run_survives(root: Path, told: list[Any], expected: Any) -> None:
    """A run, its ledger, its release and its zip."""
    night.require_not_understated(root, told)
    night.require_standing(root, told)
    night.require_right_end(root, told, expected)


LIVES = (
    Life(
        "run, ledger, release, zip", lambda root: night.project(root, **night.SMALL), night.whole_life,
        night.released, run_survives,
    ),
    Life("the same with measured tables", night.project, night.whole_life, night.released, run_survives),
    Life(
        "a killed run that is resumed", night.killed_project, night.resumed_life, night.released, run_survives,
    ),
    Life(
        "server: uploads, a run", night.project, night.served_life, night.served_release,
        night.require_served,
    ),
    Life(
        "model store: a model fetched", night.shop, night.fetched_life, lambda _: night.WEIGHTS,
        night.require_fetched,
    ),
)  # fmt: skip
HEAD = """| what was done | writes, names and syncs | different disks after a cut | ended right | understated |
|---|---|---|---|---|"""


def tried(
    life: Life, *, size: int, width: int, most: int = 0, part: tuple[int, int] = (0, 1), tell: Tell = print
) -> Found:
    """All cuts of a life; what went wrong is told."""
    with night.place() as folder, life.world(folder) as root:
        clean = Disk.of(root)
        life.lived(lambda _: None)  # everything is loaded in this process once, and not by each child
        expected = life.kept(root)
        clean.lay_out(root)
        recording = night.recorded(root, life.lived)
        require_all_recorded(recording, root)

        def survives(cut: Cut, told: list[Any]) -> None:
            cut.disk.lay_out(root)
            night.in_child(lambda: life.survives(root, told, expected))

        found = Found(life.name, sum(effect.kind != "mark" for effect in recording.effects))
        for cut, wrong in explore(recording, size=size, width=width, survives=survives, most=most, part=part):
            found.disks += 1
            found.wrong += bool(wrong)
            found.understated += wrong.startswith("understated")
            if wrong:
                at = recording.effects[cut.after - 1]
                tell(f"after {cut.after} ({at.kind} {at.place}), {cut.way}: {wrong[-1500:]}")
        return found


def require_all_recorded(recording: Recording, root: Path) -> None:
    """Raises where the writes that were recorded do not make the disk that is there: then one was missed."""
    *_, last = (cut for cut in recording.cuts(len(recording.effects), 0) if cut.way == "all")
    assert last.disk.digest() == Disk.of(root).digest(), "a write was not recorded"


def part_of(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    return int(number), int(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--life", help="only lives whose name has this in it")
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--most", type=int, default=0, help="at most so many disks of each life; 0: all")
    parser.add_argument("--part", default="0/1", help="1/4: the second of four parts, for several processes at once")
    options = parser.parse_args()
    print(HEAD, flush=True)
    wrong = 0
    for life in LIVES:
        if options.life is None or options.life in life.name:
            how = {"size": options.size, "width": options.width, "most": options.most, "part": part_of(options.part)}
            found = tried(life, **how, tell=lambda said: print(said, flush=True))
            print(found.row, flush=True)
            wrong += found.wrong
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
