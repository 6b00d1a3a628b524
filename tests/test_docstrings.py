"""Examples in docstrings do what they show."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["selpe.api", "selpe.schema.core", "selpe.intake.draft"])
def test_examples_in_docstrings_run(name: str) -> None:
    found = doctest.testmod(import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
