"""The audit of Gaussian looks in small; `make audit` runs it in full."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "audit_looks.py"
# A sound mechanism that uses all of its ε is over once in a million audits.
ALMOST_SURE = 1 - 1e-6


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("looks_audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["looks_audit"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", range(6))
def test_whole_looks_on_neighbours_give_away_no_more_than_claimed(audit: Any, case: int) -> None:
    bound = audit.audit(case, 800, confidence=ALMOST_SURE)
    assert bound <= audit.EPSILON


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "fault"), [(0, "half the noise"), (4, "one histogram forgotten"), (3, "every row of a person")]
)
def test_the_same_audit_catches_looks_broken_on_purpose(audit: Any, case: int, fault: str) -> None:
    # So few answers miss half the noise three times in a hundred, but not four times in a row; a sound mechanism would
    # be called broken in four tries once in twenty-five.
    assert any(audit.audit(case, 3_000, fault) > audit.EPSILON for _ in range(4))


def test_the_bound_is_right_where_the_truth_is_known(audit: Any) -> None:
    from selpe.privacy.accounting import gaussian_epsilon

    chance = np.random.default_rng(5)
    sigma = 1.7
    a, b = (tuple(chance.normal(mean, sigma, size) for size in (50_000, 400_000)) for mean in (1.0, 0.0))
    truth = gaussian_epsilon(sigma, audit.DELTA)
    assert 0.9 * truth < audit.lower_bound((a[0], b[0]), (a[1], b[1])) < truth
    assert audit.lower_bound((a[0], a[0]), (a[1], a[1])) == 0.0


def test_every_fault_is_tried_by_the_full_audit(audit: Any) -> None:
    assert {fault for _, fault in audit.BROKEN} == set(audit.BREAKS)
