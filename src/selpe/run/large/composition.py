"""How the released records of the core were asked for, and how further ones are: in the same ways, as often.

What the vote on candidate releases chose is a mixture: so many records by this guide, so many without exemplars, so
many with the winners of round 2. A released record remembers its proposal. So a further record takes after one of
them, in turn, and is asked for with the same guide and the same exemplars; only the seed is its own. What a mixture
says about records that were left out of it (the odd ones, the outer ones) is not followed: nothing is generated to be
thrown away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from selpe.method.generation import ORDERS, Candidate, Proposal
from selpe.method.guides import Guide


@dataclass(frozen=True, slots=True)
class Composition:
    """The ways of each class, one for every released record of the core; `guide` is for classes that have none."""

    ways: Mapping[str, tuple[Proposal, ...]]
    guide: Guide

    @classmethod
    def of(cls, candidates: Iterable[Candidate], guide: Guide) -> Composition:
        """The composition of these records."""
        ways: dict[str, list[Proposal]] = {}
        for candidate in candidates:
            ways.setdefault(candidate.proposal.label or "", []).append(candidate.proposal)
        return cls({label: tuple(found) for label, found in ways.items()}, guide)

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
                way, prompt = ways[turn], (*shown[turn], own % ORDERS)
                made.append((prompt, Proposal(way.guide, own, way.label, way.positives, way.negatives)))
        order = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompt for prompt, _ in made))}
        return [proposal for _, proposal in sorted(made, key=lambda one: order[one[0]])]


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
