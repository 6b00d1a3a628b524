"""The trained baselines as far as they go without torch: noise, outlook, topics, and what a missing extra says."""

from __future__ import annotations

import builtins
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.baselines.embedding import TextKernel
from selpe.baselines.topics import TopicModel, TopicOf, find_topics, shares_of, telling_words, words_of
from selpe.baselines.train.practice import practise
from selpe.baselines.train.texts import condition, example
from selpe.config import RunConfig
from selpe.errors import ConfigError, ModelError, StoppedError
from selpe.evaluation.validity import extract, rough
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.run.methods import Parts, recipe_of
from selpe.run.workspace import WorkFolder
from selpe.schema import Record
from small_world import SCHEMA, UNLABELLED, drawn

TRAINED = ("dpgen", "ctcl", "dpds")


def plan(config: RunConfig) -> GaussianPlan:
    made = recipe_of(config.method).plan(config, SCHEMA, 100)
    assert isinstance(made, GaussianPlan)
    return made


def test_a_stop_at_public_steps_claims_nothing_about_what_earlier_stretches_have_cost() -> None:
    learner, cancel = MagicMock(), threading.Event()
    cancel.set()
    with pytest.raises(StoppedError) as stopped:
        practise(learner, drawn(4), steps=3, rate=0.1, seed=0, cancel=cancel)
    assert learner.practise.call_count == 1
    assert stopped.value.message == "stopped as asked; these steps were public, and cost nothing"


# -- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dpgen", "dpds"])
@pytest.mark.parametrize(
    ("steps", "epsilon", "sigma"),
    [(5, 1, 8.342), (5, 2, 4.458), (5, 4, 2.418), (10, 1, 11.797), (10, 2, 6.305), (10, 4, 3.419)],
)
def test_every_step_has_the_noise_of_the_figures_in_clipping_norms(
    settings: Callable[..., RunConfig], method: str, steps: int, epsilon: float, sigma: float
) -> None:
    for clip in (1.0, 10.0):
        own = {"steps": steps, "stretches": 3, "clip": clip}
        made = plan(settings(method, epsilon=epsilon, adjacency="add-remove", **{method: own}))
        assert sum(look.count for look in made.looks) == steps
        for look in made.looks:
            assert made.noise(look.name).sigma / clip == pytest.approx(sigma, abs=6e-4)


@pytest.mark.parametrize("method", TRAINED)
def test_a_replaced_record_takes_twice_the_noise_of_a_removed_one(
    settings: Callable[..., RunConfig], method: str
) -> None:
    one, two = (
        plan(settings(method, adjacency=relation)).noise("training-1").sigma
        for relation in ("add-remove", "replace-one")
    )
    assert two == pytest.approx(2 * one)


def test_histogram_and_training_of_ctcl_are_one_mechanism(settings: Callable[..., RunConfig]) -> None:
    made = plan(settings("ctcl", ctcl={"histogram_share": 0.25, "steps": 20, "stretches": 4}))
    assert [look.name for look in made.looks] == ["topics", *(f"training-{k}" for k in range(1, 5))]
    prices = made.prices()
    assert prices["topics"] / math.fsum(prices.values()) == pytest.approx(0.25)
    assert made.guarantee.replace_one == pytest.approx(2.0, abs=1e-6)
    assert made.guarantee.replace_one <= 2.0
    # Topics move by √2 where a record is replaced, gradients by 2: the two relations do not differ by one factor.
    assert made.look("topics").sensitivity.replace_one == pytest.approx(math.sqrt(2))
    assert made.look("training-1").sensitivity.replace_one == 2.0


def test_stretches_are_as_long_as_one_another_and_never_empty(settings: Callable[..., RunConfig]) -> None:
    counts = [look.count for look in plan(settings("dpgen", dpgen={"steps": 11, "stretches": 4})).looks]
    assert counts == [3, 3, 3, 2]
    assert len(plan(settings("dpgen", dpgen={"steps": 2, "stretches": 10})).looks) == 2


@pytest.mark.parametrize("method", TRAINED)
def test_the_estimate_grows_with_the_training(settings: Callable[..., RunConfig], method: str) -> None:
    def seconds(steps: int) -> float:
        config = settings(method, **{method: {"steps": steps}})
        return recipe_of(method).estimate(config, SCHEMA, plan(config), ()).seconds

    assert 0 < seconds(5) < seconds(50)


def test_a_classifier_needs_classes(settings: Callable[..., RunConfig]) -> None:
    with pytest.raises(ConfigError, match="label"):
        recipe_of("dpds").plan(settings("dpds"), UNLABELLED, 100)


# -- without the extra -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", TRAINED)
@pytest.mark.parametrize("missing", ["torch", "peft"])
def test_a_missing_extra_is_named_before_anything_is_read(
    settings: Callable[..., RunConfig], method: str, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == missing:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    config = settings(method)
    parts = Parts(config, SCHEMA, plan(config), (FakeModel(),), HashingEncoder(16), WorkFolder(tmp_path))
    with pytest.raises(ModelError) as caught:
        recipe_of(method).build(parts)
    assert 'pip install "selpe[train]"' in caught.value.hint


# -- texts -----------------------------------------------------------------------------------------------------------


def test_records_survive_the_way_through_text() -> None:
    for record in drawn(40):
        text = example(SCHEMA, record)
        assert rough(text.prefix + text.body, SCHEMA).ok
        assert extract(text.prefix + text.body, SCHEMA) == {name: record.get(name) for name in SCHEMA.names}


def test_a_line_break_in_a_value_does_not_end_it() -> None:
    record: Record = {**drawn(1)[0], "topic": "first\nminutes: 3\n\nlast"}
    text = example(SCHEMA, record)
    assert "topic: first minutes: 3 last\n" in text.body
    assert text.prefix.count("\n") == 2


def test_conditions_name_the_class_and_the_words_or_else_the_table() -> None:
    assert condition(SCHEMA, "low") == "urgency: low\n\n"
    assert condition(SCHEMA, "high", ("fire", "smoke")) == "urgency: high\nkeywords: fire, smoke\n\n"
    assert condition(UNLABELLED, "") == "desk\n\n"


# -- topics ----------------------------------------------------------------------------------------------------------

FIRE = ["smoke and fire in the hall", "fire alarm and smoke", "smoke near the fire door"]
BILL = ["the invoice is wrong", "second invoice for one payment", "payment of an old invoice"]


def about(topics: list[str]) -> list[Record]:
    return [{**drawn(1)[0], "topic": topic} for topic in topics]


def test_topics_are_found_in_public_records_and_told_by_their_words() -> None:
    kernel = TextKernel(SCHEMA, HashingEncoder(256))
    found = find_topics(SCHEMA, kernel, about([*FIRE, *BILL]), topics=2, keywords=2, seed=0)
    assert sorted(tuple(sorted(words)) for words in found.keywords) == [("fire", "smoke"), ("invoice", "payment")]
    topic_of = TopicOf(found, kernel)
    assert "fire" in topic_of(about(["a fire with smoke"])[0])
    assert "invoice" in topic_of(about(["one more invoice"])[0])


def test_a_records_topic_does_not_depend_on_other_records() -> None:
    kernel = TextKernel(SCHEMA, HashingEncoder(64))
    topic_of = TopicOf(find_topics(SCHEMA, kernel, drawn(30), topics=5, keywords=3, seed=1), kernel)
    records = drawn(12, offset=500)
    everyone = topic_of.pool.distances(kernel.represent(records))
    for place, record in enumerate(records):
        assert (topic_of.pool.distances(kernel.represent([record]))[0] == everyone[place]).all()


def test_there_are_no_more_topics_than_different_records() -> None:
    kernel = TextKernel(SCHEMA, HashingEncoder(64))
    assert len(find_topics(SCHEMA, kernel, about(["one", "one", "two"]), topics=9, keywords=3, seed=0)) == 2


def test_topics_are_read_again_to_the_last_digit(tmp_path: Path) -> None:
    kernel = TextKernel(SCHEMA, HashingEncoder(64))
    found = find_topics(SCHEMA, kernel, drawn(20), topics=4, keywords=3, seed=0)
    found.save(tmp_path / "topics.json")
    again = TopicModel.load(tmp_path / "topics.json")
    assert (again.centres == found.centres).all()
    assert again.keywords == found.keywords


def test_telling_words_are_those_that_other_topics_lack() -> None:
    topics = [{"desk": 5, "fire": 4}, {"desk": 5, "invoice": 4}]
    assert telling_words(topics, 1) == (("fire",), ("invoice",))
    assert telling_words([{}, {"only": 1}], 3) == ((), ("only",))


def test_words_leave_out_the_class_numbers_and_filler() -> None:
    words = words_of(SCHEMA, about(["the lift is stuck at 42"]))
    assert words["lift"] == words["stuck"] == 1
    assert not {"the", "low", "high", "42"} & set(words)


counts = st.lists(st.floats(-50, 50), min_size=1, max_size=20).map(np.array)


@given(counts, st.integers(0, 200))
def test_records_are_shared_out_over_topics_in_full(noisy: Any, quota: int) -> None:
    shares = shares_of(noisy, quota)
    assert sum(shares) == quota
    if (np.rint(noisy) > 0).any():
        assert all(share == 0 for share, count in zip(shares, noisy, strict=True) if count < 0)


def test_shares_follow_the_noisy_counts() -> None:
    assert shares_of(np.array([30.2, 9.8, -4.0]), 8) == [6, 2, 0]
    assert shares_of(np.array([-1.0, -2.0]), 4) == [2, 2]
