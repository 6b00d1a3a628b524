"""Shared fixtures: where the real data lies, when it lies anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """A lookup for real data files that live beside the checkout; skips the test where they are absent."""

    def find(name: str) -> Path:
        path = (SHARED / name).resolve()
        if not path.exists():
            pytest.skip(f"real data file {name} is not beside this checkout")
        return path

    return find
