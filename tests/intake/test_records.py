"""A whole table under a schema: problems grouped by row and field, drops counted, rows read independently."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.errors import DataError
from selpe.intake import inferred_fields, parse_records, read_table, to_records
from selpe.intake.core import Table
from selpe.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "name": "vitals",
        "fields": {
            "complaint": {"kind": "text", "max_length": 20},
            "acuity": {"kind": "category", "values": ["1", "2", "3"]},
            "sbp": {"kind": "integer", "min": 40, "max": 300, "optional": True},
            "dbp": {"kind": "integer", "min": 20, "max": 200, "optional": True},
            "temperature": {"kind": "number", "min": 30, "max": 45, "step": 0.1, "optional": True},
        },
        "rules": ["dbp < sbp"],
    }
)
GOOD = {"complaint": "cough", "acuity": "2", "sbp": "120", "dbp": "80", "temperature": "36.6"}


def _table(*changes: Mapping[str, object]) -> Table:
    return read_table([GOOD | dict(change) for change in changes])


def test_problems_are_grouped_by_field_and_expectation() -> None:
    table = _table({}, {"sbp": "x"}, {"sbp": 999, "acuity": "9"}, {"acuity": None}, {"dbp": 150})
    with pytest.raises(DataError) as caught:
        to_records(table, SCHEMA)
    assert str(caught.value).splitlines()[:-1] == [
        "records: 4 of 5 rows do not fit the schema",
        "  1 row: field 'acuity' must be one of the values that the schema lists (row 3)",
        "  1 row: field 'acuity' must not be missing: one of the values that the schema lists (row 4)",
        "  2 rows: field 'sbp' must be an integer from 40 to 300 (rows 2, 3)",
        "  1 row: must obey the rule 'dbp < sbp' (row 5)",
    ]
    assert "counted from 1" in caught.value.hint


def test_many_bad_rows_are_counted_and_a_few_are_named() -> None:
    with pytest.raises(DataError, match=r"1,200 rows: field 'sbp' .* \(rows 1, 2, 3, 4, 5, …\)"):
        to_records(_table(*[{"sbp": "x"}] * 1200), SCHEMA)


def test_bad_rows_can_be_skipped_and_are_counted() -> None:
    table = _table({}, {"sbp": "x"}, {"dbp": 150}, {"complaint": "fever"})
    reading = parse_records(table, SCHEMA)
    assert [record["complaint"] for record in reading.records] == ["cough", "fever"]
    assert (reading.dropped, reading.kept) == (2, (0, 3))
    assert to_records(table, SCHEMA, skip_bad_rows=True) == reading.records


def test_no_good_row_at_all_is_an_error_even_when_bad_rows_are_skipped() -> None:
    with pytest.raises(DataError, match="no row fits"):
        to_records(_table({"acuity": "9"}), SCHEMA, skip_bad_rows=True)


def test_bad_cells_of_optional_fields_can_be_read_as_missing() -> None:
    reading = parse_records(_table({"sbp": "x"}, {"acuity": "x"}), SCHEMA, blank_bad_cells=True)
    assert [record["sbp"] for record in reading.records] == [None]
    assert (reading.blanked, reading.dropped) == (1, 1)
    assert "1 cells that do not fit were read as missing" in reading.notes


def test_rounded_cells_are_counted_in_a_note() -> None:
    reading = parse_records(_table({"temperature": "36.64"}, {"temperature": "36.65"}, {}), SCHEMA)
    assert [record["temperature"] for record in reading.records] == [36.6, 36.6, 36.6]
    assert reading.notes == ("field 'temperature': 2 cells rounded to the field's step",)


def test_missing_columns_are_refused_by_the_schemas_names_alone() -> None:
    table = Table(columns=("Complaint", "secret"), data=(["cough"], [1]), rows=(1,))
    with pytest.raises(DataError, match="no column 'acuity'") as caught:
        to_records(table, SCHEMA)
    assert "secret" not in str(caught.value) + caught.value.hint
    with pytest.raises(DataError) as caught:
        to_records(read_table([{"secret": 1}]), SCHEMA)
    assert "Is the first row a header" in caught.value.hint


def test_missing_optional_columns_and_extra_columns_are_noted() -> None:
    reading = parse_records(read_table([{"complaint": "cough", "acuity": 1, "more": 5}]), SCHEMA)
    assert reading.records[0]["sbp"] is None
    assert reading.notes == (
        "no column for the optional fields sbp, dbp, temperature: read as missing",
        "1 columns that the schema does not name are not read (columns 3)",
    )


def test_columns_are_found_whatever_their_case_and_separators() -> None:
    schema = Schema.from_dict({"name": "x", "fields": {"chief_complaint": {"kind": "text"}}})
    assert to_records(read_table([{"Chief Complaint ": "cough"}]), schema) == [{"chief_complaint": "cough"}]


def test_a_repeated_column_is_refused_only_where_the_schema_needs_it() -> None:
    doubled = Table(columns=("complaint", "acuity", "acuity"), data=(["a"], ["1"], ["2"]), rows=(1,))
    with pytest.raises(DataError, match=r"field 'acuity' has more than one column \(2, 3\)"):
        to_records(doubled, SCHEMA)
    harmless = Table(columns=("complaint", "acuity", "x", "x"), data=(["a"], ["1"], ["2"], ["3"]), rows=(1,))
    assert to_records(harmless, SCHEMA)[0]["acuity"] == "1"


def test_the_unit_column_is_kept_beside_the_fields() -> None:
    table = read_table([GOOD | {"person": 7.0}, GOOD | {"person": None}])
    reading = parse_records(table, SCHEMA, unit="person")
    assert [record["person"] for record in reading.records] == ["7"]
    assert (
        reading.problems[0].message == "1 row: field 'person' must not be missing: it says whose record it is (row 2)"
    )
    assert reading.notes == ()
    assert parse_records(table, SCHEMA, unit="absent").dropped == 2
    headed = Table(columns=tuple(GOOD), data=tuple([cell] for cell in GOOD.values()), rows=(1,))
    with pytest.raises(DataError, match="column 'absent' is missing"):
        parse_records(headed, SCHEMA, unit="absent")


def test_the_unit_column_is_found_whatever_its_case_and_separators() -> None:
    rows = [GOOD | {"person_id": "a"}, GOOD | {"Person ID": "b"}, GOOD | {"PERSON-ID": None}, GOOD | {"person_id": [1]}]
    reading = parse_records(read_table(rows), SCHEMA, unit="person_id")
    assert [record["person_id"] for record in reading.records] == ["a", "b"]
    assert reading.problems[0].rows == (3, 4)


def test_a_record_of_another_spelling_is_read_and_blanks_no_other() -> None:
    """Keys once were settled over all rows: one record in capitals made a second column of every field."""
    other = {name.upper(): cell for name, cell in GOOD.items()}
    assert len(set(map(str, to_records(read_table([GOOD, other, GOOD]), SCHEMA)))) == 1


def test_a_record_that_lacks_a_required_key_is_wrong_by_itself() -> None:
    reading = parse_records(read_table([{"complaint": "cough"}, GOOD, {"x": 1}]), SCHEMA)
    assert (reading.kept, reading.dropped) == ((1,), 2)


def test_equal_cells_of_other_spelling_are_read_by_themselves() -> None:
    schema = Schema.from_dict({"name": "x", "fields": {"code": {"kind": "text"}}})
    utc = dt.datetime(2024, 2, 29, 20, tzinfo=dt.timezone.utc)
    cells = [Decimal("2.50"), Decimal("2.5"), utc, utc.astimezone(dt.timezone(dt.timedelta(hours=9))), 1, True, 1.0]
    expected = ["2.50", "2.5", "2024-02-29 20:00:00+00:00", "2024-03-01 05:00:00+09:00", "1", "true", "1"]
    for order in (1, -1):
        records = to_records(read_table([{"code": cell} for cell in cells[::order]]), schema)
        assert [record["code"] for record in records] == expected[::order]


def test_a_cell_that_defies_reading_is_its_own_rows_problem() -> None:
    class Raising:
        def __str__(self) -> str:
            raise RuntimeError

    rows = [GOOD | {"complaint": cell, "person": cell} for cell in (Raising(), Decimal("sNaN"), b"x", [1], "cough")]
    reading = parse_records(read_table(rows), SCHEMA, unit="person")
    assert reading.kept == (4,)


def test_fields_whose_spelling_a_type_may_have_changed_are_named() -> None:
    typed = Table(
        columns=("Complaint", "acuity", "sbp", "temperature", "person"),
        data=([5], [2], [120], [36.6], [7]), rows=(1,), typed=("Complaint", "acuity", "sbp", "temperature", "person"),
    )  # fmt: skip
    assert parse_records(typed, SCHEMA, unit="person").inferred == ("complaint", "acuity", "person")
    assert inferred_fields(typed, SCHEMA, decimal=",") == ("complaint", "acuity", "sbp", "temperature")
    large = Schema.from_dict({"name": "x", "fields": {"sbp": {"kind": "integer", "min": 0, "max": 2**60}}})
    assert inferred_fields(typed, large) == ("sbp",)
    assert inferred_fields(read_table([GOOD]), SCHEMA) == ()


def test_a_readings_text_form_shows_no_cell() -> None:
    assert "cough" not in repr(parse_records(_table({}), SCHEMA))


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 400),
    st.floats(),
    st.sampled_from(["NA", "1", "2.0", "1,234", "36,6", "36.65", "99%", "yes", "3/4/2024", "13/4/2024", "x"]),
    st.text(max_size=30),
)
RAW = st.fixed_dictionaries({"complaint": CELLS, "acuity": CELLS, "sbp": CELLS, "dbp": CELLS, "temperature": CELLS})


@given(st.lists(RAW | st.just(dict[str, object](GOOD)), min_size=1, max_size=6))
def test_each_row_is_read_on_its_own(rows: list[dict[str, object]]) -> None:
    """Otherwise one private row could change how others are read, and the guarantee would not hold for it."""
    together = parse_records(read_table(rows), SCHEMA)
    alone = [parse_records(read_table([row]), SCHEMA) for row in rows]
    assert together.records == [record for reading in alone for record in reading.records]
    assert together.dropped == sum(reading.dropped for reading in alone)


@given(st.lists(RAW | st.just(dict[str, object](GOOD)), min_size=1, max_size=6))
def test_whatever_is_read_satisfies_the_schema(rows: list[dict[str, object]]) -> None:
    reading = parse_records(read_table(rows), SCHEMA)
    assert all(SCHEMA.check(record) == [] for record in reading.records)
    assert len(reading.records) + reading.dropped == len(rows)
