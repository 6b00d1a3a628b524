"""What a pool of candidates costs and is worth, without private rows: prompts are judged by it.

    python benchmarks/pools.py --data water ktas --seeds 0 1 --per-class 40

Guides take turns, as in a run. Tokens are counted, not seconds, so that a busy machine says the same as an idle one:
'cold' ones were computed, others lay in blocks that a prompt before had filled. Figures are measured on validation
rows; 'echo' is the share of records that have six words in a row of a text of the schema's examples.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from selpe.evaluation.embedding import Remembering
from selpe.evaluation.fidelity.neighbourhoods import precision_and_recall
from selpe.evaluation.utility import utility
from selpe.experiments.sources import open_source
from selpe.method.echoes import EchoCheck
from selpe.method.generation import Generator, Proposal
from selpe.method.guides import builtin_guides
from selpe.models.base import Answer, ChatModel
from selpe.models.encoders.base import Encoder
from selpe.models.open import open_encoder, open_model
from selpe.schema import Record, Schema, TextField

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "triage" / "schema.yaml"


def proposals(schema: Schema, model: ChatModel, per_class: int, seed: int) -> list[Proposal]:
    """What round 1 of a run with this seed proposes."""
    guides = builtin_guides(schema, model.name, model.capabilities())
    made = []
    for label in schema.labels:
        for i in range(per_class):
            digest = hashlib.sha256(f"{seed}:round-1:{label}:{i}".encode()).digest()
            made.append(Proposal(guides[i % len(guides)], int.from_bytes(digest[:6], "big"), label=label))
    return made


def costs(
    schema: Schema, model: ChatModel, asked: Sequence[Proposal], **taste: Any
) -> tuple[list[Record], dict[str, Any]]:
    """The records of a pool, and what they took for each."""
    counts: Counter[str] = Counter()
    first: list[float] = []
    began = time.monotonic()

    def watch(answer: Answer) -> None:
        counts["read"] += answer.prompt_tokens
        counts["cold"] += answer.prompt_tokens - answer.cached_tokens
        counts["written"] += answer.completion_tokens
        if answer.request.stage == "II" and not first:
            first.append(round(time.monotonic() - began, 1))

    made = Generator(model, schema, **taste).generate(asked, watch=watch)
    records = [candidate.record for candidate in made.candidates if candidate is not None]
    each = {name: round(count / len(records)) for name, count in counts.items()}
    echoes, known = EchoCheck(schema), EchoCheck(schema).texts(())
    copied = sum(echoes.is_echo(record, known, ()) for record in records)
    return records, each | {
        "records": f"{len(records)} of {len(asked)}", "echo %": round(100 * copied / len(records), 1),
        "first record after": first[0], "retries": dict(made.effort.retries), "given up": dict(made.effort.given_up),
    }  # fmt: skip


def worth(schema: Schema, records: Sequence[Record], real: Sequence[Record], encoder: Encoder) -> dict[str, float]:
    """Utility in both views, nearness to real records, and how different the longest text is."""
    scores = utility(schema, records, real, encoder=encoder, seeds=2, bootstrap=0).scores
    found = {f"AUC {score.kind}": score.auc for score in scores if score.trained_on == "synthetic"}
    here, there = (encoder.encode([schema.linearise(row) for row in rows]) for rows in (records, real))
    near = precision_and_recall(here.astype(np.float64), there.astype(np.float64))
    longest = max((one for one in schema.fields if isinstance(one, TextField)), key=lambda one: one.max_length)
    texts = {str(record[longest.name]) for record in records}
    found |= {
        "precision": 100 * near.precision,
        "recall": 100 * near.recall,
        "distinct": 100 * len(texts) / len(records),
    }
    return {name: round(value, 1) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["water", "ktas"], help="'example' is the triage example's schema")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--per-class", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=1.0, help="of stage I")
    parser.add_argument("--min-p", type=float, default=0.05)
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--store", type=Path, default=Path("runs/pools"))
    options = parser.parse_args()
    if set(options.data) - {"example"} and not DATA.exists():
        sys.exit("the real data folder is not beside this checkout")
    encoder = Remembering(open_encoder("minilm"))
    for data in options.data:
        for seed in options.seeds:
            model = open_model(options.llm)  # anew: nothing is cached
            if data == "example":
                schema, real = Schema.from_yaml(EXAMPLE.read_text()), None
            else:
                split = open_source(data, folder=DATA).split(options.store, seed, 400)
                schema, real = split.schema, split.side("validation")
            asked = proposals(schema, model, options.per_class, seed)
            records, found = costs(schema, model, asked, temperature=options.temperature, min_p=options.min_p)
            model.close()
            if real is not None:
                found |= worth(schema, records, real, encoder)
            print(data, seed, json.dumps(found, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
