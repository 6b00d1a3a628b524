"""Estimates: from earlier runs where there are any, from the prompts and typical speeds where there are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selpe.config import RunConfig, check_config
from selpe.events import Event, Started
from selpe.intake import write_table
from selpe.method.from_settings import guides_of
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.models.machine import this_machine
from selpe.models.speed import Pace
from selpe.privacy.measure_plan import Measurable, MeasurePlan, plan_measurement
from selpe.run.estimate import (
    ENDING,
    candidates_of,
    estimate,
    is_measurable,
    likely_of,
    likely_phrases,
    phrases_of,
    shared_share,
    stand_in_guides,
)
from selpe.run.lifecycle import Run
from selpe.run.methods import recipe_of
from small_world import SCHEMA, UNLABELLED, drawn


def config(**settings: Any) -> RunConfig:
    return check_config({"dataset": "desk", "data": "x.csv", "llm": "smollm2", **settings}, where="test")


def manifest(**changes: Any) -> dict[str, Any]:
    counts = {"answers": 200, "replayed": 0, "candidates": 100, "prompt_tokens": 50_000, "completion_tokens": 10_000}
    return {
        "state": "done", "seconds": 50.0, "counts": counts, "schema": SCHEMA.fingerprint(),
        "settings": {"llm": "smollm2"}, **changes,
    }  # fmt: skip


def test_an_earlier_run_of_schema_and_model_is_scaled() -> None:
    found = estimate(config(), SCHEMA, candidates=300, runs=[manifest()])
    assert (found.prompt_tokens, found.completion_tokens) == (150_000, 30_000)
    assert found.seconds == pytest.approx(150.0)
    assert found.basis == "1 earlier run with this model"


def test_another_schema_lends_its_speed_but_not_its_tokens() -> None:
    found = estimate(config(), SCHEMA, candidates=300, runs=[manifest(schema="other")])
    assert found.completion_tokens != 30_000
    assert found.seconds == pytest.approx(found.completion_tokens / 200)


@pytest.mark.parametrize(
    "useless",
    [
        manifest(settings={"llm": "another"}),
        manifest(state="interrupted"),
        manifest(seconds=0),
        manifest(counts={**manifest()["counts"], "replayed": 150}),
        {"state": "done", "settings": {"llm": "smollm2"}},
    ],
)
def test_runs_that_say_nothing_about_speed_are_passed_over(useless: dict[str, Any]) -> None:
    assert estimate(config(), SCHEMA, candidates=9, runs=[useless]).basis.startswith("typical speed")


def test_without_earlier_runs_tokens_come_from_the_real_prompts() -> None:
    two = estimate(config(), SCHEMA, candidates=100)
    one = estimate(config(stages=1), SCHEMA, candidates=100)
    assert two.prompt_tokens > one.prompt_tokens > 100 * 50
    assert two.completion_tokens > one.completion_tokens > 100 * 20
    assert estimate(config(), SCHEMA, candidates=200).prompt_tokens == pytest.approx(2 * two.prompt_tokens, abs=1)


def test_larger_weights_are_slower() -> None:
    small = estimate(config(llm="smollm2"), SCHEMA, candidates=100)
    large = estimate(config(llm="qwen2.5-coder-1.5b"), SCHEMA, candidates=100)
    other = estimate(config(llm="llamacpp:smollm2"), SCHEMA, candidates=100)
    # It is asked for whole JSON objects, and writes more for a candidate.
    each = large.seconds / large.completion_tokens, small.seconds / small.completion_tokens
    assert each[0] == pytest.approx(each[1] * 1_117_320_768 / 98_362_432, rel=0.1)
    assert large.completion_tokens > small.completion_tokens
    assert other.seconds > 3 * small.seconds


def test_a_processor_without_wide_vectors_is_slower_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for sets in (("avx512f", "avx2"), ("avx2",)):
        machine = replace(this_machine(), instruction_sets=sets, usable_cores=2.0)
        monkeypatch.setattr("selpe.models.machine.this_machine", lambda machine=machine: machine)
        found[sets[0]] = estimate(config(), SCHEMA, candidates=100)
    assert found["avx2"].seconds > 3 * found["avx512f"].seconds
    assert found["avx512f"].basis == "typical speed of the embedded engine on 2 cores"
    assert found["avx2"].basis == "typical speed of the embedded engine on 2 cores without AVX-512"


@pytest.mark.parametrize(
    ("llm", "binds"), [("smollm2", True), ("http://127.0.0.1:1/v1#any", False), ("llamacpp:smollm2", False)]
)
def test_rules_cost_further_tries_where_they_do_not_bind(llm: str, binds: bool) -> None:
    assert SCHEMA.rules
    free = estimate(config(llm=llm), replace(SCHEMA, rules=()), candidates=100).completion_tokens
    assert (estimate(config(llm=llm), SCHEMA, candidates=100).completion_tokens > 1.1 * free) != binds


def test_prices_give_a_cost_and_no_prices_give_none() -> None:
    runs = [manifest(settings={"llm": "http://h/v1"})]
    priced = estimate(config(llm="http://h/v1", price_in=2.0, price_out=10.0), SCHEMA, candidates=100, runs=runs)
    assert priced.cost == pytest.approx(0.05 * 2.0 + 0.01 * 10.0)
    assert estimate(config(llm="http://h/v1", price_out=10.0), SCHEMA, candidates=100, runs=runs).cost == 0.1
    assert estimate(config(), SCHEMA, candidates=100).cost is None


def test_cached_tokens_cost_what_the_server_asks_for_them() -> None:
    counts = {**manifest()["counts"], "cached_tokens": 40_000}
    runs = [manifest(settings={"llm": "http://h/v1"}, counts=counts)]
    prices = {"llm": "http://h/v1", "price_in": 2.0, "price_out": 10.0}
    full = estimate(config(**prices), SCHEMA, candidates=100, runs=runs)
    less = estimate(config(**prices, price_cached=0.5), SCHEMA, candidates=100, runs=runs)
    assert (full.cached_tokens, full.cold_tokens) == (40_000, 10_000)
    assert full.cost == pytest.approx(0.05 * 2.0 + 0.01 * 10.0)
    assert less.cost == pytest.approx(0.01 * 2.0 + 0.04 * 0.5 + 0.01 * 10.0)


def test_what_prompts_have_in_common_is_found_in_the_real_ones() -> None:
    found = estimate(config(), SCHEMA, candidates=200)
    assert 0.3 * found.prompt_tokens < found.cached_tokens < found.prompt_tokens
    few = estimate(config(), SCHEMA, candidates=12)
    assert few.cached_tokens / few.prompt_tokens < found.cached_tokens / found.prompt_tokens


def test_a_beginning_counts_as_shared_from_the_second_time_on() -> None:
    assert shared_share(["same and one", "same and two", "other"], 3) == pytest.approx(9 / 29)
    assert shared_share(["aaaa", "bbbb"], 2) == 0.0
    # twice as many, of which each further one shares as much as the second half does
    assert shared_share(["abcd", "abcd", "abce", "abcf"], 8) == pytest.approx(1 - (4 + 0 + 1 + 1 + 4 * 1) / 32)
    assert shared_share([], 0) == 0.0
    # what was written is remembered, too
    assert shared_share(["ab", "ab cd ef"], 2, ["ab cd", "ab cd ef gh"]) == pytest.approx(5 / 10)


def test_a_measured_pace_takes_the_place_of_the_table() -> None:
    guessed = estimate(config(), SCHEMA, candidates=100)
    assert is_measurable(config(), guessed)
    found = guessed.at(Pace(1000.0, 100.0))
    written = found.completion_tokens * (1 + ENDING / 100)  # one pool, which ends slowly
    assert found.seconds == pytest.approx(1.1 * (found.cold_tokens / 1000 + written / 100))
    assert (found.basis, found.completion_tokens) == ("measured on this machine just now", guessed.completion_tokens)


@pytest.mark.parametrize("settings", [{"llm": "fake"}, {"llm": "http://h/v1"}, {"execute": "ray"}])
def test_what_does_not_run_in_this_process_is_not_measured(settings: dict[str, Any]) -> None:
    assert not is_measurable(config(**settings), estimate(config(**settings), SCHEMA, candidates=10))


def test_what_earlier_runs_tell_is_not_measured_again() -> None:
    assert not is_measurable(config(), estimate(config(), SCHEMA, candidates=10, runs=[manifest()]))


def test_of_records_that_may_be_written_anew_some_are_expected() -> None:
    settings = config(records=100)
    assert likely_of(settings, 200, None) == 200
    assert likely_of(settings, 200, measured()) == 125  # one field is voted for
    assert likely_of(settings, 200, replace(measured(), choices=(0.1, 0.1))) == 144
    assert likely_phrases(SCHEMA, measured())["topic"] == round(phrases_of(SCHEMA, measured())["topic"] / 3)


def test_candidates_are_k_per_record_and_a_sample_per_guide() -> None:
    assert candidates_of(config(records=50, guide_sample=4), SCHEMA, guides=6, voted=True) == 150 + 6 * 2 * 4
    assert candidates_of(config(records=50), SCHEMA, guides=6, voted=False) == 150
    assert candidates_of(config(records=50, multiplicity=5, guide_sample=6), UNLABELLED, guides=2, voted=True) == 262


@pytest.mark.parametrize("guides", ["auto", "mixed", "off", ["write tersely", "write at length"]])
def test_guides_are_counted_as_a_run_counts_them(guides: Any) -> None:
    settings = config(guides=guides, llm="fake")
    assert len(stand_in_guides(settings, SCHEMA)) == len(guides_of(settings, SCHEMA, FakeModel()))


# -- measured tables --------------------------------------------------------------------------------------------------


def measured(**given: Any) -> MeasurePlan:
    offered = Measurable(("topic", "channel", "minutes"), **given)
    found = plan_measurement(offered, units=200, classes=2, epsilon=2.0, adjacency="replace-one")
    assert found is not None
    return found


def test_records_that_may_be_written_anew_are_counted() -> None:
    settings = config(records=100, multiplicity=3)
    counted = {
        (measured, steered): candidates_of(settings, SCHEMA, guides=6, voted=False, measured=measured, steered=steered)
        for measured in (False, True)
        for steered in (False, True)
    }
    assert counted == {(False, False): 300, (False, True): 300, (True, True): 400, (True, False): 200}
    large = config(records=1000, core=100, multiplicity=3)
    assert candidates_of(large, SCHEMA, guides=6, voted=False, measured=True, steered=False) == 2 * 100 + 900


def test_the_estimate_is_what_a_run_announces_at_most(tmp_path: Path) -> None:
    write_table(drawn(40, offset=9000), SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")
    place = {"data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"), "out": str(tmp_path / "o")}
    settings = config(**place, epsilon=4.0, records=12, llm="fake", encoder="hash")
    recipe = recipe_of("selpe")
    plan = recipe.plan(settings, SCHEMA, 40)
    expected = recipe.estimate(settings, SCHEMA, plan, [])
    heard: list[Event] = []
    run = Run.create(settings, ledger=tmp_path / "ledger")
    run.execute(model=FakeModel(), encoder=HashingEncoder(64), emit=heard.append)
    assert expected.candidates == next(event.candidates for event in heard if isinstance(event, Started))


def test_phrases_are_for_short_texts_and_no_more_than_rows_can_vote_for() -> None:
    assert phrases_of(SCHEMA, measured(named=True)) == {"topic": measured().phrases}
    voted = measured()
    assert voted.votes == 1
    assert phrases_of(SCHEMA, voted) == {"topic": voted.phrases}
    twice = replace(voted, looks=(0.5, 0.5))
    assert phrases_of(SCHEMA, twice)["topic"] > voted.phrases
    structured = plan_measurement(
        Measurable(("channel",), named=True), units=200, classes=2, epsilon=2.0, adjacency="replace-one"
    )
    assert structured is not None
    assert phrases_of(SCHEMA, structured) == {}


def test_a_phrase_is_eight_tokens_and_its_prompt() -> None:
    plain = estimate(config(), SCHEMA, candidates=100)
    more = estimate(config(), SCHEMA, candidates=100, phrases={"topic": 500})
    assert more.completion_tokens == plain.completion_tokens + 8 * 500
    assert more.prompt_tokens > plain.prompt_tokens + 10 * 500
    assert more.seconds > plain.seconds


def test_tokens_of_earlier_runs_have_phrases_in_already() -> None:
    assert estimate(config(), SCHEMA, candidates=300, runs=[manifest()], phrases={"topic": 500}) == estimate(
        config(), SCHEMA, candidates=300, runs=[manifest()]
    )
