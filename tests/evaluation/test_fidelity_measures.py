"""Each measure of fidelity on examples that can be worked out by hand, and what must hold for any example."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from selpe.evaluation.fidelity.associations import compare_pairs, correlation, correlation_ratio, cramers_v
from selpe.evaluation.fidelity.distances import total_variation, wasserstein, with_missing
from selpe.evaluation.fidelity.diversity import alarms, measure_diversity
from selpe.evaluation.fidelity.marginals import BARS, bin_edges, compare_fields, histogram
from selpe.evaluation.fidelity.neighbourhoods import draw_map, precision_and_recall
from selpe.evaluation.fidelity.structure import Nodes, attributes, pairs, summed
from selpe.evaluation.fidelity.text import compare_texts
from selpe.evaluation.words import words
from selpe.schema import Record, Schema

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30).map(np.array)
shares = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(lambda each: [x / sum(each) for x in each])


def array(*numbers: float) -> NDArray[np.float64]:
    return np.array(numbers, dtype=np.float64)


class Compass:
    """An encoder that knows four words, each a direction of the plane."""

    name, dimension, remote, rowwise = "compass", 2, None, True
    directions = {"north": (0.0, 1.0), "south": (0.0, -1.0), "east": (1.0, 0.0), "north-east": (0.6, 0.8)}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self.directions[text] for text in texts], dtype=np.float32).reshape(len(texts), 2)


# -- distances -------------------------------------------------------------------------------------------------------


def test_total_variation_is_half_the_sum_of_differences() -> None:
    assert total_variation([0.5, 0.5, 0.0], [0.2, 0.5, 0.3]) == pytest.approx(0.3)
    assert total_variation([1.0, 0.0], [0.0, 1.0]) == 1.0
    assert math.isnan(total_variation([0.0, 0.0], [0.5, 0.5]))


@given(shares, shares, shares)
def test_total_variation_is_a_metric_in_the_unit_interval(a: list[float], b: list[float], c: list[float]) -> None:
    assert 0 <= total_variation(a, b) <= 1
    assert total_variation(a, a) == 0
    assert total_variation(a, b) == total_variation(b, a)
    assert total_variation(a, c) <= total_variation(a, b) + total_variation(b, c) + 1e-12


@pytest.mark.parametrize(
    ("left", "right", "first", "second"),
    [
        (array(0, 2), array(1, 1), 1.0, 1.0),
        (array(0), array(3, 4), 3.5, math.sqrt(12.5)),
        (array(0, 0, 3), array(0, 3), 0.5, math.sqrt(1.5)),  # a sixth of the mass moves by 3
        (array(5, 1, 3), array(3, 5, 1), 0.0, 0.0),
    ],
)
def test_wasserstein_moves_mass_between_equal_quantiles(
    left: NDArray[np.float64], right: NDArray[np.float64], first: float, second: float
) -> None:
    assert wasserstein(left, right) == pytest.approx(first)
    assert wasserstein(left, right, 2) == pytest.approx(second)


@given(values, values)
def test_wasserstein_of_order_one_agrees_with_scipy(left: NDArray[np.float64], right: NDArray[np.float64]) -> None:
    assert wasserstein(left, right) == pytest.approx(wasserstein_distance(left, right), rel=1e-6, abs=1e-6)


@given(values, values, st.floats(-100, 100))
def test_wasserstein_is_symmetric_and_grows_with_its_order(
    left: NDArray[np.float64], right: NDArray[np.float64], shift: float
) -> None:
    assert wasserstein(left, right, 2) == pytest.approx(wasserstein(right, left, 2))
    assert wasserstein(left, right) <= wasserstein(left, right, 2) * (1 + 1e-9) + 1e-9
    assert wasserstein(left, left, 2) == 0
    assert wasserstein(left, left + shift, 2) == pytest.approx(abs(shift), abs=1e-4)


def test_missing_values_count_as_far_as_can_be() -> None:
    assert with_missing(0.5, 0.0, 0.0) == 0.5
    assert with_missing(math.nan, 1.0, 0.0) == 1.0
    assert with_missing(math.nan, 1.0, 1.0) == 0.0
    assert with_missing(0.5, 0.2, 0.4) == pytest.approx(0.2 + 0.6 * 0.5)


# -- fields ----------------------------------------------------------------------------------------------------------

FIELDS = Schema.from_yaml(
    """
name: fields
label: level
fields:
  colour: {kind: category, values: [red, green, blue], optional: true}
  height: {kind: number, min: 0, max: 10, step: 0.5, unit: m, optional: true}
  day: {kind: date, min: 2024-01-01, max: 2024-04-10}
  level: {kind: integer, min: 1, max: 3}
"""
)


def field_record(colour: str | None, height: float | None, day: str, level: int) -> Record:
    return {"colour": colour, "height": height, "day": day, "level": level}


def test_marginals_by_hand() -> None:
    real = [field_record("red", 1.0, "2024-01-01", 1), field_record("green", 2.0, "2024-01-01", 3)]
    made = [field_record("red", 1.0, "2024-01-11", 3), field_record(None, None, "2024-01-11", 3)]
    found = compare_fields(FIELDS, made, real)
    colour, height, day, level = (found[name] for name in FIELDS.names)
    assert colour.values == ("red", "green", "blue", "(missing)")
    assert (colour.real, colour.synthetic) == ((0.5, 0.5, 0, 0), (0.5, 0, 0, 0.5))
    assert (colour.measure, colour.value, colour.missing_synthetic) == ("total variation", 0.5, 0.5)
    assert (height.measure, height.value, height.unit) == ("wasserstein", 0.5, "m")
    assert height.normalised == pytest.approx(0.5 + 0.5 * 0.05)
    assert height.edges == (1.0, 1.5, 2.0, 2.5)
    assert (height.real, height.synthetic) == ((0.5, 0.0, 0.5), (1.0, 0.0, 0.0))
    assert (day.value, day.normalised, day.unit) == (10.0, 0.1, "days")
    assert day.edges is not None
    assert day.edges[0] == "2024-01-01"
    assert (level.measure, level.value, level.values) == ("total variation", 0.5, ("1", "2", "3"))


def test_a_value_outside_the_schema_is_other_and_a_long_list_is_cut() -> None:
    schema = Schema.from_dict(
        {"name": "long", "fields": {"code": {"kind": "category", "values": [f"v{i}" for i in range(60)]}}}
    )
    real: list[Record] = [{"code": f"v{i}"} for i in range(60)]
    made: list[Record] = [{"code": "secret"}, *real[1:]]
    marginal = compare_fields(schema, made, real)["code"]
    assert marginal.values is not None
    assert len(marginal.values) == BARS
    assert marginal.value == pytest.approx(1 / 60)
    assert sum(marginal.real) == pytest.approx(1)
    assert sum(marginal.synthetic) == pytest.approx(1)
    assert not any("secret" in value for value in marginal.values)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=50), st.sampled_from([0.1, 0.5, 1.0, 3.0]))
def test_bins_are_whole_steps_of_the_grid_and_hold_every_value(counts: list[int], step: float) -> None:
    numbers = np.array(counts) * step
    edges = bin_edges(numbers, step)
    widths = np.diff(edges) / step
    assert 1 <= len(widths) <= BARS
    assert np.allclose(widths, round(widths[0]))
    assert edges[0] == numbers.min()
    assert edges[-1] > numbers.max()
    assert sum(histogram(numbers, edges)) == pytest.approx(1)


def test_values_on_an_edge_fall_into_the_bin_that_begins_there() -> None:
    numbers = array(*(number * 0.1 for number in range(40)))
    assert histogram(numbers, bin_edges(numbers, 0.1)) == pytest.approx([0.05] * BARS)


# -- pairs of fields -------------------------------------------------------------------------------------------------


def codes(table: Sequence[Sequence[int]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two columns that a contingency table counts."""
    cells = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    return array(*(i for i, _ in cells)), array(*(j for _, j in cells))


def test_cramers_v_by_hand() -> None:
    assert cramers_v(*codes([[10, 0], [0, 10]])) == pytest.approx(1.0)
    assert cramers_v(*codes([[5, 5], [5, 5]])) == 0.0
    # chi² = 7.2, φ² = 0.36; corrected φ² = 0.36 − 1/19, corrected size 2 − 1/19 on both sides
    assert cramers_v(*codes([[8, 2], [2, 8]])) == pytest.approx(math.sqrt((0.36 - 1 / 19) / (1 - 1 / 19)))


def test_the_correlation_ratio_by_hand() -> None:
    groups, y = array(0, 0, 0, 1, 1, 1), array(1, 2, 3, 4, 5, 6)
    assert correlation_ratio(groups, y) == pytest.approx(math.sqrt(1 - (4 / 4) / (17.5 / 5)))
    assert correlation_ratio(groups, array(1, 1, 1, 2, 2, 2)) == 1.0
    assert math.isnan(correlation_ratio(array(0, 1, 2), array(1, 2, 3)))


def test_unrelated_fields_have_no_association_even_in_a_small_table() -> None:
    """Without the corrections, 30 rows and 10 groups show an association of about one half."""
    random = np.random.default_rng(3)
    found = [
        (cramers_v(a, b), correlation_ratio(a, random.normal(size=30)))
        for a, b in (random.integers(0, 10, (2, 30)).astype(float) for _ in range(200))
    ]
    assert np.mean([v**2 for v, _ in found]) < 0.05
    assert np.mean([eta**2 for _, eta in found]) < 0.15


@given(values, st.data())
def test_associations_stay_within_their_bounds(x: NDArray[np.float64], data: st.DataObject) -> None:
    y = np.array(data.draw(st.lists(st.floats(-1e6, 1e6), min_size=len(x), max_size=len(x))))
    g = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))), dtype=np.float64)
    assert -1 <= correlation(x, y) <= 1
    assert correlation(x, y) == pytest.approx(correlation(y, x))
    eta = correlation_ratio(g, y)
    assert math.isnan(eta) or 0 <= eta <= 1
    if len(x) > 2:
        assert 0 <= cramers_v(g, np.round(x)) <= 1


def test_the_matrix_has_each_pair_by_its_kinds_and_the_mean_difference() -> None:
    days = [f"2024-01-{i:02d}" for i in range(1, 13)]
    real = [field_record(("red", "blue")[i % 2], i / 2, days[i], 1 + i % 2) for i in range(12)]
    made = [record | {"height": (11 - i) / 2} for i, record in enumerate(real)]
    found = compare_pairs(FIELDS, made, real)
    assert found.fields == ("colour", "height", "day", "level")
    assert found.kinds == ("choice", "number", "number", "choice")
    assert found.real[1, 2] == pytest.approx(1)
    assert found.synthetic[1, 2] == pytest.approx(-1)
    assert found.real[0, 3] == pytest.approx(1)
    assert found.difference == pytest.approx(2 / 6)  # one of six pairs is turned round
    assert found.pearson.fields == ("height", "day")
    assert found.pearson.difference == pytest.approx(2)


def test_a_field_that_collapsed_counts_as_unrelated_not_as_unknown() -> None:
    days = [f"2024-01-{i:02d}" for i in range(1, 13)]
    real = [field_record("red", i / 2, days[i], 1) for i in range(12)]
    made: list[Record] = [record | {"height": 1.0} for record in real]
    found = compare_pairs(FIELDS, made, real)
    assert found.synthetic[1, 2] == 0
    assert found.difference > 0


# -- structure -------------------------------------------------------------------------------------------------------

NODES = Schema.from_yaml(
    """
name: nodes
fields:
  title: {kind: text, max_length: 20, optional: true}
  review: {kind: text, max_length: 20}
  side: {kind: category, values: [north, south]}
  stars: {kind: integer, min: 0, max: 10}
"""
)


def node_record(title: str | None, review: str, side: str, stars: int = 5) -> Record:
    return {"title": title, "review": review, "side": side, "stars": stars}


def test_key_node_dependency_by_hand() -> None:
    real = [node_record("north", "north", "north"), node_record("east", "north-east", "north")]
    made = [node_record("north", "south", "north"), node_record(None, "east", "south")]
    found = pairs(Nodes(NODES, made, Compass()), Nodes(NODES, real, Compass()))
    assert [pair.fields for pair in found] == [("title", "review"), ("title", "side"), ("review", "side")]
    # cosines of (title, review): real 1 and 0.6; synthetic −1 alone, since one record has no title
    assert found[0].value == pytest.approx(math.sqrt((2**2 + 1.6**2) / 2), rel=1e-5)
    assert found[0].real == pytest.approx(0.8)
    assert found[0].synthetic == pytest.approx(-1)
    # (title, side): real 1 and 0; synthetic 1.  (review, side): real 1 and 0.8; synthetic −1 and 0
    assert found[1].value == pytest.approx(math.sqrt(0.5), rel=1e-5)
    assert found[2].value == pytest.approx(math.sqrt((1.8**2 + 1) / 2), rel=1e-5)
    assert summed(found, ()).key_node_dependency == pytest.approx(np.mean([pair.value for pair in found]))


def test_attribute_match_by_hand() -> None:
    real = [node_record("a b", "x", "north", 2), node_record("a b", "x", "south", 2)]
    made = [node_record("a b c d", "x", "north", 5), node_record("a b", "x", "north", 6)]
    found = attributes(NODES, made, real, compare_fields(NODES, made, real))
    by_name = {each.name: each for each in found}
    assert by_name["side"].value == by_name["side"].normalised == 0.5
    assert by_name["stars"].value == pytest.approx(math.sqrt((3**2 + 4**2) / 2))
    assert by_name["stars"].normalised == pytest.approx(by_name["stars"].value / 10)
    assert by_name["words of title"].value == pytest.approx(math.sqrt(2))  # 2, 2 against 2, 4
    assert by_name["words of title"].normalised == pytest.approx(math.sqrt(2) / 4)
    assert by_name["words of review"].value == 0
    assert summed((), found).attribute_match == pytest.approx(np.mean([each.normalised for each in found]))


def test_without_text_the_choices_are_the_key_nodes() -> None:
    nodes = Nodes(FIELDS, [], Compass())
    assert [(a.name, b.name) for a, b in nodes.pairs] == [("colour", "level")]


# -- text ------------------------------------------------------------------------------------------------------------


def test_words_are_counted_in_every_script() -> None:
    assert words("Sharp  pain, 3/10; NÄCHTLICH") == ["sharp", "pain", "3", "10", "nächtlich"]
    assert words("胸が痛い") == ["胸", "が", "痛", "い"]
    assert words("…!") == []


def test_text_lengths_and_vocabulary_by_hand() -> None:
    real: list[Record] = [{"review": "good good bottle"}, {"review": "bad"}, {"review": None}]
    made: list[Record] = [{"review": "good cap"}, {"review": "Good lid"}]
    found = compare_texts(NODES, made, real)["review"]
    assert (found.words.real.mean, found.words.synthetic.mean) == (2, 2)
    assert found.words.wasserstein == 1
    assert (found.words.edges, found.words.real_shares) == ((1, 2, 3, 4), (0.5, 0, 0.5))
    vocabulary = found.vocabulary
    assert (vocabulary.real, vocabulary.synthetic, vocabulary.shared) == (3, 3, 1)
    assert vocabulary.jaccard == pytest.approx(1 / 5)
    assert vocabulary.coverage == pytest.approx(2 / 4)  # 'good' stands twice among four real words
    assert vocabulary.novelty == pytest.approx(2 / 4)  # 'cap' and 'lid' among four synthetic words


# -- neighbourhoods --------------------------------------------------------------------------------------------------


def line(*points: float) -> NDArray[np.float64]:
    return np.array([[point, 0.0] for point in points])


def test_precision_and_recall_by_hand() -> None:
    # with k = 1 every real ball has radius 1: 0.5 lies in one, 7 in none
    found = precision_and_recall(line(0.5, 7.0), line(0, 1, 2), k=1)
    assert found.precision == 0.5
    # two of three real records may span the manifold; both synthetic balls have radius 6.5 and cover them all
    assert found.recall == 1.0


def test_recall_misses_a_mode_that_the_table_lacks_and_precision_does_not() -> None:
    found = precision_and_recall(line(0, 0.1, 0.2, 0.3, 0.05, 0.15), line(0, 0.1, 0.2, 10, 10.1, 10.2), k=1)
    assert found.precision == 1.0
    assert found.recall == 0.5


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=20), st.data())
def test_precision_and_recall_change_places_with_the_tables(
    left: list[tuple[float, float]], data: st.DataObject
) -> None:
    right = data.draw(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=len(left), max_size=len(left)))
    a, b = np.array(left), np.array(right)
    one, other = precision_and_recall(a, b), precision_and_recall(b, a)
    assert (one.precision, one.recall) == (other.recall, other.precision)
    itself = precision_and_recall(a, a)
    assert (itself.precision, itself.recall) == (1, 1)


def test_the_map_keeps_distances_of_a_plane() -> None:
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))
    flat = np.random.default_rng(1).normal(size=(20, 2)) @ turn[:2]
    found = draw_map(flat[:8], flat[8:], ["a"] * 8, ["b"] * 12)
    assert (len(found.synthetic), len(found.real), found.synthetic_labels) == (8, 12, ("a",) * 8)
    assert sum(found.explained) == pytest.approx(1)
    points = np.array(found.synthetic)
    assert np.linalg.norm(points[0] - points[5]) == pytest.approx(np.linalg.norm(flat[0] - flat[5]), abs=1e-3)


# -- diversity -------------------------------------------------------------------------------------------------------


def test_distinct_runs_of_words_by_hand() -> None:
    records = [node_record("a b a b", "x", "north")]
    found = measure_diversity(NODES, records, np.eye(1, 2))
    # runs of the title: a b a b; ab ba ab; aba bab. The review adds one word and no longer run.
    assert found.distinct_1 == pytest.approx(3 / 5)
    assert found.distinct_2 == pytest.approx(2 / 3)
    assert found.distinct_3 == 1.0


def test_duplicates_by_hand() -> None:
    records = [
        node_record("a b c d e f", "x", "north"),
        node_record("A b c d  e f", "X", "north"),  # the same but for case and spaces
        node_record("a b c d e g", "x", "north"),  # 8 of 10 words and values in common with the first
        node_record("h i j k l m", "y", "south", 7),
    ]
    found = measure_diversity(NODES, records, np.eye(4))
    assert (found.records, found.distinct_records, found.exact_duplicates) == (4, 3, 0.25)
    assert found.near_duplicates == 0.75
    assert found.repeated_texts == 0.25


@pytest.mark.parametrize(
    ("second", "repeated"),
    [
        (("a b c d e f", "other", "south"), True),  # six words, everything else differs
        (("A, b c; d e F!", "other", "south"), True),  # case and punctuation are no difference
        (("a b c d e", "other", "south"), False),
        (("g", "a b c d e f", "south"), False),  # the same words in another field
        (("g", "x", "north"), False),  # a short text may coincide
    ],
)
def test_a_long_text_that_comes_again_is_a_repetition_whatever_stands_beside_it(
    second: tuple[str, str, str], repeated: bool
) -> None:
    records = [node_record("a b c d e f", "x", "north"), node_record(*second, 7)]
    found = measure_diversity(NODES, records, np.eye(2))
    assert (found.exact_duplicates, found.repeated_texts) == (0.0, 0.5 if repeated else 0.0)


def test_one_note_under_forty_names_is_an_alarm() -> None:
    same = [node_record("one note for all of them", "x", "north", number) for number in range(40)]
    other = [node_record(f"note {number} of a patient on its own", "x", "north", number) for number in range(40)]
    ours, real = (measure_diversity(NODES, records, np.eye(40)) for records in (same, other))
    assert ours.exact_duplicates == 0.0
    (alarm, *_) = alarms(ours, real)
    assert alarm == (
        "The table repeats itself: 97.5 % of its records have a text of another one, word for word, or equal it; among "
        "as many real records it is 0.0 %."
    )
    assert not [one for one in alarms(real, real) if "word for word" in one]


def test_similarity_and_effective_records_by_hand() -> None:
    records = [node_record("a", "x", "north")] * 4
    apart = measure_diversity(NODES, records, np.eye(4))
    assert (apart.self_similarity, apart.nearest_similarity) == (0, 0)
    assert apart.effective_records == pytest.approx(4)
    alike = measure_diversity(NODES, records, np.eye(4)[[0, 0, 0, 0]])
    assert (alike.self_similarity, alike.nearest_similarity) == (1, 1)
    assert alike.effective_records == pytest.approx(1)
    halves = measure_diversity(NODES, records, np.eye(4)[[0, 0, 1, 1]])
    assert halves.self_similarity == pytest.approx(2 / 6)  # two of six pairs
    assert halves.effective_records == pytest.approx(2)
    wide = measure_diversity(NODES, records, np.eye(4, 40))
    assert wide.effective_records == pytest.approx(4)
