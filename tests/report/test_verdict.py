"""The verdict: three answers with their figures, and what to do next, in every case that a user can meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import example_evaluation as example
from selpe.report.summarize import Subject, summarize
from small_world import SCHEMA

OURS = Subject("desk-1", 80, 8, "urgency", ("low", "high"), "runs/desk-1", True, 2.0, "replace-one")
THEIRS = Subject("table.csv", 80, 8, "urgency", ("low", "high"))
VALID = {"rate": 1.0, "total": 80, "invalid": 0, "distinct": 80}


def verdict(subject: Subject = OURS, **parts: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "tables": {"synthetic": 80}, "validity": VALID, "utility": example.utility(("low", "high")),
        "fidelity": example.fidelity(SCHEMA), "attack": example.attack(),
    }  # fmt: skip
    made: dict[str, Any] = summarize(subject, **(whole | parts))["verdict"]
    return made


def grades(found: dict[str, Any]) -> list[str]:
    return [finding["grade"] for finding in found["findings"]]


def test_three_sentences_name_the_figures_and_their_references() -> None:
    found = verdict()
    useful, faithful, private = (finding["sentence"] for finding in found["findings"])
    assert "78.4 (text view) and 74.9 (structured view)" in useful
    assert "the private rows themselves reach 86.1 and 82.3, and 50 is chance." in useful
    assert faithful.startswith("100 % of the records are valid and the fields' spreads differ from real ones by 0.13")
    assert private == (
        "The run promises ε = 2 for one record (replace-one). No attack passes the threshold of an alarm, p < 0.001 in "
        "one of 7 tests; the smallest p is 0.40, as it is by chance."
    )
    assert (found["headline"], grades(found)) == ("Usable, with care", ["fair", "good", "good"])


def test_a_table_as_good_as_the_private_rows_is_fit_and_the_next_step_is_to_pack_it() -> None:
    found = verdict(utility=example.utility(("low", "high"), synthetic=(85.0, 81.0)))
    assert (found["grade"], found["headline"]) == ("good", "Fit for use")
    assert found["steps"] == ("Pack what may leave the house: `selpe release runs/desk-1`",)


def test_a_table_at_chance_is_not_ready() -> None:
    found = verdict(utility=example.utility(("low", "high"), synthetic=(51.0, 49.0)))
    assert (found["headline"], grades(found)[0]) == ("Not ready for use", "poor")
    assert any("steered nothing" in step for step in found["steps"])  # the control reaches more


def test_without_a_control_the_next_step_is_to_make_one() -> None:
    utility = example.utility(("low", "high"))
    utility["scores"] = [score for score in utility["scores"] if score["trained_on"] != "epsilon 0"]
    assert any("`selpe run --control runs/desk-1`" in step for step in verdict(utility=utility)["steps"])


def test_a_control_is_not_told_to_make_a_control() -> None:
    utility = example.utility(("low", "high"))
    utility["scores"] = [score for score in utility["scores"] if score["trained_on"] != "epsilon 0"]
    found = verdict(replace(OURS, epsilon=0.0), utility=utility)
    assert not any("selpe run --control" in step for step in found["steps"])


def test_without_real_rows_to_train_on_the_grade_rests_on_chance_alone() -> None:
    utility = example.utility(("low", "high"))
    utility["scores"] = [score for score in utility["scores"] if score["trained_on"] in ("synthetic", "chance")]
    finding = verdict(utility=utility)["findings"][0]
    assert (finding["grade"], finding["answer"]) == ("fair", "AUC 76.7")


def test_an_alarm_outdoes_everything() -> None:
    found = verdict(attack=example.attack(alarm=True))
    assert (found["grade"], found["headline"]) == ("alarm", "Do not release this table yet")
    assert "12 of 150 private rows" in found["findings"][2]["sentence"]
    assert found["steps"][0].startswith("Find out why")


def test_a_control_is_never_fit_for_release() -> None:
    control = Subject("c", 80, 8, "urgency", ("low", "high"), "runs/c", False, "inf", "replace-one")
    assert verdict(control)["headline"] == "A control: not for release"


def test_tables_of_others_have_no_promise() -> None:
    found = verdict(THEIRS)
    assert found["findings"][2]["answer"] == "no promise"
    assert "without a promise" in found["findings"][2]["sentence"]
    assert verdict(THEIRS, attack=example.attack(alarm=True))["steps"][0].startswith(
        "Treat this table like the private"
    )


def test_missing_classes_and_invalid_rows_are_to_be_seen_to() -> None:
    utility = example.utility(("low", "high"))
    for score in utility["scores"]:
        score["missing"] = ["high"] if score["trained_on"] == "synthetic" else []
    found = verdict(utility=utility, validity=VALID | {"rate": 0.9, "invalid": 8})
    assert "Add records of the missing class high." in found["steps"]
    assert "Leave out or repair the 8 invalid records." in found["steps"]
    assert grades(found)[1] == "fair"


def test_a_dull_table_is_not_faithful() -> None:
    fidelity = example.fidelity(SCHEMA)
    fidelity["alarms"] = ["The table repeats itself: 90 % of its records equal another one."]
    found = verdict(fidelity=fidelity)
    assert grades(found)[1] == "poor"
    assert "repeats itself" in found["findings"][1]["sentence"]


@pytest.mark.parametrize("apart", [(0.05, "good"), (0.2, "fair"), (0.6, "poor")])
def test_far_spreads_lower_the_grade(apart: tuple[float, str]) -> None:
    fidelity = example.fidelity(SCHEMA)
    fidelity["summary"]["marginals"] = apart[0]
    assert grades(verdict(fidelity=fidelity))[1] == apart[1]


def test_what_was_not_measured_is_said() -> None:
    nothing = Subject("t", 8, 2)
    found = verdict(nothing, utility=None, fidelity=None, attack=None)
    assert (found["headline"], grades(found)) == ("Not enough was measured to judge", ["unknown", "unknown", "fair"])
    assert "names no label" in found["findings"][0]["sentence"]
    assert any("--private" in step for step in found["steps"])
    assert "no test records" in verdict(utility=None)["findings"][0]["sentence"]
