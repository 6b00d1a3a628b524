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
from selpe.errors import ConfigError
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.mechanisms import Guarantee, Influence, Law, NoisyMax
from selpe.privacy.noise import CountingFit, CountingLaw, CountingNoise, count_noise_of, counting_charge

CHOICE_SHARE, CHOICE_CAP = 0.2, 0.5  # of ε, for votes on which fields to measure
LEAST = 25.0  # n·ε below which a table would be all noise
# Rows times the ε of a vote from which on it is held. Options differ by a few rows in a hundred: below this, noise
# alone would decide, and tables have the ε instead.
WORTH_A_VOTE = 60.0
# The same for a vote for fields where there is a text of a few words: it serves so often that rows must say clearly
# that another field would serve better.
WORTH_A_FIELD = 100.0
# From so many rows times ε on: so many tables.
TABLES = ((0.0, 1), (2000.0, 2), (5000.0, 4), (12000.0, 99))
# From r on: clusters of a short text, bins of a number.
CODES = (
    (0.0, 16, 4), (60.0, 16, 6), (120.0, 32, 6), (250.0, 48, 6), (700.0, 96, 8), (1200.0, 256, 8), (2500.0, 512, 10),
)  # fmt: skip
TWO_LOOKS = 4000.0  # r from which on a second, finer look pays
FIRST_LOOK = 0.35  # of the measurement's ε, where there are two
COARSE = 32  # clusters of the first of two looks
FEW_PHRASES, MANY_PHRASES = 800, 1200


@dataclass(frozen=True, slots=True)
class Measurable:
    """What a schema offers to be measured: all fields but the label, or those that the owner names, and pairs.

    `brief` are texts of a few words. Models know least of what people write, and a codebook holds nearly all of what
    they write in a few words: while rows are few, these are measured without a vote.
    """

    fields: tuple[str, ...]
    named: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    delta: float = 0.0
    brief: tuple[str, ...] = ()

    def known(self, tables: int, *, heard: float) -> tuple[str, ...]:
        """The fields that need no vote, of so many tables; `heard` is how loud rows would be in one."""
        if self.named or tables >= len(self.fields):
            return self.fields
        return () if heard >= WORTH_A_FIELD else self.brief[:tables]


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """One measurement of so many `tables`: of `fields`, and of as many `candidates` as rows vote for.

    `choices` are the ε of these votes, `looks` the ε of each look at the counts. `scale` is the noise of the last look,
    `expected` the rows of a cell if all were spread evenly over classes and codes.
    """

    fields: tuple[str, ...]
    candidates: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    tables: int
    choices: tuple[float, ...]
    looks: tuple[float, ...]
    clusters: int
    fine_clusters: int
    bins: int
    phrases: int
    delta: float
    law: CountingLaw
    scale: float
    expected: float

    @property
    def epsilon(self) -> float:
        """The ε of votes and looks together."""
        return math.fsum([*self.choices, *self.looks])

    @property
    def votes(self) -> int:
        """How many fields are chosen by votes."""
        return len(self.choices)

    @property
    def counted(self) -> int:
        """F: tables that are counted in one look."""
        return self.tables + len(self.pairs)

    @property
    def half_width(self) -> float:
        """By how many rows a cell of the last look is off at most, in 95 of 100 cases."""
        return CountingFit(self.law, self.scale, Guarantee(0.0, 0.0)).half_width

    def prices(self) -> dict[str, float]:
        """The ε of every private step by its name in the ledger."""
        votes = {f"field-{number}": epsilon for number, epsilon in enumerate(self.choices, 1)}
        return votes | {f"measure-{number}": epsilon for number, epsilon in enumerate(self.looks, 1)}

    def at(self, prices: Mapping[str, float]) -> MeasurePlan:
        """The same plan at other prices, each taken by its name."""
        choices = tuple(prices[f"field-{number}"] for number in range(1, self.votes + 1))
        looks = tuple(prices[f"measure-{number}"] for number in range(1, len(self.looks) + 1))
        return replace(self, choices=choices, looks=looks)

    def fitted(self, adjacency: Adjacency) -> MeasurePlan:
        """The same plan with the noise that the price of its last look buys."""
        fit = count_noise_of(CountingNoise(self.looks[-1], adjacency, self.delta), self.counted)
        return replace(self, law=fit.law, scale=fit.scale)

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
        asked = f"{_times(self.votes, 'vote')} for what to measure (ε {math.fsum(self.choices):.3g})"
        votes = [asked] if self.votes else []
        looks = f"{_times(self.counted, 'table')} measured" + (" in two looks" if len(self.looks) > 1 else "")
        return [*votes, f"{looks} (ε {math.fsum(self.looks):.3g})"]

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, with what follows from it: ε of all steps, and the noise of one cell."""
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return own | {"epsilon": self.epsilon, "half_width": self.half_width}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> MeasurePlan:
        """The plan that plain data states, as a run has kept it; infinity may be the word `inf`."""
        try:
            return cls(
                fields=tuple(kept["fields"]),
                candidates=tuple(kept["candidates"]),
                pairs=tuple((one, other) for one, other in kept["pairs"]),
                choices=tuple(float(epsilon) for epsilon in kept["choices"]),
                looks=tuple(float(epsilon) for epsilon in kept["looks"]),
                tables=int(kept["tables"]),
                clusters=int(kept["clusters"]),
                fine_clusters=int(kept["fine_clusters"]),
                bins=int(kept["bins"]),
                phrases=int(kept["phrases"]),
                delta=float(kept["delta"]),
                law=kept["law"],
                scale=float(kept["scale"]),
                expected=float(kept["expected"]),
            )
        except (LookupError, TypeError, ValueError):
            raise ConfigError("this is not the plan of a measurement", where="measurement") from None


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
    vote = epsilon if control else min(CHOICE_CAP, CHOICE_SHARE * epsilon) / tables
    heard = math.inf if math.isinf(epsilon) else loudness(units, vote or 2.0 * CHOICE_SHARE / tables, adjacency)
    fields = offered.known(tables, heard=heard)
    voted = max(0, tables - len(fields)) if heard >= WORTH_A_FIELD or not fields else 0
    choices = (vote,) * voted
    counted = len(fields) + voted + len(offered.pairs)
    left = epsilon if control else epsilon - math.fsum(choices)
    ratio = strength * (1.0 if control else left / epsilon) / counted
    clusters, bins = _at(CODES, ratio)
    two = ratio >= TWO_LOOKS
    looks = (left,) if not two else ((left, left) if control else (FIRST_LOOK * left, left - FIRST_LOOK * left))
    while not control and math.fsum([*choices, *looks]) > epsilon:  # by rounding
        looks = (*looks[:-1], math.nextafter(looks[-1], 0.0))
    return MeasurePlan(
        fields=fields,
        candidates=offered.fields,
        pairs=offered.pairs,
        tables=len(fields) + voted,
        choices=choices,
        looks=looks,
        clusters=COARSE if two else clusters,
        fine_clusters=clusters,
        bins=bins,
        phrases=FEW_PHRASES if ratio < 600 else MANY_PHRASES,
        delta=offered.delta,
        law="laplace",
        scale=0.0,
        expected=units / max(1, classes) / (clusters if {*fields} & {*offered.brief} else bins),
    ).fitted(adjacency)


def worth_a_vote(units: int, epsilon: float, adjacency: Adjacency) -> bool:
    """Whether so many rows can be heard above the noise of a vote at this ε."""
    return loudness(units, epsilon, adjacency) >= WORTH_A_VOTE


def loudness(units: int, epsilon: float, adjacency: Adjacency) -> float:
    """Rows times the ε of a vote, as under replace-one: how clearly so many rows can be heard in it."""
    return units * epsilon * (1 if adjacency == "replace-one" else 2)


def _times(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _at(steps: Sequence[tuple[Any, ...]], value: float) -> tuple[Any, ...]:
    """What stands at the last step that is not above a value."""
    return max((step for step in steps if step[0] <= value), key=lambda step: step[0])[1:]
