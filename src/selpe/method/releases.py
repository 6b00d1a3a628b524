"""Candidate releases (ours): whole tables put together from the pools by public means, to choose among by one vote.

The setting `bundles` says how many. A vote of all rows over a few dozen tables tells good ones from bad ones where a
vote over single records is weak, but only if the tables really differ. So they differ in where their records come
from: what evolution included, what was proposed without exemplars, single guides, single rounds, dense or sparse
regions, records that are plainly of their class, and random mixtures of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from selpe.method.generation import Candidate
from selpe.method.set_scores import agreement
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.schema import Schema


@dataclass(frozen=True, slots=True)
class CandidateRelease:
    """Records per class that could be released; the name says how they were put together.

    `measured` is the share of them that was written by measured tables.
    """

    name: str
    records: Mapping[str, tuple[Candidate, ...]]
    measured: float = 0.0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a candidate came from, and how central it is in its pool (0: nearest to the winners' centre).

    `agreement` says how plainly it belongs to its class, by a model of the other candidates (1: most plainly).
    """

    candidate: Candidate
    round: int
    rank: float
    explored: bool
    agreement: float = 0.5


@dataclass(slots=True)
class Origins:
    """The origins of all candidates of a run, class by class."""

    _pools: dict[str, list[Origin]] = field(default_factory=dict)

    def remember(
        self, label: str, t: int, pool: Sequence[Candidate], order: Iterable[int], rank: float | None = None
    ) -> None:
        """Adds the pool of round t in the given order, from nearest to farthest; or with one rank for all."""
        places = list(order)
        for place, i in enumerate(places):
            candidate = pool[int(i)]
            share = place / max(1, len(places) - 1) if rank is None else rank
            explored = not candidate.proposal.positives
            self._pools.setdefault(label, []).append(Origin(candidate, t, share, explored))

    def candidates(self, labels: Iterable[str]) -> dict[str, list[Candidate]]:
        """All candidates of each class."""
        return {label: [origin.candidate for origin in self._pools.get(label, ())] for label in labels}

    def with_agreement(
        self, schema: Schema, encoder: Encoder, public_encoder: PublicEncoder | None
    ) -> dict[str, list[Origin]]:
        """All origins, with how plainly each candidate belongs to its class."""
        records = [origin.candidate.record for pool in self._pools.values() for origin in pool]
        ranks = iter(agreement(schema, encoder, records, public_encoder=public_encoder))
        return {
            label: [replace(origin, agreement=float(next(ranks))) for origin in pool]
            for label, pool in self._pools.items()
        }


def whole_release(
    records: Mapping[str, Sequence[Candidate]], name: str = "evolved", measured: float = 0.0
) -> CandidateRelease:
    """These records as a candidate release."""
    return CandidateRelease(name, {label: tuple(found) for label, found in records.items()}, measured)


def make_releases(
    evolved: Mapping[str, Sequence[Candidate]],
    origins: Mapping[str, Sequence[Origin]],
    *,
    count: int,
    seed: int,
) -> list[CandidateRelease]:
    """`count` candidate releases with the same class sizes as the evolved one, which is the first of them."""
    sizes = {label: len(records) for label, records in evolved.items()}
    releases = [whole_release(evolved)]
    chance = random.Random(f"bundles:{seed}")
    policies = list(_policies(origins, chance))
    for number in range(count - 1):
        name, weight = policies[number % len(policies)]
        records = {label: _draw(origins[label], sizes[label], weight, chance) for label in evolved}
        releases.append(CandidateRelease(name, records))
    return releases


Weight = Callable[[Origin], float]


def _policies(origins: Mapping[str, Sequence[Origin]], chance: random.Random) -> list[tuple[str, Weight]]:
    """Ways to weigh candidates. Few records of weight near 0 are taken unless there are not enough others."""
    everything = [origin for pool in origins.values() for origin in pool]
    policies: list[tuple[str, Weight]] = [
        ("any", lambda origin: 1.0),
        ("without exemplars", lambda origin: 1.0 if origin.explored else 1e-6),
        ("with exemplars", lambda origin: 1e-6 if origin.explored else 1.0),
        ("central", lambda origin: (1.0 - origin.rank) ** 3 + 1e-6),
        ("outer", lambda origin: origin.rank**2 + 1e-6),
        ("middle", lambda origin: 1.0 if 0.15 <= origin.rank <= 0.85 else 1e-3),
        ("plain cases", _plain),
        ("no odd cases", lambda origin: 1.0 if origin.agreement > 0.3 else 1e-3),
    ]
    for guide in sorted({origin.candidate.proposal.guide.name for origin in everything}):
        policies.append((f"guide '{guide}'", _from_guide(guide)))
        policies.append((f"plain cases of guide '{guide}'", _both(_from_guide(guide), _plain)))
    rounds = sorted({origin.round for origin in everything})
    for number in rounds if len(rounds) > 1 else ():
        policies.append((f"round {number}", _from_round(number)))
    for mixture in range(8):
        policies.append((f"mixture {mixture + 1}", _mixture(everything, random.Random(chance.random()))))
    return policies


def _plain(origin: Origin) -> float:
    return 1.0 if origin.agreement > 0.6 else 1e-3


def _both(one: Weight, other: Weight) -> Weight:
    return lambda origin: one(origin) * other(origin)


def _from_guide(name: str) -> Weight:
    return lambda origin: 1.0 if origin.candidate.proposal.guide.name == name else 1e-6


def _from_round(number: int) -> Weight:
    return lambda origin: 1.0 if origin.round == number else 1e-3


def _mixture(everything: Sequence[Origin], chance: random.Random) -> Weight:
    """Random weights on the things that tell candidates apart."""
    guides = {origin.candidate.proposal.guide.name: chance.expovariate(1.0) for origin in everything}
    rounds = {origin.round: chance.expovariate(1.0) for origin in everything}
    explored, slope, plainness = chance.random(), chance.uniform(-2.0, 2.0), chance.uniform(0.0, 2.0)

    def weight(origin: Origin) -> float:
        share = explored if origin.explored else 1.0 - explored
        tilt = (1.0 - origin.rank + 0.05) ** slope if slope > 0 else (origin.rank + 0.05) ** -slope
        tilt *= (origin.agreement + 0.05) ** plainness
        return float(share * tilt * guides[origin.candidate.proposal.guide.name] * rounds[origin.round] + 1e-9)

    return weight


def _draw(pool: Sequence[Origin], size: int, weight: Weight, chance: random.Random) -> tuple[Candidate, ...]:
    """A weighted sample without replacement (exponential keys), in pool order."""
    keyed = sorted(range(len(pool)), key=lambda i: chance.expovariate(1.0) / weight(pool[i]))
    return tuple(pool[i].candidate for i in sorted(keyed[:size]))
