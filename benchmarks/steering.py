"""Do the private rows do something? Utility and closeness of releases at several ε, beside ε = 0 and the paper's rule.

    python benchmarks/steering.py [--data ktas water] [--seeds 3] [--records 60] [--llm smollm2] [--out steering.json]

Real tables from the data folder beside the checkout; 20 private rows a class, the rest held out. Every release comes
from the same model answers where the method allows (one store per data set and seed), so that what differs is what the
private choices did. ε = 0 is repeated with several random choices and averaged.
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
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from selpe.encode.base import Encoder
from selpe.evaluate.fidelity.nearest import mean_distance
from selpe.evaluate.utility import utility
from selpe.evolve import Evolution, Evolved, Inclusion, Method
from selpe.generate import Generator
from selpe.guides import builtin_guides
from selpe.kernel import MultiChannelKernel
from selpe.llm.base import ChatModel
from selpe.llm.open import open_encoder, open_model
from selpe.llm.remembering import AnswerStore, RememberingModel
from selpe.privacy.ledger import Ledger
from selpe.privacy.plan import make_plan
from selpe.privacy.private import PrivateTable
from selpe.schema import Record, Schema
from selpe.table import parse_records, read_table

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
PRIVATE_PER_CLASS, TEST_PER_CLASS = 20, 80

# ruff: noqa: E501  (tables of made-up records read best in one line each)
KTAS = """
name: triage
description: Triage records of an emergency department. Each has the chief complaint in a few words, vital signs, and the
  acuity that was given, from 1 (resuscitation) to 5 (non-urgent).
label: acuity
fields:
  chiefcomplaint: {kind: text, max_length: 60, description: chief complaint in a few words}
  sex: {kind: category, values: [Female, Male]}
  age: {kind: integer, min: 15, max: 100}
  arrival_mode: {kind: category, values: [Walking, Public Ambulance, Private Vehicle, Private Ambulance, Other]}
  injury: {kind: category, values: ["Yes", "No"]}
  mental_state: {kind: category, values: [Alert, Verbal Response, Pain Response, Unresponsive]}
  pain: {kind: integer, min: 0, max: 10, optional: true}
  sbp: {kind: integer, min: 40, max: 280, optional: true, unit: mmHg}
  dbp: {kind: integer, min: 20, max: 180, optional: true, unit: mmHg}
  heartrate: {kind: integer, min: 20, max: 220, optional: true}
  resprate: {kind: integer, min: 6, max: 60, optional: true}
  temperature_c: {kind: number, min: 33, max: 42, step: 0.1, optional: true}
  acuity:
    kind: category
    values: {"1": "resuscitation, life at risk now", "2": "emergent, severe", "3": "urgent, needs tests soon",
             "4": "less urgent, mild", "5": "non-urgent, minor"}
rules: [dbp < sbp]
examples:
  - {chiefcomplaint: cardiac arrest, sex: Male, age: 68, arrival_mode: Public Ambulance, injury: "No",
     mental_state: Unresponsive, pain: null, sbp: 60, dbp: 30, heartrate: 40, resprate: 8, temperature_c: 35.8, acuity: "1"}
  - {chiefcomplaint: "chest pain, sudden", sex: Female, age: 61, arrival_mode: Public Ambulance, injury: "No",
     mental_state: Alert, pain: 7, sbp: 165, dbp: 95, heartrate: 108, resprate: 24, temperature_c: 36.7, acuity: "2"}
  - {chiefcomplaint: abdominal pain and fever, sex: Female, age: 34, arrival_mode: Private Vehicle, injury: "No",
     mental_state: Alert, pain: 5, sbp: 124, dbp: 78, heartrate: 96, resprate: 20, temperature_c: 38.2, acuity: "3"}
  - {chiefcomplaint: twisted ankle, sex: Male, age: 27, arrival_mode: Private Vehicle, injury: "Yes",
     mental_state: Alert, pain: 4, sbp: 130, dbp: 82, heartrate: 78, resprate: 18, temperature_c: 36.5, acuity: "4"}
  - {chiefcomplaint: wound dressing change, sex: Male, age: 45, arrival_mode: Walking, injury: "No",
     mental_state: Alert, pain: 1, sbp: 128, dbp: 80, heartrate: 74, resprate: 18, temperature_c: 36.4, acuity: "5"}
"""
WATER = """
name: reviews
description: Reviews of water bottles in an online shop. Each has the product, its overall rating, the customer's own
  rating from 1 (worst) to 5 (best), a title that sums up the customer's opinion, and the review in a few lower-case
  words.
label: rating
fields:
  product_name: {kind: text, max_length: 130}
  overall_rating: {kind: number, min: 1, max: 5, step: 0.1}
  title: {kind: text, max_length: 60, description: the customer's opinion in one to five words}
  cleaned_review: {kind: text, max_length: 160, description: "a few words, lower case"}
  rating: {kind: category, values: {"1": terrible, "2": bad, "3": average, "4": good, "5": excellent}}
examples:
  - {product_name: Steel Flask 750 ml Bottle Reviews, overall_rating: 3.9, title: "Do not buy this", cleaned_review: lid leaks waste money, rating: "1"}
  - {product_name: Copper Bottle 1000 ml Bottle Reviews, overall_rating: 4.1, title: "Disappointed", cleaned_review: not worth price quality poor, rating: "2"}
  - {product_name: Kids Sipper 500 ml Bottle Reviews, overall_rating: 4.0, title: "It is okay", cleaned_review: okay product average, rating: "3"}
  - {product_name: Thermosteel Flask 1000 ml Bottle Reviews, overall_rating: 4.3, title: "Quite good", cleaned_review: good product nice, rating: "4"}
  - {product_name: Fridge Bottle Set 1000 ml Bottle Reviews, overall_rating: 4.2, title: "Love it, just great", cleaned_review: very nice quality excellent, rating: "5"}
"""
TABLES = {"ktas": ("ktas_triage.csv", KTAS, "chiefcomplaint"), "water": ("water.csv", WATER, "cleaned_review")}


OURS = Method(multiplicity=2, guide_sample=10)
PAPER = Method(multiplicity=2, votes="prototype", bundles=0, inclusion="centre")


def settings_of(epsilons: list[float], chances: int, inclusion: bool) -> list[tuple[str, float, bool, int, Method]]:
    """What is compared: name, ε, the paper's rule or ours, which repetition, and the switches."""
    rows = [("ε = 0", 0.0, False, i, OURS) for i in range(chances)]
    rows += [(f"ε = {e:g}", e, False, 0, OURS) for e in epsilons]
    rows += [("the paper's rule, ε = 2", 2.0, True, 0, PAPER)]
    # The same seeded winners with two rules of inclusion: the pools are the same, so this compares the rules alone.
    for rule in get_args(Inclusion) if inclusion else ():
        single = replace(OURS, bundles=0, inclusion=rule, test_seed=1)
        rows.append((f"ε = 2, no choice among releases, inclusion {rule}", 2.0, False, 0, single))
    return rows


def split(name: str, seed: int) -> tuple[Schema, list[Record], list[Record]]:
    """Schema, private rows and test rows; rows with the same text stay on one side."""
    file, text, key = TABLES[name]
    schema = Schema.from_yaml(text)
    rows = parse_records(read_table(DATA / file), schema, blank_bad_cells=True).records
    chance = random.Random(f"{name}:{seed}")
    chance.shuffle(rows)
    private: list[Record] = []
    test: list[Record] = []
    side: dict[str, bool] = {}
    counts: dict[tuple[str | None, bool], int] = {}
    for row in rows:
        label, content = schema.label_of(row), str(row[key])
        full = counts.get((label, True), 0) >= (PRIVATE_PER_CLASS if label != "1" or name != "ktas" else 13)
        mine = side.setdefault(content, not full)
        limit = PRIVATE_PER_CLASS if mine else TEST_PER_CLASS
        if counts.get((label, mine), 0) >= limit or (mine and full):
            continue
        counts[(label, mine)] = counts.get((label, mine), 0) + 1
        (private if mine else test).append(row)
    return schema, private, test


def judged(schema: Schema, encoder: Encoder, train: list[Record], test: list[Record]) -> dict[str, float]:
    """ROC-AUC one-vs-rest in percent in the two embedded views."""
    made = utility(schema, train, test, encoder=encoder, views=("minilm", "boosted"), seeds=3, bootstrap=2)
    scores = {score.kind: score.auc for score in made.scores if score.trained_on == "synthetic"}
    return {"text": scores["text"], "structured": scores["structured"]}


def release(
    schema: Schema, private: list[Record], model: ChatModel, encoder: Encoder, *,
    epsilon: float, seed: int, records: int, paper: bool = False, repeat: int = 0, method: Method = OURS,
) -> Evolved:  # fmt: skip
    """One release. `paper`: its rule alone, without guides and bundles."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SELPE_KEY"] = str(Path(folder) / "key")
        ledger = Ledger.open("benchmark", root=Path(folder))
        ledger.set_budget(100.0)
        guides = builtin_guides(schema, model.name, model.capabilities())
        plan = make_plan(
            units=len(private), labels=schema.labels, epsilon=epsilon, records=records,
            guides=0 if paper else len(guides), bundles=0 if paper else method.bundles,
            vote="prototype" if paper else "approval", rounds=2 if paper else None, multiplicity=method.multiplicity,
        )  # fmt: skip
        method = PAPER if paper else method
        return Evolution(
            private=PrivateTable(private, schema, account=ledger.account(f"run-{repeat}")),
            schema=schema,
            generator=Generator(model, schema, temperature=1.0),
            kernel=MultiChannelKernel(schema, encoder),
            encoder=encoder,
            plan=plan,
            guides=guides[:1] if paper else guides,
            method=method,
            seed=seed,
        ).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["ktas", "water"], choices=sorted(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--records", type=int, default=60)
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, math.inf])
    parser.add_argument("--random", type=int, default=2, help="random choices to average at ε = 0")
    parser.add_argument("--inclusion", action="store_true", help="compare the rules of inclusion too")
    parser.add_argument("--store", type=Path, default=Path("runs/steering"), help="model answers, kept for a restart")
    parser.add_argument("--out", type=Path, default=Path("runs/steering/steering.json"))
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit("the real data folder is not beside this checkout")
    encoder, bare = open_encoder(options.encoder), open_model(options.llm)
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for name in options.data:
            schema, private, test = split(name, seed)
            model = RememberingModel(
                bare, AnswerStore(options.store / f"{name}-{seed}-{options.llm.replace('/', '_')}.jsonl")
            )
            for label, epsilon, paper, repeat, method in settings_of(
                options.epsilons, options.random, options.inclusion
            ):
                began = time.monotonic()
                made = release(
                    schema, private, model, encoder,
                    epsilon=epsilon, seed=seed, records=options.records, paper=paper, repeat=repeat, method=method,
                )  # fmt: skip
                records = [candidate.record for candidate in made.candidates]
                row = {
                    "data": name, "seed": seed, "setting": label, "guide": made.guide.name, "bundle": made.bundle,
                    **judged(schema, encoder, records, test),
                    "distance": mean_distance(schema, records, test, encoder=encoder),
                    "seconds": round(time.monotonic() - began, 1),
                }  # fmt: skip
                rows.append(row)
                keep = options.out.with_name(f"{name}-{seed}-{len(rows)}.jsonl")
                keep.parent.mkdir(parents=True, exist_ok=True)
                keep.write_text("\n".join(schema.dumps(record) for record in records))
                print(json.dumps(row, ensure_ascii=False), flush=True)
            real = {"data": name, "seed": seed, "setting": "private rows", **judged(schema, encoder, private, test),
                    "distance": mean_distance(schema, private, test, encoder=encoder)}  # fmt: skip
            rows.append(real)
            print(json.dumps(real, ensure_ascii=False), flush=True)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(rows, ensure_ascii=False, indent=1))
    print(table_of(rows))


def table_of(rows: list[dict[str, Any]]) -> str:
    """Means ± standard errors over seeds, as Markdown."""
    lines = ["| data | setting | text | structured | mean | distance |", "|---|---|---|---|---|---|"]
    for row in rows:
        row["mean"] = (row["text"] + row["structured"]) / 2
    for name in sorted({row["data"] for row in rows}):
        for setting in dict.fromkeys(row["setting"] for row in rows):
            mine = [row for row in rows if row["data"] == name and row["setting"] == setting]
            cells = []
            for measure, digits in (("text", 1), ("structured", 1), ("mean", 1), ("distance", 4)):
                by_seed = [
                    np.mean([r[measure] for r in mine if r["seed"] == s]) for s in sorted({r["seed"] for r in mine})
                ]
                error = np.std(by_seed, ddof=1) / math.sqrt(len(by_seed)) if len(by_seed) > 1 else 0.0
                cells.append(f"{np.mean(by_seed):.{digits}f} ± {error:.{digits}f}")
            lines.append(f"| {name} | {setting} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
