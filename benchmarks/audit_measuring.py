"""The statistical audit of a whole measurement: a vote for a field, counts of the field that won, and the last vote.

Each later step depends on what the earlier ones released, as in a run: which table is counted is the vote's winner, and
the releases that are voted on follow from the noisy counts. The auditor knows both neighbouring tables: it reduces all
that was released to how much more likely it is on the one than on the other. Bounds on ε are as in audit_counts.py.
The sum of the three prices is the claim. The same audit runs with one of the three steps broken on purpose.

    python benchmarks/audit_measuring.py [--draws 40000] [--processes 2]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from benchmarks.audit_counts import CONFIDENCE, Purse, half_the_noise, lower_bound

from private_world import permute_and_flip
from selpe.config import Adjacency
from selpe.method.codebooks import Codebook, ListedCodes
from selpe.method.measuring import Association, ClassCodes
from selpe.privacy import mechanisms
from selpe.privacy.counts import CountTable
from selpe.privacy.mechanisms import Influence, Law, NoisyMax, OpenDPSelector
from selpe.privacy.noise import CountingNoise, count_noise_of
from selpe.privacy.table import PrivateTable
from selpe.privacy.votes import FieldJudge, FieldVote, Predictive
from selpe.schema import Record, Schema

SCHEMA = Schema.from_dict(
    {
        "name": "audit",
        "label": "label",
        "fields": {
            "colour": {"kind": "category", "values": ["red", "green"]},
            "size": {"kind": "category", "values": ["small", "large"]},
            "label": {"kind": "category", "values": ["A", "B"]},
        },
    }
)
BOOKS: dict[str, Codebook] = {name: ListedCodes(SCHEMA.field(name)) for name in ("colour", "size")}  # type: ignore[arg-type]
MODEL = {"colour": np.array([[0.7, 0.3], [0.3, 0.7]]), "size": np.array([[0.4, 0.6], [0.6, 0.4]])}
Rows = tuple[str, ...]  # such as 'A red small'


@dataclass(frozen=True)
class Case:
    """Two neighbouring tables, and the prices of the vote, the counts and the last vote."""

    name: str
    rows: Rows
    neighbour: Rows
    prices: tuple[float, float, float]
    adjacency: Adjacency = "replace-one"
    real_judge: bool = False

    @property
    def epsilon(self) -> float:
        """The claim."""
        return math.fsum(self.prices)


# The row that differs speaks for another field, is counted in another cell and takes another release; the others are
# in the balance.
BESIDE = ("A red large", "B green small")
REPLACED = (("A red small", *BESIDE), ("B green large", *BESIDE))
CASES = (
    Case("a record is replaced", *REPLACED, (0.3, 0.4, 0.3)),
    Case("a record is replaced", *REPLACED, (0.6, 0.8, 0.6)),
    Case("a record is replaced, most on the vote", *REPLACED, (1.8, 0.1, 0.1)),
    Case("a record is replaced, most on the counts", *REPLACED, (0.1, 1.8, 0.1)),
    Case("a record is replaced, most on the last vote", *REPLACED, (0.1, 0.1, 1.8)),
    Case("a record is removed", REPLACED[0], BESIDE, (0.3, 0.4, 0.3), "add-remove"),
    Case("a record is replaced, fields judged as in a run", *REPLACED, (0.6, 0.8, 0.6), real_judge=True),
)


class Loud:
    """A judge of fields that says all it may: red rows speak for colours, green ones for sizes."""

    options, remote = 2, None

    def field(self, option: int) -> str:
        return ("colour", "size")[option]

    def votes(self, row: Record) -> NDArray[np.float64]:
        return np.array([1.0, 0.0] if row["colour"] == "red" else [0.0, 1.0])


@dataclass(frozen=True, slots=True)
class Releases:
    """Two releases, the first without the counts. A row takes the second where it is of the class that they favour."""

    favoured: str
    views: int = 1
    options: int = 2
    remote: str | None = None

    def read(self, rows: Sequence[Record]) -> Sequence[Record]:
        return rows

    def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
        return np.array([[[0.0, 1.0] if row["label"] == self.favoured else [1.0, 0.0] for row in rows]])


class Released(NamedTuple):
    """All that a measurement lets out."""

    field: int
    counts: NDArray[np.int64]
    release: int

    @property
    def favoured(self) -> str:
        """The class that the noisy counts say has more rows."""
        low, high = self.counts.sum(axis=1)
        return "A" if low >= high else "B"


class Measurement:
    """One private table, measured again and again."""

    def __init__(self, case: Case, rows: Rows) -> None:
        names = ("label", "colour", "size")
        self._case = case
        self.rows: list[Record] = [dict(zip(names, row.split(), strict=True)) for row in rows]
        self._private = PrivateTable(self.rows, SCHEMA, account=Purse())
        self.judge: Any = Association(SCHEMA, list(BOOKS.values()), MODEL) if case.real_judge else Loud()
        vote, counts, last = case.prices
        self._vote, self._last = (NoisyMax(price, case.adjacency) for price in (vote, last))
        self._noise = CountingNoise(counts, case.adjacency)

    def table(self, field: int) -> CountTable:
        return CountTable((ClassCodes(SCHEMA), BOOKS[self.judge.field(field)]))

    def __call__(self) -> Released:
        judge: FieldJudge = self.judge
        field = self._private.choose(FieldVote(judge), mechanism=self._vote, selection="field-1").winner
        asked = self.table(field)
        counts = self._private.count([asked], noise=self._noise, selection="measure-1").tables[asked.name]
        found = Released(field, counts, -1)
        last = Predictive(Releases(found.favoured))
        return found._replace(release=self._private.choose(last, mechanism=self._last, selection="bundle").winner)


class Auditor:
    """What is known of one table from outside: how likely each release is, up to a factor."""

    def __init__(self, case: Case, rows: Rows) -> None:
        self._measured = Measurement(case, rows)
        vote, counts, last = case.prices
        records = self._measured.rows
        self._field = _chances(FieldVote(self._measured.judge).tally(records), vote, case.adjacency, FieldVote.step)
        self._scale = count_noise_of(CountingNoise(counts, case.adjacency), 1).scale
        self._exact = [self._counted(self._measured.table(field)) for field in range(self._measured.judge.options)]
        self._release = {
            label: _chances(Predictive(Releases(label)).tally(records), last, case.adjacency, 1) for label in "AB"
        }

    def _counted(self, table: CountTable) -> NDArray[np.int64]:
        found = np.zeros(table.cells, dtype=np.int64)
        for row in self._measured.rows:
            found[table.cell(row)] += 1
        return found.reshape(table.shape)

    def log_chance(self, found: Released) -> float:
        """The log-probability of what was released, up to a constant."""
        off = float(np.abs(found.counts - self._exact[found.field]).sum()) / self._scale
        votes = self._field[found.field], self._release[found.favoured][found.release]
        return math.log(votes[0]) + math.log(votes[1]) - off


def _chances(scores: NDArray[np.int64], price: float, adjacency: Adjacency, step: int) -> NDArray[np.float64]:
    selector = NoisyMax(price, adjacency).calibrate(Influence(step))
    assert isinstance(selector, OpenDPSelector)
    return permute_and_flip(scores, selector.scale)


# -- steps broken on purpose -------------------------------------------------------------------------------------------


@contextmanager
def _twice_the_rate(step: int) -> Iterator[None]:
    real = mechanisms._fit

    @functools.cache
    def fit(epsilon: float, adjacency: Adjacency, law: Law, influence: Influence, printed: bool) -> Any:
        sound = real(epsilon, adjacency, law, influence, printed)
        if influence.step != step:
            return sound
        weak = mechanisms._measurement(law, sound.scale / 2, influence.monotone)
        return dataclasses.replace(sound, scale=sound.scale / 2, measurement=weak)

    with mock.patch.object(mechanisms, "_fit", fit):
        yield


BREAKS: dict[str, Callable[[], Any]] = {
    "the vote at twice its rate": lambda: _twice_the_rate(FieldVote.step),
    "counts with half the noise": half_the_noise,
    "the last vote at twice its rate": lambda: _twice_the_rate(Predictive.step),
}
# Which case shows which fault.
BROKEN = (
    (2, "the vote at twice its rate"),
    (3, "counts with half the noise"),
    (4, "the last vote at twice its rate"),
)


# -- the audit ---------------------------------------------------------------------------------------------------------


def run(job: tuple[int, int, int, str]) -> NDArray[np.float64]:
    """How much each measurement speaks for the first of the two tables: (case, which table, draws, fault)."""
    number, side, draws, fault = job
    case = CASES[number]
    one, other = (Auditor(case, rows) for rows in (case.rows, case.neighbour))

    def many() -> NDArray[np.float64]:
        measure = Measurement(case, (case.rows, case.neighbour)[side])
        found = [measure() for _ in range(draws)]
        # Rounded, so that equal ratios are equal numbers and a threshold cuts between them.
        return np.array([round(one.log_chance(each) - other.log_chance(each), 9) for each in found])

    if not fault:
        return many()
    with BREAKS[fault]():
        return many()


def audit(
    number: int, draws: int, fault: str = "", confidence: float = CONFIDENCE, mapper: Callable[..., Any] = map
) -> float:
    """The lower bound on ε that this many measurements, half of them on each table, give."""
    parts = [draws // 8, draws // 2 - draws // 8]
    jobs = [(number, side, part, fault) for part in parts for side in (0, 1)]
    first_a, first_b, rest_a, rest_b = mapper(run, jobs)
    return lower_bound((first_a, first_b), (rest_a, rest_b), 0.0, confidence)


def main() -> int:
    parser = argparse.ArgumentParser(description="Statistical privacy audit of whole measurements.")
    parser.add_argument("--draws", type=int, default=40_000, help="measurements per case, half of them on each table")
    parser.add_argument("--processes", type=int, default=2)
    settings = parser.parse_args()
    began, failed = time.monotonic(), False
    with multiprocessing.get_context("spawn").Pool(settings.processes) as workers:
        mapper = lambda work, jobs: workers.map(work, jobs, chunksize=1)  # noqa: E731
        print(f"lower bound on ε at {CONFIDENCE:.0%} from {settings.draws:,} measurements a case, and the claim")
        for number, case in enumerate(CASES):
            bound = audit(number, settings.draws, mapper=mapper)
            if bound > case.epsilon:  # once in a hundred audits of a sound mechanism, twice in ten thousand
                bound = min(bound, audit(number, settings.draws, mapper=mapper))
            failed |= bound > case.epsilon
            verdict = "OVER" if bound > case.epsilon else "kept"
            print(f"  {bound:5.3f} of {case.epsilon:g}  {verdict}    {case.name} ({case.adjacency})", flush=True)
        print("broken on purpose; the audit must catch each")
        for number, fault in BROKEN:
            bound, claim = audit(number, settings.draws // 2, fault, mapper=mapper), CASES[number].epsilon
            failed |= bound <= claim
            verdict = "caught" if bound > claim else "MISSED"
            print(f"  {bound:5.3f} of {claim:g}  {verdict}  {fault}: {CASES[number].name}", flush=True)
    print(f"{'FAILED' if failed else 'passed'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
