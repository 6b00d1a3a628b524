"""The statistical audit in small; `make audit` runs it in full."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "audit.py"
# A sound mechanism that uses all of its ε is over once in a million audits.
ALMOST_SURE = 1 - 1e-6


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("privacy_audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["privacy_audit"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", range(6))
def test_whole_selections_on_neighbours_give_away_no_more_than_claimed(audit: Any, case: int) -> None:
    bound = audit.audit(case, 3_000, confidence=ALMOST_SURE)
    assert bound <= audit.EPSILON


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "fault", "draws"),
    [(0, "half the noise", 20_000), (0, "seeded noise", 800), (5, "batches by content", 16_000)],
)
def test_the_same_audit_catches_a_mechanism_broken_on_purpose(audit: Any, case: int, fault: str, draws: int) -> None:
    # A threshold drawn badly may miss once; a sound mechanism would be called broken in two tries once in fifty.
    assert any(audit.audit(case, draws, fault) > audit.EPSILON for _ in range(2))


def test_a_fault_is_gone_after_its_audit(audit: Any) -> None:
    audit.run((0, 0, 10, "half the noise"))
    assert audit.audit(0, 3_000, confidence=ALMOST_SURE) <= audit.EPSILON


def test_the_bound_is_right_where_the_truth_is_known(audit: Any) -> None:
    first = (Counter({(0,): 750, (1,): 250}), Counter({(0,): 250, (1,): 750}))
    rest = (Counter({(0,): 75_000, (1,): 25_000}), Counter({(0,): 25_000, (1,): 75_000}))
    assert 1.05 < audit.lower_bound(first, rest) < 1.0986  # the truth is ln 3
    assert audit.lower_bound(first, (rest[0], rest[0])) == 0.0


def test_every_fault_is_tried_by_the_full_audit(audit: Any) -> None:
    assert {fault for _, fault in audit.BROKEN} == set(audit.BREAKS)
