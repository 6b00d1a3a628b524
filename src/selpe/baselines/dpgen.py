"""DP-Gen: a language model tuned on the private records with DP-SGD, which then writes the synthetic ones.

A text is the class, a blank line, and the fields by line. Every step is a full batch: the noise follows from ε by the
exact law of the Gaussian mechanism, with no sampling to account for. Texts are asked for by public class quotas, and
fields are read out of them by the parser of R-CFG. Before the private records, the model may practise on the public
examples of the schema: a small model that has never seen the form of a record does not learn it through the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selpe.baselines.looking import Looks
from selpe.baselines.reading import read_all, released
from selpe.baselines.train.causal import CausalTask
from selpe.baselines.train.course import Course, stretches_of
from selpe.baselines.train.learner import TorchLearner
from selpe.baselines.train.outlook import context_of, notes_of, training_estimate, training_plan
from selpe.baselines.train.practice import BATCH, practise
from selpe.baselines.train.texts import condition, example
from selpe.baselines.train.tuned import TextTaste, WantedText, write
from selpe.baselines.train.weights import Load, Weights, adapted, libraries, load_weights
from selpe.baselines.writing import seed_of
from selpe.config import RunConfig
from selpe.errors import ConfigError
from selpe.events import Finished, Started
from selpe.method.quotas import class_quotas
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate
from selpe.run.methods import Parts, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import Schema


@dataclass(slots=True)
class TunedGenerator:
    """A Synthesizer that tunes a language model. `load` opens the model to tune."""

    parts: Parts
    plan: GaussianPlan
    load: Load = load_weights
    _weights: Weights | None = None

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """The records that could be read out of the tuned model's texts."""
        parts, own = self.parts, self.parts.config.dpgen
        quotas = class_quotas(parts.config.records, schema.labels, parts.config.quotas)
        parts.emit(Started(1, parts.config.records, own.steps + parts.config.records))
        looks = Looks(table, self.plan.at(budget), parts.emit, parts.test_seed)
        course = Course(
            looks,
            lambda: self._learner(self.plan.units),
            own.clip,
            context_of(parts, own),
            parts.cancel,
            warm=lambda learner: practise(
                learner,
                schema.examples,
                steps=own.public_steps,
                rate=own.public_rate,
                seed=parts.config.seed,
                cancel=parts.cancel,
            ),
        )
        learner = course.run()
        wanted = [
            WantedText(label, condition(schema, label), seed_of(parts.config.seed, "text", label, place))
            for label, count in quotas.items()
            for place in range(count)
        ]
        taste = TextTaste(own.temperature, own.top_k, own.top_p, own.tokens, own.batch)
        outputs = read_all(schema, write(parts, self._tuned(), course.state, wanted, taste))
        records = released(outputs)
        parts.emit(Finished(len(records)))
        notes = {
            "training": notes_of(course, learner.size, own.model), "unreadable": len(outputs) - len(records),
        }  # fmt: skip
        return Synthesized(records, outputs, tuple(course.done), notes)

    def _learner(self, units: int) -> TorchLearner:
        own, schema = self.parts.config.dpgen, self.parts.schema
        task = CausalTask(self._tuned(), lambda record: example(schema, record), own.tokens)
        return TorchLearner(
            self._tuned().model, task, units=units, rate=own.learning_rate, folder=self.parts.work.training
        )

    def _tuned(self) -> Weights:
        if self._weights is None:
            own = self.parts.config.dpgen
            self._weights = adapted(
                self.load(own.model),
                tuning=own.tuning,
                rank=own.rank,
                alpha=own.alpha,
                layers=own.layers,
                seed=self.parts.config.seed,
            )
        return self._weights


def _plan(config: RunConfig, schema: Schema, units: int) -> GaussianPlan:
    own = config.dpgen
    return training_plan(config, units, stretches_of(own.steps, own.stretches, own.clip), texts=config.records)


def _estimate(
    config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]
) -> Estimate:  # fmt: skip
    public = config.dpgen.public_steps * min(BATCH, len(schema.examples))
    return training_estimate(schema, plan, config.dpgen, texts=config.records, public_records=public)


def _build(parts: Parts) -> Synthesizer:
    libraries()  # better now than after the first charge
    if not isinstance(parts.plan, GaussianPlan):
        raise ConfigError("DP-Gen needs a plan of Gaussian looks")
    return TunedGenerator(parts, parts.plan)


RECIPE = Recipe(_plan, _estimate, _build)
