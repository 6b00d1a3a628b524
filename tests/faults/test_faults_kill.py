"""A part of the kill matrix; benchmarks/kill_matrix.py tries all of it, and docs/reliability.md has the table."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def matrix() -> Any:
    spec = importlib.util.spec_from_file_location("kill_matrix", ROOT / "benchmarks" / "kill_matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kill_matrix"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def house(matrix: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_KEY", "")  # the house sets its own, which is taken back here
        yield matrix.House(tmp_path_factory.mktemp("house"))


TRIED = (
    "charge written, not yet acknowledged", "half of an answer written", "killed again: draw lost, and lost again",
    "zip written, not yet in its place",
)  # fmt: skip


@pytest.mark.parametrize("what", TRIED)
def test_nothing_is_lost_by_a_kill(matrix: Any, house: Any, what: str) -> None:
    (moment,) = (moment for moment in matrix.MOMENTS if moment.what == what)
    assert moment.component in house.survives(moment)


def test_every_moment_of_the_matrix_is_in_the_documentation(matrix: Any) -> None:
    told = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [f"| {moment.component} | {moment.what} | {len(moment.arms)} |" for moment in matrix.MOMENTS]
    assert [row for row in rows if row not in told] == []
