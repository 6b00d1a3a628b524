"""The statistical audit of Gaussian looks: whole histograms on neighbouring tables, and what they give away.

For each case the private table answers a histogram query on two neighbouring tables, many times. The auditor knows both
tables: it projects each answer on the line along which the exact counts differ. From a first part of the answers it
takes the threshold that tells the tables apart best; on the rest, Clopper–Pearson bounds on the two probabilities give
a lower bound on the true ε at δ, ln((p − δ)/q). It must not exceed the claim. The same audit runs on looks that are
broken on purpose, and must catch each of them.

    python benchmarks/audit_looks.py [--draws 100000] [--processes 2]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from selpe.baselines.embedding import TextKernel
from selpe.config import Adjacency
from selpe.models.encoders.hashing import HashingEncoder
from selpe.privacy import mechanisms, noise, table
from selpe.privacy.gaussian_plan import GaussianPlan, Look, gaussian_plan
from selpe.privacy.histograms import HistogramQuery, NearestVotes, NearFarVotes
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.noise import GaussianNoise, Sensitivity
from selpe.privacy.table import PrivateTable
from selpe.schema import Record, Schema

EPSILON, DELTA = 1.0, 0.01  # a large δ shows more of a Gaussian's ε in so many draws; noise has one σ for all δ
CONFIDENCE = 0.99
SAMPLES = ("lost password", "line is dead", "where is my parcel", "new contract please")
SCHEMA = Schema.from_dict(
    {
        "name": "audit",
        "label": "label",
        "fields": {
            "text": {"kind": "text", "max_length": 80},
            "label": {"kind": "category", "values": ["A", "B"]},
        },
    }
)
Rows = tuple[tuple[int, str, str], ...]  # which sample's text, label, person


@dataclass(frozen=True)
class Case:
    """Two neighbouring tables, and how they are asked."""

    name: str
    rows: Rows
    neighbour: Rows
    adjacency: Adjacency = "replace-one"
    votes: int | None = None  # None: nearest votes; else near and far votes
    looks: int = 1
    person: bool = False

    @property
    def tables(self) -> tuple[Rows, Rows]:
        return self.rows, self.neighbour


def points(*rows: str) -> Rows:
    """Rows from words such as 'A1' or 'A0:ann'."""
    parts = [row.partition(":") for row in rows]
    return tuple((int(what[1:]), what[0], who or str(i)) for i, (what, _, who) in enumerate(parts))


CASES = (
    Case("nearest votes, a record changes its class", points("A0", "A1", "B2"), points("B0", "A1", "B2")),
    Case("nearest votes, a record is removed", points("A0", "A1", "B2"), points("A1", "B2"), "add-remove"),
    Case("nearest votes, three looks", points("A0", "A1"), points("A1", "A1"), looks=3),
    Case("nearest votes, a person with three rows is removed", points("A0:ann", "A0:ann", "A0:ann", "A1:bob"),
         points("A1:bob"), "add-remove", person=True),
    Case("near and far votes, a record changes its class", points("A0", "A1"), points("B0", "A1"), votes=3),
    Case("near and far votes, a record is added, two looks", points("A1",), points("A1", "A0"), "add-remove", votes=8,
         looks=2),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Purse:
    """An account without end and without memory: every call is a new draw."""

    run: str = "audit"

    def charge(self, charge: Charge) -> Receipt:
        return Receipt("audit", 0, "", charge)

    def stored(self, selection: str) -> dict[str, Any] | None:
        return None

    def store(self, receipt: Receipt, result: Mapping[str, Any]) -> None:
        return None


class Asker:
    """One table and one query: each call is all the looks of a case, as one vector."""

    def __init__(self, case: Case, rows: Rows) -> None:
        names = ("text", "label", "person") if case.person else ("text", "label")
        records: list[Record] = [
            dict(zip(names, (SAMPLES[which], label, who), strict=False)) for which, label, who in rows
        ]
        self._table = PrivateTable(records, SCHEMA, account=Purse(), unit="person" if case.person else None)
        kernel = TextKernel(SCHEMA, HashingEncoder(64))
        pools = {
            label: kernel.pool(kernel.embed([SCHEMA.dumps({"text": text, "label": label}) for text in SAMPLES]))
            for label in ("A", "B")
        }
        self.query: HistogramQuery = (
            NearestVotes(kernel, pools) if case.votes is None else NearFarVotes(kernel, pools, case.votes)
        )
        self._case, self._plan = case, plan_of(case, self.query.sensitivity)

    def exact(self) -> NDArray[np.float64]:
        """The counts without noise, as the auditor knows them; the mean where a person's row is drawn."""
        return np.asarray(np.mean([self._answer("exact", GaussianNoise(0.0, DELTA)) for _ in range(64)], axis=0))

    def noisy(self) -> NDArray[np.float64]:
        """The looks of the case, summed up: equal noise on each makes the sum all that matters."""
        looks = [f"look-{t}" for t in range(self._case.looks)]
        return np.asarray(np.sum([self._answer(name, self._plan.noise(name)) for name in looks], axis=0))

    def _answer(self, name: str, drawn: Any) -> NDArray[np.float64]:
        counts = self._table.histogram(self.query, noise=drawn, selection=name).counts
        return np.concatenate([counts[label].ravel() for label in ("A", "B")])


def plan_of(case: Case, sensitivity: Sensitivity) -> GaussianPlan:
    looks = [Look(f"look-{t}", sensitivity) for t in range(case.looks)]
    return gaussian_plan(
        "audit", looks, units=1, records=1, epsilon=EPSILON, delta=DELTA, adjacency=case.adjacency
    )  # fmt: skip


# -- looks broken on purpose -------------------------------------------------------------------------------------------


@contextmanager
def half_the_noise() -> Iterator[None]:
    """Drawn with half of the σ that was charged."""
    with mock.patch.object(noise, "gaussian", lambda values, scale: mechanisms.gaussian(values, scale / 2)):
        yield


@contextmanager
def one_histogram_forgotten() -> Iterator[None]:
    """Near and far votes calibrated as if they were one histogram, and its first vote all there is."""
    with mock.patch.object(NearFarVotes, "sensitivity", Sensitivity(1.0, 1.0)):
        yield


@contextmanager
def every_row_of_a_person() -> Iterator[None]:
    """All rows of a person vote, and not one of them."""

    def all_rows(units: Sequence[Sequence[int]], _below: object) -> NDArray[np.intp]:
        return np.array([row for rows in units for row in rows], dtype=np.intp)

    with mock.patch.object(table, "one_row_each", all_rows):
        yield


BREAKS: dict[str, Callable[[], Any]] = {
    "half the noise": half_the_noise,
    "one histogram forgotten": one_histogram_forgotten,
    "every row of a person": every_row_of_a_person,
}
# Which case shows which fault.
BROKEN = ((0, "half the noise"), (4, "one histogram forgotten"), (3, "every row of a person"))


# -- the audit -------------------------------------------------------------------------------------------------------


def run(job: tuple[int, int, int, str]) -> NDArray[np.float64]:
    """Projected answers: (case, which table, draws, fault)."""
    number, side, draws, fault = job
    case = CASES[number]

    def many() -> NDArray[np.float64]:
        askers = [Asker(case, rows) for rows in case.tables]
        line = askers[0].exact() - askers[1].exact()
        line /= np.linalg.norm(line)
        return np.array([askers[side].noisy() @ line for _ in range(draws)])

    if not fault:
        return many()
    with BREAKS[fault]():
        return many()


def lower_bound(
    first: Sequence[NDArray[np.float64]], rest: Sequence[NDArray[np.float64]], confidence: float = CONFIDENCE
) -> float:
    """A bound that the true ε at δ exceeds with this confidence: the threshold is from `first`, judged on `rest`."""
    alpha = (1 - confidence) / 4  # two directions, two probabilities each
    bounds = [0.0]
    for a, b, sign in ((0, 1, 1.0), (1, 0, -1.0)):
        high, low = np.sort(sign * first[a]), np.sort(sign * first[b])
        tries = np.quantile(np.concatenate([high, low]), np.linspace(0.02, 0.995, 60))
        best = max(tries, key=lambda t: log_ratio(high, low, t, alpha, len(rest[a]) / len(first[a])))
        bounds.append(log_ratio(sign * rest[a], sign * rest[b], best, alpha))
    return max(bounds)


def log_ratio(
    p: NDArray[np.float64], q: NDArray[np.float64], threshold: float, alpha: float, growth: float = 1.0
) -> float:
    """ln((p − δ)/q) for the event 'above the threshold', by its least and its greatest probability."""
    hits, others = growth * float((p > threshold).sum()), growth * float((q > threshold).sum())
    of, of_others = growth * len(p), growth * len(q)
    low = stats.beta.ppf(alpha, hits, of - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - alpha, others + 1, of_others - others) if others < of_others else 1.0
    return math.log((low - DELTA) / high) if low > DELTA else 0.0


def audit(
    number: int, draws: int, fault: str = "", confidence: float = CONFIDENCE, mapper: Callable[..., Any] = map
) -> float:
    """The lower bound on ε that this many answers, half of them on each table, give."""
    parts = [draws // 8, draws // 2 - draws // 8]
    jobs = [(number, side, part, fault) for part in parts for side in (0, 1)]
    first_a, first_b, rest_a, rest_b = mapper(run, jobs)
    return lower_bound((first_a, first_b), (rest_a, rest_b), confidence)


def main() -> int:
    parser = argparse.ArgumentParser(description="Statistical privacy audit of histograms with Gaussian noise.")
    parser.add_argument("--draws", type=int, default=100_000, help="answers per case, half of them on each table")
    parser.add_argument("--processes", type=int, default=2)
    settings = parser.parse_args()
    began, failed = time.monotonic(), False
    with multiprocessing.get_context("spawn").Pool(settings.processes) as workers:
        mapper = lambda work, jobs: workers.map(work, jobs, chunksize=1)  # noqa: E731
        print(f"claimed ε = {EPSILON} at δ = {DELTA}; lower bound at {CONFIDENCE:.0%} from {settings.draws:,} a case")
        for number, case in enumerate(CASES):
            bound = audit(number, settings.draws, mapper=mapper)
            if bound > EPSILON:  # once in a hundred audits of a sound mechanism, twice in ten thousand
                bound = min(bound, audit(number, settings.draws, mapper=mapper))
            failed |= bound > EPSILON
            print(f"  {bound:5.3f}  {'OVER' if bound > EPSILON else 'kept'}    {case.name} ({case.adjacency})")
        print("broken on purpose; the audit must catch each")
        for number, fault in BROKEN:
            bound = audit(number, settings.draws // 5, fault, mapper=mapper)
            failed |= bound <= EPSILON
            print(f"  {bound:5.3f}  {'caught' if bound > EPSILON else 'MISSED'}  {fault}: {CASES[number].name}")
    print(f"{'FAILED' if failed else 'passed'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
