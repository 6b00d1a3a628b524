"""Membership inference: is a record's distance to the closest synthetic one a sign that it was in the private table?

As in the paper, the score of a record is that distance, non-members are as many held-out records, and the figure is
the true positive rate where at most 1 % of non-members are taken for members. Two distances are tried: TF–IDF and L1
as for DCR, and the kernel that the method itself selects by.

Rates at 1 % rest on few records: of 100 non-members one may be wrong, of fewer than 100 none. So the rate has its
Clopper–Pearson interval and stands beside what guessing reaches. Records at equal distance are never split: only those
strictly closer than the first non-member too many count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, rankdata

from selpe.evaluation.attack.lineup import Lineup, LineupResult, Masks, Statistic, summed
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.base import Encoder
from selpe.schema import Record, Schema

FPR = 0.01
CHUNK = 128


@dataclass(frozen=True, slots=True)
class Membership:
    """How well one distance tells private records from held-out ones."""

    tpr: float  # at a false positive rate of at most `fpr`
    low: float  # the ends of the 95 % Clopper–Pearson interval of `tpr`
    high: float
    fpr: float
    chance: float  # what `tpr` is on average where distances tell nothing
    p_value: float
    auc: float
    auc_p_value: float
    members: int
    non_members: int
    false_positives: int  # non-members that may be taken for members
    note: str


def allowed(non_members: int) -> int:
    """How many non-members may be taken for members."""
    return math.floor(FPR * non_members + 1e-9)


def true_positives(distances: NDArray[np.float64], non_members: int) -> Statistic:
    """The number of members strictly closer than the first non-member that is one too many."""
    order = np.argsort(distances, kind="stable")
    ranked = distances[order]
    first = np.searchsorted(ranked, ranked, side="left")  # where the records at the same distance begin
    spare = allowed(non_members)

    def count(masks: Masks) -> NDArray[np.float64]:
        sorted_masks = masks[:, order]
        stop = np.argmax(np.cumsum(~sorted_masks, axis=1) == spare + 1, axis=1)
        before = np.pad(np.cumsum(sorted_masks, axis=1), ((0, 0), (1, 0)))
        return np.asarray(before[np.arange(len(masks)), first[stop]], dtype=np.float64)

    return count


def area(distances: NDArray[np.float64], members: int) -> Statistic:
    """The area under the curve: the chance that a member is closer than a non-member, ties counted half."""
    ranks = rankdata(-distances)
    least, pairs = members * (members + 1) / 2, members * (len(distances) - members)
    total = summed(ranks)
    return lambda masks: (total(masks) - least) / pairs


def interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper–Pearson interval of a rate."""
    if not trials:
        return math.nan, math.nan
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high


def summarised(lineup: Lineup, closer: LineupResult, curve: LineupResult) -> Membership:
    """The figures of one attack, from the verdicts on its true positives and on its area."""
    members, others = len(lineup.private), len(lineup.holdout)
    found = round(closer.observed)
    return Membership(
        found / members,
        *interval(found, members),
        FPR,
        (allowed(others) + 1) / (others + 1),  # members before the first non-member that is one too many
        closer.p_value,
        curve.observed,
        curve.p_value,
        members,
        others,
        allowed(others),
        _note(members, others),
    )


def _note(members: int, others: int) -> str:
    spare = allowed(others)
    wrong = {0: "less than one record: none may be wrong", 1: "one record"}.get(spare, f"{spare} records")
    return f"At {others} non-members 1 % is {wrong}; at {members} members one record is {100 / members:.1f} %."


def kernel_distances(
    schema: Schema,
    synthetic: Sequence[Record],
    rows: Sequence[Record],
    encoder: Encoder,
    tick: Callable[[float], None],
) -> NDArray[np.float64]:
    """The kernel distance of each row to the closest synthetic record, normalised over the synthetic table."""
    kernel = MultiChannelKernel(schema, encoder)
    space = kernel.over(kernel.represent_pool(synthetic))
    tick(0.5)
    queries = kernel.represent_pool(rows)
    tick(0.8)
    found = np.empty(len(rows))
    for start in range(0, len(rows), CHUNK):
        places = np.arange(start, min(start + CHUNK, len(rows)))
        found[places] = space.distances(queries[places]).min(axis=1)
    tick(1.0)
    return found
