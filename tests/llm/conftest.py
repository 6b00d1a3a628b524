"""The real model for tests that need one: fetched once into the model cache, skipped where that is impossible."""

from __future__ import annotations

from pathlib import Path

import pytest

from selpe.errors import ModelNotFoundError
from selpe.llm.models import ModelStore


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of the embedded default model."""
    try:
        return ModelStore().ensure("smollm2")
    except ModelNotFoundError as problem:
        pytest.skip(f"the weights of smollm2 are not to be had here: {problem.message}")
