"""How many prompt tokens a llama.cpp server computes for a pool of candidates, by its own count; two checkouts.

    python benchmarks/server_reads.py [--against ../parent/src] [--schema SCHEMA] [--per-class 6] [--slots 4]

The server (xllamacpp) keeps what its slots have read and written, and says with every answer how many tokens of the
prompt it took from there. Guides take turns, as in a run. Tokens are counted, not seconds, so that a busy machine says
the same as an idle one; one thread computes, because several wait for each other on such a machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
EXAMPLE = HERE / "examples" / "triage" / "schema.yaml"


def measure(source: Path, per_class: int, slots: int) -> dict[str, int]:
    """What one pool takes, with the SelPE on the path. Watched from outside: the other checkout may not count."""
    from selpe.method.generation import Generator, Proposal
    from selpe.method.guides import builtin_guides
    from selpe.models import llamacpp
    from selpe.models.store.store import ModelStore
    from selpe.schema import Schema

    counts: Counter[str] = Counter()
    reading = llamacpp._read

    def counted(request: Any, chunks: list[dict[str, Any]], seconds: float) -> Any:
        last: dict[str, Any] = next((chunk["timings"] for chunk in reversed(chunks) if "timings" in chunk), {})
        counts.update({"answers": 1, "computed": last.get("prompt_n", 0), "kept": last.get("cache_n", 0)})
        counts["written"] += last.get("predicted_n", 0)
        return reading(request, chunks, seconds)

    llamacpp._read = counted
    schema = Schema.load(source)
    with llamacpp.LlamaCppModel(ModelStore().ensure("smollm2"), parallel=slots, context=4096, threads=1) as model:
        guides = builtin_guides(schema, model.name, model.capabilities())
        proposals = [
            Proposal(guides[i % len(guides)], _seed(label, i), label=label)
            for label in schema.labels
            for i in range(per_class)
        ]
        made = Generator(model, schema, temperature=1.0).generate(proposals)
    counts["candidates"] = sum(one is not None for one in made.candidates)
    return dict(counts)


def _seed(label: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"0:round-1:{label}:{number}".encode()).digest()[:6], "big")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the folder `src` of another checkout")
    parser.add_argument("--schema", type=Path, default=EXAMPLE)
    parser.add_argument("--per-class", type=int, default=6)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.schema, options.per_class, options.slots)))
        return
    checkouts = {"this": HERE / "src"} | ({"other": options.against} if options.against else {})
    each: dict[str, float] = {}
    for name, source in checkouts.items():
        command = [sys.executable, __file__, "--inside"]
        command += ["--schema", str(options.schema), "--per-class", str(options.per_class)]
        command += ["--slots", str(options.slots)]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        found = json.loads(out.splitlines()[-1])
        each[name] = found["computed"] / max(1, found["candidates"])
        print(name, json.dumps({**found, "computed for a candidate": round(each[name])}), flush=True)
    if "other" in each:
        print(f"this / other: {each['this'] / each['other']:.2f}")


if __name__ == "__main__":
    main()
