"""Estimates: from earlier runs where there are any, from the prompts and typical speeds where there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from selpe.config import RunConfig, check_config
from selpe.method.from_settings import guides_of
from selpe.models.fake import FakeModel
from selpe.models.machine import this_machine
from selpe.run.estimate import candidates_of, estimate, stand_in_guides
from small_world import SCHEMA, UNLABELLED


def config(**settings: Any) -> RunConfig:
    return check_config({"dataset": "desk", "data": "x.csv", **settings}, where="test")


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
    small = estimate(config(llm="smollm2"), SCHEMA, candidates=100).seconds
    large = estimate(config(llm="qwen2.5-coder-1.5b"), SCHEMA, candidates=100).seconds
    other = estimate(config(llm="llamacpp:smollm2"), SCHEMA, candidates=100).seconds
    assert large == pytest.approx(small * 1_117_320_768 / 98_362_432, rel=0.1)
    assert other > 3 * small


def test_a_processor_without_wide_vectors_is_slower_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for sets in (("avx512f", "avx2"), ("avx2",)):
        machine = replace(this_machine(), instruction_sets=sets, usable_cores=2.0)
        monkeypatch.setattr("selpe.models.machine.this_machine", lambda machine=machine: machine)
        found[sets[0]] = estimate(config(), SCHEMA, candidates=100)
    assert found["avx2"].seconds > 3 * found["avx512f"].seconds
    assert found["avx512f"].basis == "typical speed of the embedded engine on 2 cores"
    assert found["avx2"].basis == "typical speed of the embedded engine on 2 cores without AVX-512"


def test_rules_cost_further_tries() -> None:
    assert SCHEMA.rules
    free = estimate(config(), replace(SCHEMA, rules=()), candidates=100).completion_tokens
    assert estimate(config(), SCHEMA, candidates=100).completion_tokens > 1.1 * free


def test_prices_give_a_cost_and_no_prices_give_none() -> None:
    runs = [manifest(settings={"llm": "http://h/v1"})]
    priced = estimate(config(llm="http://h/v1", price_in=2.0, price_out=10.0), SCHEMA, candidates=100, runs=runs)
    assert priced.cost == pytest.approx(0.05 * 2.0 + 0.01 * 10.0)
    assert estimate(config(llm="http://h/v1", price_out=10.0), SCHEMA, candidates=100, runs=runs).cost == 0.1
    assert estimate(config(), SCHEMA, candidates=100).cost is None


def test_candidates_are_k_per_record_and_a_sample_per_guide() -> None:
    assert candidates_of(config(records=50, guide_sample=4), SCHEMA, guides=6, voted=True) == 150 + 6 * 2 * 4
    assert candidates_of(config(records=50), SCHEMA, guides=6, voted=False) == 150
    assert candidates_of(config(records=50, multiplicity=5, guide_sample=6), UNLABELLED, guides=2, voted=True) == 262


@pytest.mark.parametrize("guides", ["auto", "mixed", "off", ["write tersely", "write at length"]])
def test_guides_are_counted_as_a_run_counts_them(guides: Any) -> None:
    settings = config(guides=guides, llm="fake")
    assert len(stand_in_guides(settings, SCHEMA)) == len(guides_of(settings, SCHEMA, FakeModel()))
