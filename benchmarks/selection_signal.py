"""How well does one private choice find a good candidate? Votes and the paper's rule on real records.

For each class, 20 records stand for the private rows and others that were held out for the pool. A candidate's true
closeness is its mean kernel distance to the class's private rows. The winner's expected percentile and its chance to be
among the closest tenth follow from the exact law of the mechanism over the real tallies: no draws, hence no luck.

    python benchmarks/selection_signal.py                     # the table, the acceptance checks, the calibration
    python benchmarks/selection_signal.py --encoder tfidf --seeds 3

The data are looked for in a folder `shared/data` beside the checkout, and are never copied.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from selpe.errors import SelPEError
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.base import Encoder
from selpe.models.encoders.hashing import HashingEncoder
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.mechanisms import NoisyMax
from selpe.privacy.plan import make_plan
from selpe.privacy.simulation import SHARES, winner_law
from selpe.privacy.table import PrivateTable
from selpe.privacy.votes import Approval, Closeness, Prototype, RecordVote
from selpe.schema import Record, Schema

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
PRIVATE = 20  # private rows a class
EPSILONS = (0.2, 0.4, 0.8, 1.0, 2.0)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _whole(text: str) -> int | None:
    return int(float(text)) if text else None


@dataclass(frozen=True, slots=True)
class RealTable:
    """A real table: its schema, and how its columns are read."""

    name: str
    fields: Mapping[str, Mapping[str, Any]]
    label: str
    classes: tuple[str, ...]
    group: str = ""  # rows that share this text are kept on one side of the split

    @property
    def schema(self) -> Schema:
        label = {"kind": "category", "values": list(self.classes)}
        return Schema.from_dict({"name": self.name, "label": self.label, "fields": {**self.fields, self.label: label}})

    def records(self) -> list[Record]:
        """The records of the classes looked at, read under the schema; rows without a label are left out."""
        path = (DATA / f"{self.name}.csv").resolve()
        if not path.exists():
            raise SystemExit(f"{path.name} is not in a folder shared/data beside the checkout")
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        readers = {"number": _number, "integer": _whole}
        found = []
        for row in rows:
            if row[self.label] in self.classes:
                record: Record = {self.label: row[self.label]}
                for field, settings in self.fields.items():
                    text = row[field].strip()
                    record[field] = readers.get(str(settings["kind"]), lambda cell: cell or None)(text)
                found.append(record)
        return found


def _text(description: str, longest: int = 400) -> dict[str, Any]:
    return {"kind": "text", "max_length": longest, "optional": True, "description": description}


def _range(kind: str, low: float, high: float, step: float, description: str) -> dict[str, Any]:
    return {"kind": kind, "min": low, "max": high, "step": step, "optional": True, "description": description}


TABLES = (
    RealTable(
        "water",
        {
            "product_name": _text("the bottle that was bought"),
            "overall_rating": _range("number", 1, 5, 0.1, "mean rating of the product"),
            "title": _text("title of the review"),
            "cleaned_review": _text("the review"),
        },
        "rating",
        ("1", "2", "3", "4", "5"),
        group="cleaned_review",
    ),
    RealTable(
        "ktas_triage",
        {
            "chiefcomplaint": _text("what the patient says is wrong"),
            "sex": _text("sex"),
            "age": _range("integer", 0, 120, 1, "years"),
            "arrival_mode": _text("how the patient came"),
            "injury": _text("whether there is an injury"),
            "mental_state": _text("how awake the patient is"),
            "pain": _range("integer", 0, 10, 1, "pain, 0 to 10"),
            "sbp": _range("integer", 30, 300, 1, "systolic pressure"),
            "dbp": _range("integer", 20, 200, 1, "diastolic pressure"),
            "heartrate": _range("integer", 20, 250, 1, "heart rate"),
            "resprate": _range("integer", 4, 60, 1, "breaths a minute"),
            "temperature_c": _range("number", 30, 43, 0.1, "body temperature"),
            "o2sat": _range("integer", 20, 100, 1, "oxygen saturation"),
        },
        "acuity",
        ("2", "3", "4", "5"),  # class 1 has 26 rows: too few to hold a pool out
    ),
    RealTable(
        "loan_lendingclub_desc",
        {
            "loan_amnt": _range("number", 500, 40000, 25, "amount"),
            "term": _text("term"),
            "emp_title": _text("job"),
            "emp_length": _text("time in the job"),
            "home_ownership": _text("home"),
            "annual_inc": _range("number", 0, 1_000_000, 1, "yearly income"),
            "verification_status": _text("whether the income was verified"),
            "purpose": _text("what for"),
            "addr_state": _text("state"),
            "dti": _range("number", 0, 60, 0.01, "debt to income"),
            "desc": _text("the borrower's own words", 4000),
        },
        "grade",
        ("A", "B", "C", "D"),  # E to G have too few rows to hold a pool out
    ),
)


# -- encoders ---------------------------------------------------------------------------------------------------------


class TfidfEncoder:
    """TF-IDF of words and letter triples, fitted on public texts: stands in where MiniLM is not there."""

    name, remote, rowwise = "tfidf", None, True

    def __init__(self, texts: Sequence[str], features: int = 1024) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=features).fit(texts)

    @property
    def dimension(self) -> int:
        return len(self._vectors.vocabulary_) + 1

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        dense = np.asarray(self._vectors.transform(texts).todense(), dtype=np.float32)
        empty = (dense.sum(axis=1, keepdims=True) == 0).astype(np.float32)
        return np.hstack([dense, empty])  # a text without a known letter group gets an axis of its own


class Remembering:
    """An encoder that encodes no text twice: splits share most of their texts."""

    remote = None

    def __init__(self, encoder: Encoder) -> None:
        self.name, self.dimension, self.rowwise = encoder.name, encoder.dimension, encoder.rowwise
        self._encoder = encoder
        self._known: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        new = sorted({text for text in texts if text not in self._known}, key=len)
        if new:
            self._known |= dict(zip(new, self._encoder.encode(new), strict=True))
        return np.stack([self._known[text] for text in texts])


def find_encoder(name: str, texts: Sequence[str]) -> Encoder:
    """The encoder of that name; `auto` is MiniLM where it is to be had, else TF-IDF."""
    if name in ("auto", "minilm"):
        from selpe.models.encoders.minilm import MiniLMEncoder
        from selpe.models.store.store import ModelStore

        try:
            return Remembering(MiniLMEncoder(ModelStore().path("minilm")))
        except SelPEError:
            if name == "minilm":
                raise
    return Remembering(HashingEncoder() if name == "hash" else TfidfEncoder(texts))


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One class of one split: private rows, pool, and the kernel between them."""

    private: list[Record]
    pool: list[Record]


def split(table: RealTable, records: Sequence[Record], rows: int, pool: int, seed: int) -> dict[str, Case]:
    """Private rows and held-out candidates of each class; duplicates of a text stay on one side."""
    random = np.random.default_rng(seed)
    groups = sorted({str(record.get(table.group)) for record in records})
    side = dict(zip(groups, random.random(len(groups)) < 0.5, strict=True))
    cases = {}
    for label in table.classes:
        mine = [record for record in records if record[table.label] == label]
        shuffled = [mine[i] for i in random.permutation(len(mine))]
        if table.group:
            left = [record for record in shuffled if side[str(record.get(table.group))]]
            right = [record for record in shuffled if not side[str(record.get(table.group))]]
        else:
            left, right = shuffled[:rows], shuffled[rows:]
        cases[label] = Case(left[:rows], right[:pool])
    return cases


def truth_of(distances: NDArray[np.float32]) -> NDArray[np.float64]:
    """The percentile of each candidate by mean distance to the class's rows: the share of others that are farther."""
    mean = distances.astype(np.float64).mean(axis=0)
    farther = (mean[None, :] > mean[:, None]).sum(axis=1) + 0.5 * ((mean[None, :] == mean[:, None]).sum(axis=1) - 1)
    return np.asarray(farther / (len(mean) - 1))


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to vote, with its exponent under replace-one at a given ε."""

    name: str
    vote: RecordVote
    law: Literal["permute-and-flip", "exponential"] = "permute-and-flip"

    def outcome(self, tally: NDArray[np.int64], truth: NDArray[np.float64], epsilon: float) -> tuple[float, float]:
        """Expected percentile of the winner, and its chance to be among the closest tenth."""
        chances = winner_law(tally.astype(np.float64), epsilon / 2 / self.vote.step, self.law)
        return float((chances * truth).sum()), float(chances[truth >= 0.9].sum())


RULES = (
    Rule("paper's rule", Prototype(), "exponential"),
    Rule("closeness", Closeness()),
    *(Rule(f"approval {alpha:g}", Approval(alpha)) for alpha in SHARES),
)


def measure(table: RealTable, encoder_name: str, *, seeds: int, rows: int, pool: int) -> NDArray[np.float64]:
    """Mean outcomes of shape (rules, epsilons, 2) over classes and seeds."""
    schema, records = table.schema, table.records()
    texts = [schema.linearise(record) for record in records[:: max(1, len(records) // 2000)]]
    kernel = MultiChannelKernel(schema, find_encoder(encoder_name, texts))
    found = []
    for seed in range(seeds):
        for case in split(table, records, rows, pool, seed).values():
            over = kernel.over(kernel.represent_pool(case.pool))
            mine = kernel.represent_pool(case.private)
            truth = truth_of(over.distances(mine))
            tallies = [rule.vote.tally(over, mine, np.zeros(len(mine), np.intp), 1)[0] for rule in RULES]
            found.append(
                [[rule.outcome(tally, truth, e) for e in EPSILONS] for rule, tally in zip(RULES, tallies, strict=True)]
            )
    return np.asarray(np.mean(found, axis=0))


def report(name: str, outcomes: NDArray[np.float64]) -> None:
    print(f"\n{name}: winner's expected percentile / chance of a true top tenth")
    print("| ε_t | " + " | ".join(rule.name for rule in RULES) + " |")
    print("|" + "---|" * (len(RULES) + 1))
    for j, epsilon in enumerate(EPSILONS):
        cells = (f"{outcomes[i, j, 0]:.2f} / {outcomes[i, j, 1]:.2f}" for i in range(len(RULES)))
        print(f"| {epsilon:g} | " + " | ".join(cells) + " |")


def compare(outcomes: NDArray[np.float64], rows: int, pool: int) -> float:
    """The planner's prediction beside the measurement, at the approval share that the planner takes."""
    worst = 0.0
    print("| ε_t | planner's α | predicted | measured | difference |\n|---|---|---|---|---|")
    for j, epsilon in enumerate(EPSILONS):
        settings = {"units": rows, "labels": (), "epsilon": epsilon, "records": pool, "multiplicity": 1}
        plan = make_plan(**settings, rounds=1, batches=1)  # type: ignore[arg-type]
        measured = outcomes[2 + SHARES.index(plan.alpha), j, 0]
        gap = plan.percentile - measured
        worst = max(worst, abs(gap))
        print(f"| {epsilon:g} | {plan.alpha:g} | {plan.percentile:.3f} | {measured:.3f} | {gap:+.3f} |")
    return worst


# -- the real path ----------------------------------------------------------------------------------------------------


class FreeAccount:
    """An account that pays for everything and keeps nothing."""

    run = "benchmark"

    def charge(self, charge: Charge) -> Receipt:
        return Receipt("benchmark", 1, "", charge)

    def stored(self, selection: str) -> dict[str, Any] | None:
        return None

    def store(self, receipt: Receipt, result: Mapping[str, Any]) -> None:
        return None


def draw(table: RealTable, encoder_name: str, *, draws: int, rows: int, pool: int, epsilon: float = 0.8) -> None:
    """Draws by the private table itself, so that the law above is known to be that of the whole path."""
    schema, records = table.schema, table.records()
    texts = [schema.linearise(record) for record in records[:: max(1, len(records) // 2000)]]
    kernel = MultiChannelKernel(schema, find_encoder(encoder_name, texts))
    cases = split(table, records, rows, pool, seed=0)
    pools = {label: kernel.over(kernel.represent_pool(case.pool)) for label, case in cases.items()}
    truth = {x: truth_of(pools[x].distances(kernel.represent_pool(case.private))) for x, case in cases.items()}
    private = PrivateTable([row for case in cases.values() for row in case.private], schema, account=FreeAccount())
    mechanism, found = NoisyMax(epsilon), []
    for number in range(draws):
        made = private.select(pools, kernel=kernel, mechanism=mechanism, selection=str(number), vote=Approval(0.4))
        found += [truth[label][winners[0]] for label, winners in made.winners.items()]
    error = np.std(found) / math.sqrt(len(found))
    print(f"\n{table.name}: {len(found)} winners drawn by the private table at ε_t = {epsilon}, α = 0.4: ", end="")
    print(f"mean percentile {np.mean(found):.3f} ± {error:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--encoder", choices=("auto", "minilm", "tfidf", "hash"), default="auto")
    parser.add_argument("--tables", nargs="*", default=[table.name for table in TABLES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=PRIVATE, help="private rows a class")
    parser.add_argument("--pool", type=int, default=60, help="held-out candidates a class; 300 over five classes")
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    failed = []
    tables = [table for table in TABLES if table.name in given.tables]
    for table in tables:
        outcomes = measure(table, given.encoder, seeds=given.seeds, rows=given.rows, pool=given.pool)
        report(table.name, outcomes)
        gap = compare(outcomes, given.rows, given.pool)
        at = EPSILONS.index(0.8)
        approval, paper = outcomes[2:, at, 0].max(), outcomes[0, at, 0]
        checks = {
            f"approval reaches {approval:.3f} at ε_t = 0.8 (wanted: 0.80)": approval >= 0.80,
            f"the paper's rule stays at chance: {paper:.3f}": abs(paper - 0.5) < 0.02,
            f"the planner is within {gap:.3f} (wanted: 0.05)": gap <= 0.05,
        }
        for said, holds in checks.items():
            print(("ok   " if holds else "FAIL ") + said)
        failed += [said for said, holds in checks.items() if not holds]
    if tables and given.draws:
        draw(tables[0], given.encoder, draws=given.draws, rows=given.rows, pool=given.pool)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
