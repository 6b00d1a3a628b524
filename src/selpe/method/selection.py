"""The steps of one round (Sec. 4.3): winners, contrasts, inclusion, and the context of the next round.

Only `select_winners` has to do with private rows, and it asks the private table, which charges for the answer. All
other steps look at synthetic candidates alone and cost nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from selpe.config import Adjacency
from selpe.method.generation import Candidate
from selpe.method.kernel import HybridRepresentation, MultiChannelKernel, PoolDistances
from selpe.privacy.mechanisms import Law, NoisyMax, SeededMechanism
from selpe.privacy.table import Mechanism, PrivateTable, RecordVote, Selection
from selpe.privacy.votes import Approval, Closeness, Prototype
from selpe.schema import Record, Schema

Inclusion = Literal["centre", "diverse"]
VoteName = Literal["approval", "closeness", "prototype"]


@dataclass(frozen=True, slots=True)
class Exemplars:
    """The evolution context 𝓔 of one class: winners and their contrasts from the round before."""

    positives: tuple[Record, ...] = ()
    negatives: tuple[Record, ...] = ()


def record_vote(name: VoteName, alpha: float) -> RecordVote:
    """How a private row votes on candidates: 'prototype' is the paper's utility u_i(s) (Eq. batch_utility)."""
    votes: dict[VoteName, RecordVote] = {
        "approval": Approval(alpha), "closeness": Closeness(), "prototype": Prototype(),
    }  # fmt: skip
    return votes[name]


def benefit_of_doubt(units: int, epsilon: float, adjacency: Adjacency) -> int:
    """Public votes that one option is ahead of another by: about what the noise of a choice at this ε comes to.

    Rows must then speak against the option that serves more often more clearly than noise does.
    """
    if epsilon == 0 or math.isinf(epsilon):
        return 0
    return min(units // 4, round((2 if adjacency == "replace-one" else 1) / epsilon))


def mechanism_at(epsilon: float, adjacency: Adjacency, law: Law, test_seed: int | None) -> Mechanism:
    """ExpMech at this ε (Eq. exp_mech_top1), or permute-and-flip; a seeded one, which is not private, for tests."""
    if test_seed is not None:
        return SeededMechanism(epsilon, test_seed, adjacency, law, test_only=True)
    return NoisyMax(epsilon, adjacency, law)


def select_winners(
    private: PrivateTable,
    pools: Mapping[str, Sequence[Candidate]],
    spaces: Mapping[str, PoolDistances],
    *,
    name: str,
    schema: Schema,
    kernel: MultiChannelKernel,
    vote: RecordVote,
    mechanism: Mechanism,
    batches: int,
) -> Selection:
    """S̃_t: b winners per class, each drawn from the pool by one batch of the class's rows (Eq. exp_mech_batch)."""
    return private.select(
        spaces,
        kernel=kernel,
        mechanism=mechanism,
        selection=name,
        vote=vote,
        batches=batches,
        context=_digest(pools, schema),
    )


def contrasts(space: PoolDistances, winners: Sequence[int]) -> list[int]:
    """Ŝ_t: for each winner the candidate that is farthest from it (Eq. contrastive)."""
    return [int(np.argmax(space.among([i])[0])) for i in winners]


def nearest_first(space: PoolDistances, winners: HybridRepresentation) -> NDArray[np.intp]:
    """The pool from nearest to farthest from the centre of all winners so far, Agg(S̃_{1:t})."""
    return np.argsort(space.prototype(winners), kind="stable")


def select_top(space: PoolDistances, order: NDArray[np.intp], count: int, inclusion: Inclusion) -> list[int]:
    """SelectTop: the m_t nearest to the centre (the paper), or m_t that cover the nearer two thirds (ours)."""
    if inclusion == "centre" or count >= len(order):
        return [int(i) for i in order[:count]]
    near = order[: max(count, math.ceil(2 * len(order) / 3))]
    return [int(i) for i in spread(space, near, count)]


def spread(space: PoolDistances, among: NDArray[np.intp], count: int) -> list[int]:
    """`count` of the given candidates, each as far as can be from those taken before (farthest-first traversal)."""
    taken = [0]
    nearest = space.among([int(among[0])])[0][among]
    while len(taken) < min(count, len(among)):
        nearest[taken] = -1.0
        taken.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, space.among([int(among[taken[-1]])])[0][among])
    return [int(among[place]) for place in taken]


def evolve_context(won: Sequence[Candidate], far: Sequence[Candidate], schema: Schema, count: int) -> Exemplars:
    """EvolveCtx: distinct winners and contrasts, at most `count` of each."""
    return Exemplars(_distinct(won, schema)[:count], _distinct(far, schema)[:count])


def _distinct(candidates: Sequence[Candidate], schema: Schema) -> tuple[Record, ...]:
    return tuple({schema.dumps(candidate.record): candidate.record for candidate in candidates}.values())


def _digest(pools: Mapping[str, Sequence[Candidate]], schema: Schema) -> str:
    """A hash of the pools, so that a stored selection is never taken for other pools."""
    texts = (f"{label}:{schema.dumps(c.record)}" for label, pool in pools.items() for c in pool)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
