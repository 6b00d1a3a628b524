"""AIM and MST on real data: structured fields drawn from noisy marginals, no texts, judged like measuring.py's runs.

    python benchmarks/marginals.py --data water ktas loan --rows 100 --epsilons 1 2 4 --side test
    python benchmarks/marginals.py --rows 1000 --epsilons 2 --side test
    python benchmarks/marginals.py --table --side test

It needs the extra [marginals] and no language model. The splits are those of measuring.py, so that figures can stand
side by side. The noise cannot be repeated. Figures are kept in --out: killed and started again, it
goes on. --no-delta measures with Laplace noise at δ = 0, which is what SelPE has by default.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from selpe.config import check_config
from selpe.evaluation.embedding import Remembering
from selpe.evaluation.utility import utility
from selpe.experiments.sources import Split, open_source
from selpe.models.encoders.base import Encoder
from selpe.models.fake import FakeModel
from selpe.models.open import open_encoder
from selpe.privacy.ledger import Ledger
from selpe.privacy.table import PrivateTable
from selpe.run.methods import Parts, recipe_of
from selpe.run.workspace import WorkFolder
from selpe.schema import Record


def point(
    *, split: Split, real: Sequence[Record], rows: Sequence[Record], encoder: Encoder, method: str, epsilon: float,
    options: argparse.Namespace, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """The figures of one run, and what it took."""
    began, schema = time.process_time(), split.schema
    own = {"delta": 0.0} if options.no_delta else {}
    settings = {
        "dataset": "benchmark", "data": "frame", "method": method, "epsilon": epsilon, "llm": "fake", "seed": seed,
        "records": options.per_class * len(schema.labels), **own,
    }  # fmt: skip
    config = check_config(settings, where="benchmark")
    recipe = recipe_of(method)
    plan = recipe.plan(config, schema, len(rows))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SELPE_KEY"] = str(Path(folder) / "key")
        ledger = Ledger.open("benchmark", root=Path(folder))
        ledger.set_budget(1000.0, delta=1e-4, composition="basic")
        parts = Parts(config, schema, plan, (FakeModel(),), encoder, WorkFolder(Path(folder)))
        private = PrivateTable(rows, schema, account=ledger.account("run"))
        made = recipe.build(parts).fit(private, schema, plan.prices())
    judged = utility(schema, made.records, real, encoder=encoder, seeds=2, bootstrap=0)
    found: dict[str, Any] = {one.kind: one.auc for one in judged.scores if one.trained_on == "synthetic"}
    found["mean"] = (found["text"] + found["structured"]) / 2
    return found | {"records": len(made.records), **made.notes, "seconds": round(time.process_time() - began, 1)}


def table_of(known: Mapping[str, dict[str, Any]], side: str) -> str:
    """Means over splits ± standard error, as Markdown."""
    places: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for key, found in known.items():
        where, data, _, size, method, rows, epsilon = key.split("|")
        if where == side:
            places.setdefault((data, method, rows, epsilon, size), []).append(found)
    lines = ["| data | method | rows | ε | N a class | text | structured | mean | splits |", "|---" * 9 + "|"]
    for place in sorted(places, key=lambda k: (k[0], int(k[2]), float(k[3]), k[1])):
        data, method, rows, epsilon, size = place
        shown = [_shown([one[name] for one in places[place]]) for name in ("text", "structured", "mean")]
        cells = [TITLES.get(data, data), method, rows, epsilon, size, *shown, str(len(places[place]))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(values: Sequence[float]) -> str:
    error = f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{error}"


DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
MOST_PRIVATE = 400  # as measuring.py: rows a class that a split sets aside
TITLES = {"water": "reviews", "ktas": "triage", "loan": "loans"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["water", "ktas", "loan"])
    parser.add_argument("--methods", nargs="+", default=["mst", "aim"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=[100], help="private rows in all, spread over classes")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.0])
    parser.add_argument("--per-class", type=int, default=60)
    parser.add_argument("--no-delta", action="store_true", help="Laplace noise at δ = 0")
    parser.add_argument("--side", choices=["validation", "test"], default="validation")
    parser.add_argument("--store", type=Path, default=Path("runs/measuring"))
    parser.add_argument("--out", type=Path, default=Path("runs/measuring/marginals.json"))
    parser.add_argument("--table", action="store_true", help="print what there is, and measure nothing")
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit("the real data folder is not beside this checkout")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    encoder = Remembering(open_encoder("minilm"))
    for seed in () if options.table else options.seeds:
        for data in options.data:
            split = open_source(data, folder=DATA).split(options.store / "data", seed, MOST_PRIVATE)
            for count in options.rows:
                rows = split.private(round(count / len(split.schema.labels)))
                for method in options.methods:
                    name = f"{method}, δ = 0" if options.no_delta else method
                    for epsilon in options.epsilons:
                        key = f"{options.side}|{data}|{seed}|{options.per_class}|{name}|{count}|{epsilon:g}"
                        if key not in known:
                            real = split.side(options.side)
                            known[key] = point(
                                split=split, real=real, rows=rows, encoder=encoder, method=method, epsilon=epsilon,
                                options=options, seed=seed,
                            )  # fmt: skip
                            options.out.write_text(json.dumps(known, indent=0))
                        print(key, known[key], flush=True)
    print(table_of(known, options.side))


if __name__ == "__main__":
    main()
