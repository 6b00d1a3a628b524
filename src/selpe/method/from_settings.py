"""The parts of a run from its settings: guides, plan, switches, generator; and a preview that spends nothing."""

from __future__ import annotations

import threading
from dataclasses import replace

from selpe.config import RunConfig
from selpe.method.algorithm import Method
from selpe.method.generation import Candidate, Generator, Proposal
from selpe.method.guides import WRITTEN, Guide, builtin_guides, default_guide, user_guides, written_guides
from selpe.models.base import ChatModel
from selpe.privacy.plan import Plan, make_plan
from selpe.schema import Schema


def guides_of(config: RunConfig, schema: Schema, model: ChatModel) -> tuple[Guide, ...]:
    """The guides that a run votes on or takes in turn: one alone where they are off."""
    capabilities = model.capabilities()
    if config.guides == "off":
        return (default_guide(model.name, capabilities),)
    own = user_guides(config.guides, model.name, capabilities) if isinstance(config.guides, list) else ()
    builtin = builtin_guides(schema, model.name, capabilities)
    written = written_guides(schema, model, count=WRITTEN, seed=config.seed) if builtin[0].family == "chat" else ()
    return (*builtin, *written, *own)


def plan_of(config: RunConfig, schema: Schema, *, units: int, guides: int) -> Plan:
    """The plan for these settings, from public numbers alone. Its rounds make the core of a large table."""
    plan = make_plan(
        units=units,
        labels=schema.labels,
        epsilon=config.epsilon,
        adjacency=config.adjacency,
        records=min(config.records, config.core),
        multiplicity=config.multiplicity,
        rounds=config.rounds,
        batches=config.batches,
        alpha=config.alpha,
        schedule=config.epsilon_schedule,
        guides=guides if guides > 1 and config.guides != "mixed" else 0,
        bundles=config.bundles if config.bundles > 1 else 0,
        class_sizes=config.class_sizes,
        quotas=config.quotas,
        shape=config.quota,
        mechanism=config.mechanism,
        vote=config.votes,
    )
    return replace(plan, records=config.records)


def method_of(config: RunConfig) -> Method:
    """The switches of the method that the settings ask for."""
    return Method(
        multiplicity=config.multiplicity,
        votes=config.votes,
        mechanism=config.mechanism,
        contrast=config.contrast,
        inclusion=config.inclusion,
        explore=config.explore,
        exemplars=config.exemplars,
        guide_sample=config.guide_sample,
        mixed=config.guides == "mixed",
        bundles=config.bundles,
    )


def generator_of(
    config: RunConfig, schema: Schema, model: ChatModel, cancel: threading.Event | None = None
) -> Generator:
    """The generator that the settings ask for."""
    return Generator(
        model,
        schema,
        stages=config.stages,
        temperature=config.temperature,
        record_temperature=config.record_temperature,
        attempts=config.attempts,
        cancel=cancel,
    )


def preview(config: RunConfig, schema: Schema, model: ChatModel, count: int) -> list[Candidate]:
    """A few candidates from the prior, guide by guide. Reads no private row and spends nothing."""
    guides, labels = guides_of(config, schema, model), schema.labels or ("",)
    proposals = [
        Proposal(guides[i % len(guides)], config.seed + i, label=labels[i % len(labels)] or None) for i in range(count)
    ]
    return [candidate for candidate in generator_of(config, schema, model).generate(proposals).candidates if candidate]
