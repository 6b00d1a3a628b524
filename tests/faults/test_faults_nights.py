"""Power cuts and failing disks, a bounded sample: benchmarks/power_cuts.py and io_faults.py try all of them.

docs/reliability.md has the tables of the full exploration.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from night_world import SMALL, in_child, project, recorded, require_not_understated, whole_life
from power_cut import Disk, Recorder, Recording
from selpe.lasting import put_for_good, put_in_place
from selpe.owner_only import make_folder, write_whole
from selpe.privacy.ledger.disk import Disk as LedgerDisk

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs fork"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib of Python 3.10 keeps copies of the system's calls"),
]
ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> Any:
    """A script of benchmarks/ as a module."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


# -- the simulation can fail, and misses nothing ----------------------------------------------------------------------


def after_cuts(root: Path, act: Callable[[], None], name: str, *, told: bool = False) -> set[bytes | None]:
    """What a file may hold after a power cut during an action, with `told` after its end; None where it is gone."""
    recorder = Recorder(root)
    with recorder.watched.watching():
        act()
    recording = Recording(recorder.before, tuple(recorder.effects))
    moments = [len(recording.effects)] if told else range(1, len(recording.effects) + 1)
    trees = [cut.disk.tree() for moment in moments for cut in recording.cuts(moment, 5)]
    files = [tree[name][1] if name in tree else None for tree in trees]
    return {None if file is None else file.data for file in files}


def test_a_name_that_was_not_synced_may_be_lost_empty_or_torn(tmp_path: Path) -> None:
    def careless() -> None:
        (tmp_path / "draft").write_bytes(b"new")
        put_in_place(tmp_path / "draft", tmp_path / "file")

    assert after_cuts(tmp_path, careless, "file") >= {None, b"", b"\0\0\0", b"new"}


def test_a_file_put_in_place_for_good_is_the_old_one_or_the_new_one_and_then_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def careful() -> None:
        (tmp_path / "draft").write_bytes(b"new")
        put_for_good(tmp_path / "draft", tmp_path / "file")

    assert after_cuts(tmp_path, careful, "file") == {b"old", b"new"}
    assert after_cuts(tmp_path, lambda: write_whole(tmp_path / "file", "newer"), "file") == {b"new", b"newer"}
    assert after_cuts(tmp_path, lambda: write_whole(tmp_path / "file", "last"), "file", told=True) == {b"last"}


def test_folders_put_in_place_for_good_are_there_with_all_that_is_in_them(tmp_path: Path) -> None:
    def careful() -> None:
        make_folder(tmp_path / "a" / "draft")
        (tmp_path / "a" / "draft" / "x").write_bytes(b"x")
        put_for_good(tmp_path / "a" / "draft", tmp_path / "a" / "whole")

    assert after_cuts(tmp_path, careful, "a/whole/x") == {None, b"x"}
    assert after_cuts(tmp_path, (tmp_path / "b").mkdir, "a/whole/x", told=True) == {b"x"}


def test_what_is_recorded_is_what_is_on_the_disk(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.watched.watching():
        make_folder(tmp_path / "a" / "b")
        with (tmp_path / "a" / "text").open("w+", encoding="utf-8") as text:
            text.write("first line\n")
            text.seek(3)
            text.write("ST")
            text.truncate(8)
        with zipfile.ZipFile(tmp_path / "a" / "z.zip", "w") as archive:
            archive.write(tmp_path / "a" / "text", "t")
        handle = os.open(tmp_path / "a" / "text", os.O_WRONLY | os.O_APPEND)
        os.write(handle, b"more")
        os.close(handle)
        os.link(tmp_path / "a" / "text", tmp_path / "a" / "b" / "linked")
        (tmp_path / "a").rename(tmp_path / "c")
        (tmp_path / "c" / "text").unlink()
    assert (tmp_path / "c" / "b" / "linked").read_bytes() == b"firST limore"
    cuts = Recording(recorder.before, tuple(recorder.effects)).cuts(len(recorder.effects), 0)
    disks = {cut.way: cut.disk.digest() for cut in cuts}
    assert disks["all"] == Disk.of(tmp_path).digest()
    assert disks["nothing unsynced"] != disks["all"]


def test_a_ledger_that_is_not_synced_is_found_to_be_understated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project(tmp_path, **SMALL) as root:
        monkeypatch.setattr(LedgerDisk, "sync", lambda self, handle: None)
        recording = recorded(root, whole_life)
        after = next(n for n, e in enumerate(recording.effects, 1) if e.kind == "mark" and e.mark[0] == "charged")
        lost = next(cut for cut in recording.cuts(after, 0) if cut.way == "nothing unsynced")
        lost.disk.lay_out(root)
        with pytest.raises(AssertionError, match="understated"):
            in_child(lambda: require_not_understated(root, recording.marks(after)))


# -- the sample -------------------------------------------------------------------------------------------------------

TRIED = {
    "run, ledger, release, zip": 30, "a killed run that is resumed": 12, "server: uploads, a run": 8,
    "model store: a model fetched": 20,
}  # fmt: skip


@pytest.mark.parametrize("name", TRIED)
def test_after_a_power_cut_everything_ends_right_and_nothing_is_understated(name: str) -> None:
    cuts = script("power_cuts")
    (life,) = (life for life in cuts.LIVES if life.name == name)
    wrong: list[str] = []
    found = cuts.tried(life, size=1, width=1, most=TRIED[name], tell=wrong.append)
    assert wrong == []
    assert found.disks == TRIED[name]


@pytest.mark.parametrize("number", range(6))
def test_a_call_that_fails_ends_with_our_own_error_and_the_run_goes_on(number: int) -> None:
    faults = script("io_faults")
    wrong: list[str] = []
    found = faults.tried(faults.FAILURES[number], size=1, most=7, tell=wrong.append)
    assert wrong == []
    assert (found.foreign, found.understated, found.failed) == (0, 0, 7)


def test_every_life_and_every_failure_is_in_the_documentation() -> None:
    told = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    names = [life.name for life in script("power_cuts").LIVES] + [one.name for one in script("io_faults").FAILURES]
    assert [name for name in names if f"| {name} |" not in told] == []
