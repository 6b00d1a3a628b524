"""SelPE itself behind the protocol that it shares with the baselines: method/algorithm.py with the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selpe.config import RunConfig
from selpe.errors import ConfigError
from selpe.events import Emit, Event, Finished, Started
from selpe.method.algorithm import Evolution, Evolved
from selpe.method.from_settings import generator_of, guides_of, method_of, plan_of
from selpe.method.kernel import MultiChannelKernel
from selpe.method.quotas import class_quotas
from selpe.models.answers import RememberingModel
from selpe.privacy.plan import Plan
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate, candidates_of, estimate, likely_of, likely_phrases, stand_in_guides
from selpe.run.grades import first_pool_grader
from selpe.run.large import further
from selpe.run.large.answers import ChunkAnswers
from selpe.run.large.composition import Composition
from selpe.run.large.whole import WholeTable
from selpe.run.measurements import measurements_of
from selpe.run.methods import Parts, RawOutput, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import Schema


@dataclass(frozen=True, slots=True)
class SelectionGuidedEvolution:
    """A Synthesizer that runs Algorithm 1."""

    parts: Parts
    plan: Plan

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """The evolved table, its raw outputs, and the guide and set that were chosen on the way."""
        parts, beyond = self.parts, self.parts.config.records - self.parts.config.core
        method = replace(method_of(parts.config), test_seed=parts.test_seed)
        evolved = Evolution(
            private=table,
            schema=schema,
            generator=generator_of(parts.config, schema, parts.model, parts.cancel),
            kernel=MultiChannelKernel(
                schema, parts.encoder, mode=parts.config.kernel, public_encoder=parts.public_encoder
            ),
            encoder=parts.encoder,
            public_encoder=parts.public_encoder,
            plan=self.plan.at(budget),
            guides=guides_of(parts.config, schema, parts.model),
            method=method,
            adjacency=parts.config.adjacency,
            seed=parts.config.seed,
            emit=parts.emit if beyond <= 0 else _as_core(parts.emit, beyond),
            first_pool=first_pool_grader(parts.config, schema, parts.encoder, parts.emit),
        ).run()
        in_turn = method.mixed or self.plan.measure is not None
        whole = None
        if beyond > 0:
            evolved, whole = self._beyond_core(evolved, schema)
            parts.emit(Finished(len(whole)))
        return Synthesized(
            records=tuple(candidate.record for candidate in evolved.candidates),
            raw=tuple(RawOutput(made.raw, made.proposal.label, made.record) for made in evolved.candidates),
            drawn=evolved.drawn,
            notes={"guide": None if in_turn else evolved.guide.name, "bundle": evolved.release}
            | ({} if whole is None else {"core": len(whole.core), "missing": whole.missing}),
            evolved=evolved,
            whole=whole,
            measurements=measurements_of(
                evolved.tables,
                written=evolved.measured,
                delta=0.0 if self.plan.measure is None else self.plan.measure.delta,
                unit=parts.config.unit,
            ),
        )

    def _beyond_core(self, core: Evolved, schema: Schema) -> tuple[Evolved, WholeTable]:
        """The core as far as the quotas of the whole table take it in, and the whole table. Looks at no private row."""
        parts, config = self.parts, self.parts.config
        quotas = class_quotas(config.records, schema.labels, config.quotas)
        missing, kept = dict(quotas), []
        for candidate in core.candidates:
            label = candidate.proposal.label or ""
            if missing[label]:  # quotas of more records may give a class one less
                missing[label] -= 1
                kept.append(candidate)
        answers = ChunkAnswers()
        model = parts.model
        own = model.elsewhere(answers) if isinstance(model, RememberingModel) else RememberingModel(model, answers)
        writer = further.Further(
            schema=schema,
            generator=generator_of(config, schema, own, parts.cancel),
            answers=answers,
            composition=Composition.of(core, kept),
            folder=parts.work.further,
            seed=config.seed,
            chunk=further.CHUNK,
            emit=parts.emit,
        )
        whole = writer.write([candidate.record for candidate in kept], missing)
        return replace(core, candidates=tuple(kept)), whole


def _as_core(emit: Emit, beyond: int) -> Emit:
    """Tells of the core as the beginning of a larger table: it starts with all of it, and is not finished."""

    def tell(event: Event) -> None:
        if isinstance(event, Started):
            event = replace(event, records=event.records + beyond, candidates=event.candidates + beyond)
        if not isinstance(event, Finished):
            emit(event)

    return tell


def _plan(config: RunConfig, schema: Schema, units: int) -> Plan:
    return plan_of(config, schema, units=units, guides=len(stand_in_guides(config, schema)))


def _estimate(
    config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]
) -> Estimate:  # fmt: skip
    guides = len(stand_in_guides(config, schema))
    measure = plan.measure if isinstance(plan, Plan) else None
    steered = isinstance(plan, Plan) and plan.record_epsilon > 0
    candidates = candidates_of(
        config, schema, guides=guides, voted="guide" in plan.prices(), measured=measure is not None, steered=steered
    )
    phrases = {} if measure is None else likely_phrases(schema, measure)
    likely = likely_of(config, candidates, measure)
    pools = (len(plan.rounds) if isinstance(plan, Plan) else 1) + (measure is not None)
    return estimate(
        config, schema, candidates=candidates, likely=likely, runs=runs, phrases=phrases, steered=steered, pools=pools
    )


def _build(parts: Parts) -> Synthesizer:
    if not isinstance(parts.plan, Plan):
        raise ConfigError("SelPE needs a plan of selections")
    return SelectionGuidedEvolution(parts, parts.plan)


RECIPE = Recipe(_plan, _estimate, _build)
