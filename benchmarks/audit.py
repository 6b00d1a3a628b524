"""The statistical audit: whole selections on neighbouring tables, many times, and what the outcomes give away.

For each case the private table runs `select` (or `choose`) on two neighbouring tables. From a first part of the
outcomes the audit takes the event that tells the tables apart best; on the rest, Clopper–Pearson bounds on the event's
two probabilities give a lower bound on the true ε. It must not exceed the claim. The same audit runs on mechanisms that
are broken on purpose, and must catch each of them: an audit that catches nothing proves nothing.

    python benchmarks/audit.py [--draws 200000] [--processes 2]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from selpe.config import Adjacency
from selpe.privacy import mechanisms, table
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.mechanisms import Law, NoisyMax, OpenDPSelector
from selpe.privacy.table import PrivateTable, Selection
from selpe.privacy.votes import Approval, Predictive
from selpe.schema import Record, Schema

EPSILON = 1.0
CONFIDENCE = 0.99
Outcome = tuple[int, ...]
SPOTS = (0.0, 50.0, 100.0)


@dataclass(frozen=True)
class Case:
    """Two neighbouring tables, and how they are asked; rows are (x, label, person)."""

    name: str
    rows: tuple[tuple[int, str, str], ...]
    neighbour: tuple[tuple[int, str, str], ...]
    adjacency: Adjacency = "replace-one"
    law: Law = "permute-and-flip"
    batches: int = 1
    candidates: int = 2
    person: bool = False
    sets: bool = False

    @property
    def tables(self) -> tuple[tuple[tuple[int, str, str], ...], ...]:
        return self.rows, self.neighbour


def points(*rows: str) -> tuple[tuple[int, str, str], ...]:
    """Rows from words such as 'A100' or 'A0:ann'."""
    parts = [row.partition(":") for row in rows]
    return tuple((int(what[1:]), what[0], who or str(i)) for i, (what, _, who) in enumerate(parts))


CASES = (
    Case("a record changes its class", points("A0", "A50", "B50"), points("B50", "A50", "B50")),
    Case("a record is replaced in its class, 2 batches", points("A0", "A50", "A50"), points("A50", "A50", "A50"),
         batches=2),
    Case("a record is removed, 2 batches, exponential", points("A0", "A50", "A50", "A50"), points("A50", "A50", "A50"),
         "add-remove", "exponential", batches=2),
    Case("a person with three rows is replaced", points("A0:ann", "A0:ann", "A50:ann", "A50:bob", "B50:cy"),
         points("B50:dan", "A50:bob", "B50:cy"), person=True),
    Case("a choice among sets, two views", points("A0", "A50", "A100"), points("A100", "A50", "A100"), sets=True),
    Case("a record is replaced across the table, 2 batches", points("A0", "A0", "A50", "A50"),
         points("A100", "A0", "A50", "A50"), batches=2, candidates=3),
)  # fmt: skip


# -- the world: points on a line -------------------------------------------------------------------------------------

SCHEMA = Schema.from_dict(
    {
        "name": "audit",
        "label": "label",
        "fields": {
            "x": {"kind": "integer", "min": 0, "max": 100},
            "label": {"kind": "category", "values": ["A", "B"]},
        },
    }
)


@dataclass(frozen=True, slots=True)
class Points:
    x: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: NDArray[np.intp]) -> Points:
        return Points(self.x[rows])


@dataclass(frozen=True, slots=True)
class Pool:
    candidates: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.candidates)

    def distances(self, rows: Points) -> NDArray[np.float32]:
        return np.asarray(np.abs(rows.x[:, None] - self.candidates[None, :]) / np.float32(100.0))

    def prototype(self, rows: Points) -> NDArray[np.float32]:
        return np.asarray(self.distances(Points(rows.x.mean(keepdims=True)))[0])

    def among(self, i: Sequence[int]) -> NDArray[np.float32]:
        return self.distances(Points(self.candidates[np.asarray(i, dtype=np.intp)]))


class Line:
    remote = None

    def represent(self, records: Sequence[Record]) -> Points:
        return Points(np.array([r["x"] for r in records], dtype=np.float32))

    def over(self, pool: Points) -> Pool:
        return Pool(pool.x)


class Likes:
    """A judge with two views of four sets, one turned against the other."""

    views, options, remote = 2, 4, None

    def read(self, rows: Sequence[Record]) -> Sequence[Record]:
        return rows

    def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
        far = np.abs(np.array([[float(r["x"])] for r in rows]) - np.array([0.0, 40.0, 60.0, 100.0]))  # type: ignore[arg-type]
        return -np.stack([far, np.roll(far, 1, axis=1)])


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


def asker(case: Case, table_rows: Sequence[tuple[int, str, str]]) -> Callable[[], Selection]:
    """One call is one whole selection on this table."""
    names = ("x", "label", "person") if case.person else ("x", "label")
    records: list[Record] = [dict(zip(names, row, strict=False)) for row in table_rows]
    table = PrivateTable(records, SCHEMA, account=Purse(), unit="person" if case.person else None)
    mechanism = NoisyMax(EPSILON, case.adjacency, case.law)
    if case.sets:
        return lambda: table.choose(Predictive(Likes()), mechanism=mechanism, selection="audit")
    kernel, pool = Line(), Pool(np.array(SPOTS[: case.candidates], dtype=np.float32))
    labels = {label for rows in case.tables for _, label, _ in rows}
    pools, vote = dict.fromkeys(sorted(labels), pool), Approval(0.3)
    return lambda: table.select(
        pools, kernel=kernel, mechanism=mechanism, selection="audit", vote=vote, batches=case.batches
    )


def outcome(selection: Selection) -> Outcome:
    return tuple(itertools.chain.from_iterable(selection.winners.values()))


# -- mechanisms broken on purpose --------------------------------------------------------------------------------------


@contextmanager
def half_the_noise(_case: Case, _rows: Sequence[Any]) -> Iterator[None]:
    """Calibrated as if a record could move a score by one half."""
    real = mechanisms._fit

    @functools.cache
    def fit(epsilon: float, adjacency: Adjacency, law: Law, influence: mechanisms.Influence, printed: bool) -> Any:
        sound = real(epsilon, adjacency, law, influence, printed)
        weak = mechanisms._measurement(law, sound.scale / 2, influence.monotone)
        return dataclasses.replace(sound, scale=sound.scale / 2, measurement=weak)

    with mock.patch.object(mechanisms, "_fit", fit):
        yield


def _seeded_draw(seed: int) -> Callable[[OpenDPSelector, NDArray[np.int64]], int]:
    def draw(selector: OpenDPSelector, scores: NDArray[np.int64]) -> int:
        noise = np.random.default_rng(seed).standard_exponential(len(scores))
        return int(np.argmax(scores + selector.scale * noise))

    return draw


@contextmanager
def seeded_noise(case: Case, _rows: Sequence[Any]) -> Iterator[None]:
    """The right law, but from a generator that starts from the same seed every time."""
    for seed in range(1000):
        with mock.patch.object(OpenDPSelector, "draw", _seeded_draw(seed)):
            results = {outcome(asker(case, rows)()) for rows in case.tables}
            if len(results) == 2:  # for other seeds these two tables happen to look alike
                yield
                return
    raise AssertionError("no seed tells the two tables apart")


@contextmanager
def batches_by_content(_case: Case, rows: Sequence[Any]) -> Iterator[None]:
    """Rows sorted by what they say, then cut: a replaced row moves others across the cut."""
    order = np.argsort(np.argsort([row[0] for row in rows], kind="stable"), kind="stable")

    def assign(units: int, batches: int, _below: object) -> NDArray[np.intp]:
        return np.asarray(order * batches // units, dtype=np.intp)

    with mock.patch.object(table, "assign", assign):
        yield


BREAKS = {"half the noise": half_the_noise, "seeded noise": seeded_noise, "batches by content": batches_by_content}
# Which case shows which fault.
BROKEN = ((0, "half the noise"), (4, "half the noise"), (0, "seeded noise"), (5, "batches by content"))


# -- the audit -------------------------------------------------------------------------------------------------------


def run(job: tuple[int, int, int, str]) -> Counter[Outcome]:
    """The outcomes of many selections: (case, which table, draws, fault)."""
    number, side, draws, fault = job
    case = CASES[number]
    rows = case.tables[side]

    def many() -> Counter[Outcome]:
        ask = asker(case, rows)
        return Counter(outcome(ask()) for _ in range(draws))

    if not fault:
        return many()
    with BREAKS[fault](case, rows):
        return many()


def lower_bound(
    first: Sequence[Counter[Outcome]], rest: Sequence[Counter[Outcome]], confidence: float = CONFIDENCE
) -> float:
    """A bound that the true ε exceeds with this confidence: the event is taken from `first`, judged on `rest`."""
    alpha = (1 - confidence) / 4  # two directions, two probabilities each
    bounds = [0.0]
    for a, b in ((0, 1), (1, 0)):
        event = best_event(first[a], first[b], alpha, rest[a].total() / first[a].total())
        bounds.append(log_ratio(rest[a], rest[b], event, alpha))
    return max(bounds)


def best_event(p: Counter[Outcome], q: Counter[Outcome], alpha: float, growth: float) -> set[Outcome]:
    """Of the sets {outcomes with the highest ratio}, the one that promises the best bound on `growth` times as many."""
    ranked = sorted({*p, *q}, key=lambda o: (p[o] + 1) / (q[o] + 1), reverse=True)
    events = [set(ranked[:k]) for k in range(1, len(ranked) + 1)]
    return max(events, key=lambda event: log_ratio(p, q, event, alpha, growth))


def log_ratio(
    p: Counter[Outcome], q: Counter[Outcome], event: set[Outcome], alpha: float, growth: float = 1.0
) -> float:
    """ln of the event's least probability in one table over its greatest in the other (Clopper–Pearson)."""
    hits, others = growth * sum(p[o] for o in event), growth * sum(q[o] for o in event)
    of, of_others = growth * p.total(), growth * q.total()
    low = stats.beta.ppf(alpha, hits, of - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - alpha, others + 1, of_others - others) if others < of_others else 1.0
    return math.log(low / high) if low > 0 else 0.0


def audit(
    number: int, draws: int, fault: str = "", confidence: float = CONFIDENCE, mapper: Callable[..., Any] = map
) -> float:
    """The lower bound on ε that this many selections, half of them on each table, give."""
    parts = [draws // 8, draws // 2 - draws // 8]
    jobs = [(number, side, part, fault) for part in parts for side in (0, 1)]
    first_a, first_b, rest_a, rest_b = mapper(run, jobs)
    return lower_bound((first_a, first_b), (rest_a, rest_b), confidence)


def main() -> int:
    parser = argparse.ArgumentParser(description="Statistical privacy audit of the whole selection.")
    parser.add_argument("--draws", type=int, default=200_000, help="selections per case, half of them on each table")
    parser.add_argument("--processes", type=int, default=2)
    settings = parser.parse_args()
    began, failed = time.monotonic(), False
    with multiprocessing.get_context("spawn").Pool(settings.processes) as workers:
        mapper = lambda work, jobs: workers.map(work, jobs, chunksize=1)  # noqa: E731
        print(f"claimed ε = {EPSILON}; lower bound at {CONFIDENCE:.0%} from {settings.draws:,} selections a case")
        for number, case in enumerate(CASES):
            bound = audit(number, settings.draws, mapper=mapper)
            if bound > EPSILON:
                # A sound mechanism that uses all of its ε is over once in a hundred audits, twice in ten thousand.
                bound = min(bound, audit(number, settings.draws, mapper=mapper))
            failed |= bound > EPSILON
            print(
                f"  {bound:5.3f}  {'OVER' if bound > EPSILON else 'kept'}    {case.name} ({case.adjacency}, {case.law})"
            )
        print("broken on purpose; the audit must catch each")
        for number, fault in BROKEN:
            bound = audit(number, settings.draws // 5, fault, mapper=mapper)
            failed |= bound <= EPSILON
            print(f"  {bound:5.3f}  {'caught' if bound > EPSILON else 'MISSED'}  {fault}: {CASES[number].name}")
    print(f"{'FAILED' if failed else 'passed'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
