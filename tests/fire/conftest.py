"""A project per test, with ledgers, key and cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fire_world import make_project, places


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's folder, which is the working folder too."""
    for name, value in places(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return make_project(tmp_path)
