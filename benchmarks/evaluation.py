"""How long the whole evaluation takes, and how much memory: 2,000 synthetic records against 1,000 test records.

    python benchmarks/evaluation.py [--encoder minilm] [--private 1000]

Records are those of the fake model under the triage schema: as long and as mixed as real ones, and free.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path

import psutil

from selpe.models.base import Request
from selpe.models.fake import FakeModel
from selpe.models.open import open_encoder
from selpe.report.evaluate import evaluate
from selpe.schema import Record, Schema

TRIAGE = Path(__file__).resolve().parents[1] / "examples" / "triage" / "schema.yaml"


def written(schema: Schema, count: int, offset: int) -> list[Record]:
    """Valid records of the fake model."""
    found: list[Record] = []
    number = offset
    while len(found) < count:
        request = Request(prompt="draw", json_schema=schema.to_json_schema(), seed=number)
        record = json.loads(next(iter(FakeModel().generate([request]))).text)
        number += 1
        if not schema.check(record):
            found.append(record)
    return found


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--encoder", default="minilm")
    asked.add_argument("--synthetic", type=int, default=2000)
    asked.add_argument("--test", type=int, default=1000)
    asked.add_argument("--private", type=int, default=1000)
    given = asked.parse_args()
    schema = Schema.load(TRIAGE)
    tables = [written(schema, count, offset) for count, offset in
              ((given.synthetic, 0), (given.test, 10**6), (given.private, 2 * 10**6))]  # fmt: skip
    encoder = open_encoder(given.encoder)
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.2):
            peak = max(peak, psutil.Process().memory_info().rss)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()

    def busy() -> float:
        spent = psutil.Process().cpu_times()
        return float(spent.user + spent.system)

    began, idle, last, parts = time.perf_counter(), busy(), "", dict[str, float]()

    def tell(stage: str, share: float) -> None:
        nonlocal last
        part = stage.partition(":")[0]
        if part != last:
            parts[part], last = busy(), part

    evaluate(tables[0], schema=schema, test=tables[1], private=tables[2], encoder=encoder, progress=tell)
    seconds = time.perf_counter() - began
    done.set()
    watching.join()
    ends = [*parts.values(), busy()]
    took = {part: round(ends[place + 1] - ends[place], 1) for place, part in enumerate(parts) if part != "done"}
    found = {"seconds": round(seconds, 1), "cpu_seconds": round(busy() - idle, 1), "cpu_seconds_by_part": took,
             "peak_gb": round(peak / 1e9, 2), "encoder": encoder.name, "load": psutil.getloadavg()[0]}  # fmt: skip
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
