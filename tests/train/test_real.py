"""One small training of each method with SmolLM2-135M, read from its GGUF file."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from private_world import MemoryAccount
from selpe.baselines.ctcl import TopicGenerator
from selpe.baselines.dpds import PrivateClassifier, open_classifier
from selpe.baselines.dpgen import TunedGenerator
from selpe.baselines.train.causal import CausalTask
from selpe.baselines.train.learner import TorchLearner
from selpe.baselines.train.texts import example
from selpe.baselines.train.weights import Weights, adapted, load_weights, merged
from selpe.config import RunConfig, check_config
from selpe.evaluation.validity import rough
from selpe.events import Event, Trained
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.privacy.table import PrivateTable
from selpe.run.methods import Parts, Synthesized, recipe_of
from selpe.run.workspace import WorkFolder
from selpe.schema import Schema

pytestmark = [pytest.mark.real_model, pytest.mark.xdist_group("smollm2"), pytest.mark.slow]

SCHEMA = Schema.from_yaml(
    """
name: desk
label: urgency
fields:
  topic: {kind: text, max_length: 60}
  channel: {kind: category, values: [phone, visit]}
  urgency: {kind: category, values: [low, high]}
"""
)
ROWS: list[dict[str, Any]] = [
    {"topic": "lost password", "channel": "phone", "urgency": "low"},
    {"topic": "asks for opening hours", "channel": "phone", "urgency": "low"},
    {"topic": "fire in the server room", "channel": "visit", "urgency": "high"},
    {"topic": "water runs down the wall", "channel": "visit", "urgency": "high"},
]


@pytest.fixture(scope="module")
def smollm2_weights(smollm2: Path) -> Weights:
    assert smollm2.suffix == ".gguf"
    return load_weights("smollm2")


@pytest.fixture
def load(smollm2_weights: Weights) -> Callable[[str], Weights]:
    """The model as it is in the file, however often it was trained before."""
    return lambda _: smollm2_weights.with_model(copy.deepcopy(smollm2_weights.model))


def prepared(
    method: str, tmp_path: Path, own: Mapping[str, Any], **more: Any
) -> tuple[RunConfig, Parts, GaussianPlan, MemoryAccount, list[Event]]:
    training = {"steps": 3, "stretches": 2, "tokens": 32, "layers": 6, **own}
    config = check_config(
        {"dataset": "desk", "data": "nowhere.csv", "method": method, "records": 2, method: training, **more},
        where="test",
    )
    plan = recipe_of(method).plan(config, SCHEMA, len(ROWS))
    assert isinstance(plan, GaussianPlan)
    heard: list[Event] = []
    parts = Parts(
        config, SCHEMA, plan, (FakeModel(),), HashingEncoder(64), WorkFolder(tmp_path / "work"), emit=heard.append
    )
    parts.work.folder.mkdir()
    return config, parts, plan, MemoryAccount(), heard


def table(account: MemoryAccount) -> PrivateTable:
    return PrivateTable(ROWS, SCHEMA, account=account)


def checked(made: Synthesized, account: MemoryAccount, heard: list[Event], steps: int) -> None:
    assert made.notes["training"]["steps"] == steps
    assert [event.step for event in heard if isinstance(event, Trained)] == list(range(1, steps + 1))
    assert all(drawn.private for drawn in made.drawn)
    assert len(account.results) == len(account.charges) == len(made.drawn)


def test_dpgen_tunes_the_real_model_with_noise_and_writes_with_it(load: Any, tmp_path: Path) -> None:
    _, parts, plan, account, heard = prepared("dpgen", tmp_path, {"layers": None}, epsilon=2.0)
    made = TunedGenerator(parts, plan, load).fit(table(account), SCHEMA, plan.prices())
    checked(made, account, heard, 3)
    assert made.notes["training"]["parameters"] == 230_400  # r = 4 on queries and values of all 30 layers
    assert sorted(output.label or "" for output in made.raw) == ["high", "low"]
    assert all(len(output.raw) > len("urgency: high\n\n") for output in made.raw)


def test_dpgen_without_noise_learns_the_private_records(load: Any, tmp_path: Path) -> None:
    """The control that shows that the training works: with ε = ∞ the model writes records, without any it does not."""
    read = {}
    for epsilon in (0.0, math.inf):
        folder = tmp_path / str(epsilon)
        folder.mkdir()
        own = {"steps": 8, "rate": 0.01, "layers": 12, "top_p": 0.5}
        _, parts, plan, account, _ = prepared("dpgen", folder, own, epsilon=epsilon, records=4)
        made = TunedGenerator(parts, plan, load).fit(table(account), SCHEMA, plan.prices())
        read[epsilon] = sum(rough(output.raw, SCHEMA).ok for output in made.raw)
    assert read[0.0] < read[math.inf]
    assert read[math.inf] >= 3


def test_ctcl_counts_topics_and_tunes_the_real_model(load: Any, tmp_path: Path) -> None:
    own = {"public_records": 8, "public_steps": 1, "topics": 2}
    _, parts, plan, account, heard = prepared("ctcl", tmp_path, own, epsilon=2.0)
    made = TopicGenerator(parts, plan, load).fit(table(account), SCHEMA, plan.prices())
    checked(made, account, heard, 3)
    assert [charge.selection for charge in account.charges] == ["topics", "training-1", "training-2"]
    assert len(made.notes["topics"]) == 2
    assert all("\nkeywords: " in output.raw for output in made.raw)


def test_dpds_trains_a_classifier_on_the_real_model(load: Any, tmp_path: Path) -> None:
    own = {"rank": 4, "layers": 6, "steps": 6, "stretches": 1}
    _, parts, plan, account, heard = prepared("dpds", tmp_path, own, epsilon=math.inf)
    made = PrivateClassifier(parts, plan, load).fit(table(account), SCHEMA, plan.prices())
    assert not made.records
    assert not made.raw
    classifier = open_classifier(tmp_path, SCHEMA, load=load)
    assert classifier.predict(ROWS) == [row["urgency"] for row in ROWS]
    assert np.allclose(classifier.scores(ROWS).sum(axis=1), 1.0)
    assert [event.step for event in heard if isinstance(event, Trained)] == list(range(1, 7))


def test_half_precision_of_what_is_not_trained_hardly_changes_a_gradient(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for halved in (False, True):
        monkeypatch.setattr("selpe.baselines.train.weights._halves_well", lambda torch, weights, said=halved: said)
        tuned = adapted(load("smollm2"), tuning="lora", rank=4, alpha=32, layers=4, seed=0)
        task = CausalTask(tuned, lambda record: example(SCHEMA, record), 32)
        learner = TorchLearner(tuned.model, task, units=4, rate=1e-3, folder=tmp_path)
        (gradient,) = learner.gradients(ROWS[:1])
        assert gradient.dtype == np.float32
        found.append(gradient / np.linalg.norm(gradient))
        assert {str(p.dtype) for p in merged(tuned).model.parameters()} == {"torch.float32"}
    assert float(found[0] @ found[1]) > 0.98
