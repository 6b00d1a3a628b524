"""The audit from the bytes of a file on, in small; `make audit` runs it in full."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "audit_files.py"
# A sound mechanism that uses all of its ε is over once in a million audits.
ALMOST_SURE = 1 - 1e-6


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("files_audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["files_audit"] = module  # dataclasses look their module up
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", range(5))
def test_files_with_one_hostile_row_give_away_no_more_than_claimed(audit: Any, case: int) -> None:
    assert audit.audit(audit.CASES[case], 1_600, confidence=ALMOST_SURE) <= audit.EPSILON


@pytest.mark.parametrize("case", range(3))
def test_the_same_audit_catches_reading_in_which_one_row_changes_others(audit: Any, case: int) -> None:
    found = audit.CASES[case]
    assert audit.audit(found, 800, found.fault) > audit.EPSILON
