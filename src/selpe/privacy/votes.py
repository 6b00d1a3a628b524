"""Votes: what one private row says about each option, bounded so that no row can say much.

Options are the records of a class's pool, whole sets of records, or fields to measure. A row's vote on an option is an
integer from 0 to `step`, a function of that row, the options and public settings alone; a tally is the sum over rows.
Integers make sums exact, whatever their order. Every vote is total: a distance that is NaN gives no approval instead of
an error, because an error that depends on a private row would itself be a release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ConfigError
from selpe.schema import Record

# Distances that are held at once: 16 MB in single precision, some five times that while votes are counted.
CELLS_AT_ONCE = 1 << 22
ROWS_AT_ONCE = 128  # that a judge reads together
PUBLIC_SAMPLE = 128  # candidates whose distances to all others set the range of `Closeness`


class Representation(Protocol):
    """Records as the kernel sees them, independent of any pool; indexing picks rows, as for an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: NDArray[np.intp], /) -> Representation: ...


# What a kernel is given back is what its own `represent` made, of a type that only it knows.
Own: TypeAlias = Any


class PoolKernel(Protocol):
    """The distance kernel g over one pool of M candidates, its normalisation fixed on that pool alone.

    `distances` must be row-wise, bit for bit: a row's distances must not depend on which other rows are in the call,
    nor on their number. Rounding in a matrix product does depend on that; integer arithmetic does not.
    """

    def __len__(self) -> int:
        """The number of candidates M."""

    def distances(self, rows: Own) -> NDArray[np.float32]:
        """Distances from rows to candidates in [0, 1]; shape (len(rows), M)."""

    def prototype(self, rows: Own) -> NDArray[np.float32]:
        """Distances g(μ(B), s) from the rows' common centre (Eq. batch_center) to candidates; shape (M,)."""

    def among(self, i: Sequence[int]) -> NDArray[np.float32]:
        """Distances from some candidates to all; shape (len(i), M). Public."""


class Kernel(Protocol):
    """Encodes records and lays the distance kernel over a pool.

    `represent` sees private rows. It must be row-wise, bit for bit, and must neither keep the rows nor write anything
    that was computed from them to disk.
    """

    @property
    def remote(self) -> str | None:
        """The host that texts are sent to for encoding, or None when they stay in this process."""

    def represent(self, records: Sequence[Record]) -> Representation:
        """The records' representation Φ, one row each, in order."""

    def over(self, pool: Own) -> PoolKernel:
        """The kernel with this round's normalisation, taken from the pool only."""


class Judge(Protocol):
    """Public models, one per set and view, that say how well a set serves a row.

    A score is a percentile: how highly the model trained on the set ranks the row's own label for the row, among public
    records of other classes. Higher is better; NaN says nothing. `read` sees several private rows at once, so that
    their texts can be encoded together. It must be row-wise, bit for bit, as a kernel's `represent` must.
    """

    @property
    def remote(self) -> str | None:
        """The host that texts are sent to for encoding, or None when they stay in this process."""

    @property
    def views(self) -> int:
        """The number of views, each with its own model of every set."""

    @property
    def options(self) -> int:
        """The number of sets G."""

    def read(self, rows: Sequence[Record]) -> Sequence[Own]:
        """What the judge needs to know of each row, in order."""

    def score(self, rows: Sequence[Own]) -> NDArray[np.float64]:
        """Scores of rows that it has read, of shape (views, len(rows), options)."""


class FieldJudge(Protocol):
    """What says from public things how much a row speaks for measuring each of several fields."""

    @property
    def remote(self) -> str | None:
        """The host that texts are sent to for encoding, or None when they stay in this process."""

    @property
    def options(self) -> int:
        """The number of fields."""

    def votes(self, row: Record) -> NDArray[np.float64]:
        """Per field, from 0 to 1; shape (options,). NaN says nothing."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A row approves the nearest ⌈αM⌉ candidates of its pool; of equally near ones, the first."""

    alpha: float = 0.25
    step: ClassVar[int] = 1
    monotone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ConfigError("alpha must be above 0 and at most 1")

    def approved(self, candidates: int) -> int:
        """⌈αM⌉, in decimal arithmetic: a tenth of 30 is 3, not 4."""
        return max(1, math.ceil(Decimal(repr(float(self.alpha))) * candidates))

    def tally(self, pool: PoolKernel, rows: Representation, batch: NDArray[np.intp], batches: int) -> NDArray[np.int64]:
        """How many rows of each batch approve each candidate."""
        scores = np.zeros((batches, len(pool)), dtype=np.int64)
        count = self.approved(len(pool))
        for part, distances in _distances(pool, rows):
            _add_votes(scores, lowest(distances, count), batch[part])
        return scores


@dataclass(frozen=True, slots=True)
class Closeness:
    """A row gives each candidate 1 − g̃ of a vote, where g̃ is the distance stretched to the range usual in the pool.

    The range is the 5th to 95th percentile of candidate-to-candidate distances. Votes are rounded to thousandths.
    """

    step: ClassVar[int] = 1000
    monotone: ClassVar[bool] = True

    def tally(self, pool: PoolKernel, rows: Representation, batch: NDArray[np.intp], batches: int) -> NDArray[np.int64]:
        """The sum of closeness over the rows of each batch, in thousandths."""
        scores = np.zeros((batches, len(pool)), dtype=np.int64)
        low, high = _usual_range(pool)
        for part, distances in _distances(pool, rows):
            stretched = np.clip((distances.astype(np.float64) - low) / (high - low), 0.0, 1.0)
            votes = np.rint(self.step * (1.0 - np.nan_to_num(stretched, nan=1.0))).astype(np.int64)
            _add_votes(scores, votes, batch[part])
        return scores


@dataclass(frozen=True, slots=True)
class Prototype:
    """The paper's utility −g(μ(B), s) (Eq. batch_utility), in millionths. Not a vote: one row can turn a batch's centre
    arbitrarily, so that its sensitivity is the whole range and scores can move both ways."""

    step: ClassVar[int] = 1_000_000
    monotone: ClassVar[bool] = False

    def tally(self, pool: PoolKernel, rows: Representation, batch: NDArray[np.intp], batches: int) -> NDArray[np.int64]:
        """1 − g(μ(B), s) per batch; an empty batch prefers nothing."""
        scores = np.zeros((batches, len(pool)), dtype=np.int64)
        for i in range(batches):
            members = np.flatnonzero(batch == i)
            if len(members):
                distances = np.asarray(pool.prototype(rows[members]), dtype=np.float64)
                near = 1.0 - np.clip(np.nan_to_num(distances, nan=1.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
                scores[i] = np.rint(self.step * near).astype(np.int64)
        return scores


@dataclass(frozen=True, slots=True)
class Predictive:
    """A row approves the half of the sets that serve it best, all views taken together.

    In each view sets have places, by how highly their public model ranks the row's own label. Places are added up over
    the views: a set that is good in all of them is told from one that is good in one. `ahead` are public votes that
    sets have before a row is asked: constants, which no row can change.
    """

    judge: Judge = field(repr=False)
    ahead: tuple[int, ...] = ()
    kernel: ClassVar[None] = None
    step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_ahead(self.ahead, self.judge.options)

    @property
    def options(self) -> int:
        """The number of sets."""
        return self.judge.options

    @property
    def remote(self) -> str | None:
        """Where the judge sends texts."""
        return self.judge.remote

    def tally(self, rows: Sequence[Record]) -> NDArray[np.int64]:
        """The approvals of each set over the rows."""
        scores = _begun(self.ahead, self.options)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            for _, row in zip(part, self.judge.read(part), strict=False):  # a row has one vote, whatever a judge reads
                # One row at a time: rounding in a public model then cannot depend on the other rows.
                views = np.asarray(self.judge.score([row]), dtype=np.float64).reshape(self.judge.views, self.options)
                scores += lowest(_places(views)[None], sets_approved(self.options))[0]
        return scores


@dataclass(frozen=True, slots=True)
class Coverage:
    """A row approves the half of the sets nearest to it, by its mean distance to their k nearest members.

    `pool` holds the members of all sets together, `sets` says by candidate index who belongs to which. `ahead` is as in
    `Predictive`.
    """

    kernel: Kernel = field(repr=False)
    pool: PoolKernel = field(repr=False)
    sets: tuple[tuple[int, ...], ...] = field(repr=False)
    nearest: int = 3
    ahead: tuple[int, ...] = ()
    step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_ahead(self.ahead, len(self.sets))
        if not self.sets or not all(self.sets) or self.nearest < 1:
            raise ConfigError(
                "coverage needs at least one set, each with at least one member, and nearest of 1 or more"
            )
        if not all(0 <= member < len(self.pool) for members in self.sets for member in members):
            raise ConfigError("the members of a set must be candidates of the pool")

    @property
    def options(self) -> int:
        """The number of sets."""
        return len(self.sets)

    @property
    def remote(self) -> str | None:
        """Where the kernel's encoder sends texts."""
        return self.kernel.remote

    def tally(self, rows: Representation) -> NDArray[np.int64]:
        """How many rows approve each set."""
        scores = _begun(self.ahead, self.options)
        members = [np.asarray(member, dtype=np.intp) for member in self.sets]
        for _, distances in _distances(self.pool, rows):
            reach = np.column_stack([self._reach(distances[:, member]) for member in members])
            scores += lowest(reach, sets_approved(self.options)).sum(axis=0, dtype=np.int64)
        return scores

    def _reach(self, distances: NDArray[np.float32]) -> NDArray[np.float64]:
        near = np.sort(distances, axis=1).astype(np.float64)
        count = min(self.nearest, near.shape[1])
        total: NDArray[np.float64] = np.zeros(len(near), dtype=np.float64)
        # Column by column from the nearest on: the order of the sum, hence its rounding, is the same for every row.
        for k in range(count):
            total += near[:, k]
        return np.asarray(total / count)


@dataclass(frozen=True, slots=True)
class FieldVote:
    """A row gives each field as much of a vote as its judge says: by how its value there goes with its class, say.

    Votes are rounded to thousandths. The options need not be fields: any list of things to measure will do.
    """

    judge: FieldJudge = field(repr=False)
    step: ClassVar[int] = 1000

    @property
    def options(self) -> int:
        """The number of fields."""
        return self.judge.options

    @property
    def remote(self) -> str | None:
        """Where the judge sends texts."""
        return self.judge.remote

    def tally(self, rows: Sequence[Record]) -> NDArray[np.int64]:
        """The sum of votes over the rows, in thousandths; the judge is asked about one row at a time."""
        scores = np.zeros(self.options, dtype=np.int64)
        for row in rows:
            said = np.clip(np.nan_to_num(_numbers(self.judge.votes(row), self.options), nan=0.0), 0.0, 1.0)
            scores += np.rint(self.step * said).astype(np.int64)
        return scores


# Closed lists: a vote of unknown bounds would void the argument.
RecordVote: TypeAlias = Approval | Closeness | Prototype
SetVote: TypeAlias = Predictive | Coverage | FieldVote


def sets_approved(options: int) -> int:
    """How many of so many sets a row approves: half of them.

    What a row says about sets is faint, and a vote for few of them throws most of it away. On triage records, votes for
    half of 32 candidate releases followed their utility and their distance from held-out rows (rank correlation 0.42
    and 0.22), votes for six of them did not (−0.17 and 0.25). Graded votes did no better.
    """
    return options // 2


def _check_ahead(ahead: Sequence[int], options: int) -> None:
    if ahead and (len(ahead) != options or any(type(votes) is not int or not 0 <= votes < 2**31 for votes in ahead)):
        raise ConfigError("public votes must be whole numbers, one for each option")


def _begun(ahead: Sequence[int], options: int) -> NDArray[np.int64]:
    """The tally before the first row: public votes, or none."""
    return np.array(ahead or [0] * options, dtype=np.int64)


def _numbers(said: object, options: int) -> NDArray[np.float64]:
    """One number per option; zeros where a judge says something else."""
    try:
        numbers = np.asarray(said, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(options)
    return numbers if numbers.shape == (options,) else np.zeros(options)


def _places(views: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each set, its places in the views added up; 0 is the first, equals share theirs.

    NaN comes last, and a set without any has no place.
    """
    known = np.where(np.isnan(views), -np.inf, views)
    better, equal = (
        compare(known[:, None, :], known[:, :, None]).sum(axis=2) for compare in (np.greater, np.equal)
    )  # fmt: skip
    places: NDArray[np.float64] = (better + (equal - 1) / 2).sum(axis=0)  # halves: exact in any order
    return np.where(np.isnan(views).all(axis=0), np.nan, places)


def lowest(costs: NDArray[np.float32] | NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Per row, which `count` entries are lowest; of equal ones, the first. NaN is never among them."""
    known = ~np.isnan(costs) & (costs < np.inf)
    if count <= 0:
        return np.zeros(costs.shape, dtype=np.bool_)
    if count >= costs.shape[1]:
        return known
    costs = np.where(known, costs, np.inf)
    edge: NDArray[Any] = np.partition(costs, count - 1, axis=1)[:, count - 1 : count]
    chosen = costs < edge
    tied = costs == edge
    spare = count - chosen.sum(axis=1)
    crowded = np.flatnonzero(tied.sum(axis=1) > spare)
    if len(crowded):
        tied[crowded] &= np.cumsum(tied[crowded], axis=1) <= spare[crowded, None]
    return np.asarray((chosen | tied) & known)


def _distances(pool: PoolKernel, rows: Representation) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """The rows' distances in parts of bounded size, clipped to [0, 1]."""
    height = max(1, CELLS_AT_ONCE // max(1, len(pool)))
    for start in range(0, len(rows), height):
        part = slice(start, min(start + height, len(rows)))
        distances = pool.distances(rows[np.arange(part.start, part.stop)])
        if distances.shape != (part.stop - part.start, len(pool)):
            raise ValueError("a kernel must give one distance per row and candidate")
        yield part, np.clip(distances, 0.0, 1.0)


def _add_votes(
    scores: NDArray[np.int64], votes: NDArray[np.bool_] | NDArray[np.int64], batch: NDArray[np.intp]
) -> None:
    for i in range(len(scores)):
        scores[i] += votes[batch == i].sum(axis=0, dtype=np.int64)


def _usual_range(pool: PoolKernel) -> tuple[float, float]:
    """The 5th and 95th percentile of distances between different candidates; [0, 1] when these do not differ."""
    sample = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), PUBLIC_SAMPLE)).astype(np.intp))
    distances = np.array(pool.among(sample.tolist()), dtype=np.float64)
    distances[np.arange(len(sample)), sample] = np.nan
    known = distances[np.isfinite(distances)]
    if not len(known):
        return 0.0, 1.0
    low, high = (float(value) for value in np.quantile(known, (0.05, 0.95)))
    return (low, high) if high > low else (0.0, 1.0)
