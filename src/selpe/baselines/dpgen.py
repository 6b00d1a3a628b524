"""DP-Gen: a language model tuned on the private records with DP-SGD, which then writes the synthetic ones.

A text is the class, a blank line, and the fields by line. Every step is a full batch: the noise follows from ε by the
exact law of the Gaussian mechanism, with no sampling to account for. Texts are asked for by public class quotas, and
fields are read out of them by the parser of R-CFG. Before the private records, the model may practise on the public
examples of the schema: a small model that has never seen the form of a record does not learn it through the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from selpe.baselines.looking import Looks, plan_of, planned
from selpe.baselines.reading import finished, read_all
from selpe.baselines.train.course import stretches_of
from selpe.baselines.train.outlook import notes_of, training_estimate
from selpe.baselines.train.practice import BATCH
from selpe.baselines.train.texts import condition, example
from selpe.baselines.train.tuned import TunedModel, WantedText
from selpe.baselines.train.weights import Load, libraries, load_weights
from selpe.baselines.writing import seed_of
from selpe.config import RunConfig
from selpe.events import Started
from selpe.method.quotas import class_quotas
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate
from selpe.run.methods import Parts, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import Schema


@dataclass(frozen=True, slots=True)
class TunedGenerator:
    """A Synthesizer that tunes a language model. `load` opens the model to tune."""

    parts: Parts
    plan: GaussianPlan
    load: Load = load_weights

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """The records that could be read out of the tuned model's texts."""
        parts, own = self.parts, self.parts.config.dpgen
        quotas = class_quotas(parts.config.records, schema.labels, parts.config.quotas)
        parts.emit(Started(1, parts.config.records, own.steps + parts.config.records))
        looks = Looks(table, self.plan.at(budget), parts.emit, parts.test_seed)
        tuned = TunedModel(parts, own, self.load)
        course = tuned.course(looks, partial(example, schema), schema.examples)
        learner = course.run()
        wanted = [
            WantedText(label, condition(schema, label), seed_of(parts.config.seed, "text", label, place))
            for label, count in quotas.items()
            for place in range(count)
        ]
        outputs = read_all(schema, tuned.write(course.state, wanted))
        notes = {"training": notes_of(course, learner.size, own.model)}
        return finished(parts.emit, outputs, course.done, notes)


def _plan(config: RunConfig, schema: Schema, units: int) -> GaussianPlan:
    own = config.dpgen
    return plan_of(config, units, stretches_of(own.steps, own.stretches, own.clip), texts=config.records)


def _estimate(
    config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]
) -> Estimate:  # fmt: skip
    public = config.dpgen.public_steps * min(BATCH, len(schema.examples))
    return training_estimate(schema, plan, config.dpgen, texts=config.records, public_records=public)


def _build(parts: Parts) -> Synthesizer:
    libraries()  # better now than after the first charge
    return TunedGenerator(parts, planned(parts))


RECIPE = Recipe(_plan, _estimate, _build)
