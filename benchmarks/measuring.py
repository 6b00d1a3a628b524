"""What measured tables add: whole runs of the method on real data, over rows and over ε, beside ε = 0 and real rows.

    python benchmarks/measuring.py --data water --rows 100 300 --epsilons 1 2 4 --side test

Each point is a whole evolution (pool, votes for fields, noisy tables, records written around drawn facts, the choice of
a release) at size N, with seeded noise, so that it can be repeated; ε = 0 is the mean over --controls draws on the
same pool. With --drafts facts are put into records instead of being written around: all but the writing, in seconds. A
pool and its phrases are written once for each split. Model answers are kept in --store and figures in
--out: killed and started again, it goes on. Choices are made with --side validation, figures shown with --side test.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from selpe.evaluation.attack import attack
from selpe.evaluation.embedding import Remembering
from selpe.evaluation.fidelity.neighbourhoods import precision_and_recall
from selpe.evaluation.utility import utility
from selpe.experiments.drawing import Panel, Series, line_chart
from selpe.experiments.results import Mean
from selpe.experiments.shared import SharedAnswers, slug
from selpe.experiments.sources import Split, open_source
from selpe.method.algorithm import Evolution, Evolved, Method
from selpe.method.codebooks import Codebook, brief_texts
from selpe.method.facts import MeasuredTables
from selpe.method.generation import Candidate, Generator
from selpe.method.guides import Guide, builtin_guides
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.base import Encoder
from selpe.models.open import open_encoder, open_model
from selpe.privacy.ledger import Ledger
from selpe.privacy.measure_plan import Measurable
from selpe.privacy.plan import Plan, make_plan
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
MOST_PRIVATE = 400  # rows a class that a split sets aside; fewer are always among more
COMMON = 20  # real rows from which on a class counts as common: the AUC of three rows is a matter of luck
TITLES = {"water": "reviews", "ktas": "triage", "loan": "loans"}
Figures = dict[str, float]


class Drafting(Evolution):
    """Evolution that ends with the drafts that rows have voted on, as if they were written."""

    def _write_measured(
        self, tables: MeasuredTables, included: Mapping[str, Sequence[Candidate]], guide: Guide
    ) -> dict[str, list[Candidate]]:
        drafts = iter(self._drafts(tables, included))
        return {
            label: [replace(made, record=next(drafts)) for made in included[label]] for label in self._labels
        }  # fmt: skip


@dataclass(slots=True)
class Bench:
    """One split with its model, its answers, and the rows that figures are measured on."""

    split: Split
    answers: SharedAnswers
    encoder: Encoder
    options: argparse.Namespace
    seed: int
    real: list[Record]

    def rows(self, per_class: int) -> list[Record]:
        """Private rows: true ones, or such that have nothing to say, for a control."""
        rows, label = self.split.private(per_class), self.split.schema.label
        chance = random.Random(f"{self.options.rows_are}:{self.seed}")
        if self.options.rows_are == "shuffled" and label is not None:
            labels = chance.sample([row[label] for row in rows], len(rows))
            return [{**row, label: one} for row, one in zip(rows, labels, strict=True)]
        if self.options.rows_are == "foreign":
            made = [one.record for one in self.run(rows, 0.0, 0)[1].candidates]
            return chance.sample(made, min(len(rows), len(made)))
        return rows

    def plan(self, rows: Sequence[Record], epsilon: float, measure: Sequence[str] | None) -> Plan:
        schema = self.split.schema
        names = tuple(name for name in schema.names if name != schema.label)
        offered = Measurable(tuple(measure) if measure else names, named=bool(measure), brief=brief_texts(schema))
        return make_plan(
            units=len(rows), labels=schema.labels, epsilon=epsilon, records=self.options.per_class * len(schema.labels),
            bundles=self.options.bundles, rounds=1, measure=None if self.options.off else offered,
        )  # fmt: skip

    def run(self, rows: Sequence[Record], epsilon: float, draw: int) -> tuple[Plan, Evolved]:
        """One whole evolution; `draw` seeds its noise."""
        schema, plan = self.split.schema, self.plan(rows, epsilon, self.options.measure)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SELPE_KEY"] = str(Path(folder) / "key")
            ledger = Ledger.open("benchmark", root=Path(folder))
            ledger.set_budget(1000.0)
            noisy = math.isfinite(epsilon) and epsilon > 0
            noise = zlib.crc32(f"{self.seed}:{len(rows)}:{epsilon}:{draw}".encode()) if noisy else None
            kind = Drafting if self.options.drafts else Evolution
            run = kind(
                private=PrivateTable(rows, schema, account=ledger.account("run")),
                schema=schema,
                generator=Generator(self.answers.model, schema, temperature=1.0),
                kernel=MultiChannelKernel(schema, self.encoder, public_encoder=self.answers.vectors),
                encoder=self.encoder,
                public_encoder=self.answers.vectors,
                plan=plan,
                guides=builtin_guides(schema, self.answers.model.name, self.answers.model.capabilities()),
                method=Method(bundles=self.options.bundles, mixed=True, test_seed=noise),
                seed=self.seed,
            )
            return plan, run.run()

    def further(self, made: Evolved, draw: int) -> list[Record]:
        """Drafts of further records from the same tables, as `sample(n)` draws them, where these were taken."""
        if made.tables is None or not made.measured:
            return []
        own = [(str(self.split.schema.label_of(one.record)), one.record) for one in made.candidates]
        return [
            made.tables.draft(label, record, random.Random(f"further:{draw}:{drawing}:{i}"))
            for drawing in range(1, self.options.drawings)
            for i, (label, record) in enumerate(own)
        ]

    def figures(self, records: Sequence[Record], books: Mapping[str, Codebook]) -> Figures:
        """Utility in both embedded views, recall of real records, and distances of measured fields within classes."""
        schema = self.split.schema
        made = utility(schema, records, self.real, encoder=self.encoder, seeds=2, bootstrap=0)
        trained = [score for score in made.scores if score.trained_on == "synthetic"]
        found: Figures = {score.kind: score.auc for score in trained}
        found["mean"] = (found["text"] + found["structured"]) / 2
        sizes = Counter(schema.label_of(row) for row in self.real)
        found["common"] = float(
            np.mean([auc for score in trained for label, auc in score.per_class.items() if sizes[label] >= COMMON])
        )
        texts = ([schema.linearise(row) for row in rows] for rows in (records, self.real))
        here, there = (self.encoder.encode(side).astype(np.float64) for side in texts)
        found["recall"] = precision_and_recall(here, there).recall
        for name, book in books.items():
            found[f"tv {name}"] = self._apart(book, records)
        return found

    def _apart(self, book: Codebook, records: Sequence[Record]) -> float:
        """Total variation of a field's codes between these and real records of the same class, mean over classes."""
        label_of, distances = self.split.schema.label_of, []
        for label in self.split.schema.labels:
            here, there = (Counter(book.code(r) for r in rows if label_of(r) == label) for rows in (records, self.real))
            if here and there:
                codes = here.keys() | there.keys()
                distances.append(sum(abs(here[c] / here.total() - there[c] / there.total()) for c in codes) / 2)
        return float(np.mean(distances))

    def _attacked(self, records: Sequence[Record], rows: Sequence[Record]) -> dict[str, Any]:
        """What attacks find in a release: alarms, and how far membership attacks are from chance (AUC in percent)."""
        found = attack(self.split.schema, records, rows, self.split.strangers(), encoder=self.encoder)
        told = {name: one for name, one in found.membership.items() if one is not None}
        return {
            "alarms": list(found.alarms),
            **{f"attack {name}": 100 * one.auc for name, one in told.items()},
            **{f"attack p {name}": one.auc_p_value for name, one in told.items()},
        }  # fmt: skip

    def point(self, rows: Sequence[Record], epsilon: float, draw: int) -> dict[str, Any]:
        began = time.monotonic()
        plan, made = self.run(rows, epsilon, draw)
        records = [one.record for one in made.candidates] + self.further(made, draw)
        books = {} if made.tables is None else {name: one.codebook for name, one in made.tables.fields.items()}
        found: dict[str, Any] = dict(self.figures(records, books))
        control = [one.record for one in self.run(rows, 0.0, 0)[1].candidates] if books else []
        found |= {f"control {name}": self._apart(book, control) for name, book in books.items()}
        if self.options.attack:
            found |= self._attacked(records, rows)
        anew = made.measured and float(np.mean([bool(one.proposal.facts) for one in made.candidates]))
        looks = 0 if plan.measure is None else len(plan.measure.looks)
        return found | {"release": made.release, "fields": list(books), "anew": anew, "looks": looks,
                        "seconds": round(time.monotonic() - began)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["water", "ktas", "loan"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=[100], help="private rows in all, spread over classes")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.0])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--controls", type=int, default=8)
    parser.add_argument("--per-class", type=int, default=60)
    parser.add_argument("--bundles", type=int, default=128)
    parser.add_argument("--measure", nargs="*", help="fields to measure; default: by vote")
    parser.add_argument("--drafts", action="store_true", help="put facts into records in the place of writing")
    parser.add_argument("--drawings", type=int, default=1, help="records in all: so many times the size, as drafts")
    parser.add_argument("--off", action="store_true", help="nothing is measured: the method as it was before")
    parser.add_argument("--attack", action="store_true", help="attack every release, too")
    without = "shuffled: labels changed at random among rows; foreign: records that the model made up"
    parser.add_argument("--rows-are", choices=["true", "shuffled", "foreign"], default="true", help=without)
    parser.add_argument("--side", choices=["validation", "test"], default="validation")
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--store", type=Path, default=Path("runs/measuring"))
    parser.add_argument("--out", type=Path, default=Path("runs/measuring/figures.json"))
    parser.add_argument("--table", action="store_true", help="print what there is, and measure nothing")
    parser.add_argument("--chart", type=Path, help="an SVG file for the gains over rows and over ε")
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit("the real data folder is not beside this checkout")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    if not options.table:
        models = open_model(options.llm), Remembering(open_encoder("minilm"))
        for seed in options.seeds:
            for data in options.data:
                _measure(options, data, seed, models, known)
    print(table_of(known, options.side))
    if options.chart:
        options.chart.write_text(chart_of(known, options), encoding="utf-8")


def _measure(
    options: argparse.Namespace, data: str, seed: int, models: tuple[Any, Encoder], known: dict[str, Any]
) -> None:
    model, encoder = models
    split = open_source(data, folder=DATA).split(options.store / "data", seed, MOST_PRIVATE)
    real = split.side(options.side)
    answers = SharedAnswers(options.store / "answers", f"{data}-{seed}-{slug(options.llm)}", model, encoder)
    bench = Bench(split, answers, encoder, options, seed, real)
    way = "off" if options.off else "+".join(options.measure) if options.measure else "auto"
    way += "" if options.rows_are == "true" else f" {options.rows_are}"
    way += " drafts" if options.drafts else ""
    way += f" x{options.drawings}" if options.drawings > 1 else ""
    way += " attacked" if options.attack else ""

    def keep(name: str, make: Any) -> None:
        key = f"{options.side}|{data}|{seed}|{options.per_class}|{name}"
        if key not in known:
            known[key] = make()
            options.out.write_text(json.dumps(known, indent=0))
        shown = {
            k: round(v, 1) if isinstance(v, float) else v
            for k, v in known[key].items()
            if not k.startswith(("tv", "con"))
        }
        print(key, shown, flush=True)

    few = split.private(20)
    for draw in range(options.controls):
        keep(f"auto|{len(few)}|0|{draw}", lambda draw=draw: bench.point(few, 0.0, draw))
    for count in options.rows:
        rows = bench.rows(round(count / len(split.schema.labels)))
        keep(f"real|{count}|inf|0", lambda rows=rows: bench.figures(rows, {}))
        for epsilon in options.epsilons:
            for draw in range(options.draws):
                keep(f"{way}|{count}|{epsilon:g}|{draw}", lambda e=epsilon, d=draw, r=rows: bench.point(r, e, d))
    answers.close()


def table_of(known: Mapping[str, Any], side: str) -> str:
    """Means over splits of the means over draws, ± standard error, with the difference from ε = 0 of the same split."""
    points: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = {}
    for key, found in known.items():
        where, data, seed, size, way, rows, epsilon, _ = key.split("|")
        if where == side:
            points.setdefault((data, size, way, rows, epsilon), {}).setdefault(seed, []).append(found)
    names = ("data", "N a class", "measured", "rows", "ε", "text", "structured", "mean", "above ε = 0", "of the way",
             "common classes, above ε = 0", "recall", "distance of measured fields (ε = 0)", "releases")  # fmt: skip
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for place in sorted(points, key=lambda k: (k[0], k[1], k[2], int(k[3]), float(k[4]))):
        lines.append(f"| {' | '.join(_row(place, points))} |")
    return "\n".join(lines)


def chart_of(known: Mapping[str, Any], options: argparse.Namespace) -> str:
    """Curves of what private rows add to a table of drafts: over rows at ε = 2, beside real rows, and over ε."""
    panels = []
    for data in options.data:
        keys = [key.split("|") for key in known if key.startswith(f"{options.side}|{data}|")]
        ticks = tuple(sorted({key[5] for key in keys if key[4:7:2] == ["auto drafts", "2"]}, key=int))
        ours, real = (
            [_gain(known, options, data, (way, n, e)) for n in ticks]
            for way, e in (("auto drafts", "2"), ("real", "inf"))
        )
        lines = (
            Series("SelPE", tuple(ours), "#0072b2", strong=True),
            Series("as many real rows", tuple(real), "#5b636d", "8 3"),
        )
        panels.append(Panel(f"{TITLES.get(data, data)}, ε = 2: gain by private rows", ticks, lines))
        most = Counter(key[5] for key in keys if key[4] == "auto drafts").most_common(1)[0][0]
        ticks = tuple(sorted({key[6] for key in keys if key[4:6] == ["auto drafts", most]}, key=float))
        ours = [_gain(known, options, data, ("auto drafts", most, epsilon)) for epsilon in ticks]
        alone = (Series("SelPE", tuple(ours), "#0072b2", strong=True),)
        panels.append(Panel(f"{TITLES.get(data, data)}, {most} rows: gain by ε", ticks, alone))
    return line_chart(panels, "Points of AUC above ε = 0")


def _gain(known: Mapping[str, Any], options: argparse.Namespace, data: str, point: tuple[str, str, str]) -> Mean | None:
    """What a way adds with so many rows and such an ε to ε = 0 of the same split, as a mean over splits."""
    gains, (way, rows, epsilon) = [], point
    for seed in options.seeds:
        split = f"{options.side}|{data}|{seed}|{options.per_class}|"
        zero = [found for key, found in known.items() if key.startswith(f"{split}auto|") and key.split("|")[6] == "0"]
        here = [found for key, found in known.items() if key.startswith(f"{split}{way}|{rows}|{epsilon}|")]
        gains += [_mean(here, "mean") - _mean(zero, "mean")] if here and zero else []
    return Mean.of(gains)


def _row(key: tuple[str, ...], points: Mapping[tuple[str, ...], Mapping[str, list[dict[str, Any]]]]) -> list[str]:
    data, size, way, rows, epsilon = key
    splits, real = points[key], points.get((data, size, "real", rows, "inf"), {})
    zero = next((points[k] for k in points if k[:3] == (data, size, "auto") and k[4] == "0"), {})
    gains, common = (
        {s: _mean(splits[s], name) - _mean(zero[s], name) for s in splits if s in zero} for name in ("mean", "common")
    )
    whole = {s: _mean(real[s], "mean") - _mean(zero[s], "mean") for s in gains if s in real}
    closed = f"{100 * sum(gains[s] for s in whole) / sum(whole.values()):.0f} %" if whole else ""
    every = [one for found in splits.values() for one in found]
    apart = [[one[f"{kind} {name}"] for one in every for name in one.get("fields", ())] for kind in ("tv", "control")]
    distance = f"{np.mean(apart[0]):.2f} ({np.mean(apart[1]):.2f})" if apart[0] else ""
    chosen = Counter(str(one["release"]) for one in every if "release" in one)
    return [
        TITLES.get(data, data), size, way, rows, epsilon,
        *(_shown([_mean(found, name) for found in splits.values()]) for name in ("text", "structured", "mean")),
        _shown(list(gains.values()), sign=True), closed, _shown(list(common.values()), sign=True),
        _shown([100 * _mean(found, "recall") for found in splits.values()]), distance,
        ", ".join(f"{count} {name}" for name, count in chosen.most_common(3)),
    ]  # fmt: skip


def _mean(found: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([one[name] for one in found]))


def _shown(values: Sequence[float], *, sign: bool = False) -> str:
    if not values:
        return ""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):{'+' if sign else ''}.1f}" + ("" if math.isnan(error) else f" ± {error:.1f}")


if __name__ == "__main__":
    main()
