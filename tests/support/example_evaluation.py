"""An evaluation as plain data, made up but of the right shape: pages can be tested without computing anything."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from selpe.schema import Schema

VIEWS = (("minilm", "text"), ("boosted", "structured"))
AUCS = {"synthetic": (78.4, 74.9), "private rows": (86.1, 82.3), "real rows": (83.0, 80.8), "epsilon 0": (71.2, 70.4),
        "schema examples": (66.0, 61.5)}  # fmt: skip


ROWS = {"private rows": 150, "schema examples": 12}


def utility(labels: Sequence[str] = ("1", "2", "3", "4"), **aucs: tuple[float, float]) -> dict[str, Any]:
    scores = []
    for place, (view, kind) in enumerate(VIEWS):
        for name, pair in ({**AUCS, **aucs} | {"chance": (50.0, 50.0)}).items():
            auc = pair[place]
            wide = 0.0 if name == "chance" else 4.1
            scores.append(
                {
                    "view": view, "kind": kind, "trained_on": name, "auc": auc, "low": auc - wide, "high": auc + wide,
                    "accuracy": auc - 28.0, "macro_f1": auc - 31.0,
                    "per_class": {label: auc + number - 1.5 for number, label in enumerate(labels)},
                    "missing": [], "rows": ROWS.get(name, 80), "seeds": 3, "error": 0.4,
                }
            )  # fmt: skip
    return {"scores": scores, "notes": ["75 test records: an interval of eight points is what they can tell."]}


def fidelity(schema: Schema, seed: int = 0) -> dict[str, Any]:
    chance = random.Random(seed)
    marginals = {
        field.name: _marginal(field.kind, getattr(field, "values", ("true", "false")), chance)
        for field in schema.fields
        if field.kind != "text"
    }
    names = [field.name for field in schema.fields]
    real = _matrix(len(names), chance)
    made = [[min(1.0, abs(one + chance.gauss(0, 0.12))) for one in line] for line in real]
    return {
        "counts": {"synthetic": 80, "real": 75},
        "validity": {
            "source": "raw outputs", "total": 210, "r_cfg": 99.5, "s_cfg": 91.4, "rough": 99.5, "syntax": 97.1,
            "domain": 95.2, "rules": 91.4, "violations": {"domain": {"pain": 3}, "rule": {"dbp < sbp": 8}},
        },
        "marginals": marginals,
        "associations": {
            "fields": names, "kinds": [field.kind for field in schema.fields], "real": real, "synthetic": made,
            "difference": 0.09, "pearson": {"fields": [], "real": [], "synthetic": [], "difference": 0.0},
        },
        "structure": {
            "key_node_dependency": 0.11, "attribute_match": 0.14,
            "pairs": [{"fields": names[:2], "value": 0.1, "real": 0.3, "synthetic": 0.2}],
            "attributes": [{"name": names[0], "measure": "wasserstein", "value": 3.0, "normalised": 0.1}],
        },
        "text": {field.name: _text(chance) for field in schema.fields if field.kind == "text"},
        "neighbourhoods": {"precision": 0.71, "recall": 0.52, "k": 5},
        "map": _map(chance),
        "diversity": {"synthetic": _diversity(0.61), "real": _diversity(0.78)},
        "echoes": {"synthetic": {"records": 80, "echoed": 0, "share": 0.0, "fields": {}},
                   "real": {"records": 75, "echoed": 0, "share": 0.0, "fields": {}}},
        "summary": {"marginals": 0.13, "associations": 0.09, "key_node_dependency": 0.11, "attribute_match": 0.14,
                    "precision": 0.71, "recall": 0.52},
        "reference": {"marginals": 0.07, "associations": 0.08, "key_node_dependency": 0.05, "attribute_match": 0.06,
                      "precision": 0.9, "recall": 0.88},
        "alarms": [], "notes": ["Compared with 75 real records that were not used to make the table."],
    }  # fmt: skip


def attack(*, alarm: bool = False) -> dict[str, Any]:
    edges = [number / 20 * 2 for number in range(21)]
    return {
        "counts": {"synthetic": 80, "private": 150, "holdout": 75},
        "nrs": {"value": 0.69 if alarm else 1.0, "duplicates": 25 if alarm else 0, "holdout_records": 1.0,
                "to_holdout": 1.0, "p_value": 0.6},
        "dcr": {
            "value": 0.4 if alarm else 1.31, "median": 1.35, "low": 1.02,
            "holdout_records": {"value": 1.28, "median": 1.3, "low": 0.9},
            "to_holdout": {"value": 1.33, "median": 1.36, "low": 1.04},
            "closer_to_private": 0.52, "expected": 0.5, "p_value": 0.41, "edges": edges,
            "synthetic": _bell(20, 13.4), "holdout": _bell(20, 12.6),
        },
        "membership": {
            name: {"tpr": 0.34 if alarm else 0.013, "low": 0.002, "high": 0.047, "fpr": 0.01, "chance": 0.01,
                   "p_value": 0.5, "auc": 0.51, "auc_p_value": 0.4, "members": 150, "non_members": 75,
                   "false_positives": 0, "note": "at 150 members 1 % is two records"}
            for name in ("text", "kernel")
        },
        "copies": {"words": 8, "private_rows": 150, "private_touched": 12 if alarm else 0, "holdout_rows": 75,
                   "holdout_touched": 0, "synthetic_touched": 9 if alarm else 0, "longest": 14 if alarm else 4,
                   "long_words": 8, "long_private": 12 if alarm else 0, "long_holdout": 0, "p_value": 1.0,
                   "found": [{"synthetic": 3, "private": 17, "words": 14}] if alarm else []},
        "thresholds": {"significance": 0.001},
        "tests": {"count": 7, "smallest": 0.4, "by_chance": 1.0},
        "alarms": ["12 of 150 private rows share 8 words in a row with a synthetic record."] if alarm else [],
        "notes": ["Held-out records are the test records."],
    }  # fmt: skip


def _marginal(kind: str, values: Sequence[str], chance: random.Random) -> dict[str, Any]:
    shared = {"kind": kind, "unit": "", "missing_real": 0.02, "missing_synthetic": 0.0, "value": 0.1, "normalised": 0.1}
    if kind in ("category", "boolean"):
        real = _normal([chance.random() for _ in values])
        made = _normal([max(0.01, one + chance.gauss(0, 0.1)) for one in real])
        return shared | {"measure": "total variation", "values": list(values), "real": real, "synthetic": made}
    edges: list[Any] = [10.0 * number for number in range(21)]
    if kind == "date":
        edges = [f"2024-{1 + number // 2:02d}-{1 + 14 * (number % 2):02d}" for number in range(21)]
    return shared | {"measure": "wasserstein", "edges": edges, "real": _bell(20, 9.0 + chance.random()),
                     "synthetic": _bell(20, 8.0 + 4 * chance.random())}  # fmt: skip


def _text(chance: random.Random) -> dict[str, Any]:
    sizes = {"mean": 11.2, "median": 11.0, "low": 4.0, "high": 21.0}
    return {
        "words": {"real": sizes, "synthetic": sizes | {"mean": 9.4}, "wasserstein": 2.1,
                  "edges": [float(number) for number in range(21)], "real_shares": _bell(20, 10.0),
                  "synthetic_shares": _bell(20, 8.0 + chance.random())},
        "vocabulary": {"real": 512, "synthetic": 433, "shared": 240, "jaccard": 0.34, "coverage": 0.47,
                       "novelty": 0.44},
    }  # fmt: skip


def _diversity(distinct: float) -> dict[str, Any]:
    return {"records": 75, "distinct_records": 75, "exact_duplicates": 0.0, "repeated_texts": 0.0,
            "near_duplicates": 0.013, "distinct_1": 0.3,
            "distinct_2": distinct, "distinct_3": 0.9, "self_similarity": 0.31, "nearest_similarity": 0.62,
            "effective_records": 41.2}  # fmt: skip


def _map(chance: random.Random) -> dict[str, Any]:
    def cloud(count: int, shift: float) -> list[list[float]]:
        centres = [(-1.0, 0.6), (0.8, 0.9), (0.1, -0.9), (1.5, -0.4)]
        return [
            [centres[number % 4][0] + shift + chance.gauss(0, 0.35), centres[number % 4][1] + chance.gauss(0, 0.3)]
            for number in range(count)
        ]

    return {"real": cloud(75, 0.0), "synthetic": cloud(80, 0.2), "real_labels": [str(1 + n % 4) for n in range(75)],
            "synthetic_labels": [str(1 + n % 4) for n in range(80)], "explained": [0.21, 0.12]}  # fmt: skip


def _matrix(size: int, chance: random.Random) -> list[list[float]]:
    values = [[1.0 if row == column else chance.random() ** 2 for column in range(size)] for row in range(size)]
    return [[values[max(r, c)][min(r, c)] for c in range(size)] for r in range(size)]


def _bell(bins: int, centre: float) -> list[float]:
    return _normal([math.exp(-((number + 0.5 - centre) ** 2) / 18) for number in range(bins)])


def _normal(values: Sequence[float]) -> list[float]:
    return [value / sum(values) for value in values]
