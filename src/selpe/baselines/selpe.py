"""SelPE itself behind the protocol that it shares with the baselines: evolve.py with the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selpe.assemble import generator_of, guides_of, method_of, plan_of
from selpe.baselines.base import Parts, RawOutput, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.config import RunConfig
from selpe.errors import ConfigError
from selpe.estimate import Estimate, candidates_of, estimate, stand_in_guides
from selpe.evolve import Evolution
from selpe.kernel import MultiChannelKernel
from selpe.privacy.plan import Plan
from selpe.privacy.private import PrivateTable
from selpe.schema import Schema


@dataclass(frozen=True, slots=True)
class SelectionGuidedEvolution:
    """A Synthesizer that runs Algorithm 1."""

    parts: Parts
    plan: Plan

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """The evolved table, its raw outputs, and the guide and set that were chosen on the way."""
        parts = self.parts
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
            method=replace(method_of(parts.config), test_seed=parts.test_seed),
            adjacency=parts.config.adjacency,
            seed=parts.config.seed,
            emit=parts.emit,
        ).run()
        return Synthesized(
            records=tuple(candidate.record for candidate in evolved.candidates),
            raw=tuple(RawOutput(made.raw, made.proposal.label, made.record) for made in evolved.candidates),
            drawn=evolved.selections,
            notes={"guide": evolved.guide.name, "bundle": evolved.bundle},
            evolved=evolved,
        )


def _plan(config: RunConfig, schema: Schema, units: int) -> Plan:
    return plan_of(config, schema, units=units, guides=len(stand_in_guides(config, schema)))


def _estimate(
    config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]
) -> Estimate:  # fmt: skip
    guides = len(stand_in_guides(config, schema))
    candidates = candidates_of(config, schema, guides=guides, voted="guide" in plan.prices())
    return estimate(config, schema, candidates=candidates, runs=runs)


def _build(parts: Parts) -> Synthesizer:
    if not isinstance(parts.plan, Plan):
        raise ConfigError("SelPE needs a plan of selections")
    return SelectionGuidedEvolution(parts, parts.plan)


RECIPE = Recipe(_plan, _estimate, _build)
