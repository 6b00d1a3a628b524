"""The verdict on a synthetic table: a headline, three sentences with the figures behind them, and what to do next.

Grades are rules over figures that the page shows too, so that a reader can disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from selpe.report.words import epsilon, figure, known, listing, percent, plural

Grade = Literal["good", "fair", "poor", "alarm", "unknown"]

# Of the way from chance to what real rows reach.
GOOD_UTILITY, FAIR_UTILITY = 0.85, 0.5
# Mean distance of the fields' spreads (0 the same, 1 nothing in common).
GOOD_SPREADS, FAIR_SPREADS = 0.15, 0.3
GOOD_VALIDITY = 95.0
_REFERENCES = ("private rows", "real rows")
_NO_STEERING = (
    "The private table steered nothing that can be measured: see `selpe plan`, then raise ε, bring more rows or merge "
    "classes."
)
_POOR = (
    "Improve the schema's descriptions and examples first (`selpe preview` is free), then try a larger model or more ε."
)
_NO_CONTROL = (
    "See what the private table added: `selpe run --epsilon 0` spends nothing; then evaluate again with `--control`."
)
_DULL = "Look at the fidelity alarms: a larger model, a higher temperature or more varied examples usually help."
_LEAK = (
    "Find out why before anything leaves: are the held-out rows of the same time and place as the private ones, and do "
    "the schema's examples come from the private table?"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one of the three questions."""

    question: str
    grade: Grade
    answer: str  # two or three words
    sentence: str
    steps: tuple[str, ...] = ()


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
    useful = _useful(evaluation)
    faithful = _faithful(evaluation)
    private = _private(evaluation)
    findings = (useful, faithful, private)
    grade, headline = _headline(useful.grade, faithful.grade, private.grade, evaluation["subject"])
    steps = tuple(dict.fromkeys(step for one in (private, useful, faithful) for step in one.steps))
    return Verdict(grade, headline, findings, steps[:3] or (_release(evaluation["subject"]),))


def _headline(useful: Grade, faithful: Grade, private: Grade, subject: Mapping[str, Any]) -> tuple[Grade, str]:
    if private == "alarm":
        return "alarm", "Do not release this table yet"
    if subject.get("private") is False:
        return "alarm", "A control: not for release"
    grades = [grade for grade in (useful, faithful) if grade != "unknown"]
    if not grades:
        return "unknown", "Not enough was measured to judge"
    if "poor" in grades:
        return "poor", "Not ready for use"
    if "fair" in grades:
        return "fair", "Usable, with care"
    return "good", "Fit for use"


def _release(subject: Mapping[str, Any]) -> str:
    if subject.get("run"):
        return f"Pack what may leave the house: `selpe release {subject['run']}`"
    return "Use it; keep this page with the private data."


# -- is it useful? ---------------------------------------------------------------------------------------------------


def _useful(evaluation: Mapping[str, Any]) -> Finding:
    question = "Is it useful?"
    if evaluation["utility"] is None or not _scores(evaluation, "synthetic"):
        why = "the schema names no label" if not evaluation["subject"]["label"] else "no test records were given"
        step = () if not evaluation["subject"]["label"] else ("Give real records to test on: --test test.csv",)
        return Finding(question, "unknown", "not measured", f"Utility was not measured: {why}.", step)
    ours, best = _scores(evaluation, "synthetic"), _reference(evaluation)
    reached = _reached(ours, best) if best else None
    sentence = _utility_sentence(ours, best)
    grade: Grade = "poor" if all(score["low"] <= 50 for score in ours.values()) else "fair"
    if grade != "poor" and reached is not None:
        grade = "good" if reached >= GOOD_UTILITY else "fair" if reached >= FAIR_UTILITY else "poor"
    answer = f"{percent(reached, 0)} of the way to real" if reached is not None else f"AUC {figure(_mean(ours), 1)}"
    return Finding(question, grade, answer, sentence, tuple(_utility_steps(evaluation, ours, grade)))


def _scores(evaluation: Mapping[str, Any], trained_on: str) -> dict[str, Mapping[str, Any]]:
    """The scores of one training set by view."""
    found = (evaluation["utility"] or {}).get("scores", ())
    return {score["view"]: score for score in found if score["trained_on"] == trained_on and known(score["auc"])}


def _reference(evaluation: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return next((found for name in _REFERENCES if (found := _scores(evaluation, name))), {})


def _reached(ours: Mapping[str, Mapping[str, Any]], best: Mapping[str, Mapping[str, Any]]) -> float | None:
    """How far the synthetic table gets from chance to the reference, over views whose reference beats chance."""
    shares = [
        (ours[view]["auc"] - 50) / (best[view]["auc"] - 50)
        for view in ours
        if view in best and best[view]["auc"] > 52
    ]  # fmt: skip
    return max(0.0, fmean(shares)) if shares else None


def _utility_sentence(ours: Mapping[str, Mapping[str, Any]], best: Mapping[str, Mapping[str, Any]]) -> str:
    told = [f"{figure(score['auc'], 1)} ({_kind(score)})" for score in ours.values()]
    said = f"Trained on these records alone, a model tells real cases apart with an AUC of {listing(told)}"
    if not best:
        return f"{said}; 50 is chance."
    theirs = [figure(best[view]["auc"], 1) for view in ours if view in best]
    name = next(iter(best.values()))["trained_on"]
    rows = "the private rows themselves" if name == "private rows" else "as many real rows"
    return f"{said}; {rows} reach {listing(theirs)}, and 50 is chance."


def _kind(score: Mapping[str, Any]) -> str:
    return "text view" if score["kind"] == "text" else "structured view"


def _mean(scores: Mapping[str, Mapping[str, Any]]) -> float:
    return fmean(score["auc"] for score in scores.values())


def _utility_steps(evaluation: Mapping[str, Any], ours: Mapping[str, Mapping[str, Any]], grade: Grade) -> list[str]:
    steps = []
    missing = sorted({label for score in ours.values() for label in score["missing"]})
    if missing:
        steps.append(f"Add records of the missing {'class' if len(missing) == 1 else 'classes'} {listing(missing)}.")
    control = _scores(evaluation, "epsilon 0")
    is_run = bool(evaluation["subject"].get("run"))
    if control and _mean(ours) <= _mean({view: one for view, one in control.items() if view in ours} or control):
        steps.append(_NO_STEERING)
    elif grade == "poor" and is_run:
        steps.append(_POOR)
    if not control and is_run and grade != "good":
        steps.append(_NO_CONTROL)
    return steps


# -- is it faithful? -------------------------------------------------------------------------------------------------


def _faithful(evaluation: Mapping[str, Any]) -> Finding:
    question = "Is it faithful?"
    found = evaluation["fidelity"] or {}
    valid = evaluation["validity"]
    summary, reference = found.get("summary") or {}, found.get("reference") or {}
    parts = [f"{percent(valid['rate'])} of the records are valid" if known(valid["rate"]) else "Validity is unknown"]
    grade: Grade = "unknown" if not summary else "good"
    apart = summary.get("marginals")
    if known(apart):
        beside = reference.get("marginals")
        near = f" (two halves of the real rows: {figure(beside, 2)})" if known(beside) else ""
        parts.append(f"the fields' spreads differ from real ones by {figure(apart, 2)} on a scale from 0 to 1{near}")
        bound = max(GOOD_SPREADS, 1.5 * beside if known(beside) else 0.0)
        grade = "good" if apart <= bound else "fair" if apart <= max(FAIR_SPREADS, bound) else "poor"
    if known(valid["rate"]) and 100 * valid["rate"] < GOOD_VALIDITY and grade != "poor":
        grade = "fair"
    alarms = found.get("alarms") or evaluation["synthetic_alarms"]
    if alarms:
        grade = "poor"
    told = " ".join(alarms[:1]) if alarms else ""
    sentence = " and ".join(parts) + "." + (f" {told}" if told else "")
    answer = f"{figure(apart, 2)} from real" if known(apart) else "not measured"
    return Finding(question, grade, answer, sentence, tuple(_fidelity_steps(evaluation, alarms)))


def _fidelity_steps(evaluation: Mapping[str, Any], alarms: Sequence[str]) -> list[str]:
    steps = []
    rate = evaluation["validity"]["rate"]
    if alarms:
        steps.append(_DULL)
    if known(rate) and rate < 1.0:
        steps.append(f"Leave out or repair the {plural(evaluation['validity']['invalid'], 'invalid record')}.")
    return steps


# -- is it private? --------------------------------------------------------------------------------------------------


def _private(evaluation: Mapping[str, Any]) -> Finding:
    question, subject, found = "Is it private?", evaluation["subject"], evaluation["attack"]
    promise = _promise(subject)
    alarms = (found or {}).get("alarms") or []
    if alarms:
        steps = [_LEAK]
        if subject.get("private") is None:
            steps = ["Treat this table like the private one: it tells private rows from others."]
        return Finding(question, "alarm", plural(len(alarms), "alarm"), f"{promise} {alarms[0]}".strip(), tuple(steps))
    if found is None:
        grade: Grade = "unknown"
        said = f"{promise} No attack was tried.".strip()
        steps = ["Try attacks: give the private table with --private, and rows that were never used with --holdout."]
        return Finding(question, grade, "not attacked", said, tuple(steps))
    beside = "rows that were never used" if found["counts"].get("holdout") else "guessing"
    said = f"{promise} Attacks tell private rows no better than {beside}.".strip()
    if subject.get("private") is None:
        return Finding(question, "fair", "no promise", f"{said} Without a guarantee that proves little.", ())
    return Finding(question, "good", f"ε = {epsilon(subject.get('epsilon'))}, no alarm", said, ())


def _promise(subject: Mapping[str, Any]) -> str:
    if subject.get("private") is True and subject.get("epsilon") is not None:
        unit = f"one {subject.get('unit') or 'record'}"
        return f"The run promises ε = {epsilon(subject['epsilon'])} for {unit} ({subject.get('adjacency')})."
    if subject.get("private") is False:
        return "This is a control without a guarantee."
    return "This table comes without a promise of differential privacy."
