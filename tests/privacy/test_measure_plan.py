"""What ε buys in measured tables: how many, how fine, at which prices; and a plan that a run can keep."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counting_world import discrete_laplace
from selpe.errors import ConfigError
from selpe.privacy.measure_plan import LEAST, Measurable, MeasurePlan, plan_measurement
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.noise import CountingFit
from selpe.privacy.plan import make_plan

FIELDS = ("title", "text", "price", "size", "colour")


def measured(**given: Any) -> MeasurePlan:
    found = planned(**given)
    assert found is not None
    return found


def planned(
    *, fields: tuple[str, ...] = FIELDS, named: bool = False, delta: float = 0.0,
    pairs: tuple[tuple[str, str], ...] = (), **given: Any,
) -> MeasurePlan | None:  # fmt: skip
    settings: dict[str, Any] = {"units": 100, "classes": 5, "epsilon": 2.0, "adjacency": "replace-one"}
    return plan_measurement(Measurable(fields, named, pairs, delta), **(settings | given))


@given(
    units=st.integers(1, 100_000),
    epsilon=st.floats(0.01, 20.0),
    fields=st.integers(1, 12),
    named=st.booleans(),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)
def test_prices_never_add_up_to_more_than_was_given(
    units: int, epsilon: float, fields: int, named: bool, adjacency: str
) -> None:
    names = tuple(f"f{i}" for i in range(fields))
    found = planned(fields=names, named=named, units=units, epsilon=epsilon, adjacency=adjacency)
    if found is None:
        assert units * epsilon * (1 if adjacency == "replace-one" else 2) < LEAST
        return
    assert math.fsum(found.prices().values()) <= epsilon
    assert math.fsum(found.prices().values()) == pytest.approx(epsilon)
    assert found.votes == (0 if found.fields else found.tables)


def test_more_rows_buy_more_tables_and_finer_codes() -> None:
    found = [measured(units=units) for units in (50, 300, 1000, 10_000)]
    for sizes in ([one.tables for one in found], [one.bins for one in found], [one.fine_clusters for one in found]):
        assert sizes == sorted(sizes)
        assert sizes[0] < sizes[-1]
    assert (found[0].tables, found[0].votes) == (1, 1)
    assert (found[-1].fields, found[-1].votes, len(found[-1].looks)) == (FIELDS, 0, 2)


def test_named_fields_are_measured_without_a_vote() -> None:
    found = measured(fields=("title", "price"), named=True, pairs=(("title", "price"),))
    assert (found.fields, found.votes, found.tables, found.counted) == (("title", "price"), 0, 2, 3)
    assert found.scale == pytest.approx(2 * 3 / 2.0)


def test_too_few_rows_or_too_little_epsilon_measure_nothing() -> None:
    assert planned(units=20, epsilon=1.0) is None
    assert planned(units=20, epsilon=1.0, adjacency="add-remove") is not None  # half the noise
    assert planned(fields=()) is None


@pytest.mark.parametrize("epsilon", [0.0, math.inf])
def test_controls_measure_at_their_own_price(epsilon: float) -> None:
    found = measured(epsilon=epsilon)
    assert set(found.prices().values()) == {epsilon}
    assert found.scale == (math.inf if epsilon == 0 else 0.0)


def test_every_price_is_taken_by_its_name() -> None:
    found = measured(units=200)
    assert list(found.prices()) == ["field-1", "field-2", "measure-1"]
    other = found.at({"measure-1": 0.5, "field-2": 0.0, "field-1": 0.125, "bundle": 9.0})
    assert (other.choices, other.looks) == ((0.125, 0.0), (0.5,))
    assert other.prices() == {"field-1": 0.125, "field-2": 0.0, "measure-1": 0.5}
    with pytest.raises(KeyError):
        found.at({"measure-1": 0.5, "field-1": 0.1})


def test_a_plan_at_other_prices_has_the_noise_that_they_buy() -> None:
    made = make_plan(
        units=200, labels=("a", "b"), epsilon=2.0, records=50, bundles=8, measure=Measurable(FIELDS)
    )  # fmt: skip
    assert made.measure is not None
    half = made.at({name: price / 2 for name, price in made.prices().items()})
    assert half.measure is not None
    assert half.measure.scale == pytest.approx(2 * made.measure.scale)
    assert half.guarantee.replace_one == pytest.approx(made.guarantee.replace_one / 2)


@pytest.mark.parametrize("given", [{}, {"units": 5000}, {"epsilon": math.inf}, {"epsilon": 0.0}, {"delta": 1e-6}])
def test_a_plan_comes_back_from_what_a_run_keeps(given: dict[str, Any]) -> None:
    delta = given.pop("delta", 0.0)
    offered = Measurable(FIELDS, pairs=(("title", "price"),), delta=delta)
    settings: dict[str, Any] = {"units": 100, "labels": ("a", "b"), "epsilon": 2.0, "records": 20, "measure": offered}
    made = make_plan(**(settings | given))
    kept = json.loads(json.dumps(made.to_dict()["measure"], allow_nan=False))
    assert MeasurePlan.from_dict(kept) == made.measure


@pytest.mark.parametrize("damage", [{"looks": None}, {"choices": ["much"]}, {"pairs": [["one"]]}, {"bins": "few"}])
def test_a_plan_that_is_none_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not the plan"):
        MeasurePlan.from_dict(measured().to_dict() | damage)
    with pytest.raises(ConfigError, match="not the plan"):
        MeasurePlan.from_dict({})


# -- the noise of one cell --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.1, 0.4, 1.0, 1.7, 4.0, 33.3])
def test_the_interval_is_the_narrowest_that_holds_95_percent_of_laplace_noise(scale: float) -> None:
    half = CountingFit("laplace", scale, Guarantee(1.0, 2.0)).half_width
    away = np.arange(-5000, 5001)
    law = discrete_laplace(away, scale)
    assert half == int(half)
    assert law[np.abs(away) <= half].sum() >= 0.95
    assert half == 0 or law[np.abs(away) <= half - 1].sum() < 0.95


@pytest.mark.parametrize("sigma", [0.2, 1.0, 7.3])
def test_the_interval_holds_95_percent_of_rounded_gaussian_noise(sigma: float) -> None:
    half = CountingFit("gaussian", sigma, Guarantee(1.0, 2.0)).half_width
    assert math.erf((half + 0.5) / sigma / math.sqrt(2)) >= 0.95 - 1e-9
    assert half == 0 or math.erf((half - 0.5) / sigma / math.sqrt(2)) < 0.95


def test_controls_have_an_interval_of_nothing_and_of_everything() -> None:
    assert measured(epsilon=math.inf).half_width == 0.0
    assert measured(epsilon=0.0).half_width == math.inf
