"""The parts of a run from its settings: guides, plan, switches, generator; and a preview that spends nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from selpe.config import RunConfig
from selpe.errors import ConfigError, did_you_mean
from selpe.method.algorithm import Method
from selpe.method.codebooks import Codebook, brief_texts
from selpe.method.generation import Candidate, Generation, Generator, Proposal, Watcher
from selpe.method.guides import WRITTEN, Guide, builtin_guides, default_guide, user_guides, written_guides
from selpe.method.measuring import Codebooks
from selpe.models.base import ChatModel
from selpe.models.encoders.base import Encoder
from selpe.privacy.measure_plan import Measurable, MeasurePlan
from selpe.privacy.plan import Plan, make_plan
from selpe.schema import Record, Schema


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
        measure=measurable(config, schema),
    )
    return replace(plan, records=config.records)


def measurable(config: RunConfig, schema: Schema) -> Measurable | None:
    """What these settings allow to be measured; None where nothing is."""
    if config.measure == "off":
        return None
    every = tuple(name for name in schema.names if name != schema.label)
    if config.measure == "auto":
        return Measurable(every, brief=brief_texts(schema), delta=config.delta)
    named: dict[str, None] = {}
    pairs = []
    for entry in config.measure:
        names = [entry] if isinstance(entry, str) else entry
        for name in names:
            if name not in every:
                raise ConfigError(
                    f"'{name}' cannot be measured",
                    where="measure",
                    hint=f"{did_you_mean(name, every)}Name one or two of {', '.join(every)}.",
                )
            named[name] = None
        if len(names) == 2 and names[0] != names[1]:
            pairs.append((names[0], names[1]))
        elif len(names) != 1:
            raise ConfigError("a pair must be two different fields", where="measure")
    return Measurable(tuple(named), named=True, pairs=tuple(pairs), delta=config.delta) if named else None


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
    return [one for one in preview_pool(config, schema, model, count).candidates if one is not None]


def preview_pool(
    config: RunConfig, schema: Schema, model: ChatModel, count: int, watch: Watcher | None = None
) -> Generation:
    """The same with the proposals that failed, and what it took."""
    guides, labels = guides_of(config, schema, model), schema.labels or ("",)
    proposals = [
        Proposal(guides[i % len(guides)], config.seed + i, label=labels[i % len(labels)] or None) for i in range(count)
    ]
    return generator_of(config, schema, model).generate(proposals, watch=watch)


def preview_codebooks(
    config: RunConfig,
    schema: Schema,
    model: ChatModel,
    encoder: Encoder,
    plan: MeasurePlan,
    *,
    pool: int,
    fields: Sequence[str] = (),
) -> list[Codebook]:
    """The codebooks that a run of this plan would count with, from a small pool; all that may be measured, or `fields`.

    Reads no private row and spends nothing. A run has a larger pool, and in a second look finer codes where rows are.
    """
    found: dict[str, list[Record]] = {label: [] for label in schema.labels or ("",)}
    for candidate in preview(config, schema, model, pool):
        found[candidate.proposal.label or ""].append(candidate.record)
    books = Codebooks(
        schema=schema,
        plan=plan,
        encoder=encoder,
        phrases=generator_of(config, schema, model).phrases(config.seed, lambda answer: None),
        seed=config.seed,
    )
    return [books.codebook(name, found, phrases=True) for name in fields or plan.fields or plan.candidates]
