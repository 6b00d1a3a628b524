"""Drafts: sensible kinds for real columns, bounds that hide single rows, everything unconfirmed."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.errors import DataError
from selpe.intake import parse_records, read_table
from selpe.intake.draft import Draft, draft_schema, names, ranges
from selpe.schema import CategoryField, IntegerField, NumberField, Schema

KINDS: dict[str, dict[str, str]] = {
    "ktas_triage.csv": {
        "temperature_c": "number",
        "heartrate": "integer",
        "resprate": "integer",
        "o2sat": "integer",
        "sbp": "integer",
        "dbp": "integer",
        "pain": "integer",
        "acuity": "category",
        "chiefcomplaint": "text",
        "sex": "category",
        "age": "integer",
        "arrival_mode": "category",
        "injury": "boolean",
        "mental_state": "category",
        "ed_diagnosis": "text",
        "disposition": "category",
        "acuity_nurse": "category",
    },
    "loan.csv": {
        "loan_amount": "integer",
        "term_months": "category",
        "interest_rate": "number",
        "installment": "number",
        "emp_title": "text",
        "emp_length_years": "integer",
        "homeownership": "category",
        "annual_income": "number",
        "verified_income": "category",
        "loan_purpose": "category",
        "debt_to_income": "number",
        "state": "category",
        "grade": "category",
    },
    "loan_lendingclub_desc.csv": {
        "loan_amnt": "integer",
        "term": "category",
        "int_rate": "number",
        "installment": "number",
        "grade": "category",
        "sub_grade": "category",
        "emp_title": "text",
        "emp_length": "category",
        "home_ownership": "category",
        "annual_inc": "number",
        "verification_status": "category",
        "issue_d": "date",
        "loan_status": "category",
        "purpose": "category",
        "title": "text",
        "addr_state": "category",
        "dti": "number",
        "fico_range_low": "integer",
        "desc": "text",
    },
    "mimic_ed_demo_triage.csv": {
        "subject_id": "identifier",
        "stay_id": "identifier",
        "temperature": "number",
        "heartrate": "integer",
        "resprate": "integer",
        "o2sat": "integer",
        "sbp": "integer",
        "dbp": "integer",
        "pain": "integer",
        "acuity": "category",
        "chiefcomplaint": "text",
        "gender": "category",
        "arrival_transport": "category",
        "disposition": "category",
    },
    "water.csv": {
        "product_name": "text",
        "overall_rating": "number",
        "rating": "category",
        "title": "text",
        "cleaned_review": "text",
    },
}
LABELS = {
    "ktas_triage.csv": "acuity",
    "loan.csv": "grade",
    "loan_lendingclub_desc.csv": "grade",
    "mimic_ed_demo_triage.csv": "acuity",
    "water.csv": "rating",
}


@pytest.mark.parametrize("name", KINDS)
def test_real_columns_get_sensible_kinds(name: str, shared_data: Callable[[str], Path]) -> None:
    draft = draft_schema(read_table(shared_data(name)))
    assert {column.name: column.kind for column in draft.columns} == KINDS[name]
    assert draft.likely_labels[0] == LABELS[name]
    assert draft.schema.unconfirmed == draft.schema.names
    assert Schema.from_yaml(draft.to_yaml()) == draft.schema


def test_cells_that_are_no_numbers_are_reported_by_row(shared_data: Callable[[str], Path]) -> None:
    table = read_table(shared_data("mimic_ed_demo_triage.csv"))
    draft = draft_schema(table)
    notes = _column(draft, "pain")
    words = [cell for cell in table.column("pain") if isinstance(cell, str) and cell.isalpha()]
    assert "12 rows are not numbers (rows 18, 43, 60, 93, 104, …)" in notes
    assert not any(word in note.split() for word in words for note in notes)
    assert draft.unit == "subject_id"


@pytest.mark.parametrize("name", KINDS)
def test_most_real_rows_fit_their_own_draft(name: str, shared_data: Callable[[str], Path]) -> None:
    table = read_table(shared_data(name))
    private = parse_records(table, draft_schema(table).schema)
    public = parse_records(table, draft_schema(table, public=True).schema)
    assert private.dropped <= 0.15 * len(table)
    assert public.dropped <= 0.11 * len(table)


def _column(draft: Draft, name: str) -> tuple[str, ...]:
    return next(column.notes for column in draft.columns if column.name == name)


def _rows(count: int = 60) -> list[dict[str, object]]:
    chance = random.Random(5)
    sizes = ["small"] * 30 + ["large"] * 28 + ["odd-one", "odd-two"]
    return [
        {
            "visit": 1000 + i,
            "name": f"Person {i}",
            "contact": f"person{i}@example.org",
            "tel": f"+44 20 7946 {1000 + i}",
            "patient_id": i // 3,
            "size": sizes[i % 60],
            "amount": f"{chance.uniform(13, 87):.2f}",
            "members": chance.randint(1, 4),
            "ok": chance.choice(["yes", "no"]),
            "on": f"{1 + i % 28:02d}/{1 + i % 12:02d}/2024",
            "story": f"once upon a time number {i} went by",
            "blank": None,
        }
        for i in range(count)
    ]


def test_identifiers_and_personal_details_are_left_out_and_flagged() -> None:
    draft = draft_schema(read_table(_rows()))
    roles = {column.name: column.kind for column in draft.columns}
    assert roles == {
        "visit": "identifier",
        "name": "personal",
        "contact": "personal",
        "tel": "personal",
        "patient_id": "identifier",
        "size": "category",
        "amount": "number",
        "members": "integer",
        "ok": "boolean",
        "on": "date",
        "story": "text",
        "blank": "empty",
    }
    assert draft.unit == "patient_id"
    assert _column(draft, "contact") == ("looks like an e-mail address; left out",)
    assert "YYYY-MM-DD" in " ".join(_column(draft, "on"))


def test_rare_categories_are_left_out_and_counted() -> None:
    draft = draft_schema(read_table(_rows()))
    size = draft.schema.field("size")
    assert isinstance(size, CategoryField)
    assert size.values == ("large", "small")
    assert _column(draft, "size") == ("2 rare values (2 of the rows) left out: add what is publicly known",)
    assert "odd-one" not in draft.to_yaml()


def test_bounds_are_round_numbers_outside_the_data() -> None:
    amount = draft_schema(read_table(_rows())).schema.field("amount")
    assert isinstance(amount, NumberField)
    assert (amount.min, amount.max, amount.step) == (Decimal(10), Decimal(90), Decimal("0.01"))


def test_no_text_of_the_table_stands_in_a_draft() -> None:
    text = draft_schema(read_table(_rows())).to_yaml()
    assert "once upon" not in text
    assert "Person" not in text
    assert "examples:" not in text


def test_a_public_table_needs_no_confirmation_and_keeps_rare_values() -> None:
    draft = draft_schema(read_table(_rows()), public=True)
    assert draft.schema.unconfirmed == ()
    assert "confirmed" not in draft.to_yaml()
    size = draft.schema.field("size")
    assert isinstance(size, CategoryField)
    assert size.values == ("large", "odd-one", "odd-two", "small")


def test_a_measure_gets_its_public_range_whatever_the_table_holds() -> None:
    ages = draft_schema(read_table([{"age": 40 + i % 7, "note": f"text {i}"} for i in range(40)])).schema.field("age")
    assert isinstance(ages, IntegerField)
    assert (ages.min, ages.max, ages.unit) == (0, 120, "years")


def test_the_label_becomes_a_required_category() -> None:
    rows: list[dict[str, object]] = [{"grade": [3, 4, None][i % 3], "note": f"text {i}"} for i in range(30)]
    draft = draft_schema(read_table(rows), label="grade")
    assert draft.schema.labels == ("3", "4")
    assert not draft.schema.field("grade").optional
    assert "rows without a label do not fit" in _column(draft, "grade")[0]
    assert Schema.from_yaml(draft.to_yaml()).label == "grade"


@pytest.mark.parametrize(("label", "said"), [("absent", "no column 'absent'"), ("note", "too many different values")])
def test_a_label_that_cannot_be_one_is_refused(label: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        draft_schema(read_table([{"note": f"text {i}", "x": 1} for i in range(60)]), label=label)


@pytest.mark.parametrize(
    "first",
    [["51", "m"], ["2024-01-31", "x"], ["ann@example.org", "x"], ["red", "x"], ["NA", "x"]],
)
def test_a_table_without_a_header_is_refused_before_its_first_row_is_shown(first: list[str]) -> None:
    rows = [dict(zip(first, (f"{i}", "red"), strict=True)) | {first[0]: ["red", "blue"][i % 2]} for i in range(9)]
    with pytest.raises(DataError, match="look like data") as caught:
        draft_schema(read_table(rows))
    assert first[0] not in str(caught.value) + caught.value.hint


def test_free_text_may_happen_to_be_its_columns_name() -> None:
    rows = [{"note": "note" if i == 7 else f"text {i}", "a": i % 3, "b": i % 3, "c": i % 3} for i in range(30)]
    assert draft_schema(read_table(rows)).schema.names == ("note", "a", "b", "c")


def test_columns_that_share_a_name_are_refused_by_position(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,a\n1,2,3\n", encoding="utf-8")
    with pytest.raises(DataError, match="columns 1, 3"):
        draft_schema(read_table(tmp_path / "t.csv"))


@pytest.mark.parametrize("column", ["a: b", "yes", "ünï cödé", "#5 #", '"quoted"', "{x}", "no", "- dash", "1st"])
def test_any_column_name_survives_the_file(column: str) -> None:
    draft = draft_schema(read_table([{column: f"some text {i} \u0085 # : '", "n": i % 3} for i in range(30)]))
    assert Schema.from_yaml(draft.to_yaml()).names == (column, "n")


@given(values=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4, unique=True))
def test_any_category_survives_the_file(values: list[str]) -> None:
    rows = [{"size": value, "story": f"story number {i} is told"} for value in values for i in range(9)]
    draft = draft_schema(read_table(rows))
    assert Schema.from_yaml(draft.to_yaml()) == draft.schema


@pytest.mark.parametrize(
    ("name", "is_id", "person", "personal"),
    [
        ("subject_id", True, True, ""),
        ("StayID", True, False, ""),
        ("patientid", True, True, ""),
        ("paid", False, False, ""),
        ("valid", False, False, ""),
        ("product_name", False, False, ""),
        ("Full Name", False, False, "a person's name"),
        ("customer_name", False, True, "a person's name"),
        ("addr_state", False, False, ""),
        ("HomeAddress", False, False, "a postal address"),
        ("e-mail", False, False, "an e-mail address"),
        ("zip code", False, False, "a post code"),
        ("date_of_birth", False, False, "a date of birth"),
        ("hotel", False, False, ""),
        ("trip", False, False, ""),
    ],
)
def test_names_give_identifiers_and_people_away(name: str, is_id: bool, person: bool, personal: str) -> None:
    assert (names.is_identifier(name), names.names_a_person(name), names.personal(name)) == (is_id, person, personal)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [("16", "96", ("10", "100")), ("0", "10", ("0", "10")), ("35.1", "40.2", ("35", "41")), ("5", "5", ("5", "6"))],
)
def test_bounds_are_widened_to_round_numbers(low: str, high: str, expected: tuple[str, str]) -> None:
    assert ranges.round_bounds(Decimal(low), Decimal(high)) == tuple(Decimal(bound) for bound in expected)


@given(st.lists(st.decimals(-(10**9), 10**9, places=3), min_size=2))
def test_bounds_hold_the_data_and_have_few_digits(values: list[Decimal]) -> None:
    low, high = ranges.round_bounds(min(values), max(values))
    assert low <= min(values) <= max(values) <= high
    assert low < high


def test_a_single_far_value_does_not_set_the_bounds() -> None:
    values = [Decimal(60 + i % 30) for i in range(200)] + [Decimal(8790)]
    assert ranges.bulk(values) == (Decimal(60), Decimal(89))
    skewed = [Decimal(2) ** (i % 12) for i in range(240)]
    assert ranges.bulk(skewed) == (Decimal(1), Decimal(2048))


FRAME_ROWS = [
    {"age": str(20 + i % 50), "ward": "north" if i % 3 else "south", "note": f"came in with pain number {i}"}
    for i in range(60)
]


@pytest.mark.parametrize("library", ["pandas", "polars", "records", "file"])
def test_frames_are_drafted_as_files_are(library: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    lines = ["age,ward,note", *(",".join(row.values()) for row in FRAME_ROWS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if library in ("pandas", "polars"):
        source: object = pytest.importorskip(library).DataFrame(FRAME_ROWS)
    else:
        source = FRAME_ROWS if library == "records" else path
    draft = draft_schema(source, name="visits", label="ward")
    assert draft.schema.to_dict() == draft_schema(read_table(path), name="visits", label="ward").schema.to_dict()
    assert draft.schema.unconfirmed == ("age", "ward", "note")
    assert draft.rows == 60


def test_what_is_no_table_is_not_drafted() -> None:
    with pytest.raises(DataError, match="cannot read a table from a int"):
        draft_schema(7)
