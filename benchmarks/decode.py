"""What a written token costs, in processor time, at several widths of the batch; beside another checkout, in turns.

    python benchmarks/decode.py [--places 64 128 256] [--parent ../parent/src] [--rounds 2]

One thread computes, so that other programs on the machine change little: nobody waits at a barrier, and only the time
that this process had is counted. The share of Python is that of the thread that plans, samples and follows grammars.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def measure(places: int, tokens: int) -> dict[str, dict[str, float]]:
    """Milliseconds per written token, and the share of them spent in Python."""
    from selpe.models.base import Request
    from selpe.models.engine.local import LocalModel
    from selpe.models.store.store import ModelStore
    from selpe.schema import Schema

    schema, store = Schema.load(HERE / "schemas" / "five.yaml"), ModelStore()
    text = f"{schema.description}\n" + "".join(schema.dumps(example) + "\n" for example in schema.examples * 3)
    kinds: dict[str, dict[str, Any]] = {"free text": {}, "records": {"json_schema": schema.to_json_schema()}}
    with LocalModel(store.ensure("smollm2"), store.prepared_dir("smollm2"), parallel=places, threads=1) as model:
        list(model.generate([Request(prompt=text, max_tokens=2)]))
        return {kind: _cost(model, text, places, tokens, limits) for kind, limits in kinds.items()}


def _cost(model: Any, text: str, places: int, tokens: int, limits: dict[str, Any]) -> dict[str, float]:
    from selpe.models.base import Request

    requests = [Request(prompt=text, seed=i, min_p=0.05, max_tokens=tokens, **limits) for i in range(places)]
    whole, python = time.process_time(), time.thread_time()
    written = sum(answer.completion_tokens for answer in model.generate(requests))
    whole, python = time.process_time() - whole, time.thread_time() - python
    return {"ms per token": 1000 * whole / written, "share of Python": python / whole}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parent", type=Path, help="the folder `src` of another checkout")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.places[0], options.tokens)))
        return
    checkouts = {"this": HERE.parent / "src"} | ({"parent": options.parent} if options.parent else {})
    for places in options.places:
        command = [sys.executable, __file__, "--inside", "--places", str(places), "--tokens", str(options.tokens)]
        for number in range(options.rounds):
            for name, source in checkouts.items():
                environment = {**os.environ, "PYTHONPATH": str(source)}
                out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
                line = {"places": places, "round": number, "checkout": name, **json.loads(out.splitlines()[-1])}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
