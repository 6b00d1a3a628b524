from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from selpe.errors import ConfigError
from selpe.method.kernel import GRID, MultiChannelKernel, on_grid
from selpe.models import Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.schema import Record, Schema

SCHEMA = Schema.from_yaml(
    """
label: level
fields:
  note: {kind: text, max_length: 60}
  colour: {kind: category, values: [red, green, blue], optional: true}
  level: {kind: category, values: [a, b]}
  count: {kind: integer, min: 0, max: 100}
  rate: {kind: number, min: 0, max: 10, step: 0.5, optional: true}
  day: {kind: date, min: 2024-01-01, max: 2024-12-31}
"""
)
ENCODER = HashingEncoder(128)


def records(count: int, offset: int = 0) -> list[Record]:
    import json

    asked = [Request(prompt="x", json_schema=SCHEMA.to_json_schema(), seed=offset + i) for i in range(count)]
    return [json.loads(answer.text) for answer in FakeModel().generate(asked)]


def test_channels_are_the_record_every_field_but_the_label_and_scalars_for_numbers_and_dates() -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    assert kernel.channels == ("(record)", "note", "colour", "count", "rate", "day", "#count", "#rate", "#day")
    assert sum(kernel.weights.values()) == pytest.approx(1.0)
    assert MultiChannelKernel(SCHEMA, ENCODER, mode="global").channels == ("(record)",)


def test_a_distance_is_the_weighted_sum_of_its_channels_computed_by_hand() -> None:
    a: Record = {"note": "red apple", "colour": "red", "level": "a", "count": 20, "rate": 1.0, "day": "2024-03-01"}
    b: Record = {"note": "green pear", "colour": None, "level": "a", "count": 60, "rate": None, "day": "2024-03-01"}
    c: Record = {"note": "red apple", "colour": "red", "level": "a", "count": 100, "rate": None, "day": "2024-09-01"}
    kernel = MultiChannelKernel(SCHEMA, ENCODER, weights={"#count": 3.0})
    pool = kernel.over(kernel.represent([a, b, c]))

    def cosine(x: str, y: str) -> float:
        u, v = ENCODER.encode([x, y]).astype(np.float64)
        return float(np.clip(1 - u @ v, 0, 1))

    low, high = np.quantile([20, 60, 100], (0.05, 0.95))
    # Colour is red twice and rate is 1.0 once: present values of these channels never differ in the pool.
    colour_far = rate_far = 0.0
    parts = [
        cosine(SCHEMA.linearise(a, without=["level"]), SCHEMA.linearise(b, without=["level"])),
        cosine("note: red apple", "note: green pear"),
        colour_far,  # present against missing
        cosine("count: 20", "count: 60"),
        rate_far,  # present against missing
        0.0,  # the same day
        3 * (np.clip((60 - low) / (high - low), 0, 1) - np.clip((20 - low) / (high - low), 0, 1)),
        rate_far,
        0.0,
    ]
    distances = pool.distances(kernel.represent([a]))
    assert distances[0, 1] == pytest.approx(sum(parts) / 11, abs=2e-3)
    assert distances[0, 0] < 1e-3


def test_a_missing_value_is_as_far_from_a_present_one_as_present_ones_usually_are_at_most() -> None:
    channels = MultiChannelKernel(SCHEMA, ENCODER).channels
    made = [record | {"rate": rate} for record, rate in zip(records(5), [0.0, 2.0, 4.0, 10.0, None], strict=True)]
    for channel in ("rate", "#rate"):
        kernel = MultiChannelKernel(SCHEMA, ENCODER, weights=dict.fromkeys(channels, 0.0) | {channel: 1.0})
        pool = kernel.over(kernel.represent(made))
        among = pool.among(range(5))
        present = among[:4, :4]
        far = float(np.quantile(present, 0.95))
        assert among[4, 4] == 0.0
        assert np.allclose(among[4, :4], far)
        assert 0.0 < far <= present.max() + 1e-6


def test_without_present_values_in_the_pool_a_present_one_is_at_full_distance() -> None:
    channels = MultiChannelKernel(SCHEMA, ENCODER).channels
    kernel = MultiChannelKernel(SCHEMA, ENCODER, weights=dict.fromkeys(channels, 0.0) | {"#rate": 1.0})
    pool = kernel.over(kernel.represent([record | {"rate": None} for record in records(4)]))
    assert pool.distances(kernel.represent([records(1, 9)[0] | {"rate": 3.0}])).tolist() == [[1.0] * 4]


def test_distances_lie_between_0_and_1_and_are_symmetric_within_a_pool() -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    pool = kernel.over(kernel.represent(records(40)))
    among = pool.among(range(40))
    assert among.min() >= 0.0
    assert among.max() <= 1.0
    assert np.array_equal(among, among.T)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 59), min_size=1, max_size=60), st.integers(1, 90))
def test_a_rows_distances_do_not_depend_on_the_other_rows_of_the_call(chosen: list[int], candidates: int) -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    rows = kernel.represent(records(60))
    pool = kernel.over(kernel.represent(records(candidates, 1000)))
    together = pool.distances(rows)
    apart = pool.distances(rows[np.array(chosen)])
    assert np.array_equal(apart, together[chosen])
    alone = kernel.represent(records(60)[chosen[0] : chosen[0] + 1])
    assert np.array_equal(pool.distances(alone)[0], together[chosen[0]])


def test_dot_products_on_the_grid_are_exact_whatever_the_order() -> None:
    noise = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    units = on_grid(noise / np.linalg.norm(noise, axis=1, keepdims=True))
    exact = units.astype(np.int64) @ units.astype(np.int64).T
    assert np.array_equal((units @ units.T).astype(np.int64), exact)
    assert (
        np.abs(
            exact / GRID**2
            - (noise / np.linalg.norm(noise, axis=1, keepdims=True))
            @ (noise / np.linalg.norm(noise, axis=1, keepdims=True)).T
        ).max()
        < 2e-3
    )


def test_the_prototype_of_one_row_is_that_row() -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    rows = kernel.represent(records(1))
    pool = kernel.over(kernel.represent(records(30, 50)))
    assert np.allclose(pool.prototype(rows), pool.distances(rows)[0], atol=1e-3)


def test_the_prototype_is_the_mean_direction_and_the_mean_scalar() -> None:
    kernel = MultiChannelKernel(
        SCHEMA, ENCODER, weights=dict.fromkeys(MultiChannelKernel(SCHEMA, ENCODER).channels, 0.0) | {"#count": 1.0}
    )
    made = records(30, 50)
    pool = kernel.over(kernel.represent(made))
    a, b = records(2)
    a["count"], b["count"] = 40, 60
    counts = np.array([record["count"] for record in made], dtype=float)
    low, high = np.quantile(counts, (0.05, 0.95))
    expected = np.abs(np.clip((counts - low) / (high - low), 0, 1) - np.clip((50 - low) / (high - low), 0, 1))
    assert np.allclose(pool.prototype(kernel.represent([a, b])), expected, atol=1e-6)


def test_normalisation_comes_from_the_pool_alone() -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    pool = kernel.over(kernel.represent(records(30)))
    far = dict(records(1, 7)[0])
    far["count"] = 100
    before = pool.distances(kernel.represent([far]))
    pool.distances(kernel.represent(records(20, 900)))
    assert np.array_equal(before, pool.distances(kernel.represent([far])))


@pytest.mark.parametrize("weights", [{"nope": 1.0}, {"note": -1.0}])
def test_bad_weights_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        MultiChannelKernel(SCHEMA, ENCODER, weights=weights)


def test_all_zero_weights_are_refused() -> None:
    channels = MultiChannelKernel(SCHEMA, ENCODER).channels
    with pytest.raises(ConfigError):
        MultiChannelKernel(SCHEMA, ENCODER, weights=dict.fromkeys(channels, 0.0))


class Batchy(HashingEncoder):
    """An encoder whose vectors depend on the batch they are in, as padding makes them do in earnest."""

    @property
    def rowwise(self) -> bool:
        return False

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = super().encode(texts)
        rows[:, 0] += 0.05 * len(texts)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def test_private_texts_are_encoded_one_by_one_where_the_encoder_is_not_rowwise() -> None:
    kernel = MultiChannelKernel(SCHEMA, Batchy(64))
    pool = kernel.over(kernel.represent_pool(records(10)))
    together = pool.distances(kernel.represent(records(12, 300)))
    alone = pool.distances(kernel.represent(records(12, 300)[4:5]))
    assert np.array_equal(together[4], alone[0])
