"""Aug-PE: private evolution of texts (Xie et al. 2024), on our own interfaces.

Texts of each class stand for election together with variations of them. Every private record votes for the text of
its class that is nearest to it; the counts get Gaussian noise; the texts with the highest counts go on. The table is
looked at T times, each time through a histogram of L2 sensitivity 1 (√2 where a record is replaced).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.baselines.embedding import TextKernel
from selpe.baselines.looking import Looks, plan_of, planned
from selpe.baselines.reading import Sample, finished, read_all
from selpe.baselines.variations import blanked, keywords_of, tone, words_in
from selpe.baselines.writing import TextTask, TextWriter, by_class, seed_of, text_estimate
from selpe.config import RunConfig
from selpe.events import Included, Started
from selpe.method.quotas import class_quotas
from selpe.privacy.gaussian_plan import GaussianPlan, Look
from selpe.privacy.histograms import NearestVotes
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate
from selpe.run.methods import Parts, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import Schema

Population = Mapping[str, Sequence[Sample]]


class AugPE:
    """A Synthesizer that evolves texts by histogram votes."""

    def __init__(self, parts: Parts, plan: GaussianPlan) -> None:
        self._parts, self._plan = parts, plan
        self._settings, self._seed = parts.config.augpe, parts.config.seed
        self._quotas = class_quotas(parts.config.records, parts.schema.labels, parts.config.quotas)
        self._keywords = keywords_of(parts.schema, parts.config.augpe.keywords)
        self._writer = TextWriter(parts, temperature=parts.config.augpe.temperature)
        self._kernel = TextKernel(parts.schema, parts.encoder, parts.public_encoder)

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """The texts elected last, as far as records can be read from them."""
        emit, rounds = self._parts.emit, self._settings.rounds
        emit(Started(rounds, sum(self._quotas.values()), self._plan.candidates))
        looks = Looks(table, self._plan.at(budget), emit, self._parts.test_seed)
        elected: Population = self._seeds()
        for t in range(1, rounds + 1):
            standing = self._with_variations(elected, t)
            pools = {label: self._kernel.pool(vectors) for label, vectors in self._embedded(standing, t).items()}
            texts = {label: [sample.raw for sample in samples] for label, samples in standing.items()}
            votes = looks.histogram(f"round-{t}", NearestVotes(self._kernel, pools), texts)
            elected = {label: self._elect(standing[label], votes.counts[label][0], t) for label in standing}
            emit(Included(t, sum(map(len, elected.values()))))
        outputs = read_all(schema, (sample for samples in elected.values() for sample in samples))
        return finished(emit, outputs, looks.drawn, {})

    # -- texts ---------------------------------------------------------------------------------------------------

    def _seeds(self) -> dict[str, list[Sample]]:
        """N_c random texts per class, each from a public keyword of its own."""
        asks = [self._new(label, i) for label, quota in self._quotas.items() for i in range(quota)]
        return self._by_class(self._writer.write("seeds", 0, asks))

    def _new(self, label: str, i: int) -> TextTask:
        seed = seed_of(self._seed, "seed", label, i)
        keyword = random.Random(seed).choice(self._keywords) if self._keywords else ""
        return TextTask(label, seed, "baseline_new", {"keyword": keyword})

    def _with_variations(self, elected: Population, t: int) -> dict[str, list[Sample]]:
        """The elected texts, followed by L − 1 variations of each."""
        varied = self._varied("round", t, elected, self._settings.expansion - 1)
        return {label: [*samples, *varied.get(label, [])] for label, samples in elected.items()}

    def _varied(self, stage: str, t: int, texts: Population, count: int) -> dict[str, list[Sample]]:
        asks = [
            self._variation(sample, seed_of(self._seed, stage, t, label, i, j))
            for label, samples in texts.items()
            for i, sample in enumerate(samples)
            for j in range(count)
        ]
        return self._by_class(self._writer.write(stage, t, asks))

    def _variation(self, sample: Sample, seed: int) -> TextTask:
        """A text rephrased in some tone, or with blanks to fill in."""
        chance, settings = random.Random(seed), self._settings
        if chance.random() >= settings.fill_in:
            return TextTask(sample.label, seed, "baseline_rephrase", {"raw": sample.raw, "tone": tone(chance)})
        # The length wanted differs a little from the text's own, so that lengths can evolve, too.
        length = max(3, round(words_in(sample.raw) * chance.uniform(0.8, 1.2)))
        gaps = blanked(sample.raw, settings.blank, chance)
        return TextTask(sample.label, seed, "baseline_fill", {"blanked": gaps, "length": length})

    def _by_class(self, samples: Sequence[Sample]) -> dict[str, list[Sample]]:
        return by_class((label for label, quota in self._quotas.items() if quota), samples)

    # -- the election --------------------------------------------------------------------------------------------

    def _embedded(self, standing: Population, t: int) -> dict[str, NDArray[np.float32]]:
        """Each text's vector; with lookahead, the mean of vectors of variations made for this alone."""
        ahead = self._settings.lookahead
        if not ahead:
            return {x: self._kernel.embed([sample.raw for sample in samples]) for x, samples in standing.items()}
        means = {}
        for label, samples in self._varied("lookahead", t, standing, ahead).items():
            vectors = self._kernel.embed([sample.raw for sample in samples])
            means[label] = vectors.reshape(len(standing[label]), ahead, -1).mean(axis=1)
        return means

    def _elect(self, samples: Sequence[Sample], counts: NDArray[np.float64], t: int) -> list[Sample]:
        """N_c of the texts: those with the highest counts, or drawn in proportion to them."""
        quota, kept = self._quotas[samples[0].label], np.maximum(counts - self._settings.threshold, 0.0)
        chance = np.random.default_rng(seed_of(self._seed, "elect", t, samples[0].label))
        if self._settings.selection == "prob":
            # With replacement, as in the original: a text can be elected more than once.
            weights = kept / kept.sum() if kept.any() else np.full(len(kept), 1 / len(kept))
            return [samples[i] for i in chance.choice(len(kept), size=quota, p=weights)]
        # Counts cut at 0 are equal: which of them go on is left to chance, not to their place.
        order = np.lexsort((chance.permutation(len(kept)), -kept))
        return [samples[i] for i in order[:quota]]


def _plan(config: RunConfig, schema: Schema, units: int) -> GaussianPlan:
    settings = config.augpe
    standing = config.records * settings.expansion
    written = config.records + settings.rounds * (
        config.records * (settings.expansion - 1) + standing * settings.lookahead
    )
    looks = [Look(f"round-{t}", NearestVotes.sensitivity) for t in range(1, settings.rounds + 1)]
    return plan_of(config, units, looks, texts=written)


def _estimate(config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]) -> Estimate:
    raw = schema.dumps(schema.examples[0]) if schema.examples else "{}"
    labels = schema.labels or ("",)
    shown = {"raw": raw, "tone": tone(random.Random(0)), "blanked": raw, "length": words_in(raw), "keyword": ""}
    templates = ("baseline_rephrase", "baseline_fill")
    asks = [TextTask(labels[i % len(labels)], i, templates[i % 2], shown) for i in range(8)]
    return text_estimate(config, schema, plan, runs, asks)


def _build(parts: Parts) -> Synthesizer:
    return AugPE(parts, planned(parts))


RECIPE = Recipe(_plan, _estimate, _build)
