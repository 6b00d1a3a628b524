"""The verdict on a synthetic table: a headline, three answers with the figures behind them, and what to do next.

Every grade follows from figures that the page shows too, by one rule (evaluation/grades.py), so that a reader can
disagree. The badge of an answer names the figure that decided it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from selpe.evaluation.grades import Grade, worst
from selpe.report.answers.faithful import faithful
from selpe.report.answers.private import private
from selpe.report.answers.useful import useful
from selpe.report.grading import Finding

_HEADLINES: dict[Grade, str] = {
    "good": "Fit for use",
    "fair": "Usable, with care",
    "poor": "Not ready for use",
    "alarm": "Do not release this table yet",
    "unknown": "Not enough was measured to judge",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the page says first."""

    grade: Grade
    headline: str
    findings: tuple[Finding, Finding, Finding]
    steps: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self)


def judge(evaluation: Mapping[str, Any]) -> Verdict:
    """The verdict on an evaluation (see summarize.py for its shape)."""
    use, likeness, safety = findings = (useful(evaluation), faithful(evaluation), private(evaluation))
    grade, headline = _headline(use.grade, likeness.grade, safety.grade, evaluation["subject"])
    steps = tuple(dict.fromkeys(step for one in (safety, use, likeness) for step in one.steps))
    return Verdict(grade, headline, findings, steps[:3] or (_next(evaluation["subject"], grade),))


def _headline(use: Grade, likeness: Grade, safety: Grade, subject: Mapping[str, Any]) -> tuple[Grade, str]:
    """The worst of the three; what can be measured and was not is no better than fair."""
    if safety != "alarm" and subject.get("private") is False:
        return "alarm", "A control: not for release"
    asked = [likeness, use] if subject["label"] else [likeness]
    if safety != "alarm" and worst((use, likeness)) == "unknown":
        return "unknown", _HEADLINES["unknown"]
    grade = worst((use, likeness, safety, "fair" if "unknown" in asked else "good"))
    return grade, _HEADLINES[grade]


def _next(subject: Mapping[str, Any], grade: Grade) -> str:
    """What to do where no figure asks for anything of its own."""
    if grade == "poor":
        return "Improve the schema's descriptions and examples (`selpe preview` is free), or take a larger model."
    if subject.get("run"):
        return f"Pack what may leave the house: `selpe release {subject['run']}`"
    return "Use it; keep this page with the private data."
