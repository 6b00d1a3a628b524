"""How the released records of the core were asked for, and how further ones are: in the same ways, as often.

What the vote on candidate releases chose is a mixture: so many records by this guide, so many without exemplars, so
many with the winners of round 2. A released record remembers its proposal. So a further record takes after one of
them, in turn, and is asked for with the same guide and the same exemplars; only the seed is its own. What a mixture
says about records that were left out of it (the odd ones, the outer ones) is not followed: nothing is generated to be
thrown away. Where the release was written by measured tables, a further record has facts of its own, drawn anew from
the same tables: more records cost no ε, and no other look at a private row.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from selpe.method.facts import MeasuredTables
from selpe.method.generation import Candidate, Proposal
from selpe.method.guides import Guide
from selpe.method.record_forms import Fact

if TYPE_CHECKING:
    from selpe.method.algorithm import Evolved


@dataclass(frozen=True, slots=True)
class Composition:
    """The ways of each class, one for every released record of the core; `guide` is for classes that have none.

    `tables` are those that the release was written by, if it was; `given` is what every further record is to have.
    """

    ways: Mapping[str, tuple[Proposal, ...]]
    guide: Guide
    tables: MeasuredTables | None = None
    given: Mapping[str, Fact] = field(default_factory=dict)

    @classmethod
    def of(
        cls, evolved: Evolved, candidates: Iterable[Candidate] | None = None, given: Mapping[str, Fact] | None = None
    ) -> Composition:
        """The composition of what evolved, or of these candidates of it."""
        ways: dict[str, list[Proposal]] = {}
        for candidate in evolved.candidates if candidates is None else candidates:
            ways.setdefault(candidate.proposal.label or "", []).append(candidate.proposal)
        tables = evolved.tables if evolved.measured else None
        return cls({label: tuple(found) for label, found in ways.items()}, evolved.guide, tables, given or {})

    def proposals(
        self, asked: Mapping[str, int], *, seed: int | str, name: str, before: Mapping[str, int]
    ) -> list[Proposal]:
        """So many proposals of each class, those that share a prompt together.

        `before` says how many of the class there were before them, `name` tells them from all others of this seed.
        """
        made = []
        for label, count in asked.items():
            ways = self.ways.get(label) or (Proposal(self.guide, 0, label=label or None),)
            shown = [(label, way.guide.name, repr(way.positives), repr(way.negatives)) for way in ways]
            for i in range(count):
                turn, own = (before.get(label, 0) + i) % len(ways), _seed(f"{seed}:{name}:{label}:{i}")
                way = ways[turn]
                made.append((shown[turn], self._after(replace(way, seed=own), label)))
        order = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompt for prompt, _ in made))}
        return [proposal for _, proposal in sorted(made, key=lambda one: order[one[0]])]

    def _after(self, way: Proposal, label: str) -> Proposal:
        """A proposal like this one, with facts of its own."""
        if self.tables is None:
            return replace(way, facts=tuple(self.given.items()))
        drawn = self.tables.draw(label, None, random.Random(f"facts:{way.seed}"), self.given)
        if drawn is None:
            return way
        told = drawn.beside is None
        return replace(way, facts=drawn.facts, positives=drawn.exemplars or way.positives, class_told=told)


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
