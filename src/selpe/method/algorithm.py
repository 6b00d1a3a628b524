"""Algorithm 1: selection-guided progressive evolution, top to bottom.

Read `Evolution.run` beside the paper; README.md maps every equation and every line. Each round proposes a pool per
class, lets the private table choose winners, pairs every winner with a contrast, takes records into the synthetic
table, and hands winners and contrasts to the next round. Three private steps of ours stand around it and can be
switched off: a choice among guides before round 1; after the last round, noisy tables that are written into the
records; and a choice among candidate releases at the end. Everything here but the calls of `private` is public.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from selpe.config import Adjacency
from selpe.config.presets import PAPER
from selpe.errors import ModelError, StoppedError
from selpe.events import (
    Answered,
    Emit,
    Finished,
    Included,
    Judging,
    PoolReady,
    Selected,
    StageStarted,
    Started,
    silence,
)
from selpe.method.facts import MeasuredTables
from selpe.method.generation import Candidate, Generation, Generator, Proposal, without_exemplars
from selpe.method.guides import Guide
from selpe.method.kernel import MultiChannelKernel, PoolDistances
from selpe.method.measuring import Measuring
from selpe.method.releases import CandidateRelease, Origins, make_releases, whole_release
from selpe.method.selection import (
    Exemplars,
    Inclusion,
    VoteName,
    benefit_of_doubt,
    contrasts,
    evolve_context,
    mechanism_at,
    nearest_first,
    record_vote,
    select_top,
    select_winners,
)
from selpe.method.set_scores import set_vote
from selpe.models.base import Answer
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.privacy.counts import Counts
from selpe.privacy.plan import Plan
from selpe.privacy.table import Mechanism, PrivateTable, Selection
from selpe.privacy.votes import FieldVote
from selpe.schema import Record, Schema

DRAFTED = 1000  # records of a draft at least: facts cost nothing to draw, and few records are judged by their luck
WRITINGS = 4  # tries at a record around drawn facts, each with facts of its own; then the model's own record stays


@dataclass(frozen=True, slots=True)
class Method:
    """The switches of the method. `paper()` gives the paper's own configuration."""

    multiplicity: int = 3  # K
    votes: VoteName = "approval"
    mechanism: Literal["permute-and-flip", "exponential"] = "permute-and-flip"
    contrast: bool = True
    inclusion: Inclusion = "diverse"
    explore: float = 1 / 3
    exemplars: int = 2
    guide_sample: int = 10  # records per class that stand for a guide in the vote
    mixed: bool = False  # guides take turns, and the vote on candidate releases judges them; no vote of their own
    bundles: int = 128  # candidate releases to vote on; 0: no such vote
    test_seed: int | None = None  # a seeded selection, for tests only; stamps the run 'not private'

    @classmethod
    def paper(cls) -> Method:
        """The switches of the preset `paper` (config/presets.py); its T and τ belong to the plan and the generator."""
        return cls(**{one.name: PAPER[one.name] for one in fields(cls) if one.name in PAPER})


@dataclass(frozen=True, slots=True)
class Evolved:
    """The outcome: synthetic records, the context to generate more from, and every private result.

    `release` names the candidate release that was chosen; 'evolved' is what Algorithm 1 put together itself. `tables`
    are what was measured, and `measured` is the share of the release that was written by them.
    """

    candidates: tuple[Candidate, ...]
    guide: Guide
    context: Mapping[str, Exemplars]
    drawn: tuple[Selection | Counts, ...]
    release: str = "evolved"
    tables: MeasuredTables | None = None
    measured: float = 0.0


@dataclass(slots=True)
class Evolution:
    """One run of Algorithm 1. `guides` with more than one entry are voted on first, if the plan pays for it."""

    private: PrivateTable
    schema: Schema
    generator: Generator
    kernel: MultiChannelKernel
    encoder: Encoder
    plan: Plan
    guides: Sequence[Guide]
    method: Method = field(default_factory=Method)
    adjacency: Adjacency = "replace-one"
    seed: int = 0
    emit: Emit = silence
    public_encoder: PublicEncoder | None = None  # for pools, in the encoder's place
    first_pool: Callable[[Generation], None] | None = None  # is shown the first pool, before any private choice
    _drawn: list[Selection | Counts] = field(default_factory=list)
    _origins: Origins = field(default_factory=Origins)
    _seen: list[Record] = field(default_factory=list)
    _told: tuple[str, float] | None = None

    def run(self) -> Evolved:
        """The synthetic table S_syn. The numbers at the side are lines of Algorithm 1; classes evolve side by side."""
        self.emit(Started(len(self.plan.rounds), self._total, self._candidates_in_all()))
        guide = self._choose_guide()  # ours
        included: dict[str, list[Candidate]] = {label: [] for label in self._labels}  # 1: S_syn
        context: dict[str, Exemplars] = {label: Exemplars() for label in self._labels}  # 1: 𝓔
        winners: dict[str, list[Record]] = {label: [] for label in self._labels}
        for t, part in enumerate(self.plan.rounds, 1):  # 2
            quota = {label: self._due(label, t) - len(included[label]) for label in self._labels}  # 3: m_t, Eq. quota
            pools = self._propose(t, quota, context, guide)  # 4: H_t, Eq. candidate_pool
            self._require_candidates(pools)
            self.emit(Judging("comparing candidates", 0.0))
            spaces = {label: self._space(pool) for label, pool in pools.items()}  # Φ and g over H_t
            chosen = self._select(f"round-{t}", part.epsilon, pools, spaces)  # 5 to 11, Eq. exp_mech_batch
            for label, pool in pools.items():
                won = [pool[i] for i in chosen[label]]  # 14: S̃_t
                far = [pool[i] for i in contrasts(spaces[label], chosen[label])]  # 12, 14: Ŝ_t, Eq. contrastive
                winners[label] += [candidate.record for candidate in won]
                middle = winners[label] or [candidate.record for candidate in pool]
                order = nearest_first(spaces[label], self.kernel.represent_pool(middle))  # 15: Agg
                self._origins.remember(label, t, pool, order)
                taken = select_top(spaces[label], order, quota[label], self.method.inclusion)  # 15: SelectTop
                included[label] += [pool[i] for i in taken]
                context[label] = evolve_context(won, far, self.schema, self.method.exemplars)  # 16: EvolveCtx
            self.emit(Included(t, sum(len(records) for records in included.values())))
        self._top_up(included, context, guide)
        tables = self._measure()  # ours
        if tables is None:
            release = self._choose_release(included)  # ours
        else:
            release, tables = self._choose_measured(tables, included, guide)  # ours
        candidates = tuple(candidate for label in self._labels for candidate in release.records[label])
        self.emit(Finished(len(candidates)))
        return Evolved(candidates, guide, context, tuple(self._drawn), release.name, tables, release.measured)  # 18

    # -- pools ---------------------------------------------------------------------------------------------------

    def _propose(
        self, t: int, quota: Mapping[str, int], context: Mapping[str, Exemplars], guide: Guide
    ) -> dict[str, list[Candidate]]:
        """K·m_t candidates per class; a share of them without exemplars, because bad exemplars collapse a model."""
        proposals = []
        for label in self._labels:
            size = max(1, self._multiplicity * quota[label])
            explored = size if t == 1 else math.ceil(self.method.explore * size)
            for i in range(size):
                turn = self.guides[i % len(self.guides)] if self._in_turn else guide
                whole = self._proposal(f"round-{t}", label, i, turn, context[label])
                proposals.append(without_exemplars(whole) if i < explored else whole)
        return self._generate("round", t, proposals)

    def _proposal(self, stage: str, label: str, i: int, guide: Guide, context: Exemplars) -> Proposal:
        digest = hashlib.sha256(f"{self.seed}:{stage}:{label}:{i}".encode()).digest()
        return Proposal(
            guide,
            int.from_bytes(digest[:6], "big"),
            label=label or None,
            positives=context.positives,
            negatives=context.negatives if self.method.contrast else (),
        )

    def _generate(self, stage: str, number: int, proposals: Sequence[Proposal]) -> dict[str, list[Candidate]]:
        pools: dict[str, list[Candidate]] = {label: [] for label in self._labels}
        for candidate in self._generated(stage, number, proposals):
            if candidate is not None:
                pools[candidate.proposal.label or ""].append(candidate)
        return pools

    def _generated(self, stage: str, number: int, proposals: Sequence[Proposal]) -> tuple[Candidate | None, ...]:
        """A candidate for each proposal, or None where all attempts failed."""
        self.emit(StageStarted(stage, number, len(proposals)))
        made = self.generator.generate(proposals, taken=self._seen, watch=self._watch)
        if self.generator.stopped:
            # A pool cut short must not go on to a private choice: that would pay for half a pool.
            raise StoppedError("stopped as asked; every finished answer is kept")
        if self.first_pool is not None:
            show, self.first_pool = self.first_pool, None
            show(made)
        found = [candidate for candidate in made.candidates if candidate is not None]
        self._seen += [candidate.record for candidate in found]
        samples = tuple(candidate.record for candidate in found[:: max(1, len(found) // 4)][:4])
        effort = made.effort
        lost = (dict(effort.retries), dict(effort.given_up))
        self.emit(PoolReady(stage, number, len(found), *lost, samples, dict(effort.thrown)))
        return made.candidates

    def _watch(self, answer: Answer) -> None:
        if answer.finish != "cancelled":
            self.emit(Answered.of(answer))

    def _require_candidates(self, pools: Mapping[str, Sequence[Candidate]]) -> None:
        if empty := [label for label, pool in pools.items() if not pool]:
            of = f" of class '{empty[0]}'" if empty[0] else ""
            raise ModelError(
                f"the model wrote no valid record{of}",
                hint="`selpe preview` shows what it writes; try another model, or examples in the schema",
            )

    def _top_up(self, included: dict[str, list[Candidate]], context: Mapping[str, Exemplars], guide: Guide) -> None:
        """Fills classes whose pools lost too many candidates, from the final context: exact class sizes, no ε."""
        for attempt in range(1, 21):
            missing = {label: self._due(label, len(self.plan.rounds)) - len(included[label]) for label in self._labels}
            if not any(missing.values()):
                return
            proposals = [
                self._proposal(f"more-{attempt}", label, i, guide, context[label] if attempt % 2 else Exemplars())
                for label, count in missing.items()
                for i in range(count)
            ]
            for label, pool in self._generate("more", attempt, proposals).items():
                included[label] += pool[: missing[label]]

    # -- private choices -----------------------------------------------------------------------------------------

    def _select(
        self,
        name: str,
        epsilon: float,
        pools: Mapping[str, Sequence[Candidate]],
        spaces: Mapping[str, PoolDistances],
    ) -> Mapping[str, tuple[int, ...]]:
        """b winners per class, by the votes of the class's private rows; none where the plan pays nothing for them."""
        if not epsilon and self.plan.epsilon:
            return dict.fromkeys(pools, ())
        made = select_winners(
            self.private,
            pools,
            spaces,
            name=name,
            schema=self.schema,
            kernel=self.kernel,
            vote=record_vote(self.method.votes, self.plan.alpha),
            mechanism=self._mechanism(epsilon),
            batches=self.plan.batches,
        )
        won = {label: tuple(pools[label][i].record for i in places) for label, places in made.winners.items()}
        return self._noted(name, made, won).winners

    def _choose_guide(self) -> Guide:
        """One guide of several, each judged by a small sample that it generated."""
        if len(self.guides) < 2 or self.plan.guide_epsilon is None:
            return self.guides[0]
        proposals = [
            self._proposal(f"guide-{number}", label, i, guide, Exemplars())
            for number, guide in enumerate(self.guides)
            for label in self._labels
            for i in range(self.method.guide_sample)
        ]
        pools = self._generate("guides", 0, proposals)
        for label, pool in pools.items():
            self._origins.remember(label, 0, pool, range(len(pool)), rank=0.5)
        made = [candidate for pool in pools.values() for candidate in pool]
        sets = {guide.name: [c for c in made if c.proposal.guide.name == guide.name] for guide in self.guides}
        # A guide that cannot produce every class stands for nothing.
        able = [guide for guide in self.guides if len(sets[guide.name]) >= len(self._labels)] or [self.guides[0]]
        if len(able) < 2:
            return able[0]
        records = [[candidate.record for candidate in sets[guide.name]] for guide in able]
        chosen = self._choose("guide", self.plan.guide_epsilon, records)
        return able[chosen.winner]

    def _choose_release(self, included: Mapping[str, Sequence[Candidate]]) -> CandidateRelease:
        """One candidate release of several; what evolution included is the first."""
        if self.plan.bundle_epsilon is None or self.method.bundles < 2:
            return whole_release(included)
        self.emit(StageStarted("bundles", 0, 0))
        self.emit(Judging("comparing candidates", 0.0))
        origins = self._origins.with_agreement(self.schema, self.encoder, self.public_encoder)
        releases = make_releases(included, origins, count=self.method.bundles, seed=self.seed)
        full = [
            release for release in releases
            if all(len(release.records[label]) == len(included[label]) for label in self._labels)
        ]  # fmt: skip
        records = [[c.record for label in self._labels for c in release.records[label]] for release in full]
        return full[self._choose("bundle", self.plan.bundle_epsilon, records).winner]

    def _choose_measured(
        self, tables: MeasuredTables, included: Mapping[str, Sequence[Candidate]], guide: Guide
    ) -> tuple[CandidateRelease, MeasuredTables]:
        """The release with what was measured, or what evolution included, and the tables to draw more records from.

        Rows vote on drafts, in which facts are put into records: only what wins is written.
        """
        # Without ε chance decides, and it must not take away all that tells classes apart.
        asked = self.plan.classes_in_question and self.plan.bundle_epsilon
        ways = [tables, tables.kept_apart()] if asked else [tables]
        winner = 1
        if self.plan.bundle_epsilon is not None and self.method.bundles > 1:
            self.emit(StageStarted("bundles", 0, 0))
            drafts = [[one.record for label in self._labels for one in included[label]]]
            drafts += [self._drafts(way, included) for way in ways]
            # A measurement helps more often than not, and what a model says of classes is often right.
            doubt = benefit_of_doubt(self.plan.units, self.plan.bundle_epsilon, self.adjacency)
            ahead = (0, 2 * doubt) if len(ways) == 1 else (doubt, 2 * doubt, 0)
            winner = self._choose("bundle", self.plan.bundle_epsilon, drafts, ahead).winner
        if winner == 0:
            return whole_release(included), tables
        chosen = ways[winner - 1]
        return whole_release(self._write_measured(chosen, included, guide), chosen.name, 1.0), chosen

    def _drafts(self, tables: MeasuredTables, included: Mapping[str, Sequence[Candidate]]) -> list[Record]:
        """What would be written by these tables, as far as it can be seen before, beginning with the first writing.

        Facts are drawn more than once for each record, as they are for further records, where a table is small.
        """
        return [
            tables.draft(label, made.record, self._chance_of_facts(drawing, label, i))
            for drawing in range(math.ceil(DRAFTED / self._total))
            for label in self._labels
            for i, made in enumerate(included[label])
        ]

    def _chance_of_facts(self, attempt: int, label: str, i: int) -> random.Random:
        return random.Random(f"facts:{self.seed}:{attempt}:{label}:{i}")

    # -- measured tables -----------------------------------------------------------------------------------------

    def _measure(self) -> MeasuredTables | None:
        """Noisy tables of the private rows, over codebooks of what the model has written so far."""
        if self.plan.measure is None:
            return None
        self.emit(StageStarted("measure", 0, 0))
        return Measuring(
            private=self.private,
            schema=self.schema,
            plan=self.plan.measure,
            encoder=self.encoder,
            phrases=self.generator.phrases(self.seed, self._watch),
            units=self.plan.units,
            adjacency=self.adjacency,
            choose=self._choose_field,
            tell=self._counted,
            test_seed=self.method.test_seed,
            seed=self.seed,
            public_encoder=self.public_encoder,
        ).measure(self._origins.candidates(self._labels))

    def _write_measured(
        self, tables: MeasuredTables, included: Mapping[str, Sequence[Candidate]], guide: Guide
    ) -> dict[str, list[Candidate]]:
        """The included records with facts drawn from the tables: written anew around them, or kept as they are."""
        written = {label: list(records) for label, records in included.items()}
        waiting = [(label, i) for label, records in included.items() for i in range(len(records))]
        for attempt in range(WRITINGS):
            proposals, places = [], []
            for label, i in waiting:
                chance = self._chance_of_facts(attempt, label, i)
                drawn = tables.draw(label, included[label][i].record, chance)
                if drawn is not None:
                    asked = self._proposal(f"measured-{attempt}", label, i, guide, Exemplars(drawn.exemplars))
                    proposals.append(replace(asked, facts=drawn.facts, class_told=drawn.beside is None))
                    places.append((label, i))
            waiting = []
            for place, made in zip(places, self._generated("measured", attempt + 1, proposals), strict=True):
                if made is None:
                    waiting.append(place)
                else:
                    written[place[0]][place[1]] = made
            if not waiting:
                break
        return written

    def _choose_field(self, name: str, epsilon: float, vote: FieldVote, digest: str) -> Selection:
        made = self.private.choose(vote, mechanism=self._mechanism(epsilon), selection=name, context=digest)
        return self._noted(name, made)

    def _counted(self, name: str, made: Counts) -> None:
        self._drawn.append(made)
        cost = made.guarantee
        self.emit(Selected(name, made.mechanism, cost.add_remove, cost.replace_one, made.private, made.replayed))

    def _choose(
        self, name: str, epsilon: float, sets: Sequence[Sequence[Record]], ahead: Sequence[int] = ()
    ) -> Selection:
        """One set of several, by the votes of all private rows, and by public votes that sets are ahead by."""
        vote, digest = set_vote(
            self.schema, self.encoder, self.kernel, sets,
            public_encoder=self.public_encoder, ahead=ahead, tell=self._judging,
        )  # fmt: skip
        made = self.private.choose(vote, mechanism=self._mechanism(epsilon), selection=name, context=digest)
        return self._noted(name, made)

    def _judging(self, what: str, done: int, of: int) -> None:
        """Tells how far a judgement is, in steps of a twentieth; of rows, by the number that the plan was made from."""
        share = min(1.0, int(20 * done / max(1, of or self.plan.units)) / 20)
        if (what, share) != self._told:
            self._told = (what, share)
            self.emit(Judging(what, share))

    def _mechanism(self, epsilon: float) -> Mechanism:
        return mechanism_at(epsilon, self.adjacency, self.method.mechanism, self.method.test_seed)

    def _noted(self, name: str, made: Selection, records: Mapping[str, tuple[Record, ...]] | None = None) -> Selection:
        self._drawn.append(made)
        cost, which = made.guarantee, (made.private, made.replayed, made.winners, records or {})
        self.emit(Selected(name, made.mechanism, cost.add_remove, cost.replace_one, *which))
        return made

    # -- spaces and sizes ----------------------------------------------------------------------------------------

    def _space(self, pool: Sequence[Candidate]) -> PoolDistances:
        return self.kernel.over(self.kernel.represent_pool([candidate.record for candidate in pool]))

    @property
    def _labels(self) -> tuple[str, ...]:
        return self.schema.labels or ("",)

    @property
    def _multiplicity(self) -> int:
        """K; one where nobody chooses among candidates, because tables are measured and no round is paid for."""
        return self.method.multiplicity if self.plan.measure is None or self.plan.record_epsilon else 1

    @property
    def _in_turn(self) -> bool:
        """Whether guides take turns: where none is voted on, because ε is better spent on tables, or by setting."""
        return self.method.mixed or self.plan.measure is not None

    @property
    def _total(self) -> int:
        return sum(sum(part.quota.values()) for part in self.plan.rounds)

    def _due(self, label: str, t: int) -> int:
        """How many records of a class should be in the table after round t."""
        return sum(part.quota.get(label, 0) for part in self.plan.rounds[:t])

    def _candidates_in_all(self) -> int:
        voted = len(self.guides) > 1 and self.plan.guide_epsilon is not None
        sample = len(self.guides) * len(self._labels) * self.method.guide_sample if voted else 0
        anew = self._total if self.plan.measure is not None else 0  # at most: what the model has right is kept
        return self._multiplicity * self._total + sample + anew
