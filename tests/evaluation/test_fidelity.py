"""Fidelity as a whole: what is the same scores as the same, what is broken is seen, and nothing breaks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from private_world import MARKER
from selpe.errors import PrivacyError
from selpe.evaluation import fidelity as package
from selpe.evaluation.embedding import Remembering, embed
from selpe.evaluation.fidelity import fidelity, synthetic_only
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record, Schema
from small_world import SCHEMA, UNLABELLED, drawn
from strategies import loose_records, schemas
from written_world import NOTES, written

ENCODER = HashingEncoder(64)


def compared(schema: Schema, synthetic: Sequence[Record], real: Sequence[Record], **more: Any) -> dict[str, Any]:
    """The comparison as it is written to a file."""
    found = fidelity(schema, synthetic, real, encoder=ENCODER, **more).as_dict()
    content: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return content


# -- what it says ----------------------------------------------------------------------------------------------------


def test_a_table_is_faithful_to_itself() -> None:
    rows = written(60, 1)
    found = compared(NOTES, rows, rows)
    assert found["summary"] == {
        "marginals": 0, "associations": 0, "key_node_dependency": 0, "attribute_match": 0, "precision": 1, "recall": 1,
    }  # fmt: skip
    assert found["diversity"]["synthetic"] == found["diversity"]["real"]
    assert found["text"]["note"]["vocabulary"]["coverage"] == 1
    assert found["text"]["note"]["vocabulary"]["novelty"] == 0
    assert found["map"]["synthetic"] == found["map"]["real"]
    assert found["alarms"] == []


def test_a_fresh_sample_is_as_near_as_two_halves_of_real_rows_and_raises_no_alarm() -> None:
    found = compared(NOTES, written(400, 1), written(200, 2))
    for name in ("marginals", "associations", "key_node_dependency", "attribute_match"):
        assert found["summary"][name] < 2 * found["reference"][name]
    for name in ("precision", "recall"):
        assert found["summary"][name] > found["reference"][name] - 0.15
    assert found["alarms"] == []


def test_shuffled_columns_keep_their_marginals_and_lose_their_associations() -> None:
    real = written(300, 2)
    order = np.random.default_rng(0).permutation(len(real))
    shuffled: list[Record] = [
        record | {"level": real[other]["level"]} for record, other in zip(real, order, strict=True)
    ]
    found = compared(NOTES, shuffled, real)
    assert found["summary"]["marginals"] == 0
    assert found["summary"]["associations"] > 3 * compared(NOTES, written(300, 3), real)["summary"]["associations"]


def test_a_constant_table_is_caught_by_diversity() -> None:
    constant = written(1, 1) * 200
    found = compared(NOTES, constant, written(100, 2))
    assert any("repeats itself" in alarm for alarm in found["alarms"])
    assert any("narrow" in alarm for alarm in found["alarms"])
    assert found["diversity"]["synthetic"]["effective_records"] == pytest.approx(1)
    assert found["summary"]["recall"] < 0.1
    alone = synthetic_only(NOTES, constant, encoder=ENCODER)
    assert any("repeats itself" in alarm for alarm in alone["alarms"])


def test_a_table_of_small_variations_is_caught_by_diversity() -> None:
    first = written(1, 1)[0]
    varied: list[Record] = [
        first | {"age": 20 + number % 60, "note": f"{first['note']} x{number}"} for number in range(100)
    ]
    found = compared(NOTES, varied, written(100, 2))
    assert found["diversity"]["synthetic"]["exact_duplicates"] == 0
    assert any("few words changed" in alarm for alarm in found["alarms"])


def test_natural_repetition_of_real_rows_is_no_alarm() -> None:
    real: list[Record] = [{"side": "left"}, {"side": "right"}] * 30
    schema = Schema.from_yaml("name: coins\nfields:\n  side: {kind: category, values: [left, right]}\n")
    assert compared(schema, real, real)["alarms"] == []


def test_other_class_shares_are_said() -> None:
    real = written(100, 1)
    high = [record for record in written(100, 2) if record["level"] == "high"]
    assert any("Classes have other shares" in note for note in compared(NOTES, high, real)["notes"])
    assert compared(NOTES, written(100, 3), real)["notes"] == []


def test_missing_numbers_are_a_difference() -> None:
    real = written(50, 1)
    without: list[Record] = [record | {"fever": None} for record in real]
    found = compared(NOTES, without, real)["marginals"]["fever"]
    assert found["value"] is None
    assert found["normalised"] == pytest.approx(1 - found["missing_real"])


# -- validity --------------------------------------------------------------------------------------------------------


def test_validity_is_of_raw_outputs_where_they_are_kept_and_in_percent() -> None:
    records = drawn(4)
    raws = [
        SCHEMA.dumps(records[0]),
        SCHEMA.dumps(records[1] | {"minutes": 900}),
        "Sorry, no.",
        f"Sure: {SCHEMA.dumps(records[2])}",
    ]
    found = compared(SCHEMA, records, drawn(4, offset=50), raw_outputs=raws)["validity"]
    assert (found["source"], found["total"]) == ("raw outputs", 4)
    assert (found["r_cfg"], found["s_cfg"]) == (75, 25)
    assert (found["rough"], found["syntax"], found["domain"], found["rules"]) == (75, 50, 25, 25)
    assert found["violations"]["domain"] == {"minutes": 1}
    kept = compared(SCHEMA, records, drawn(4, offset=50))["validity"]
    assert (kept["source"], kept["r_cfg"], kept["s_cfg"]) == ("records", 100, 100)


# -- what may be published -------------------------------------------------------------------------------------------


def test_what_is_published_has_no_part_that_needs_real_rows() -> None:
    alone = synthetic_only(SCHEMA, drawn(20), encoder=ENCODER)
    assert set(alone) == {"counts", "validity", "marginals", "text", "diversity", "echoes", "alarms"}
    assert set(alone["diversity"]) == {"synthetic"}
    for marginal in alone["marginals"].values():
        assert set(marginal) == {"kind", "unit", "values", "edges", "synthetic", "missing_synthetic"}
    json.dumps(alone, allow_nan=False)


def test_no_cell_of_a_real_row_stands_in_the_comparison() -> None:
    real: list[Record] = [record | {"note": f"{MARKER} {record['note']}", "ward": MARKER} for record in written(30, 1)]
    assert MARKER not in json.dumps(compared(NOTES, written(30, 2), real))


# -- what it bears ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [SCHEMA, UNLABELLED], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize(
    "make",
    [
        lambda rows: ([], []),
        lambda rows: (rows, []),
        lambda rows: ([], rows),
        lambda rows: (rows[:1], rows[1:2]),
        lambda rows: ([{}], rows),
        lambda rows: (rows, [dict.fromkeys(rows[0])] * 4),
        lambda rows: (rows[:1] * 5, rows[1:2] * 5),
    ],
    ids=["both empty", "no real row", "no synthetic record", "one row", "no value", "all missing", "constant"],
)
def test_poor_tables_do_not_break_it(
    schema: Schema, make: Callable[[list[Record]], tuple[list[Record], list[Record]]]
) -> None:
    synthetic, real = make(drawn(6))
    compared(schema, synthetic, real)
    json.dumps(synthetic_only(schema, synthetic, encoder=ENCODER), allow_nan=False)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_any_schema_and_any_records_give_plain_figures_within_bounds(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    synthetic, real = (data.draw(st.lists(loose_records(schema), max_size=6)) for _ in range(2))
    found = compared(schema, synthetic, real)
    for figures in (found["summary"], found["reference"]):
        for name, value in figures.items():
            # associations differ by at most 2, cosines too; everything else is a share
            assert value is None or 0 <= value <= (2 if name in ("associations", "key_node_dependency") else 1 + 1e-9)
    for marginal in found["marginals"].values():
        bars = len(marginal["values"]) if marginal["values"] is not None else max(0, len(marginal["edges"]) - 1)
        assert len(marginal["real"]) == len(marginal["synthetic"]) == bars


def test_a_large_table_is_represented_by_a_draw_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MOST", 30)
    found = compared(NOTES, written(80, 1), written(40, 2))
    assert found["diversity"]["synthetic"]["records"] == 30
    assert len(found["map"]["synthetic"]) == 30
    assert found["counts"] == {"synthetic": 80, "real": 40}
    assert any("drawn at random" in note for note in found["notes"])


def test_progress_goes_from_nothing_to_all() -> None:
    heard: list[tuple[str, float]] = []
    fidelity(
        SCHEMA, drawn(5), drawn(5, offset=9), encoder=ENCODER, progress=lambda what, share: heard.append((what, share))
    )
    told = [share for _, share in heard]
    assert (told[0], told[-1]) == (0, 1)
    assert told == sorted(told)
    assert all(what for what, _ in heard)


# -- encoders --------------------------------------------------------------------------------------------------------


class Counting(HashingEncoder):
    """Counts the texts that it is given; can stand behind a host."""

    def __init__(self, host: str | None = None) -> None:
        super().__init__(32)
        self.seen: list[str] = []
        self.host = host

    @property
    def remote(self) -> str | None:
        return self.host

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen += texts
        return super().encode(texts)


def test_real_rows_are_not_sent_to_a_host_that_is_not_allowed() -> None:
    away = Counting("embed.example:8000")
    with pytest.raises(PrivacyError, match=r"embed\.example:8000"):
        fidelity(SCHEMA, drawn(3), drawn(3, offset=9), encoder=away)
    assert away.seen == []
    fidelity(SCHEMA, drawn(3), drawn(3, offset=9), encoder=away, allow_private_text_to="http://embed.example:8000/v1")
    assert away.seen


def test_a_remembering_encoder_encodes_no_text_twice() -> None:
    behind = Counting()
    encoder = Remembering(behind)
    for _ in range(2):
        fidelity(SCHEMA, drawn(5), drawn(5, offset=9), encoder=encoder)
    assert len(behind.seen) == len(set(behind.seen))
    texts = ["b", "a", "b"]
    assert np.array_equal(encoder.encode(texts), HashingEncoder(32).encode(texts))
    assert (encoder.name, encoder.dimension, encoder.remote, encoder.rowwise) == ("hash-32", 32, None, True)


def test_embedding_keeps_the_order_of_the_texts() -> None:
    texts = ["a long text about nothing", "b", "a long text about nothing", "c d"]
    assert np.array_equal(embed(ENCODER, texts), ENCODER.encode(texts))
    assert embed(ENCODER, []).shape == (0, 64)
