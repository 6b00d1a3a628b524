from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from selpe.config import RunConfig
from selpe.privacy.card import build_card, render_markdown
from selpe.privacy.ledger.charges import Budget, Charge, Spent
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.table import Selection
from selpe.schema import Schema

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
NUMBER: dict[str, Any] = {"type": "number", "minimum": 0}
EPSILON = {"anyOf": [NUMBER, {"const": "inf"}]}


def whole(**properties: Any) -> dict[str, Any]:
    """An object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


BOTH = whole(replace_one=EPSILON, add_remove=EPSILON)
CARD = whole(
    format={"const": "selpe-privacy-card/1"},
    dataset=TEXT,
    run=TEXT,
    stamp={"enum": [None, "NOT PRIVATE"]},
    stamp_reasons={"type": "array", "items": TEXT},
    guarantee=whole(
        statement=TEXT,
        epsilon=BOTH,
        delta=NUMBER,
        asked_for=whole(epsilon=EPSILON, adjacency={"enum": ["replace-one", "add-remove"]}, delta=NUMBER),
        composition=TEXT,
    ),
    unit=whole(
        kind={"enum": ["record", "unit"]},
        column={"type": ["string", "null"]},
        statement=TEXT,
        warning={"type": "string"},
    ),
    measurements={
        "anyOf": [
            {"type": "null"},
            whole(
                file={"const": "measurements.json"},
                statement=TEXT,
                written_by_the_counts={"type": "number", "minimum": 0, "maximum": 1},
                rest_of_any_class={"type": "boolean"},
                looks={
                    "type": "array",
                    "minItems": 1,
                    "items": whole(
                        look=TEXT,
                        law=TEXT,
                        scale=NUMBER,
                        half_width_95=NUMBER,
                        tables={
                            "type": "array",
                            "items": whole(table=TEXT, codes={"type": "array", "items": {"type": "integer"}}),
                        },
                    ),
                },
            ),
        ]
    },
    mechanism=whole(
        names={"type": "array", "items": TEXT}, method=TEXT, votes=TEXT, how=TEXT, library=TEXT, noise=TEXT, proof=TEXT
    ),
    charges={
        "type": "array",
        "items": whole(
            number={"type": "integer", "minimum": 1},
            selection=TEXT,
            mechanism=TEXT,
            epsilon_replace_one=EPSILON,
            epsilon_add_remove=EPSILON,
            delta=NUMBER,
        ),
    },
    ledger=whole(statement=TEXT, charges={"type": "array"}, digest={"type": "string", "pattern": "^[0-9a-f]{64}$"}),
    cumulative=whole(
        statement=TEXT,
        epsilon=BOTH,
        delta=NUMBER,
        runs={"type": "integer"},
        charges={"type": "integer"},
        charges_of_this_run={"type": "integer"},
        controls_without_noise={"type": "integer"},
        cap={"type": ["object", "null"]},
        elsewhere={
            "type": "array",
            "items": whole(
                dataset=TEXT,
                epsilon={"anyOf": [BOTH, {"type": "null"}]},
                delta={"type": ["number", "null"]},
                controls_without_noise={"type": ["integer", "null"]},
            ),
        },
        together={"anyOf": [whole(epsilon=BOTH, delta=NUMBER), {"type": "null"}]},
    ),
    public=whole(
        schema=whole(
            name=TEXT,
            label={"type": ["string", "null"]},
            classes={"type": "array"},
            fields={"type": "array", "items": whole(name=TEXT, kind=TEXT, domain=TEXT), "minItems": 1},
            rules={"type": "array"},
        ),
        settings={"type": "object"},
        class_sizes={"type": ["object", "null"]},
        units=whole(
            treated_as_public={"type": "boolean"},
            stated={"type": "boolean"},
            covered_by_guarantee={"type": "boolean"},
            number={"type": ["integer", "null"]},
        ),
        generated=TEXT,
    ),
    not_covered={"type": "array", "items": TEXT, "minItems": 5},
    trust=whole(
        model=TEXT,
        where=TEXT,
        private_text_may_go_to={"type": "array", "items": TEXT},
        language_model=TEXT,
        encoder=TEXT,
    ),
    release=whole(
        records={"type": ["integer", "null"]},
        fields={"type": "integer"},
        model={"type": "string"},
        encoder={"type": "string"},
    ),
    versions={"type": "object", "required": ["selpe", "python", "opendp"]},
)

SCHEMA = Schema.from_dict(
    {
        "name": "triage",
        "label": "acuity",
        "fields": {
            "complaint": {"kind": "text", "max_length": 80},
            "sbp": {"kind": "integer", "min": 50, "max": 260, "unit": "mmHg"},
            "dbp": {"kind": "integer", "min": 20, "max": 200},
            "acuity": {"kind": "category", "values": ["1", "2"]},
        },
        "rules": ["dbp < sbp"],
    }
)


@dataclass
class Book:
    """A ledger in memory."""

    made: list[Charge] = field(default_factory=list)
    budget: Budget | None = None
    others: dict[str, Spent | None] = field(default_factory=dict)

    def elsewhere(self) -> dict[str, Spent | None]:
        return self.others

    def charges(self) -> list[Charge]:
        return self.made


def charge(run: str = "r1", selection: str = "round-1", epsilon: float = 0.5, **more: Any) -> Charge:
    settings = {"mechanism": "permute-and-flip"} | more
    return Charge(run=run, selection=selection, epsilon_replace_one=epsilon, epsilon_add_remove=epsilon / 2, **settings)


def config(**settings: Any) -> RunConfig:
    given = {"dataset": "clinic", "data": "/secret/place/patients.csv", "query": "select * from hidden", "epsilon": 1.0}
    return RunConfig.model_validate(given | settings)


def card(book: Book | None = None, *, settings: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    book = book or Book([charge(), charge(selection="round-2")], Budget(2.0))
    made = build_card(schema=SCHEMA, config=config(**(settings or {})), run="r1", ledger=book, **more)
    Draft202012Validator(CARD).validate(json.loads(json.dumps(made, allow_nan=False)))
    return made


def drawn(*, private: bool, mechanism: str = "permute-and-flip") -> Selection:
    return Selection({"": (0,)}, Guarantee(0.25, 0.5), mechanism, private)


def test_the_card_states_the_sum_of_the_charges_under_both_relations() -> None:
    made = card()
    assert made["guarantee"]["epsilon"] == {"replace_one": 1.0, "add_remove": 0.5}
    assert made["guarantee"]["delta"] == 0
    assert made["stamp"] is None
    assert [entry["selection"] for entry in made["charges"]] == ["round-1", "round-2"]
    text = render_markdown(made)
    assert "ε = 1 if one record is replaced by any other, and with ε = 0.5 if one record is added or removed" in text


REVEALED = "apart from the number of records, which this release may reveal"


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_where_no_number_is_stated_no_line_about_added_records_hides_that_it_is_revealed(adjacency: str) -> None:
    made = card(settings={"adjacency": adjacency})
    text = render_markdown(made)
    assert f"added or removed, {REVEALED}" in made["guarantee"]["statement"]
    assert "| one unit added or removed, apart from the number of units | 0.5 |" in text
    assert "The number of records, where a run was planned from it, is not counted." in text
    assert any("planned from it, and its release may reveal it" in item for item in made["not_covered"])
    assert made["public"]["units"] == {
        "treated_as_public": True, "stated": False, "covered_by_guarantee": False, "number": None,
    }  # fmt: skip


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_where_a_number_is_stated_both_lines_hold_as_printed_and_it_is_public(adjacency: str) -> None:
    made = card(settings={"adjacency": adjacency, "rows": 1200}, units=1234)
    text = render_markdown(made)
    assert "is added or removed (δ = 0)." in made["guarantee"]["statement"]
    assert "| one unit added or removed | 0.5 |" in text
    assert "The number of protected units, as stated by the owner: 1,200." in text
    assert any("as the owner has stated it (1,200)" in item for item in made["not_covered"])
    assert "reveal" not in text
    assert "1,234" not in text
    assert "1234" not in json.dumps(made)


def test_a_unit_is_named_where_its_number_is_revealed() -> None:
    said = card(settings={"unit": "person"})["guarantee"]["statement"]
    assert "apart from the number of different values of 'person', which this release may reveal" in said


def test_how_rows_that_do_not_fit_were_treated_is_told() -> None:
    told = card(settings={"skip_bad_rows": True})["public"]["settings"]
    assert (told["skip_bad_rows"], told["blank_bad_cells"], told["rows"]) == (True, False, None)
    baseline = card(settings={"method": "augpe", "blank_bad_cells": True, "rows": 90})["public"]["settings"]
    assert (baseline["skip_bad_rows"], baseline["blank_bad_cells"], baseline["rows"]) == (False, True, 90)


def test_columns_whose_types_came_from_all_rows_are_told() -> None:
    made = card(inferred=["sbp", "dbp"])
    assert (
        "the types of the columns sbp, dbp were inferred over all rows by the program that made the frame; "
        "this guarantee starts from the typed columns"
    ) in made["not_covered"]
    assert not any("inferred" in item for item in card()["not_covered"])


def test_the_first_paragraph_is_the_promise() -> None:
    lines = [line for line in render_markdown(card()).splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("This release is differentially private with ε = 1")


def test_charges_lost_in_a_crash_and_drawn_anew_count_twice() -> None:
    made = card(Book([charge(), charge()]))
    assert made["guarantee"]["epsilon"]["replace_one"] == 1.0


def test_earlier_runs_stand_in_the_total_but_not_in_the_run() -> None:
    made = card(Book([charge("r0", epsilon=3.0), charge()], Budget(5.0)))
    assert made["guarantee"]["epsilon"]["replace_one"] == 0.5
    assert made["cumulative"]["epsilon"]["replace_one"] == 3.5
    assert (made["cumulative"]["runs"], made["cumulative"]["charges_of_this_run"]) == (2, 1)
    assert made["cumulative"]["cap"]["epsilon"] == 5.0
    assert "The cap is ε = 5" in render_markdown(made)
    assert "r0" not in json.dumps(made)


def test_a_control_without_noise_is_stamped() -> None:
    made = card(Book([charge(epsilon=math.inf, note="not private")]), settings={"epsilon": math.inf})
    assert made["stamp"] == "NOT PRIVATE"
    assert made["guarantee"]["epsilon"]["replace_one"] == "inf"
    text = render_markdown(made)
    assert "**NOT PRIVATE**" in text
    assert "∞" in text
    assert "differentially private with" not in text


def test_a_seeded_run_is_stamped_although_its_charges_are_finite() -> None:
    name = "seeded permute-and-flip, not private, for tests only"
    made = card(Book([charge(mechanism=name, note="not private")]), selections=[drawn(private=False, mechanism=name)])
    assert made["stamp"] == "NOT PRIVATE"
    assert any("seed" in reason for reason in made["stamp_reasons"])
    assert "no privacy guarantee" in made["guarantee"]["statement"]


def test_whatever_a_mechanism_calls_not_private_is_stamped() -> None:
    assert card(selections=[drawn(private=True), drawn(private=False)])["stamp"] == "NOT PRIVATE"
    assert card(selections=[drawn(private=True)])["stamp"] is None


def test_what_was_spent_on_the_rows_under_another_name_is_told_with_the_sum() -> None:
    other = Spent(epsilon_replace_one=2.0, epsilon_add_remove=1.0, delta=1e-6, charges=3, controls=1)
    made = card(Book([charge(epsilon=0.5)], others={"clinic-2023": other}))
    (told,) = made["cumulative"]["elsewhere"]
    assert told == {
        "dataset": "clinic-2023", "epsilon": {"replace_one": 2.0, "add_remove": 1.0}, "delta": 1e-6,
        "controls_without_noise": 1,
    }  # fmt: skip
    assert made["cumulative"]["together"] == {"epsilon": {"replace_one": 2.5, "add_remove": 1.25}, "delta": 1e-6}
    text = render_markdown(made)
    assert "another ledger, 'clinic-2023': ε = 2 (one unit replaced)" in text
    assert "besides 1 choices without noise" in text
    assert "All of it together is what these rows have paid: ε = 2.5 (one unit replaced), ε = 1.25" in text


def test_a_second_ledger_that_is_gone_is_told_without_a_figure() -> None:
    made = card(Book([charge(epsilon=0.5)], others={"lost": None}))
    assert made["cumulative"]["elsewhere"][0]["epsilon"] is None
    text = render_markdown(made)
    assert "'lost': its ledger is gone" in text
    assert "at least ε = 0.5" in text


def test_a_card_without_a_second_ledger_says_nothing_of_one_and_neither_does_one_of_an_earlier_version() -> None:
    made = card()
    assert (made["cumulative"]["elsewhere"], made["cumulative"]["together"]) == ([], None)
    assert "another ledger" not in render_markdown(made)
    del made["cumulative"]["elsewhere"], made["cumulative"]["together"]
    assert "another ledger" not in render_markdown(made)


def measured(*, written: float = 1.0, law: str = "discrete Laplace") -> dict[str, Any]:
    """What a release has of two tables."""
    sbp = {"field": "sbp", "kind": "integer", "codes": ["50 to 90", "91 to 260"]}
    classes = {"field": "acuity", "kind": "class", "codes": ["1", "2"]}
    tables = [{"table": "acuity × sbp", "axes": [classes, sbp], "counts": [[1, -2], [30, 4]]}]
    noise = {"law": law, "scale": 1.25, "standard_deviation": 1.7, "half_width_95": 4.0}
    return {"written_by_the_counts": written, "looks": [{"look": "measure-1", "noise": noise, "tables": tables}]}


COUNTED = [
    charge(selection="field-1", epsilon=0.2),
    charge(selection="measure-1", epsilon=0.5, mechanism="discrete laplace"),
    charge(selection="bundle", epsilon=0.3),
]


def test_what_was_measured_is_told_with_its_noise_and_that_it_may_be_used() -> None:
    made = card(Book(COUNTED), measured=measured())
    assert made["mechanism"]["names"] == ["permute-and-flip", "discrete laplace"]
    text = render_markdown(made)
    assert "| measure-1 | acuity × sbp | 2 × 2 | discrete Laplace, scale 1.25 | ± 4 |" in text
    for words in ("may be used", "measurements.json", "written by the language model, none by a person"):
        assert words in text
    assert "The released records follow them." in text
    assert "| 2 | measure-1 | discrete laplace | 0.5 | 0.25 | 0 |" in text
    assert "facts drawn from noisy counts" in text


def test_a_measurement_that_the_last_choice_refused_is_still_told() -> None:
    text = render_markdown(card(Book(COUNTED), measured=measured(written=0.0)))
    assert "written without them" in text
    assert "half" not in text
    assert "50 % of the records follow them." in render_markdown(card(Book(COUNTED), measured=measured(written=0.5)))


def test_a_reader_is_told_where_only_what_was_measured_tells_classes_apart() -> None:
    plain = card(Book(COUNTED), measured=measured())
    apart = card(Book(COUNTED), measured=measured() | {"rest_of_any_class": True})
    assert [one["measurements"]["rest_of_any_class"] for one in (plain, apart)] == [False, True]
    assert "records of any class" in render_markdown(apart)
    assert "records of any class" not in render_markdown(plain)


def test_how_rows_took_part_follows_from_what_was_charged() -> None:
    how = card(Book(COUNTED), measured=measured())["mechanism"]["how"]
    assert "vote for the fields" in how
    assert "approves a fixed share" not in how  # no round was paid for
    steered = card(Book([charge(), *COUNTED[1:2]]), measured=measured())["mechanism"]["how"]
    assert "approves a fixed share" in steered
    assert "counted in small public tables" in steered
    assert "vote for the fields" not in steered
    assert "candidate releases" not in steered


def test_a_control_that_counted_without_noise_says_so() -> None:
    text = render_markdown(card(settings={"epsilon": math.inf}, measured=measured(law="none")))
    assert "| acuity × sbp | 2 × 2 | none |" in text


def test_a_card_says_nothing_of_measuring_where_nothing_was_nor_does_one_of_an_earlier_version() -> None:
    made = card()
    assert made["measurements"] is None
    assert "What was measured" not in render_markdown(made)
    del made["measurements"]
    assert "What was measured" not in render_markdown(made)


def test_a_run_without_a_private_choice_says_that_no_row_took_part_and_not_that_none_was_read() -> None:
    made = card(Book([charge(epsilon=0.0, mechanism="uniform (ε = 0)")]), settings={"epsilon": 0.0})
    assert made["stamp"] is None
    assert "No private row took part" in made["guarantee"]["statement"]
    assert "Nothing: no private row took part in a choice." in render_markdown(card(Book()))


def test_without_a_unit_people_with_several_records_are_warned_about() -> None:
    made = card()
    assert "several records" in made["unit"]["warning"]
    assert any("people with several records" in item for item in made["not_covered"])


def test_with_a_unit_the_guarantee_is_for_all_records_of_one() -> None:
    made = card(settings={"unit": "subject_id"})
    assert made["unit"]["column"] == "subject_id"
    assert made["unit"]["warning"] == ""
    assert "'subject_id' with all its records" in made["guarantee"]["statement"]
    assert not any("people with several records" in item for item in made["not_covered"])


def test_nothing_about_the_source_of_the_data_is_told() -> None:
    said = json.dumps(card()) + render_markdown(card())
    for secret in ("/secret/place", "patients.csv", "hidden"):
        assert secret not in said


def test_what_was_treated_as_public_is_listed() -> None:
    made = card(settings={"class_sizes": {"1": 10, "2": 90}}, units=100)
    fields = {entry["name"]: entry["domain"] for entry in made["public"]["schema"]["fields"]}
    assert "50" in fields["sbp"]
    assert "260" in fields["sbp"]
    assert made["public"]["schema"]["rules"] == ["dbp < sbp"]
    assert made["public"]["class_sizes"] == {"1": 10, "2": 90}
    assert made["public"]["units"]["number"] == 100
    assert any("sizes of the classes" in item for item in made["not_covered"])


def test_the_number_of_rows_is_not_told_where_it_is_not_public() -> None:
    assert card(settings={"adjacency": "add-remove"}, units=100)["public"]["units"]["number"] is None


def test_a_host_that_private_text_may_go_to_is_named_without_its_secrets() -> None:
    made = card(settings={"allow_private_text_to": "https://user:password@embed.example.org:8080/v1?key=k"})
    assert made["trust"]["private_text_may_go_to"] == ["embed.example.org:8080"]
    assert "one text at a time and is trusted to answer it the same each time" in made["trust"]["encoder"]
    assert "server" not in card()["trust"]["encoder"]
    assert "embed.example.org" in render_markdown(made)
    assert "password" not in json.dumps(made)


def test_a_control_of_another_run_is_mentioned_but_does_not_stamp_this_one() -> None:
    made = card(Book([charge("reference", epsilon=math.inf), charge()]))
    assert made["stamp"] is None
    assert made["cumulative"]["controls_without_noise"] == 1
    assert any("without noise" in item for item in made["not_covered"])


def test_cards_are_the_same_for_the_same_inputs() -> None:
    assert card() == card()
    assert render_markdown(card()) == render_markdown(card())


@pytest.mark.parametrize("hostile", ["a|b", "<script>x</script>", "line\nbreak", "**bold**", "`code`", "# head"])
def test_names_from_users_cannot_break_the_page(hostile: str) -> None:
    fields = {"x": {"kind": "boolean"}, "y": {"kind": "category", "values": [hostile, "b"]}}
    schema = Schema.from_dict({"name": hostile, "fields": fields})
    made = build_card(schema=schema, config=config(), run="r1", ledger=Book([charge()]))
    text = render_markdown(made)
    assert "<script" not in text
    assert "**bold**" not in text
    assert "\nbreak" not in text
    assert "\n# head" not in text
    table = [line for line in text.splitlines() if line.startswith(("| x ", "| y "))]
    assert len(table) == 2
    assert all(line.replace("\\|", "").count("|") == 4 for line in table)
