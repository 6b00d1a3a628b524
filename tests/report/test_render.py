"""The internal page: whole, self-contained, stamped, and deaf to whatever stands in records."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any

import pytest

import example_evaluation as example
from page_reader import HOSTILE, Page
from selpe.report.compare import compare_page, compared
from selpe.report.render import report_page
from selpe.report.sections.privacy import privacy_section
from selpe.report.summarize import NOTICE, Subject, sampled, summarize
from selpe.schema import Record
from small_world import SCHEMA, drawn

MOMENT = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)


def evaluation(records: list[Record] | None = None, **parts: Any) -> dict[str, Any]:
    subject = Subject("desk-1", 80, 8, "urgency", ("low", "high"), "runs/desk-1", True, 2.0, "replace-one")
    whole: dict[str, Any] = {
        "tables": {"synthetic": 80, "test": 75, "private": 150}, "validity": {"rate": 1.0, "total": 80, "invalid": 0},
        "utility": example.utility(("low", "high")), "fidelity": example.fidelity(SCHEMA), "attack": example.attack(),
        "samples": {"synthetic": sampled(SCHEMA, records or drawn(8)), "real": None}, "created": MOMENT,
    }  # fmt: skip
    return summarize(subject, **(whole | parts))


def test_the_page_has_the_verdict_first_and_every_section() -> None:
    page = Page(report_page(evaluation(), SCHEMA))
    places = [
        page.words.index(one) for one in ("Usable, with care", "What to do next", "Utility", "Fidelity", "Privacy")
    ]
    assert places == sorted(places[:2]) + sorted(places[2:])
    assert "78.4" in page.words
    assert NOTICE.split(":")[1].strip(" .") in page.words
    assert page.tags.count("svg") > 12
    assert "How it was made" not in page.words  # it was no run


def test_the_page_tells_every_graded_figure_in_words_with_its_rule() -> None:
    words = " ".join(Page(report_page(evaluation(), SCHEMA)).words.split())
    assert "Way from chance to real rows 78 % fair: good from 85 %, fair from 50 %" in words
    assert "Records that copy an example of the schema 0 % good: good up to 1 %, fair up to 5 %" in words
    assert "Real records with synthetic ones around them (recall) 52 % good: good from 50 %, fair from 20 %" in words
    assert "The schema's examples alone12 rows" in words
    assert "palarm below 0.001" in words
    assert "p < 0.001 in one of 7 tests" in words


def test_an_evaluation_of_an_earlier_version_can_be_shown_again() -> None:
    content = evaluation()
    for finding in content["verdict"]["findings"]:
        del finding["parts"]
    del content["fidelity"]["echoes"], content["attack"]["tests"]
    for side in content["fidelity"]["diversity"].values():
        del side["repeated_texts"]
    words = Page(report_page(content, SCHEMA)).words
    assert "Usable, with care" in words
    assert "graded figures" not in words


def test_every_test_has_its_p_value_once() -> None:
    attack = example.attack()
    attack["tests"] = {"count": 7, "smallest": 0.4, "by_chance": 1.0}
    section = privacy_section({"attack": attack})
    assert section is not None
    assert len([row for row in section["rows"] if row["p"]]) == 7


def test_copies_of_examples_are_told_field_by_field() -> None:
    fidelity = example.fidelity(SCHEMA)
    fidelity["echoes"]["synthetic"] = {"records": 80, "echoed": 24, "share": 0.3, "fields": {"topic": 24}}
    words = " ".join(Page(report_page(evaluation(fidelity=fidelity), SCHEMA)).words.split())
    assert "Copies of the schema's examples30 %0 %" in words
    assert f"Records with a copy, by field: {SCHEMA.field('topic').title} 24." in words
    assert "Not ready for use" in words


def test_few_real_rows_are_said_to_be_all_there_are() -> None:
    utility = example.utility(("low", "high"))
    for score in utility["scores"]:
        score["rows"] = 30 if score["trained_on"] == "real rows" else score["rows"]
    assert "As many real rows30 rows, all there are" in Page(report_page(evaluation(utility=utility), SCHEMA)).words


def test_the_page_is_self_contained() -> None:
    text = report_page(evaluation(), SCHEMA)
    page = Page(text)
    assert not {"script", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    targets = [value for name, value in page.attributes if name in ("src", "href", "action", "srcset")]
    assert all(value is not None and value.startswith(("#", "data:,")) for value in targets)
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src &#39;none&#39;" in text


def test_what_is_computed_from_private_rows_says_so_on_every_page() -> None:
    rows = compared([evaluation(), evaluation()])
    for text in (report_page(evaluation(), SCHEMA), compare_page(rows)):
        assert "INTERNAL, NOT FOR RELEASE" in Page(text).words
        assert "page: internal" in text  # in the margin of every sheet of paper
        assert '<body class="internal">' in text


def test_hostile_records_are_shown_as_text() -> None:
    records = [record | {"topic": HOSTILE, "channel": "phone"} for record in drawn(4)]
    hostile = evaluation(records, notes=[HOSTILE])
    hostile["utility"]["notes"] = hostile["fidelity"]["notes"] = hostile["attack"]["notes"] = [HOSTILE]
    hostile["subject"]["name"] = HOSTILE
    page = Page(report_page(hostile, SCHEMA))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert page.words.count("{{ 7 * 7 }}") > 4


def test_real_records_are_left_out_unless_asked_for() -> None:
    marked = sampled(SCHEMA, [record | {"topic": "a real person asks"} for record in drawn(3)])
    with_real = evaluation(samples={"synthetic": sampled(SCHEMA, drawn(3)), "real": marked})
    assert "a real person asks" in Page(report_page(with_real, SCHEMA)).words
    assert "a real person asks" not in Page(report_page(evaluation(), SCHEMA)).words


@pytest.mark.parametrize("part", ["utility", "fidelity", "attack"])
def test_a_part_that_was_not_measured_is_said_and_not_drawn(part: str) -> None:
    page = Page(report_page(evaluation(**{part: None}), SCHEMA))
    assert {"utility": "Utility was not measured", "fidelity": "Nothing was measured", "attack": "No attack was tried"}[
        part
    ] in page.words


def test_figures_that_are_missing_are_dashes() -> None:
    found = evaluation()
    found["attack"]["membership"] = {"text": None, "kernel": None}
    found["attack"]["dcr"] = {}
    found["fidelity"]["reference"] = {}
    found["fidelity"]["associations"] = {}
    found["fidelity"]["map"] = {}
    page = Page(report_page(found, SCHEMA))
    assert "NRS" in page.words
    assert "Map of the records" not in page.words
    assert "None" not in page.words


def test_many_categories_and_long_names_fit() -> None:
    found = evaluation()
    found["fidelity"]["marginals"]["channel"] |= {
        "values": ["x" * 300, *(f"value {number}" for number in range(30))],
        "real": [1 / 31] * 31, "synthetic": [1 / 31] * 31,
    }  # fmt: skip
    page = Page(report_page(found, SCHEMA))
    assert "24 more values" in page.words


def test_the_evaluation_is_plain_data_and_the_page_can_be_made_from_it_again() -> None:
    found = evaluation()
    again = json.loads(json.dumps(found, allow_nan=False))
    assert report_page(again, SCHEMA) == report_page(found, SCHEMA)


def test_runs_are_compared_in_one_table_and_one_chart() -> None:
    better = evaluation(utility=example.utility(("low", "high"), synthetic=(85.0, 81.0)))
    better["subject"]["name"] = "desk-2"
    rows = compared([evaluation(), better])
    assert [row["shown"]["text"] for row in rows] == ["78.4", "85.0"]
    page = Page(compare_page(rows))
    assert page.tags.count("table") == page.tags.count("svg") == 1
    assert "desk-2" in page.words


def test_runs_that_were_tested_on_different_records_are_told_apart() -> None:
    said = "not tested on the same records"
    same = compared([evaluation(tested_on="a"), evaluation(tested_on="a")])
    assert said not in Page(compare_page(same)).words
    assert said in Page(compare_page(compared([evaluation(tested_on="a"), evaluation(tested_on="b")]))).words


def test_a_table_without_utility_can_be_compared() -> None:
    rows = compared([evaluation(utility=None), evaluation(utility=None, attack=None)])
    assert [row["shown"]["tpr"] for row in rows] == ["1.3 %", "–"]
    assert "svg" not in Page(compare_page(rows)).tags


def test_samples_take_the_classes_in_turn_and_are_always_the_same() -> None:
    records = drawn(40)
    shown = sampled(SCHEMA, records, 6)
    assert [one["label"] for one in shown] == ["low", "high"] * 3
    assert shown == sampled(SCHEMA, records, 6)
