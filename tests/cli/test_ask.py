"""`selpe init --ask`: the questions in a terminal, answered from a pipe; afterwards nothing is open."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from in_process import Result, selpe
from selpe.config import load_config
from selpe.schema import Schema
from studio_world import SECRET_VALUE, SECRET_YEAR, write_table

Asking = Callable[..., Result]
KEEP, SHOW, NO, YES = "y", "y", "n", "y"
SAME = ""
# Answers in the order of the questions: keep; show?; kind; description; what it allows; may be missing; is it public.
FIELDS = {
    "arrived": [KEEP, NO, SAME, "Day of arrival", "2030-01-01", "2031-12-31", NO, YES],
    "way": [KEEP, SHOW, SAME, "How they came", SAME, NO, YES],
    "age": [KEEP, SAME, "Age in years", SAME, SAME, SAME, NO, YES],  # a range that anybody knows is no proposal
    "low": [KEEP, NO, SAME, "Lower figure", "20", "200", SAME, NO, YES],
    "high": [KEEP, NO, SAME, "Upper figure", "40", "300", SAME, NO, YES],
    "hurt": [KEEP, SAME, "Whether it hurts", NO, YES],
    "note": [KEEP, NO, SAME, "What was said", SAME, "300", NO, YES],
    "level": [KEEP, NO, SAME, "The class", "1; 2; 3", NO, YES],
}
TABLE = ["One visit", "level", SAME, SAME, "none", SAME]  # what it is, class, encoding, delimiter, unit, rows
EXAMPLE = ["y", "2030-05-06", "walked", "33", "70", "120", "no", "feels well again", "3", NO]
RULES = ["low < high", ""]
AMOUNTS = ["1.5", "40"]


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path)

    def go(*answers: str, words: tuple[str, ...] = ("init", "visits.csv", "--ask")) -> Result:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{answer}\n" for answer in answers)))
        return selpe(*words)

    return go


def fields(**changed: list[str]) -> list[str]:
    return [answer for answers in (FIELDS | changed).values() for answer in answers]


def test_after_the_questions_nothing_is_open_and_no_file_was_edited(asking: Asking, tmp_path: Path) -> None:
    done = asking(*fields(), *TABLE, *EXAMPLE, *RULES, *AMOUNTS)
    assert done.code == 0, done.err
    assert "Nothing is open" in done.err
    schema = Schema.load(tmp_path / "schema.yaml")
    assert (schema.unconfirmed, schema.label, schema.description) == ((), "level", "One visit")
    assert schema.field("way").expected == "one of driven, quarantined, walked"
    assert schema.field("note").expected == "text of 1 to 300 characters"
    assert [rule.text for rule in schema.rules] == ["low < high"]
    assert schema.examples[0]["note"] == "feels well again"
    settings = load_config(tmp_path / "selpe.yaml", environment={})
    assert (settings.epsilon, settings.records, settings.rows, settings.unit) == (1.5, 40, 60, None)
    assert "please confirm" not in (tmp_path / "selpe.yaml").read_text(encoding="utf-8")
    checked = selpe("--json", "check")
    assert checked.code == 0, checked.out
    assert {one["what"]: one["state"] for one in checked.lines[0]["findings"]}["confirmed"] == "ok"
    assert "described" not in checked.out


def test_proposals_are_shown_only_to_who_asks(asking: Asking) -> None:
    said = asking(KEEP, NO).err
    assert "not shown unless you ask" in said
    assert SECRET_YEAR not in said
    assert SECRET_VALUE not in said


def test_a_person_who_stops_goes_on_with_the_same_command(asking: Asking, tmp_path: Path) -> None:
    stopped = asking(*FIELDS["arrived"])
    assert stopped.code == 130
    assert len(Schema.load(tmp_path / "schema.yaml").unconfirmed) == len(FIELDS) - 1
    rest = [answer for name in FIELDS if name != "arrived" for answer in FIELDS[name]]
    done = asking(*rest, *TABLE, NO, "", SAME, SAME)
    assert done.code == 0, done.err
    assert Schema.load(tmp_path / "schema.yaml").unconfirmed == ()


def test_wrong_answers_are_asked_again(asking: Asking, tmp_path: Path) -> None:
    arrived = [KEEP, NO, "day", SAME, "", "soon", "2031-12-31", NO, SAME, "", "2030-01-01", "2031-12-31", NO, YES]
    low = [KEEP, NO, SAME, "", "20", "10", SAME, NO, YES, SAME, "", "20", "200", SAME, NO, YES]
    table = ["", "notes", "level", SAME, SAME, "who", "case_id", "many", "60"]
    example = ["y", *EXAMPLE[1:3], "old", *EXAMPLE[3:]]
    done = asking(*fields(arrived=arrived, low=low), *table, *example, "low < ", "low < high", "", "x", "1", "8")
    assert done.code == 0, done.err
    expected = ("must be one of text", "YYYY-MM-DD", "min must not be above max", "must be one of none",
                "must be a whole number", "must be an integer", "cannot be read", "must be a number")  # fmt: skip
    assert [said for said in expected if said not in done.err] == []
    assert load_config(tmp_path / "selpe.yaml", environment={}).unit == "case_id"


def test_what_is_not_public_stays_open_or_is_changed(asking: Asking, tmp_path: Path) -> None:
    hurt = [KEEP, SAME, "", NO, NO, NO]  # not public, and not changed now
    level = [KEEP, SHOW, SAME, "", SAME, NO, NO, YES, SAME, "", "1; 2; 3; 4", NO, YES]
    done = asking(*fields(hurt=hurt, level=level), *TABLE, NO, "", SAME, SAME)
    assert done.code == 0, done.err
    assert "still open: hurt" in done.err
    schema = Schema.load(tmp_path / "schema.yaml")
    assert (schema.unconfirmed, schema.labels) == (("hurt",), ("1", "2", "3", "4"))


def test_a_value_may_be_given_its_meaning_which_is_offered_again(asking: Asking, tmp_path: Path) -> None:
    level = [KEEP, NO, SAME, "", "1 = at once; 2=soon; 3", NO, NO, YES, SAME, "", SAME, NO, YES]
    done = asking(*fields(level=level), *TABLE, NO, "", SAME, SAME)
    assert done.code == 0, done.err
    assert "[1 = at once; 2=soon; 3]" in done.err
    content = Schema.load(tmp_path / "schema.yaml").to_dict()["fields"]["level"]["values"]
    assert content == {"1": "at once", "2=soon": None, "3": None}


def test_a_draft_is_gone_on_with_without_naming_its_table(asking: Asking, tmp_path: Path) -> None:
    nothing = asking(words=("init", "--ask"))
    assert (nothing.code, "name the table to draft from" in nothing.err) == (2, True)
    assert asking(*FIELDS["arrived"]).code == 130
    rest = [answer for name in FIELDS if name != "arrived" for answer in FIELDS[name]]
    done = asking(*rest, *TABLE, NO, "", SAME, SAME, words=("init", "--ask"))
    assert done.code == 0, done.err
    assert Schema.load(tmp_path / "schema.yaml").unconfirmed == ()


def test_a_field_can_be_left_out(asking: Asking, tmp_path: Path) -> None:
    done = asking(*fields(note=[NO]), *TABLE, NO, "", SAME, SAME)
    assert done.code == 0, done.err
    assert "note" not in Schema.load(tmp_path / "schema.yaml").names


def test_with_json_the_result_is_one_line(asking: Asking) -> None:
    words = ("--json", "init", "visits.csv", "--ask")
    done = asking(*fields(), *TABLE, NO, "", SAME, SAME, words=words)
    assert json.loads(done.out.splitlines()[-1])["asked"]["unconfirmed"] == []


def test_asking_here_and_in_a_page_at_once_is_refused(asking: Asking) -> None:
    done = asking(words=("init", "visits.csv", "--ask", "--web"))
    assert (done.code, "leave one of them out" in done.err) == (2, True)
