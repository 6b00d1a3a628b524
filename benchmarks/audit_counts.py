"""The statistical audit of counts: whole measurements on neighbouring tables, and what they give away.

For each case the private table fills tables of counts for two neighbouring tables, many times. The auditor knows both
tables: it reduces each answer to how much more likely it is on the one than on the other. From a first part of the
answers it takes the threshold that tells the tables apart best; on the rest, Clopper–Pearson bounds on the two
probabilities give a lower bound on the true ε, ln((p − δ)/q). It must not exceed the claim. The same audit runs on
measurements that are broken on purpose, and must catch each of them.

    python benchmarks/audit_counts.py [--draws 200000] [--processes 2]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from selpe.config import Adjacency
from selpe.privacy import mechanisms, noise, table
from selpe.privacy.counts import CountTable
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.noise import CountingNoise, count_noise_of
from selpe.privacy.table import PrivateTable
from selpe.schema import Record, Schema

CONFIDENCE = 0.99
WORDS = ("lost password", "line is dead", "where is my parcel")
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
Rows = tuple[str, ...]  # such as 'A1' (class and word), 'A0:ann' (whose), or 'none' for a row that does not fit


@dataclass(frozen=True)
class Case:
    """Two neighbouring tables, and how they are measured."""

    name: str
    rows: Rows
    neighbour: Rows
    adjacency: Adjacency = "replace-one"
    epsilon: float = 1.0
    delta: float = 0.0
    tables: int = 1
    person: bool = False

    @property
    def noise(self) -> CountingNoise:
        return CountingNoise(self.epsilon, self.adjacency, self.delta)


CASES = (
    Case("one table, a record changes its class", ("A0", "A1", "B2"), ("B0", "A1", "B2")),
    Case("one table, a record changes its class", ("A0", "A1", "B2"), ("B0", "A1", "B2"), epsilon=2.0),
    Case("one table, a record is removed", ("A0", "A1", "B2"), ("A1", "B2"), "add-remove"),
    Case("two tables, a record is replaced", ("A0", "A1"), ("A1", "B2"), epsilon=2.0, tables=2),
    Case("two tables, a record is added beside one that does not fit", ("A1", "none"), ("A1", "none", "B2"),
         "add-remove", tables=2),
    Case("two tables, a record that does not fit takes another's place", ("A0", "B2"), ("none", "B2"), "replace-one",
         epsilon=2.0, tables=2),
    Case("one table, a person with three rows is removed", ("A0:ann", "A0:ann", "A0:ann", "A1:bob"), ("A1:bob",),
         "add-remove", epsilon=2.0, person=True),
    Case("two tables with Gaussian noise, a record is replaced", ("A0", "A1"), ("A1", "B2"), delta=0.01, tables=2),
)  # fmt: skip


@dataclass(slots=True)
class Word:
    """Which of the words a row says."""

    name: str = "text"
    size: int = len(WORDS)
    remote: str | None = None

    def code(self, row: Record) -> int:
        return WORDS.index(str(row["text"]))


@dataclass(slots=True)
class Following:
    """A coder that must not be: the first row of a measurement decides for the rows after it."""

    rows: int
    name: str = "text"
    size: int = len(WORDS)
    remote: str | None = None
    seen: list[int] = field(default_factory=list)

    def code(self, row: Record) -> int:
        if len(self.seen) == self.rows:
            self.seen.clear()
        self.seen.append("AB".index(str(row["label"])))
        return self.seen[0]


@dataclass(slots=True)
class Class:
    """The class of a row."""

    name: str = "label"
    size: int = 2
    remote: str | None = None

    def code(self, row: Record) -> int:
        return "AB".index(str(row["label"]))


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
    """One table and what is counted in it: each call is one measurement, as one vector."""

    def __init__(self, case: Case, rows: Rows, fault: str = "") -> None:
        parts = [row.partition(":") for row in rows]
        records: list[Record | None] = [
            None if what == "none" else {"text": WORDS[int(what[1:])], "label": what[0]} for what, _, _ in parts
        ]
        self._private = PrivateTable(
            records,
            SCHEMA,
            account=Purse(),
            unit="person" if case.person else None,
            whose=[who or str(i) for i, (_, _, who) in enumerate(parts)] if case.person else None,
        )
        word = Following(len(rows)) if fault == "a coder that looks at another row" else Word()
        self._tables = [CountTable((Class(), word)), CountTable((word,))][: case.tables]

    def __call__(self, noise: CountingNoise) -> NDArray[np.int64]:
        found = self._private.count(self._tables, noise=noise, selection="counts")
        return np.concatenate([part.ravel() for part in found.tables.values()])


# -- measurements broken on purpose ------------------------------------------------------------------------------------


@contextmanager
def half_the_noise() -> Iterator[None]:
    """Drawn with half of the scale that was charged."""
    laplace, gaussian = mechanisms.laplace_integers, mechanisms.gaussian
    with (
        mock.patch.object(noise, "laplace_integers", lambda values, scale: laplace(values, scale / 2)),
        mock.patch.object(noise, "gaussian", lambda values, scale: gaussian(values, scale / 2)),
    ):
        yield


@contextmanager
def noise_of_one_table() -> Iterator[None]:
    """The noise of one table alone on each of several, as if a row counted in one of them."""
    add = CountingNoise.add
    with mock.patch.object(CountingNoise, "add", lambda self, values, _, key: add(self, values, 1, key)):
        yield


@contextmanager
def every_row_of_a_person() -> Iterator[None]:
    """All rows of a person count, and not one of them."""

    def all_rows(units: Sequence[Sequence[int]], _below: object) -> NDArray[np.intp]:
        return np.array([row for rows in units for row in rows], dtype=np.intp)

    with mock.patch.object(table, "one_row_each", all_rows):
        yield


@contextmanager
def a_coder_that_looks_at_another_row() -> Iterator[None]:
    """Nothing to replace here: the asker takes another coder."""
    yield


BREAKS: dict[str, Callable[[], Any]] = {
    "half the noise": half_the_noise,
    "the noise of one table": noise_of_one_table,
    "every row of a person": every_row_of_a_person,
    "a coder that looks at another row": a_coder_that_looks_at_another_row,
}
# Which case shows which fault.
BROKEN = (
    (0, "half the noise"),
    (1, "half the noise"),
    (7, "half the noise"),
    (3, "the noise of one table"),
    (6, "every row of a person"),
    (0, "a coder that looks at another row"),
)


# -- the audit -------------------------------------------------------------------------------------------------------


def run(job: tuple[int, int, int, str]) -> NDArray[np.float64]:
    """How much each answer speaks for the first of the two tables: (case, which table, draws, fault)."""
    number, side, draws, fault = job
    case = CASES[number]

    def many() -> NDArray[np.float64]:
        askers = [Asker(case, rows, fault) for rows in (case.rows, case.neighbour)]
        one, other = (asker(CountingNoise(math.inf)) for asker in askers)
        answers = np.array([askers[side](case.noise) for _ in range(draws)])
        if count_noise_of(case.noise, case.tables).law == "gaussian":
            return np.asarray(answers @ (one - other), dtype=np.float64)
        # The log-ratio of discrete Laplace laws, in units of their scale.
        return np.asarray((np.abs(answers - other) - np.abs(answers - one)).sum(axis=1), dtype=np.float64)

    if not fault:
        return many()
    with BREAKS[fault]():
        return many()


def lower_bound(
    first: Sequence[NDArray[np.float64]],
    rest: Sequence[NDArray[np.float64]],
    delta: float = 0.0,
    confidence: float = CONFIDENCE,
) -> float:
    """A bound that the true ε at δ exceeds with this confidence: the threshold is from `first`, judged on `rest`."""
    alpha = (1 - confidence) / 4  # two directions, two probabilities each
    bounds = [0.0]
    for a, b, sign in ((0, 1, 1.0), (1, 0, -1.0)):
        high, low = sign * first[a], sign * first[b]
        tries = np.unique(np.quantile(np.concatenate([high, low]), np.linspace(0.01, 0.995, 60), method="nearest"))
        growth = len(rest[a]) / len(first[a])
        best = max(tries, key=lambda t: log_ratio(high, low, t, delta=delta, alpha=alpha, growth=growth))
        bounds.append(log_ratio(sign * rest[a], sign * rest[b], best, delta=delta, alpha=alpha))
    return max(bounds)


def log_ratio(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    threshold: float,
    *,
    delta: float,
    alpha: float,
    growth: float = 1.0,
) -> float:
    """ln((p − δ)/q) for the event 'at the threshold or above', by its least and its greatest probability."""
    hits, others = growth * float((p >= threshold).sum()), growth * float((q >= threshold).sum())
    of, of_others = growth * len(p), growth * len(q)
    low = stats.beta.ppf(alpha, hits, of - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - alpha, others + 1, of_others - others) if others < of_others else 1.0
    return math.log((low - delta) / high) if low > delta else 0.0


def audit(
    number: int, draws: int, fault: str = "", confidence: float = CONFIDENCE, mapper: Callable[..., Any] = map
) -> float:
    """The lower bound on ε that this many answers, half of them on each table, give."""
    parts = [draws // 8, draws // 2 - draws // 8]
    jobs = [(number, side, part, fault) for part in parts for side in (0, 1)]
    first_a, first_b, rest_a, rest_b = mapper(run, jobs)
    return lower_bound((first_a, first_b), (rest_a, rest_b), CASES[number].delta, confidence)


def main() -> int:
    parser = argparse.ArgumentParser(description="Statistical privacy audit of tables of counts.")
    parser.add_argument("--draws", type=int, default=200_000, help="answers per case, half of them on each table")
    parser.add_argument("--processes", type=int, default=2)
    settings = parser.parse_args()
    began, failed = time.monotonic(), False
    with multiprocessing.get_context("spawn").Pool(settings.processes) as workers:
        mapper = lambda work, jobs: workers.map(work, jobs, chunksize=1)  # noqa: E731
        print(f"lower bound on ε at {CONFIDENCE:.0%} from {settings.draws:,} a case, and the claim")
        for number, case in enumerate(CASES):
            bound = audit(number, settings.draws, mapper=mapper)
            if bound > case.epsilon:  # once in a hundred audits of a sound mechanism, twice in ten thousand
                bound = min(bound, audit(number, settings.draws, mapper=mapper))
            failed |= bound > case.epsilon
            verdict = "OVER" if bound > case.epsilon else "kept"
            print(f"  {bound:5.3f} of {case.epsilon:g}  {verdict}    {case.name} ({case.adjacency})", flush=True)
        print("broken on purpose; the audit must catch each")
        for number, fault in BROKEN:
            bound, claim = audit(number, settings.draws // 5, fault, mapper=mapper), CASES[number].epsilon
            failed |= bound <= claim
            verdict = "caught" if bound > claim else "MISSED"
            print(f"  {bound:5.3f} of {claim:g}  {verdict}  {fault}: {CASES[number].name}", flush=True)
    print(f"{'FAILED' if failed else 'passed'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
