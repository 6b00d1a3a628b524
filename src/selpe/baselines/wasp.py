"""WASP: contrastive prompts from near and far votes, with several models (Zou et al.), on our own interfaces.

Every private record spreads votes over the samples nearest to it and over those furthest from it, 2⁻⁽q⁻¹⁾ for the q-th.
Both histograms get Gaussian noise. Samples with many near votes are shown to the models as good, those with many far
votes as bad, and a new sample is asked for that goes further in that direction; models whose samples get more near
votes write more of them. Everything that was written is the output.

The published calibration puts the noise at 4·√(2 ln(1.25/δ))·√T/ε, which is several times more than ε asks for.
`calibration: tight` takes the exact formula with the true sensitivity, and is the fair baseline; either way the
ledger is charged what the noise really costs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.baselines.embedding import TextKernel
from selpe.baselines.looking import Looks, plan_of, planned
from selpe.baselines.reading import Sample, finished, read_all
from selpe.baselines.writing import TextTask, TextWriter, by_class, seed_of, text_estimate
from selpe.config import RunConfig
from selpe.events import Included, Started
from selpe.method.quotas import apportion, class_quotas
from selpe.privacy.gaussian_plan import GaussianPlan, Look
from selpe.privacy.histograms import NearFarVotes, near_far_sensitivity
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate
from selpe.run.methods import Parts, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import Schema

Samples = dict[str, list[Sample]]


class WASP:
    """A Synthesizer that prompts several models with samples which private votes found good and bad."""

    def __init__(self, parts: Parts, plan: GaussianPlan) -> None:
        self._parts, self._plan = parts, plan
        self._settings, self._seed = parts.config.wasp, parts.config.seed
        quotas = class_quotas(parts.config.records, parts.schema.labels, parts.config.quotas)
        waves = self._settings.rounds + 1
        # One wave without examples, then one after each look. Earlier waves take what does not divide, so that every
        # class has samples to vote on from the first look on.
        self._waves = [
            {label: apportion(quota, [1] * waves)[-1 - wave] for label, quota in quotas.items() if quota}
            for wave in range(waves)
        ]
        self._writer = TextWriter(parts, temperature=self._settings.temperature)
        self._kernel = TextKernel(parts.schema, parts.encoder, parts.public_encoder)

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """Everything the models wrote, as far as records can be read from it."""
        emit = self._parts.emit
        emit(Started(self._settings.rounds, self._parts.config.records, self._plan.candidates))
        looks = Looks(table, self._plan.at(budget), emit, self._parts.test_seed)
        weights = [1.0] * len(self._parts.models)
        samples = self._first(weights)
        for t in range(1, self._settings.rounds + 1):
            texts = {label: [sample.raw for sample in found] for label, found in samples.items()}
            pools = {label: self._kernel.pool(self._kernel.embed(raws)) for label, raws in texts.items()}
            query = NearFarVotes(self._kernel, pools, self._settings.votes)
            votes = looks.histogram(f"round-{t}", query, texts).counts
            weights = self._weights(samples, {label: counts[0] for label, counts in votes.items()})
            for label, more in self._contrasted(t, samples, votes, weights).items():
                samples[label] += more
            emit(Included(t, sum(map(len, samples.values()))))
        outputs = read_all(schema, (sample for found in samples.values() for sample in found))
        made = finished(emit, outputs, looks.drawn, {})
        return replace(made, notes={**made.notes, "model_weights": self._said(weights)})

    # -- texts ---------------------------------------------------------------------------------------------------

    def _first(self, weights: Sequence[float]) -> Samples:
        """The set without examples, in equal shares per model and class."""
        asks = [
            TextTask(label, seed_of(self._seed, "first", label, i), "baseline_new", {"keyword": ""}, model)
            for label, quota in self._waves[0].items()
            for i, model in enumerate(_dealt(quota, weights))
        ]
        return by_class(self._waves[0], self._writer.write("seeds", 0, asks))

    def _contrasted(
        self, t: int, samples: Samples, votes: Mapping[str, NDArray[np.float64]], weights: Sequence[float]
    ) -> Samples:
        """The next wave: every prompt shows S/2 of the S best and S/2 of the S worst samples of its class."""
        asks = []
        for label, quota in self._waves[t].items():
            near, far = votes[label]
            good = [samples[label][i].raw for i in self._top(near, t, label, "near")]
            bad = [samples[label][i].raw for i in self._top(far, t, label, "far")]
            for i, model in enumerate(_dealt(quota, weights)):
                seed = seed_of(self._seed, "round", t, label, i)
                shown = {"good": self._some(good, seed), "bad": self._some(bad, seed + 1)}
                asks.append(TextTask(label, seed, "baseline_contrast", shown, model))
        return by_class(self._waves[0], self._writer.write("round", t, asks))

    def _some(self, raws: Sequence[str], seed: int) -> list[str]:
        return random.Random(seed).sample(list(raws), min(len(raws), max(1, self._settings.shown // 2)))

    # -- what the votes say --------------------------------------------------------------------------------------

    def _top(self, counts: NDArray[np.float64], t: int, label: str, kind: str) -> list[int]:
        """The S samples with the most votes; of equal ones, any."""
        chance = np.random.default_rng(seed_of(self._seed, kind, t, label))
        order = np.lexsort((chance.permutation(len(counts)), -counts))
        return [int(i) for i in order[: self._settings.shown]]

    def _weights(self, samples: Samples, near: Mapping[str, NDArray[np.float64]]) -> list[float]:
        """Softmax of each model's near votes per sample, relative to those of all: what its share of the wave is."""
        models = len(self._parts.models)
        if models == 1:
            return [1.0]
        votes, written = np.zeros(models), np.zeros(models)
        for label, found in samples.items():
            for sample, count in zip(found, np.maximum(near[label], 0.0), strict=True):
                votes[sample.model] += count
                written[sample.model] += 1
        everywhere = votes.sum() / written.sum()
        if everywhere == 0:
            return [1.0] * models
        scores = np.divide(votes, written, out=np.zeros(models), where=written > 0) / everywhere
        raised = np.exp((scores - scores.max()) / self._settings.softmax_temperature)
        return [float(weight) for weight in raised / raised.sum()]

    def _said(self, weights: Sequence[float]) -> dict[str, float]:
        return {
            f"{number}: {model.name}": round(weight / sum(weights), 4)
            for number, (model, weight) in enumerate(zip(self._parts.models, weights, strict=True), 1)
        }


def _dealt(quota: int, weights: Sequence[float]) -> list[int]:
    """Which model writes each of `quota` samples: by largest remainder of the weights."""
    return [model for model, count in enumerate(apportion(quota, weights)) for _ in range(count)]


def published_sigma(epsilon: float, delta: float, rounds: int) -> float:
    """σ as published: far above what (ε, δ) asks for."""
    return 4.0 * math.sqrt(2.0 * math.log(1.25 / delta)) * math.sqrt(rounds) / epsilon


def _plan(config: RunConfig, schema: Schema, units: int) -> GaussianPlan:
    settings = config.wasp
    bound = near_far_sensitivity(settings.votes)
    looks = [Look(f"round-{t}", bound) for t in range(1, settings.rounds + 1)]
    plan = plan_of(config, units, looks, texts=config.records)
    if settings.calibration == "tight" or not 0 < config.epsilon < math.inf:
        return plan
    sigma = published_sigma(config.epsilon, config.delta, settings.rounds)
    price = (bound.under(config.adjacency) / sigma) ** 2
    told = replace(plan, looks=tuple(replace(look, price=price) for look in plan.looks))
    cost = told.guarantee.under(config.adjacency)
    return replace(told, verdict=f"With the published noise the run really spends ε = {cost:.3g}.")


def _estimate(config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]) -> Estimate:
    raw = schema.dumps(schema.examples[0]) if schema.examples else "{}"
    labels, some = schema.labels or ("",), [raw] * max(1, config.wasp.shown // 2)
    asks = [TextTask(labels[i % len(labels)], i, "baseline_contrast", {"good": some, "bad": some}) for i in range(8)]
    return text_estimate(config, schema, plan, runs, asks)


def _build(parts: Parts) -> Synthesizer:
    return WASP(parts, planned(parts))


RECIPE = Recipe(_plan, _estimate, _build)
