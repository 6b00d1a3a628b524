"""The audit of counts in small; `make audit` runs it in full."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "audit_counts.py"
# A sound mechanism that uses all of its ε is over once in a million audits.
ALMOST_SURE = 1 - 1e-6


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("counts_audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["counts_audit"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", range(8))
def test_whole_measurements_on_neighbours_give_away_no_more_than_claimed(audit: Any, case: int) -> None:
    assert audit.audit(case, 1_600, confidence=ALMOST_SURE) <= audit.CASES[case].epsilon


@pytest.mark.parametrize(
    ("case", "fault", "draws"),
    [
        (0, "half the noise", 3_000),
        (1, "half the noise", 3_000),
        (3, "the noise of one table", 6_000),
        (6, "every row of a person", 1_000),
        (0, "a coder that looks at another row", 2_000),
    ],
)
def test_the_same_audit_catches_measurements_broken_on_purpose(audit: Any, case: int, fault: str, draws: int) -> None:
    # A threshold drawn badly may miss once; a sound mechanism would be called broken in two tries once in fifty.
    assert any(audit.audit(case, draws, fault) > audit.CASES[case].epsilon for _ in range(2))


def test_a_fault_is_gone_after_its_audit(audit: Any) -> None:
    audit.run((0, 0, 10, "half the noise"))
    assert audit.audit(0, 1_600, confidence=ALMOST_SURE) <= audit.CASES[0].epsilon


def test_the_bound_is_right_where_the_truth_is_known(audit: Any) -> None:
    from selpe.privacy.accounting import gaussian_epsilon

    chance = np.random.default_rng(5)
    up, down = (tuple(chance.choice([1.0, 0.0], size, p=[p, 1 - p]) for size in (1_000, 100_000)) for p in (0.75, 0.25))
    assert 1.05 < audit.lower_bound((up[0], down[0]), (up[1], down[1])) < np.log(3)
    assert audit.lower_bound((up[0], up[0]), (up[1], up[1])) == 0.0
    one, other = (tuple(chance.normal(mean, 1.7, size) for size in (50_000, 400_000)) for mean in (1.0, 0.0))
    truth = gaussian_epsilon(1.7, 0.01)
    assert 0.9 * truth < audit.lower_bound((one[0], other[0]), (one[1], other[1]), 0.01) < truth


def test_every_fault_is_tried_by_the_full_audit(audit: Any) -> None:
    assert {fault for _, fault in audit.BROKEN} == set(audit.BREAKS)
    assert {case.epsilon for case in audit.CASES} == {1.0, 2.0}
