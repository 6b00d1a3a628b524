"""Looks at the private table by plan: noise as the plan says, events as the cost grows, results kept for the card."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from selpe.config import RunConfig
from selpe.errors import ConfigError
from selpe.events import Emit, Selected, silence
from selpe.privacy.gaussian_plan import GaussianPlan, Look, gaussian_plan
from selpe.privacy.histograms import Histogram, HistogramQuery
from selpe.privacy.table import PrivateTable
from selpe.run.methods import Parts


def plan_of(
    config: RunConfig, units: int, looks: Sequence[Look], *, shares: Sequence[float] | None = None, texts: int = 0
) -> GaussianPlan:
    """The plan of these looks; by default μ² is shared in proportion to steps, so that each has the same noise.

    `texts` is how many the models will write; without any, no records come out.
    """
    return gaussian_plan(
        config.method,
        looks,
        units=units,
        records=config.records if texts else 0,
        epsilon=config.epsilon,
        delta=config.delta,
        adjacency=config.adjacency,
        shares=[float(look.count) for look in looks] if shares is None else shares,
        candidates=texts,
    )


def planned(parts: Parts) -> GaussianPlan:
    """The plan that a run has handed over. Raises ConfigError where it is of another kind."""
    if not isinstance(parts.plan, GaussianPlan):
        raise ConfigError(f"{parts.config.method} needs a plan of Gaussian looks")
    return parts.plan


@dataclass(slots=True)
class Looks:
    """The private looks of one fit. `drawn` has what came of them, in order."""

    table: PrivateTable
    plan: GaussianPlan
    emit: Emit = silence
    test_seed: int | None = None
    drawn: list[Histogram] = field(default_factory=list)
    _done: list[str] = field(default_factory=list)

    def histogram(self, name: str, query: HistogramQuery, samples: Mapping[str, Sequence[str]]) -> Histogram:
        """The noisy counts of one look. `samples` are the texts voted on, so that a stored result fits no others."""
        made = self.table.histogram(
            query,
            noise=self.plan.noise(name, test_seed=self.test_seed),
            selection=name,
            context=_digest(samples),
        )
        self.drawn.append(made)
        self.told(name, made.mechanism, made.private, replayed=made.replayed)
        return made

    def told(self, name: str, mechanism: str, private: bool, *, replayed: bool) -> None:
        """Says that a look was taken, with what it adds to the ε of the looks before it: these do not add up."""
        before = self._so_far().guarantee
        self._done.append(name)
        after = self._so_far().guarantee
        one, other = _more(before.add_remove, after.add_remove), _more(before.replace_one, after.replace_one)
        self.emit(Selected(name, mechanism, one, other, private, replayed))

    def _so_far(self) -> GaussianPlan:
        return replace(self.plan, looks=tuple(look for look in self.plan.looks if look.name in self._done))


def _more(before: float, after: float) -> float:
    return 0.0 if after == before else after - before  # also where both are infinite


def _digest(samples: Mapping[str, Sequence[str]]) -> str:
    content = hashlib.sha256()
    for label, texts in samples.items():
        for text in (label, str(len(texts)), *texts):
            raw = text.encode("utf-8", "surrogatepass")
            content.update(len(raw).to_bytes(8, "big") + raw)
    return content.hexdigest()
