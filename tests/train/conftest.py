"""These tests need the extra [train]; `make test-train` runs them. Elsewhere they are not collected at all."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore_glob = [] if find_spec("torch") and find_spec("peft") else ["test_*.py"]

if find_spec("torch"):
    import torch

    # One thread for each test process: on busy cores, threads that wait for each other are many times slower.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny language model of random weights and a tokenizer that cuts text into bytes."""
    from tiny_model import save_tiny

    return save_tiny(tmp_path_factory.mktemp("tiny"))
