"""What ε buys in measured tables: which fields, how many codes, one look or two, and how noisy a cell will be.

All of it follows from public numbers: the units, ε, the classes and the kinds of fields. The thresholds were chosen on
validation rows (docs/results.md): what counts is r = n·ε / F, the rows times the ε of the measurement for each of F
tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selpe.config import Adjacency
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.mechanisms import Guarantee, Influence, Law, NoisyMax
from selpe.privacy.noise import CountingNoise, count_noise_of, counting_charge

CHOICE_SHARE, CHOICE_CAP = 0.2, 0.5  # of ε, for votes on which fields to measure
LEAST = 25.0  # n·ε below which a table would be all noise
# From so many rows times ε on: so many tables.
TABLES = ((0.0, 1), (350.0, 2), (700.0, 4), (1200.0, 99))
# From r on: clusters of a short text, bins of a number.
CODES = ((0.0, 32, 4), (120.0, 32, 6), (300.0, 96, 8), (500.0, 256, 8), (900.0, 512, 10))
TWO_LOOKS = 600.0  # r from which on a second, finer look pays
FIRST_LOOK = 0.35  # of the measurement's ε, where there are two
COARSE = 32  # clusters of the first of two looks
FEW_PHRASES, MANY_PHRASES = 500, 800


@dataclass(frozen=True, slots=True)
class Measurable:
    """What a schema offers to be measured: all fields but the label, or those that the owner names, and pairs."""

    fields: tuple[str, ...]
    named: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    delta: float = 0.0


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """One measurement: `fields` to count, or none where rows vote for `tables` of the `candidates`.

    `choice` is the ε of one such vote, `looks` the ε of each look at the counts. `scale` is the noise of the last look,
    `expected` the rows of a cell if all were spread evenly over classes and codes of an ordinary field.
    """

    fields: tuple[str, ...]
    candidates: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    tables: int
    choice: float
    looks: tuple[float, ...]
    clusters: int
    fine_clusters: int
    bins: int
    phrases: int
    delta: float
    law: str
    scale: float
    expected: float

    @property
    def epsilon(self) -> float:
        """The ε of votes and looks together."""
        return math.fsum([self.choice] * self.votes + list(self.looks))

    @property
    def votes(self) -> int:
        """How many fields are chosen by votes."""
        return 0 if self.fields else self.tables

    @property
    def counted(self) -> int:
        """F: tables that are counted in one look."""
        return self.tables + len(self.pairs)

    def prices(self) -> dict[str, float]:
        """The ε of every private step by its name in the ledger."""
        votes = {f"field-{number}": self.choice for number in range(1, self.votes + 1)}
        return votes | {f"measure-{number}": epsilon for number, epsilon in enumerate(self.looks, 1)}

    def at(self, prices: Mapping[str, float]) -> MeasurePlan:
        """The same plan at other prices."""
        looks = tuple(prices[f"measure-{number}"] for number in range(1, len(self.looks) + 1))
        return replace(self, looks=looks, choice=prices.get("field-1", self.choice))

    def costs(self, adjacency: Adjacency, law: Law) -> dict[str, Guarantee]:
        """The cost of every step under both relations, from the maps of the measurements that will run."""
        found = {}
        for name, price in self.prices().items():
            if name.startswith("field-"):
                found[name] = NoisyMax(price, adjacency, law).calibrate(Influence(1000)).guarantee
            else:
                found[name] = count_noise_of(CountingNoise(price, adjacency, self.delta), self.counted).guarantee
        return found

    def charges(self, adjacency: Adjacency, run: str, unit: str) -> dict[str, Charge]:
        """What each look will be charged; votes for fields are charged like other choices."""
        return {
            f"measure-{number}": counting_charge(
                CountingNoise(epsilon, adjacency, self.delta), self.counted,
                run=run, selection=f"measure-{number}", unit=unit,
            )
            for number, epsilon in enumerate(self.looks, 1)
        }  # fmt: skip

    def steps(self) -> list[str]:
        """The private steps in words."""
        asked = f"{_times(self.votes, 'vote')} for what to measure (ε {self.choice * self.votes:.3g})"
        votes = [asked] if self.votes else []
        looks = f"{_times(self.counted, 'table')} measured" + (" in two looks" if len(self.looks) > 1 else "")
        return [*votes, f"{looks} (ε {math.fsum(self.looks):.3g})"]

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"epsilon": self.epsilon}


def plan_measurement(
    offered: Measurable, *, units: int, classes: int, epsilon: float, adjacency: Adjacency
) -> MeasurePlan | None:
    """The measurement that so much ε buys; None where a table would be all noise."""
    control = epsilon == 0 or math.isinf(epsilon)
    strength = units * epsilon * (1 if adjacency == "replace-one" else 2)
    if not offered.fields or (not control and strength < LEAST):
        return None
    if epsilon == 0:
        strength = units * 2.0  # a control without ε is planned like a run of ordinary ε
    tables = min(_at(TABLES, strength)[0], len(offered.fields))
    everything = offered.named or tables == len(offered.fields)
    fields = offered.fields if everything else ()
    counted = (len(offered.fields) if everything else tables) + len(offered.pairs)
    choice = 0.0 if everything else min(CHOICE_CAP, CHOICE_SHARE * epsilon) / tables if not control else epsilon
    left = epsilon if control else epsilon - (0.0 if everything else choice * tables)
    ratio = strength * (1.0 if control else left / epsilon) / counted
    clusters, bins = _at(CODES, ratio)
    two = ratio >= TWO_LOOKS
    looks = (left,) if not two else ((left, left) if control else (FIRST_LOOK * left, left - FIRST_LOOK * left))
    while not control and math.fsum([choice] * (0 if everything else tables) + list(looks)) > epsilon:  # by rounding
        looks = (*looks[:-1], math.nextafter(looks[-1], 0.0))
    fit = count_noise_of(CountingNoise(looks[-1], adjacency, offered.delta), counted)
    return MeasurePlan(
        fields=fields,
        candidates=offered.fields,
        pairs=offered.pairs,
        tables=len(fields) or tables,
        choice=choice,
        looks=looks,
        clusters=COARSE if two else clusters,
        fine_clusters=clusters,
        bins=bins,
        phrases=FEW_PHRASES if ratio < 300 else MANY_PHRASES,
        delta=offered.delta,
        law=fit.law,
        scale=fit.scale,
        expected=units / max(1, classes) / bins,
    )


def _times(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _at(steps: Sequence[tuple[Any, ...]], value: float) -> tuple[Any, ...]:
    """What stands at the last step that is not above a value."""
    return max((step for step in steps if step[0] <= value), key=lambda step: step[0])[1:]
