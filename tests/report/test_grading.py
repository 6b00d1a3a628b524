"""Verdicts follow from figures, and never get better where one of them gets worse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import example_evaluation as example
from selpe.evaluation.grades import ORDER
from selpe.report.grading import fidelity_parts, utility_parts
from selpe.report.summarize import Subject, summarize
from selpe.report.verdict import judge
from small_world import SCHEMA

OURS = Subject("desk-1", 80, 8, "urgency", ("low", "high"), "runs/desk-1", True, 2.0, "replace-one")
UTILITY = example.utility(("low", "high"))
FIDELITY = example.fidelity(SCHEMA)


def evaluation(subject: Subject = OURS, **parts: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "tables": {"synthetic": 80}, "validity": {"rate": 1.0, "total": 80, "invalid": 0, "distinct": 80},
        "utility": copy.deepcopy(UTILITY), "fidelity": copy.deepcopy(FIDELITY), "attack": example.attack(),
    }  # fmt: skip
    return summarize(subject, **(whole | parts))


def _auc(place: int) -> Callable[[dict[str, Any], float], None]:
    def put(found: dict[str, Any], value: float) -> None:
        ours = [score for score in found["utility"]["scores"] if score["trained_on"] == "synthetic"][place]
        ours.update(auc=40 + 60 * value, low=36 + 60 * value)

    return put


def _of(*path: str, scale: float = 1.0) -> Callable[[dict[str, Any], float], None]:
    def put(found: dict[str, Any], value: float) -> None:
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = scale * value

    return put


# How each figure of a table is set from a number between 0 and 1, and whether larger is better.
FIGURES: dict[str, tuple[Callable[[dict[str, Any], float], None], bool]] = {
    "text view": (_auc(0), True),
    "structured view": (_auc(1), True),
    "validity": (_of("validity", "rate"), True),
    "distinct": (_of("validity", "distinct", scale=100), True),
    "echoes": (_of("fidelity", "echoes", "synthetic", "share"), False),
    "near_echoes": (_of("fidelity", "echoes", "synthetic", "near_share"), False),
    "marginals": (_of("fidelity", "summary", "marginals"), False),
    "associations": (_of("fidelity", "summary", "associations"), False),
    "recall": (_of("fidelity", "summary", "recall"), True),
    "precision": (_of("fidelity", "summary", "precision"), True),
    "repeated": (_of("fidelity", "diversity", "synthetic", "repeated_texts"), False),
    "near": (_of("fidelity", "diversity", "synthetic", "near_duplicates"), False),
    "effective": (_of("fidelity", "diversity", "synthetic", "effective_records", scale=60), True),
    "p": (_of("attack", "tests", "by_chance"), True),
}


@settings(deadline=None)
@given(
    start=st.fixed_dictionaries({name: st.floats(0, 1) for name in FIGURES}),
    name=st.sampled_from(sorted(FIGURES)),
    other=st.floats(0, 1),
)
def test_no_figure_that_gets_worse_makes_a_verdict_better(start: dict[str, float], name: str, other: float) -> None:
    ranks = []
    for value in sorted((start[name], other), reverse=FIGURES[name][1]):  # better first
        found = evaluation()
        for each, (put, _) in FIGURES.items():
            put(found, value if each == name else start[each])
        verdict = judge(found)
        ranks.append([ORDER.index(verdict.grade), *(ORDER.index(finding.grade) for finding in verdict.findings)])
    better, worse = ranks
    assert all(one <= other for one, other in zip(better, worse, strict=True))


@settings(deadline=None)
@given(st.fixed_dictionaries({name: st.floats(0, 1) for name in FIGURES}))
def test_an_answer_has_the_grade_of_its_worst_figure_and_its_badge_names_it(start: dict[str, float]) -> None:
    found = evaluation()
    for name, (put, _) in FIGURES.items():
        put(found, start[name])
    useful, faithful, _ = judge(found).findings
    for finding in (useful, faithful):
        assert finding.grade == max((part.grade for part in finding.parts), key=ORDER.index)
    deciding = next(part for part in faithful.parts if part.grade == faithful.grade)
    if faithful.grade != "good":
        assert deciding.shown in faithful.answer


def five_examples() -> dict[str, Any]:
    """What an evaluation of five examples of the schema as a table looks like: real enough, and five of them."""
    found = evaluation()
    FIGURES["distinct"][0](found, 0.05)
    FIGURES["echoes"][0](found, 1.0)
    return found


def test_a_table_of_five_examples_is_not_ready_for_use() -> None:
    verdict = judge(five_examples())
    assert verdict.headline == "Not ready for use"
    assert verdict.findings[1].answer == "only 5 records"
    assert "100 % of the records copy an example of the schema." in verdict.findings[1].sentence
    assert any("copies those that it is shown" in step for step in verdict.steps)


def test_five_records_alone_are_enough_to_be_not_ready() -> None:
    found = evaluation()
    FIGURES["distinct"][0](found, 0.05)
    assert judge(found).grade == "poor"


def test_a_recall_of_seven_percent_is_poor_and_said() -> None:
    found = evaluation()
    FIGURES["recall"][0](found, 0.07)
    faithful = judge(found).findings[1]
    assert (faithful.grade, faithful.answer) == ("poor", "covers 7 % of real")
    assert "7 % of real records have synthetic ones around them" in faithful.sentence


def test_a_red_badge_never_shows_a_figure_that_is_good() -> None:
    found = evaluation()
    FIGURES["marginals"][0](found, 0.08)
    FIGURES["near"][0](found, 0.9)
    faithful = judge(found).findings[1]
    assert (faithful.grade, faithful.answer) == ("poor", "88.7 % near duplicates")


@pytest.mark.parametrize(("alone", "no_better"), [((79.0, 75.0), True), ((78.4, 74.9), True), ((60.0, 60.0), False)])
def test_a_table_no_better_than_the_schemas_examples_is_told_so(alone: tuple[float, float], no_better: bool) -> None:
    aucs: dict[str, tuple[float, float]] = {"schema examples": alone, "private rows": (80.0, 76.0)}
    useful = judge(evaluation(utility=example.utility(("low", "high"), **aucs))).findings[0]
    assert ("no better than the schema's 12 examples alone" in useful.sentence) is no_better
    assert useful.grade == ("fair" if no_better else "good")
    assert any("schema's own examples teach" in step for step in useful.steps) is no_better


def test_without_real_rows_a_table_can_be_poor_but_not_good() -> None:
    alone = {"diversity": {"synthetic": FIDELITY["diversity"]["synthetic"]}, "echoes": FIDELITY["echoes"]}
    found = evaluation(utility=None, fidelity=None, attack=None, synthetic=copy.deepcopy(alone))
    assert judge(found).grade == "unknown"
    found["synthetic"]["echoes"]["synthetic"]["share"] = 0.3
    verdict = judge(found)
    assert (verdict.headline, verdict.findings[1].answer) == ("Not ready for use", "30 % copy an example")


def test_what_was_not_measured_keeps_a_table_from_being_called_fit() -> None:
    good = example.utility(("low", "high"), synthetic=(85.0, 81.0))
    assert judge(evaluation(utility=good)).headline == "Fit for use"
    assert judge(evaluation(utility=None)).headline == "Usable, with care"
    unlabelled = Subject("desk-1", 80, 8, None, (), "runs/desk-1", True, 2.0, "replace-one")
    assert judge(evaluation(unlabelled, utility=None)).headline == "Fit for use"  # there is nothing to predict


def test_an_evaluation_of_an_earlier_version_is_judged_by_what_it_has() -> None:
    found = evaluation()
    del found["validity"]["distinct"], found["fidelity"]["echoes"], found["attack"]["tests"]
    names = {part.name for part in (*fidelity_parts(found), *utility_parts(found))}
    assert not names & {"distinct", "echoes"}
    assert judge(found).grade == "fair"


CONTROL = Subject("control-1", 80, 8, "urgency", ("low", "high"), "runs/control-1", True, 0.0, "replace-one")


@pytest.mark.parametrize("aucs", [(52.0, 50.0), (78.4, 74.9), (85.0, 81.0)])
def test_a_run_without_private_rows_is_not_advised_to_make_another_or_to_raise_epsilon(
    aucs: tuple[float, float],
) -> None:
    utility = example.utility(("low", "high"), synthetic=aucs)
    utility["scores"] = [score for score in utility["scores"] if score["trained_on"] != "epsilon 0"]
    verdict = judge(evaluation(CONTROL, utility=utility))
    said = " ".join(verdict.steps)
    assert "--epsilon 0" not in said
    assert "run --control" not in said
    assert "raise ε" not in said
    assert "more ε" not in said
    assert "`selpe evaluate <that run> --control runs/control-1`" in said
    assert verdict.findings[2].sentence.startswith("This run has read no private row (ε = 0)")


@pytest.mark.parametrize(
    ("smallest", "grade", "said"),
    [
        (0.4, "good", "the smallest p is 0.40, as it is by chance."),
        (0.041, "good", "the smallest p is 0.041, which chance alone brings in up to 29 % of evaluations."),
        (0.004, "fair", "up to 3 % of evaluations. That is no alarm, but worth a second look with more held-out rows."),
    ],
)
def test_p_values_are_told_with_their_threshold_and_the_number_of_tests(smallest: float, grade: str, said: str) -> None:
    attack = example.attack()
    attack["tests"] = {"count": 7, "smallest": smallest, "by_chance": min(1.0, 7 * smallest)}
    private = judge(evaluation(attack=attack)).findings[2]
    assert private.grade == grade
    assert "No attack passes the threshold of an alarm, p < 0.001 in one of 7 tests" in private.sentence
    assert private.sentence.endswith(said)
