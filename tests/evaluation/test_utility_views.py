"""The embedded views field by field, and both on real tables."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from selpe.evaluation.utility import utility
from selpe.evaluation.views import open_view
from selpe.evaluation.views.boosted import AXES
from selpe.evaluation.views.embedding import Embeddings, leading_axes
from selpe.intake import parse_records, read_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record, Schema, Value

ENCODER = HashingEncoder(64)
FIELDS: dict[str, tuple[str, list[Value]]] = {
    "category": ("{kind: category, values: [x, y, z]}", ["x", "y"]),
    "boolean": ("{kind: boolean}", [True, False]),
    "integer": ("{kind: integer, min: 0, max: 9}", [2, 7]),
    "number": ("{kind: number, min: 0, max: 1, step: 0.01}", [0.25, 0.75]),
    "date": ("{kind: date, min: 1990-01-01, max: 2099-12-31}", ["2024-02-03", "2024-05-06"]),
    "text": ("{kind: text}", ["the glass is cracked", "there is no sound at all"]),
    "missing": ("{kind: integer, min: 0, max: 9, optional: true}", [None, 3]),
    "missing text": ("{kind: text, optional: true}", [None, "something"]),
    "long category": (f"{{kind: category, values: [{', '.join(f'v{k}' for k in range(300))}]}}", ["v3", "v290"]),
}


def one_field(kind: str) -> Schema:
    text = f"name: one\nlabel: c\nfields:\n  f: {FIELDS[kind][0]}\n  c: {{kind: category, values: [p, q]}}\n"
    return Schema.from_yaml(text)


def records_of(kind: str, count: int) -> list[Record]:
    values = FIELDS[kind][1]
    return [{"f": values[number % 2], "c": "pq"[number % 2]} for number in range(count)]


@pytest.mark.parametrize("view", ["minilm", "boosted"])
@pytest.mark.parametrize("kind", FIELDS)
def test_each_kind_of_field_can_tell_classes_apart(view: str, kind: str) -> None:
    found = utility(
        one_field(kind), records_of(kind, 40), records_of(kind, 10), encoder=ENCODER, views=[view], bootstrap=0
    )
    assert found.scores[0].auc == 100


def test_a_month_tells_classes_apart_across_years() -> None:
    schema = one_field("date")

    def days(year: int) -> list[Record]:
        return [
            {"f": f"{year + k % 7}-{month:02}-{1 + k:02}", "c": label}
            for label, month in (("p", 3), ("q", 9))
            for k in range(20)
        ]

    found = utility(schema, days(2000), days(2050), encoder=ENCODER, views=["boosted"], bootstrap=0)
    assert found.scores[0].auc > 95


def test_test_records_have_no_say_in_the_columns_of_a_text() -> None:
    schema, train = one_field("text"), records_of("text", 40)
    rng = random.Random(0)
    odd: list[Record] = [{"f": f"odd {rng.random()}", "c": "p"} for _ in range(50)]
    alone, beside = (
        next(
            open_view("boosted", schema, Embeddings(ENCODER)).chances(
                train, [str(r["c"]) for r in train], test, seeds=[0], tick=lambda part: None
            )
        )[0]
        for test in (train[:1], [train[0], *odd])
    )
    assert alone.tolist() == beside.tolist()


def test_leading_axes_are_orthonormal_and_keep_what_differs() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 1)) * np.eye(8)[:1] + rng.normal(size=(50, 1)) * np.eye(8)[1:2] + 3.0
    centre, axes = leading_axes(rows, AXES)
    assert axes.shape == (8, 2)
    assert np.allclose(axes.T @ axes, np.eye(2))
    assert np.allclose(centre + (rows - centre) @ axes @ axes.T, rows)
    assert leading_axes(np.ones((5, 8)), AXES)[1].shape == (8, 0)
    assert leading_axes(np.ones((1, 8)), AXES)[1].shape == (8, 0)


# -- real tables -----------------------------------------------------------------------------------------------------

KTAS = Schema.from_yaml(
    """
name: triage
label: acuity
fields:
  chiefcomplaint: {kind: text, max_length: 200, optional: true}
  age: {kind: integer, min: 0, max: 120, optional: true}
  arrival_mode: {kind: category, optional: true,
                 values: [Walking, Public Ambulance, Private Vehicle, Private Ambulance, Other]}
  mental_state: {kind: category, values: [Alert, Verbal Response, Pain Response, Unresponsive], optional: true}
  pain: {kind: integer, min: 0, max: 10, optional: true}
  sbp: {kind: integer, min: 20, max: 300, optional: true}
  heartrate: {kind: integer, min: 10, max: 250, optional: true}
  acuity: {kind: category, values: ["1", "2", "3", "4", "5"]}
"""
)
WATER = Schema.from_yaml(
    """
name: water
label: rating
fields:
  product_name: {kind: text, max_length: 200}
  overall_rating: {kind: number, min: 0, max: 5, step: 0.1}
  cleaned_review: {kind: text, min_length: 0, max_length: 2000, optional: true}
  rating: {kind: category, values: ["1", "2", "3", "4", "5"]}
"""
)


@pytest.mark.parametrize(
    ("file", "schema", "text", "worth"),
    [("ktas_triage.csv", KTAS, "chiefcomplaint", 70), ("water.csv", WATER, "cleaned_review", 55)],
)
def test_real_tables_are_worth_more_than_chance_in_both_views(
    shared_data: Callable[[str], Path], file: str, schema: Schema, text: str, worth: float
) -> None:
    rows = parse_records(read_table(shared_data(file)), schema, blank_bad_cells=True).records
    random.Random(0).shuffle(rows)
    # One text stands on one side only: the same review is found under many products.
    sides: tuple[list[Record], list[Record]] = ([], [])
    for row in rows:
        sides[zlib.crc32(str(row[text]).encode()) % 2].append(row)
    train, test = sides[0][:500], sides[1][:300]
    found = utility(
        schema, train[:250], test, encoder=HashingEncoder(256), references={"real rows": train[250:]}, bootstrap=100
    )
    for view in ("minilm", "boosted"):
        mine, real = found.of(view, "synthetic"), found.of(view, "real rows")
        assert mine is not None
        assert real is not None
        assert 50 < mine.low < mine.auc < mine.high
        assert mine.auc > worth
        assert abs(mine.auc - real.auc) < 10
