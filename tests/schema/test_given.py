"""Values that are given for records to come: taken as people have them at hand, or refused with what to do."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from selpe.errors import ConfigError, SchemaError
from selpe.schema import Schema
from selpe.schema.given import checked_given

SCHEMA = Schema.from_yaml("""
name: visits
fields:
  stars: {kind: category, values: ["1", "2", "none at all"]}
  low: {kind: integer, min: 0, max: 200, optional: true}
  high: {kind: integer, min: 0, max: 300}
  heat: {kind: number, min: 30, max: 45, step: 0.5}
  new: {kind: boolean}
  day: {kind: date, min: 2024-01-01, max: 2024-12-31}
rules: [low < high]
""")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"stars": "1"}, {"stars": "1"}),
        ({"low": None}, {"low": None}),
        ({"low": pd.NA}, {"low": None}),
        ({"low": float("nan")}, {"low": None}),
        ({"low": np.float32("nan")}, {"low": None}),
        ({"low": np.int16(7)}, {"low": 7}),
        ({"heat": np.float64(36.5)}, {"heat": 36.5}),
        ({"new": np.bool_(True)}, {"new": True}),
        ({"day": date(2024, 2, 29)}, {"day": "2024-02-29"}),
        ({"day": datetime(2024, 2, 29, 12)}, {"day": "2024-02-29"}),
        ({"day": pd.Timestamp("2024-02-29")}, {"day": "2024-02-29"}),
        ({"low": 1, "high": 2}, {"low": 1, "high": 2}),
    ],
)
def test_values_are_taken_as_people_have_them(given: dict[str, Any], taken: dict[str, Any]) -> None:
    found = checked_given(given, SCHEMA)
    assert found == taken
    assert [type(value) for value in found.values()] == [type(value) for value in taken.values()]


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"star": "1"}, "no field 'star'", "Did you mean 'stars'?"),
        ({"STARS": "1"}, "no field 'STARS'", "Did you mean 'stars'?"),
        ({"qqq": "1"}, "no field 'qqq'", "The fields are stars"),
        ({"stars": 1}, "'stars' must be one of", "give it as text: '1'"),
        ({"stars": "none at al"}, "'stars' must be one of", "Did you mean 'none at all'?"),
        ({"high": None}, "'high' must be", "never missing"),
        ({"high": 301}, "'high' must be", ""),
        ({"high": "120"}, "'high' must be", ""),
        ({"high": True}, "'high' must be", ""),
        ({"heat": 36.7}, "'heat' must be", ""),
        ({"day": "29.02.2024"}, "'day' must be", ""),
        ({"day": date(2023, 1, 1)}, "'day' must be", ""),
        ({"low": 5, "high": 5}, "rule 'low < high' does not hold", "low, high"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises((ConfigError, SchemaError)) as caught:
        checked_given(given, SCHEMA)
    assert message in str(caught.value)
    assert hint in caught.value.hint
