"""A project per test, with ledgers, key and cache of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from faults_world import make_project, places, require_tidy
from in_process import selpe


@pytest.fixture(scope="session")
def worked(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands as tests fork them, done once before: everything that they need is loaded then.

    A fork without memory, or of a user who may not read our files, could not load it any more.
    """
    folder = tmp_path_factory.mktemp("worked")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places(folder).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        make_project(folder)
        require_tidy(selpe("run", "--name", "mine", "--yes"), 0)
        require_tidy(selpe("runs"), 0)
        require_tidy(selpe("release", "-y", "mine", "--to", "mine.zip"), 0)
        require_tidy(selpe("resume", "mine"), 0)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worked: None) -> Path:
    """The project's folder, which is the working folder too."""
    for name, value in places(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return make_project(tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Gives tests that fork an interpreter of their own once OpenVINO has been at work in this one.

    On some processors a fork of such a process dies before it does anything.
    """
    forks = any(hasattr(pyfuncitem.module, name) for name in ("befallen", "in_child"))
    if "openvino" not in sys.modules or not forks:
        return None
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", pyfuncitem.nodeid]
    done = subprocess.run(words, cwd=pyfuncitem.config.rootpath, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return True
