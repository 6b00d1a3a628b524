"""Shared fixtures: the real data and the real model, for tests that need them; skipped where they are not to be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from selpe.errors import ModelNotFoundError
from selpe.models.store.store import ModelStore

# A test that is right on a busy machine too: none of them measures time.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

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


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of the embedded default model, fetched once into the model cache."""
    try:
        return ModelStore().ensure("smollm2")
    except ModelNotFoundError as problem:
        pytest.skip(f"the weights of smollm2 are not to be had here: {problem.message}")
