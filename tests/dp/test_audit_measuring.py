"""The audit of whole measurements in small; `make audit` runs it in full."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "audit_measuring.py"
# A sound mechanism that uses all of its ε is over once in a million audits.
ALMOST_SURE = 1 - 1e-6


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("measuring_audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measuring_audit"] = module  # dataclasses look their module up
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", range(7))
def test_whole_measurements_give_away_no_more_than_vote_counts_and_last_vote_claim_together(
    audit: Any, case: int
) -> None:
    assert audit.audit(case, 800, confidence=ALMOST_SURE) <= audit.CASES[case].epsilon


@pytest.mark.parametrize(("number", "draws"), [(0, 6_000), (1, 1_600), (2, 6_000)], ids=["vote", "counts", "last vote"])
def test_the_same_audit_catches_each_step_broken_on_purpose(audit: Any, number: int, draws: int) -> None:
    case, fault = audit.BROKEN[number]
    # A threshold drawn badly may miss once; a sound mechanism would be called broken in two tries once in fifty.
    assert any(audit.audit(case, draws, fault) > audit.CASES[case].epsilon for _ in range(2))


def test_a_fault_is_gone_after_its_audit(audit: Any) -> None:
    for _, fault in audit.BROKEN:
        audit.run((2, 0, 5, fault))
    assert audit.audit(2, 800, confidence=ALMOST_SURE) <= audit.CASES[2].epsilon


def test_the_auditor_knows_the_law_of_what_is_released(audit: Any) -> None:
    """The mean of the likelihood ratio is 1 on the table in its denominator: so it is one."""
    spoken = audit.run((1, 1, 1_500, ""))
    ratio = np.exp(spoken)
    assert ratio.mean() == pytest.approx(1.0, abs=5 * ratio.std() / np.sqrt(len(ratio)))
    assert np.abs(spoken).max() <= audit.CASES[1].epsilon + 1e-6  # pure: no release is likelier than by e^ε


def test_later_steps_depend_on_earlier_ones_and_every_fault_is_tried(audit: Any) -> None:
    measure = audit.Measurement(audit.CASES[1], audit.CASES[1].rows)
    found = [measure() for _ in range(60)]
    assert {each.field for each in found} == {0, 1}
    assert {each.favoured for each in found} == {"A", "B"}
    assert {fault for _, fault in audit.BROKEN} == set(audit.BREAKS)
    assert {round(case.epsilon, 9) for case in audit.CASES} == {1.0, 2.0}
