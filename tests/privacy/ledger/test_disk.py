"""Putting a file in the place of another where the system refuses it for a moment, as Windows does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from selpe import lasting
from selpe.privacy.ledger.disk import Disk


class Reluctant:
    """A system that refuses the first so many times to replace a file, because somebody reads it."""

    def __init__(self, patch: pytest.MonkeyPatch, refusals: int) -> None:
        self.asked = 0
        really = Path.replace

        def replace(source: Path, target: Path) -> Path:
            self.asked += 1
            if self.asked <= refusals:
                raise PermissionError(13, "somebody reads it")
            return really(source, target)

        patch.setattr(Path, "replace", replace)
        patch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    draft, target = tmp_path / "head.new", tmp_path / "head.json"
    draft.write_bytes(b"new")
    target.write_bytes(b"old")
    return draft, target


def test_a_refusal_that_passes_is_waited_out_on_windows(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "_PAUSES", (0.01, 0.02, 0.05))
    machine = Reluctant(monkeypatch, refusals=3)
    Disk().replace(*files)
    assert files[1].read_bytes() == b"new"
    assert machine.asked == 4


def test_a_refusal_that_stays_is_reported(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "_PAUSES", (0.01, 0.02, 0.05))
    Reluctant(monkeypatch, refusals=99)
    with pytest.raises(PermissionError):
        Disk().replace(*files)
    assert files[1].read_bytes() == b"old"


@pytest.mark.skipif(os.name == "nt", reason="Windows waits")
def test_other_systems_are_asked_once(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Reluctant(monkeypatch, refusals=99)
    with pytest.raises(PermissionError):
        Disk().replace(*files)
    assert machine.asked == 1
