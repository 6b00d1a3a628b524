"""Releases over HTTP: every byte is compared with the run's seal at every request, whatever its times and sizes say."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.run.release import RELEASED
from serve_world import House


@pytest.fixture
def run(house: House) -> Run:
    """A finished run of the server."""
    house.take_in()
    name = house.submit().json()["run"]
    found = Run.open(house.root / "runs" / name)
    found.execute(model=FakeModel(), encoder=HashingEncoder())
    return found


def changed(path: Path, position: int) -> bytes:
    """Changes one byte and leaves size and times as they were; returns what was there."""
    about, raw = path.stat(), path.read_bytes()
    other = bytearray(raw)
    other[position] ^= 1
    path.write_bytes(other)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    return raw


def test_one_changed_byte_in_any_file_is_refused_after_it_was_packed(house: House, run: Run) -> None:
    address = f"/v1/runs/{run.name}/release"
    first = house.ask("GET", address)
    assert first.status_code == 200
    for name in RELEASED:
        path = run.release / name
        for position in (0, path.stat().st_size // 2, -1):
            raw = changed(path, position)
            refused = house.ask("GET", address)
            assert (refused.status_code, refused.json()["error"]["kind"]) == (409, "privacy"), name
            assert name in refused.json()["error"]["where"]
            assert str(house.root.resolve()) not in refused.text
            path.write_bytes(raw)
    assert house.ask("GET", address).content == first.content


def test_a_changed_zip_is_not_sent(house: House, run: Run) -> None:
    address = f"/v1/runs/{run.name}/release"
    first = house.ask("GET", address)
    changed(run.folder / "work" / "release.zip", 200)
    again = house.ask("GET", address)
    assert again.content == first.content
    assert hashlib.sha256(again.content).hexdigest() == again.headers["x-sha256"]


def test_a_lost_release_is_missing(house: House, run: Run) -> None:
    run.release.rename(run.folder / "moved")
    assert house.ask("GET", f"/v1/runs/{run.name}/release").status_code == 404
