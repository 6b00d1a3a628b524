"""DP-DS: the classifier that others train on synthetic records, trained on the private ones with DP-SGD.

It releases no records. What it gives is utility: how well a task can be learnt under the same guarantee when nothing
but that task is wanted. The classifier lies in `work/` of the run, and `open_classifier` takes it up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selpe.baselines.looking import Looks, plan_of, planned
from selpe.baselines.train.classify import RecordClassifier
from selpe.baselines.train.course import Course, stretches_of
from selpe.baselines.train.learner import TorchLearner
from selpe.baselines.train.outlook import context_of, notes_of, training_estimate
from selpe.baselines.train.weights import Load, libraries, load_weights
from selpe.config import RunConfig
from selpe.config.methods import DpDsSettings
from selpe.errors import ConfigError, RunError
from selpe.events import Finished, Started
from selpe.owner_only import write_text
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate
from selpe.run.methods import Parts, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.run.workspace import WorkFolder, Workspace
from selpe.schema import Schema


@dataclass(frozen=True, slots=True)
class PrivateClassifier:
    """A Synthesizer that synthesises nothing: it trains a classifier. `load` opens the model to start from."""

    parts: Parts
    plan: GaussianPlan
    load: Load = load_weights

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """No records; the classifier is on the disk when this returns."""
        parts, own = self.parts, self.parts.config.dpds
        parts.emit(Started(1, 0, own.steps))
        looks = Looks(table, self.plan.at(budget), parts.emit, parts.test_seed)
        course = Course(looks, lambda: self._learner(self.plan.units), own.clip, context_of(parts, own), parts.cancel)
        learner = course.run()
        about = {"settings": own.model_dump(mode="json"), "seed": parts.config.seed, "state": course.state}
        write_text(parts.work.classifier, json.dumps(about, indent=2) + "\n")
        parts.emit(Finished(0))
        return Synthesized((), (), tuple(course.done), {"training": notes_of(course, learner.size, own.model)})

    def _learner(self, units: int) -> TorchLearner:
        own = self.parts.config.dpds
        classifier = _classifier(own, self.parts.schema, self.parts.config.seed, self.load)
        return _learner(classifier, own, self.parts.work, units)


def open_classifier(run: Path, schema: Schema | None = None, *, load: Load = load_weights) -> RecordClassifier:
    """The classifier that a finished run of `dpds` has left in its folder."""
    work = Workspace(run).work
    try:
        about = json.loads(work.classifier.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise RunError("there is no classifier in this run", where=str(run), hint="finish it: selpe resume") from None
    own = DpDsSettings.model_validate(about["settings"])
    classifier = _classifier(own, schema or Schema.load(work.schema), int(about["seed"]), load)
    if about["state"]:
        _learner(classifier, own, work, 1).load(about["state"])
    return classifier


def _classifier(own: DpDsSettings, schema: Schema, seed: int, load: Load) -> RecordClassifier:
    return RecordClassifier(
        load(own.model), schema, tuning=own.tuning, rank=own.rank, alpha=own.alpha, layers=own.layers,
        longest=own.tokens, seed=seed,
    )  # fmt: skip


def _learner(classifier: RecordClassifier, own: DpDsSettings, work: WorkFolder, units: int) -> TorchLearner:
    return TorchLearner(
        classifier.module, classifier, units=units, rate=own.learning_rate, folder=work.training
    )  # fmt: skip


def _plan(config: RunConfig, schema: Schema, units: int) -> GaussianPlan:
    own = config.dpds
    if schema.label is None:
        raise ConfigError("dpds trains a classifier and needs a schema with a label", where=schema.name)
    return plan_of(config, units, stretches_of(own.steps, own.stretches, own.clip))


def _estimate(
    config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]
) -> Estimate:  # fmt: skip
    return training_estimate(schema, plan, config.dpds, texts=0)


def _build(parts: Parts) -> Synthesizer:
    libraries()  # better now than after the first charge
    return PrivateClassifier(parts, planned(parts))


RECIPE = Recipe(_plan, _estimate, _build)
