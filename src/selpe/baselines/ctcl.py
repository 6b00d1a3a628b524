"""CTCL: which topics the private records are about, and a small generator that writes by topic.

Topics come from records that the public model writes. How often each occurs among the private records is a histogram
with Gaussian noise. A small language model learns to write a record from its class and its topic's keywords: first on
the public records, then on the private ones with DP-SGD. Histogram and training are one Gaussian mechanism and share
one μ². The original knows no classes: putting the class into the condition, and counting topics by class, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selpe.baselines.embedding import TextKernel
from selpe.baselines.looking import Looks, plan_of, planned
from selpe.baselines.reading import finished, read_all
from selpe.baselines.records import write_records
from selpe.baselines.topics import TopicModel, TopicOf, digest_of, find_topics, shares_of
from selpe.baselines.train.course import stretches_of
from selpe.baselines.train.outlook import notes_of, training_estimate
from selpe.baselines.train.practice import BATCH
from selpe.baselines.train.texts import condition, example
from selpe.baselines.train.tuned import TunedModel, WantedText
from selpe.baselines.train.weights import Load, libraries, load_weights
from selpe.baselines.writing import seed_of
from selpe.config import RunConfig
from selpe.errors import RunError
from selpe.events import Started
from selpe.method.generation import Proposal
from selpe.method.guides import default_guide
from selpe.method.phrases import repetitive
from selpe.method.quotas import class_quotas
from selpe.privacy.gaussian_plan import GaussianPlan, Look
from selpe.privacy.histograms import Histogram, NearestVotes
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate, estimate
from selpe.run.methods import Parts, RawOutput, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import Record, Schema

TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class TopicGenerator:
    """A Synthesizer that writes by topic. `load` opens the model to tune."""

    parts: Parts
    plan: GaussianPlan
    load: Load = load_weights

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """The records that could be read out of texts written for topics as common as the private table's."""
        parts, own = self.parts, self.parts.config.ctcl
        parts.emit(Started(1, parts.config.records, own.steps + self.plan.candidates))
        public = self._public_records()
        kernel = TextKernel(schema, parts.encoder, parts.public_encoder)
        topics, known = self._topics(public, kernel), digest_of(schema, public)
        topic_of = TopicOf(topics, kernel)
        looks = Looks(table, self.plan.at(budget), parts.emit, parts.test_seed)
        counts = self._histogram(looks, topic_of, known)
        tuned = TunedModel(parts, own, self.load)
        course = tuned.course(
            looks,
            lambda record: example(schema, record, topic_of(record)),
            public,
            known,
            conditional=True,
            remote=kernel.remote,
        )
        learner = course.run()
        wanted = self._wanted(schema, topics, counts)
        outputs = _without_circles(read_all(schema, tuned.write(course.state, wanted)))
        notes = {
            "training": notes_of(course, learner.size, own.model), "topics": [list(words) for words in topics.keywords],
        }  # fmt: skip
        return finished(parts.emit, outputs, (counts, *course.done), notes)

    # -- what is public ------------------------------------------------------------------------------------------

    def _public_records(self) -> list[Record]:
        """Valid records by the run's own model, from the schema alone."""
        parts, schema = self.parts, self.parts.schema
        wanted, labels = parts.config.ctcl.public_records, schema.labels or ("",)
        guide = default_guide(parts.model.name, parts.model.capabilities())
        proposals = [
            Proposal(guide, seed_of(parts.config.seed, "public", i), label=labels[i % len(labels)] or None)
            for i in range(wanted)
        ]
        found = [made.record for made in write_records(parts, "public", 0, proposals) if made is not None]
        if not found:
            raise RunError("the model wrote no valid record to find topics in", hint="try another `llm`")
        return found

    def _topics(self, public: Sequence[Record], kernel: TextKernel) -> TopicModel:
        parts, own = self.parts, self.parts.config.ctcl
        path = parts.work.topics(digest_of(parts.schema, public))
        if not path.exists():
            found = find_topics(
                parts.schema, kernel, public, topics=own.topics, keywords=own.keywords, seed=parts.config.seed
            )
            found.save(path)
        return TopicModel.load(path)

    # -- what is private -----------------------------------------------------------------------------------------

    def _histogram(self, looks: Looks, topic_of: TopicOf, known: str) -> Histogram:
        """How many records of each class are about each topic, with noise."""
        labels = self.parts.schema.labels or ("",)
        query = NearestVotes(topic_of.kernel, dict.fromkeys(labels, topic_of.pool))
        return looks.histogram(TOPICS, query, {"public": [known]})

    # -- the release ---------------------------------------------------------------------------------------------

    def _wanted(self, schema: Schema, topics: TopicModel, counts: Histogram) -> list[WantedText]:
        """Conditions by class in public shares, and by topic in proportion to the noisy counts."""
        config = self.parts.config
        wanted = []
        for label, quota in class_quotas(config.records, schema.labels, config.quotas).items():
            for topic, count in enumerate(shares_of(counts.counts[label][0], quota)):
                prefix = condition(schema, label, topics.keywords[topic])
                wanted += [
                    WantedText(label, prefix, seed_of(config.seed, "text", label, topic, place))
                    for place in range(count)
                ]
        return wanted


def _without_circles(outputs: Sequence[RawOutput]) -> tuple[RawOutput, ...]:
    """Texts that go in circles are not released."""
    return tuple(replace(one, released=one.released and not repetitive(one.raw)) for one in outputs)


def _plan(config: RunConfig, schema: Schema, units: int) -> GaussianPlan:
    own = config.ctcl
    training = stretches_of(own.steps, own.stretches, own.clip)
    rest = (1 - own.histogram_share) / own.steps
    return plan_of(
        config,
        units,
        [Look(TOPICS, NearestVotes.sensitivity), *training],
        shares=[own.histogram_share, *(rest * look.count for look in training)],
        texts=own.public_records + config.records,
    )


def _estimate(
    config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]
) -> Estimate:  # fmt: skip
    own = config.ctcl
    public = estimate(config, schema, candidates=own.public_records, runs=())
    rest = training_estimate(
        schema, plan, own, texts=config.records, public_records=own.public_steps * min(BATCH, own.public_records)
    )  # fmt: skip
    return Estimate(
        public.candidates + rest.candidates,
        public.prompt_tokens + rest.prompt_tokens,
        public.completion_tokens + rest.completion_tokens,
        public.seconds + rest.seconds,
        rest.basis,
        public.cost,
    )


def _build(parts: Parts) -> Synthesizer:
    libraries()  # better now than after the first charge
    return TopicGenerator(parts, planned(parts))


RECIPE = Recipe(_plan, _estimate, _build)
