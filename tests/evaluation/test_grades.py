"""One rule for grades: two bounds for each figure, the worst decides, and the page of the docs says the same."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.evaluation.grades import BOUNDS, LEAST, ORDER, Bounds, Grade, worst

DOCS = Path(__file__).parents[2] / "docs" / "evaluation.md"
figures = st.floats(-10, 100)
references = st.none() | st.just(math.nan) | st.floats(0, 1)
grades = st.sampled_from([*ORDER, "unknown"])


@pytest.mark.parametrize("name", BOUNDS)
@given(one=figures, other=figures, reference=references)
def test_a_better_figure_never_has_a_worse_grade(name: str, one: float, other: float, reference: float | None) -> None:
    bounds = BOUNDS[name].beside(reference)
    worse, better = sorted((one, other), reverse=not bounds.larger)
    assert ORDER.index(bounds.grade(better)) <= ORDER.index(bounds.grade(worse))


@pytest.mark.parametrize("name", BOUNDS)
@given(reference=references)
def test_real_rows_only_ever_make_bounds_easier_and_never_let_nearly_nothing_pass(
    name: str, reference: float | None
) -> None:
    plain, beside = BOUNDS[name], BOUNDS[name].beside(reference)
    sign = 1 if plain.larger else -1
    assert sign * beside.good >= sign * beside.fair
    if plain.larger and plain.fair >= LEAST:
        assert beside.fair >= LEAST
        assert beside.good <= plain.good
    if not plain.larger:
        assert (beside.good, beside.fair) >= (plain.good, plain.fair)


@given(found=st.lists(grades), more=grades)
def test_the_worst_decides_and_what_is_unknown_does_not_count(found: list[Grade], more: Grade) -> None:
    known = [grade for grade in found if grade != "unknown"]
    assert worst(found) == (max(known, key=ORDER.index) if known else "unknown")
    if known and more != "unknown":
        assert ORDER.index(worst([*found, more])) >= ORDER.index(worst(found))


@pytest.mark.parametrize(
    ("name", "figure", "grade"),
    [
        ("recall", 0.07, "poor"), ("recall", 0.2, "fair"), ("recall", 0.5, "good"), ("recall", None, "unknown"),
        ("recall", math.nan, "unknown"), ("echoes", 0.01, "good"), ("echoes", 0.29, "poor"), ("distinct", 5, "poor"),
        ("marginals", 0.08, "good"), ("marginals", 0.17, "fair"), ("over_examples", 0.0, "fair"),
        ("over_examples", 0.1, "good"), ("above_chance", 0.0, "poor"), ("missing_classes", 1, "fair"),
        ("chance_of_p", 0.28, "good"), ("chance_of_p", 0.01, "fair"),
    ],
)  # fmt: skip
def test_bounds_are_where_they_are_said_to_be(name: str, figure: float | None, grade: Grade) -> None:
    assert BOUNDS[name].grade(figure) == grade


def test_a_recall_of_seven_percent_is_poor_even_where_real_rows_cover_little_of_each_other() -> None:
    assert BOUNDS["recall"].beside(0.1).grade(0.07) == "poor"
    assert BOUNDS["recall"].beside(0.3).grade(0.13) == "fair"


def test_the_docs_have_every_bound() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]+) \| ([^|]+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    said = {name: Bounds(_number(good), _number(fair), BOUNDS[name].larger) for name, good, fair in rows}
    assert said == {name: _rounded(bounds) for name, bounds in BOUNDS.items()}


def _rounded(bounds: Bounds) -> Bounds:
    return Bounds(round(bounds.good, 3), round(bounds.fair, 3), bounds.larger)


def _number(cell: str) -> float:
    """What a cell of the table says: '85 %', '0.15', '50', 'above 0', 'any'."""
    if cell in ("any", "any loss"):
        return math.inf if cell == "any" else -math.inf
    text = cell.removeprefix("above ").split()[0]
    return round(float(text) / (100 if cell.endswith("%") else 1), 3)
