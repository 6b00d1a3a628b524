from __future__ import annotations

import math

import pytest

from selpe.evaluation.fidelity.nearest import mean_distance
from selpe.models.encoders.hashing import HashingEncoder
from small_world import SCHEMA, UNLABELLED, drawn

ENCODER = HashingEncoder()


@pytest.mark.parametrize("schema", [SCHEMA, UNLABELLED], ids=["labelled", "unlabelled"])
def test_a_table_that_holds_the_real_records_has_no_distance_from_them(schema: object) -> None:
    real = drawn(30, schema=schema)  # type: ignore[arg-type]
    made = drawn(20, offset=900, schema=schema)  # type: ignore[arg-type]
    assert mean_distance(schema, [*made, *real], real, encoder=ENCODER) == pytest.approx(0, abs=1e-3)  # type: ignore[arg-type]
    assert mean_distance(schema, made, real, encoder=ENCODER) > 0.02  # type: ignore[arg-type]


def test_more_records_never_take_it_farther_away() -> None:
    real, made = drawn(30), drawn(60, offset=900)
    far = mean_distance(SCHEMA, made[:20], real, encoder=ENCODER)
    assert mean_distance(SCHEMA, made, real, encoder=ENCODER) <= far  # one ruler, whatever the table holds


def test_records_of_another_class_do_not_count() -> None:
    real = drawn(30)
    swapped = [row | {"urgency": {"low": "high", "high": "low"}[str(row["urgency"])]} for row in real]
    assert mean_distance(SCHEMA, swapped, real, encoder=ENCODER) > 0.02
    assert math.isnan(mean_distance(SCHEMA, [], real, encoder=ENCODER))
