"""The model alone: records from the schema, in public quotas. No private row is read, and nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selpe.baselines.records import write_records
from selpe.baselines.writing import seed_of
from selpe.config import RunConfig
from selpe.events import Finished, Started
from selpe.method.generation import Proposal
from selpe.method.guides import default_guide
from selpe.method.quotas import class_quotas
from selpe.privacy.marginal_plan import MarginalPlan
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate, estimate
from selpe.run.methods import Parts, RawOutput, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import Schema

VERDICT = "The model writes alone: no private row takes part, and nothing is spent. This is a control."


@dataclass(frozen=True, slots=True)
class Prior:
    """A Synthesizer that asks the private table for nothing."""

    parts: Parts

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """What the model writes first; a record that it failed to write is missing."""
        parts = self.parts
        quotas = class_quotas(parts.config.records, schema.labels, parts.config.quotas)
        guide = default_guide(parts.model.name, parts.model.capabilities())
        proposals = [
            Proposal(guide, seed_of(parts.config.seed, "prior", label, i), label=label or None)
            for label, quota in quotas.items()
            for i in range(quota)
        ]
        parts.emit(Started(1, len(proposals), len(proposals)))
        made = [one for one in write_records(parts, "round", 1, proposals) if one is not None]
        parts.emit(Finished(len(made)))
        return Synthesized(
            records=tuple(one.record for one in made),
            raw=tuple(RawOutput(one.raw, one.proposal.label, one.record) for one in made),
            notes={"missing": len(proposals) - len(made)},
        )


def _plan(config: RunConfig, schema: Schema, units: int) -> MarginalPlan:
    return MarginalPlan(
        None, units, config.records, 0.0, 0.0, config.adjacency, 0.0, candidates=config.records, verdict=VERDICT
    )


def _estimate(config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]) -> Estimate:
    return estimate(config, schema, candidates=config.records, runs=runs, steered=False)


def _build(parts: Parts) -> Synthesizer:
    return Prior(parts)


RECIPE = Recipe(_plan, _estimate, _build)
