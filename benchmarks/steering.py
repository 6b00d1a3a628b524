"""Do the private rows do something? What releases are worth on average at several ε, beside ε = 0 and the paper's rule.

    python benchmarks/steering.py [--data ktas water] [--seeds 3] [--per-class 12] [--llm smollm2] [--out steering.json]

Splits are those of `selpe experiment`. One run at one ε says little: which guide and which set win is partly noise, and
sets of 60 records differ by several points of AUC. So every guide is followed to its candidate releases, all of these
are measured, and the private choices are then drawn many times from the true votes by the true mechanism. Printed is
the expected outcome at each ε, and its difference from ε = 0 on the same split, where all choices are left to chance.
The model's answers are kept in --store, measurements in --out: killed and started again it goes on. A store may be the
folder of an experiment of size small (`selpe experiment --out`): the two then share splits and answers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.embedding import Remembering
from selpe.evaluation.fidelity.nearest import mean_distance
from selpe.evaluation.utility import utility
from selpe.experiments.shared import SharedAnswers, slug
from selpe.experiments.sources import Split, open_source
from selpe.method.algorithm import Evolution, Evolved, Method
from selpe.method.generation import Generator
from selpe.method.guides import builtin_guides
from selpe.method.kernel import MultiChannelKernel
from selpe.method.set_scores import SetJudge
from selpe.models.base import ChatModel
from selpe.models.encoders.base import Encoder
from selpe.models.open import open_encoder, open_model
from selpe.privacy.ledger import Ledger
from selpe.privacy.mechanisms import Guarantee, Influence, SeededMechanism
from selpe.privacy.plan import Plan, make_plan
from selpe.privacy.table import PrivateTable, Selection
from selpe.privacy.votes import Predictive
from selpe.schema import Record

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
PRIVATE = 20  # rows a class
DRAWS = 2000
ALONE = (0.25, 0.5, 0.75, 1.0, 2.0, math.inf)  # ε at which each choice is looked at by itself
OURS = Method(multiplicity=2)
PAPER = Method(multiplicity=2, votes="prototype", bundles=0, inclusion="centre")
MEASURES = ("text", "structured", "mean", "distance")
OTHER_ROWS = ("the paper's rule, ε = 2", "the private rows", "inclusion centre", "inclusion diverse")
Ballot = tuple[NDArray[np.int64], list[str]]  # votes for each set, and the set's digest


@dataclass(slots=True)
class Followed(Evolution):
    """Evolution that follows one guide, whatever the rows say of it, and notes what they say.

    A benchmark may look at private rows and at votes without noise; nothing of this is released.
    """

    rows: Sequence[Record] = ()
    follow: int = 0
    sets: dict[str, list[Record]] = field(default_factory=dict)
    ballots: dict[str, Ballot] = field(default_factory=dict)

    def _choose(
        self, name: str, epsilon: float, sets: Sequence[Sequence[Record]], ahead: Sequence[int] = ()
    ) -> Selection:
        known = {self.schema.dumps(record): record for one in sets for record in one}
        judge = SetJudge(self.schema, self.encoder, self.kernel, sets, list(known.values()))
        digests = [digest_of(self.schema.dumps(record) for record in one) for one in sets]
        self.sets |= {digest: list(one) for digest, one in zip(digests, sets, strict=True)}
        self.ballots[name] = Predictive(judge, tuple(ahead)).tally(self.rows), digests
        return Selection({"": (self.follow if name == "guide" else 0,)}, Guarantee(0.0, 0.0), "followed", private=False)


@dataclass(slots=True)
class Bench:
    """One split with its model, and what has been measured of its sets."""

    split: Split
    model: ChatModel
    encoder: Encoder
    seed: int
    records: int
    measured: dict[str, dict[str, float]]
    ballots: dict[str, Any]  # at each ε: votes on guides, and on each guide's sets

    def evolution(self, plan: Plan, method: Method, kind: type[Evolution], folder: str, **more: Any) -> Evolution:
        schema = self.split.schema
        ledger = Ledger.open("benchmark", root=Path(folder))
        ledger.set_budget(100.0)
        return kind(
            private=PrivateTable(self.split.private(PRIVATE), schema, account=ledger.account("run")),
            schema=schema,
            generator=Generator(self.model, schema),
            kernel=MultiChannelKernel(schema, self.encoder),
            encoder=self.encoder,
            plan=plan,
            guides=builtin_guides(schema, self.model.name, self.model.capabilities()),
            method=method,
            seed=self.seed,
            **more,
        )

    def plan(self, epsilon: float, method: Method, *, guides: int, rounds: int) -> Plan:
        return make_plan(
            units=len(self.split.private(PRIVATE)), labels=self.split.schema.labels, epsilon=epsilon,
            records=self.records, guides=guides, bundles=method.bundles, vote=method.votes, rounds=rounds,
            multiplicity=method.multiplicity,
        )  # fmt: skip

    @property
    def guides(self) -> int:
        """How many guides there are."""
        return len(builtin_guides(self.split.schema, self.model.name, self.model.capabilities()))

    def followed(self, epsilon: float, guide: int, method: Method = OURS) -> tuple[Plan, Followed, Evolved]:
        """All candidate releases of one guide, with the private rows' votes on them, and the release without them."""
        plan = self.plan(epsilon, method, guides=self.guides, rounds=1)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SELPE_KEY"] = str(Path(folder) / "key")
            rows = self.split.private(PRIVATE)
            run = self.evolution(plan, method, Followed, folder, rows=rows, follow=guide)
            assert isinstance(run, Followed)
            return plan, run, run.run()

    def included(self, inclusion: Literal["centre", "diverse"]) -> NDArray[np.float64]:
        """What evolution's own set is worth at ε = 2, over all guides, without candidate releases beside it."""
        method = replace(OURS, inclusion=inclusion, bundles=0)
        found = []
        for guide in range(self.guides):
            records = [candidate.record for candidate in self.followed(2.0, guide, method)[2].candidates]
            found.append(self.figures(digest_of(map(self.split.schema.dumps, records)), records))
        return np.asarray(np.mean(found, axis=0))

    def of_paper(self, epsilon: float) -> Evolved:
        """A release by the paper's rule: no guides, no choice among releases."""
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SELPE_KEY"] = str(Path(folder) / "key")
            run = self.evolution(self.plan(epsilon, PAPER, guides=0, rounds=2), PAPER, Evolution, folder)
            run.guides = run.guides[:1]
            return run.run()

    def figures(self, digest: str, records: Sequence[Record]) -> NDArray[np.float64]:
        """What a set is worth; measured once."""
        if digest not in self.measured:
            schema, test = self.split.schema, self.split.side("test")
            made = utility(
                schema, records, test, encoder=self.encoder, views=("minilm", "boosted"), seeds=1, bootstrap=2
            )
            found: dict[str, float] = {s.kind: s.auc for s in made.scores if s.trained_on == "synthetic"}
            found["mean"] = (found["text"] + found["structured"]) / 2
            found["distance"] = mean_distance(schema, records, test, encoder=self.encoder)
            self.measured[digest] = {name: float(found[name]) for name in MEASURES}
        return np.array([self.measured[digest][name] for name in MEASURES])

    def expected(self, epsilon: float) -> NDArray[np.float64]:
        """The mean outcome of the private choices at ε."""
        by_guide, kept = [], []
        for guide in range(self.guides):
            plan, run, _ = self.followed(epsilon, guide)
            votes, digests = run.ballots["bundle"]
            values = np.array([self.figures(digest, run.sets[digest]) for digest in digests])
            by_guide.append(chances(votes, plan.bundle_epsilon or 0.0, f"bundle-{guide}") @ values)
            guide_votes, guide_epsilon = run.ballots["guide"][0], plan.guide_epsilon or 0.0
            kept.append([votes.tolist(), digests])
        self.ballots[f"{epsilon:g}"] = {"guide": guide_votes.tolist(), "bundles": kept}
        return np.asarray(chances(guide_votes, guide_epsilon, "guide") @ np.array(by_guide))


def chances(votes: NDArray[np.int64], epsilon: float, key: str) -> NDArray[np.float64]:
    """How often each set wins, by the mechanism of a run with seeded noise in the place of OpenDP's."""
    if epsilon == 0:
        return np.full(len(votes), 1 / len(votes))
    selector = SeededMechanism(epsilon, 0, test_only=True).calibrate(Influence(step=Predictive.step), key)
    won = np.bincount([selector.draw(votes) for _ in range(DRAWS)], minlength=len(votes))
    return np.asarray(won / DRAWS)


def digest_of(texts: Any) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:20]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["ktas", "water"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--per-class", type=int, default=12)
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.0, 1.0, 2.0, 4.0, math.inf])
    parser.add_argument("--store", type=Path, default=Path("runs/steering"), help="model answers, kept for a restart")
    parser.add_argument("--out", type=Path, default=Path("runs/steering/steering.json"))
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit("the real data folder is not beside this checkout")
    encoder, bare = Remembering(open_encoder(options.encoder)), open_model(options.llm)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for seed in range(options.seeds):
        for name in options.data:
            split = open_source(name, folder=DATA).split(options.store / "data", seed, PRIVATE)
            place = known.setdefault(f"{name}/{seed}", {"sets": {}, "rows": {}, "ballots": {}})
            store = f"{name}-{split.schema.fingerprint()[:8]}-{seed}-{slug(options.llm)}"
            answers = SharedAnswers(options.store / "answers", store, bare, encoder)
            records = options.per_class * len(split.schema.labels)
            bench = Bench(split, answers.model, encoder, seed, records, place["sets"], place.setdefault("ballots", {}))
            for row in [*(f"ε = {e:g}" for e in options.epsilons), *OTHER_ROWS]:
                if row not in place["rows"]:
                    place["rows"][row] = worth(bench, row).tolist()
                    options.out.write_text(json.dumps(known))
                print(name, seed, row, np.round(place["rows"][row], 4).tolist(), flush=True)
            answers.close()
    print(table_of(known))
    print(parts_of(known))


def worth(bench: Bench, row: str) -> NDArray[np.float64]:
    """The figures of a row of the table."""
    schema = bench.split.schema
    if row.startswith("ε = "):
        return bench.expected(float(row.removeprefix("ε = ")))
    if row.startswith("inclusion "):
        return bench.included("centre" if row.endswith("centre") else "diverse")
    rows = (
        bench.split.private(PRIVATE)
        if "private" in row
        else [candidate.record for candidate in bench.of_paper(2.0).candidates]
    )
    return bench.figures(digest_of(map(schema.dumps, rows)), rows)


def table_of(known: Mapping[str, Any]) -> str:
    """Means ± standard errors over splits, and the same of the difference from ε = 0 on the same split."""
    lines = [
        "| data | row | text | structured | mean | above ε = 0 | distance | nearer than ε = 0 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for data in sorted({place.partition("/")[0] for place in known}):
        splits = [known[place]["rows"] for place in known if place.startswith(f"{data}/")]
        for row in sorted(splits[0], key=_place):
            figures = np.array([one[row] for one in splits if row in one])
            gained = np.array([np.subtract(one[row], one["ε = 0"]) for one in splits if row in one])
            shown = [_shown(figures[:, i], 1) for i in range(3)] + [_shown(gained[:, 2], 1, sign=True)]
            shown += [_shown(figures[:, 3], 4), _shown(-gained[:, 3], 4, sign=True)]
            lines.append(f"| {data} | {row} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _place(row: str) -> tuple[bool, float, str]:
    """Rows at an ε come first, the smallest at the top."""
    told = row.startswith("ε = ")
    return not told, float(row.removeprefix("ε = ")) if told else 0.0, row


def parts_of(known: Mapping[str, Any]) -> str:
    """What each choice gains by itself at an ε of its own: over any guide, and over any set of a guide."""
    lines = ["| data | choice | ε of the choice | mean | nearer |", "|---|---|---|---|---|"]
    for data in sorted({place.partition("/")[0] for place in known}):
        found: dict[tuple[str, float], list[NDArray[np.float64]]] = {}
        for place in (known[name] for name in known if name.startswith(f"{data}/")):
            told = place["ballots"].get("2")
            if told is None:
                continue
            sets = [
                np.array([[place["sets"][d][m] for m in ("mean", "distance")] for d in digests])
                for _, digests in told["bundles"]
            ]
            means = np.array([one.mean(axis=0) for one in sets])
            for epsilon in ALONE:
                won = chances(np.array(told["guide"]), epsilon, "guide") @ means - means.mean(axis=0)
                found.setdefault(("guides", epsilon), []).append(won)
                gains = [
                    chances(np.array(votes), epsilon, f"bundle-{g}") @ sets[g] - means[g]
                    for g, (votes, _) in enumerate(told["bundles"])
                ]
                found.setdefault(("sets", epsilon), []).append(np.mean(gains, axis=0))
        for (choice, epsilon), gained in found.items():
            gain = np.array(gained)
            shown = [_shown(gain[:, 0], 1, sign=True), _shown(-gain[:, 1], 4, sign=True)]
            lines.append(f"| {data} | {choice} | {epsilon:g} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(values: NDArray[np.float64], digits: int, *, sign: bool = False) -> str:
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():{'+' if sign else ''}.{digits}f} ± {error:.{digits}f}"


if __name__ == "__main__":
    main()
