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
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import RunError
from selpe.method.facts import MeasuredTables
from selpe.method.generation import Candidate, Proposal
from selpe.method.guides import Guide
from selpe.method.record_forms import Fact
from selpe.method.table_store import tables_from_dict, tables_to_dict
from selpe.owner_only import write_whole
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from selpe.method.algorithm import Evolved

FORMAT = "selpe-composition/1"


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
    def of(cls, evolved: Evolved, candidates: Iterable[Candidate] | None = None) -> Composition:
        """The composition of what evolved, or of these candidates of it."""
        ways: dict[str, list[Proposal]] = {}
        for candidate in evolved.candidates if candidates is None else candidates:
            ways.setdefault(candidate.proposal.label or "", []).append(candidate.proposal)
        tables = evolved.tables if evolved.measured else None
        return cls({label: tuple(found) for label, found in ways.items()}, evolved.guide, tables)

    # -- kept for later ------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Writes what further records of this release are written from. Every part of it is public or paid for."""
        write_whole(path, json.dumps(self.to_dict(), ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path, schema: Schema) -> Composition | None:
        """What a run has kept; None where it has kept nothing, as runs of earlier versions."""
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")), schema)
        except FileNotFoundError:
            return None
        except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise RunError(
                "this is not what a run writes: it was changed or cut short",
                where=str(path),
                hint="put it back from a backup; what was released can still be read without it",
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """As plain data: guides and exemplars once each, as many records were asked for with the same."""
        guides: dict[Guide, int] = {self.guide: 0}
        shown: dict[str, int] = {}

        def places(records: tuple[Record, ...]) -> list[int]:
            return [shown.setdefault(json.dumps(record, ensure_ascii=False), len(shown)) for record in records]

        ways = {
            label: [
                [guides.setdefault(way.guide, len(guides)), places(way.positives), places(way.negatives),
                 way.class_told]
                for way in found
            ]
            for label, found in self.ways.items()
        }  # fmt: skip
        return {
            "format": FORMAT,
            "guides": [asdict(guide) for guide in guides],
            "shown": [json.loads(text) for text in shown],
            "ways": ways,
            "tables": None if self.tables is None else tables_to_dict(self.tables),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], schema: Schema) -> Composition:
        """The composition that plain data states. Seeds and facts are not kept: every further record has its own."""
        if content["format"] != FORMAT:
            raise ValueError
        guides, shown = [Guide(**guide) for guide in content["guides"]], content["shown"]
        ways = {
            label: tuple(
                Proposal(
                    guides[guide], 0, label or None, tuple(shown[i] for i in positives),
                    tuple(shown[i] for i in negatives), class_told=told,
                )
                for guide, positives, negatives, told in found
            )
            for label, found in content["ways"].items()
        }  # fmt: skip
        tables = content["tables"]
        return cls(ways, guides[0], None if tables is None else tables_from_dict(tables, schema))

    # -- asking for more -----------------------------------------------------------------------------------------

    def having(self, given: Mapping[str, Fact]) -> Composition:
        """The same, where every further record has what is given."""
        return replace(self, given=dict(given))

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
