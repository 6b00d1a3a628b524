"""Whether a run of a million records is a matter of time alone: memory bounded, time linear.

Whole runs by Run.execute (plan, private choices on the core, further records, release files, summary), each in a
process of its own, at several sizes. Time is CPU time, since wall time on a busy machine says little. Three things
must hold:

- a further record takes no longer in a larger table, within 15 %: CPU seconds after the core per record, from each
  size to the next. What a run costs whatever its size (the summary page) falls out of these differences; the core is
  the same work at every size, and left out because its own time wavers by more than what is measured here. That a
  record takes *less* time in the larger table says only that the machine was busier during the smaller one: the CPU
  time of the same work differs by a third between a busy machine and a calm one;
- the whole run takes no more than in proportion to its records, within 15 %;
- peak memory stays below 2 GB.

The model is a stub that answers at once; `--model fake` takes the fake model, which needs longer for an answer than all
of SelPE for a record. Exits with 1 where a limit is missed.

    python benchmarks/scale.py [--sizes 10000 100000 1000000] [--core 1000] [--model stub] [--pack] [--folder /tmp]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from selpe.config import check_config
from selpe.events import Event, Finished, StageStarted
from selpe.intake import write_table
from selpe.models.base import Answer, Capabilities, ChatModel, Follow, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.run.packing import pack_release
from selpe.run.release import RELEASED
from selpe.schema import Schema

MEMORY, WITHIN = 2e9, 0.15
SCHEMA = Schema.from_yaml("""
name: reviews
description: One entry per review in a shop.
label: stars
fields:
  title: {kind: text, min_length: 3, max_length: 60}
  review: {kind: text, min_length: 3, max_length: 200}
  channel: {kind: category, values: [web, phone, shop]}
  days: {kind: integer, min: 0, max: 365}
  returned: {kind: boolean}
  stars: {kind: category, values: [low, middle, high]}
examples:
  - {title: broke soon, review: the handle came off in a week, channel: web, days: 6, returned: true, stars: low}
  - {title: does its work, review: neither good nor bad, channel: shop, days: 40, returned: false, stars: middle}
  - {title: a joy, review: quiet and quick and easy to clean, channel: web, days: 90, returned: false, stars: high}
""")
WORDS = """kettle lid handle arrived late early cheap dear quiet loud broke works daily gift colour box return refund
helpful rude clean heavy light strong weak first second again never always almost""".split()


class StubModel:
    """A ChatModel that answers at once: a few words, or a record of SCHEMA, drawn from the request's seed."""

    name = "stub"

    def capabilities(self) -> Capabilities:
        return Capabilities(json_schema=True, seed=True, chat_template=True, context_length=10**6, parallel=64)

    def count_tokens(self, text: str) -> int:
        return len(text) // 4

    def close(self) -> None:
        return

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        waiting: deque[Request] = deque()
        source = iter(requests)
        while (request := waiting.popleft() if waiting else next(source, None)) is not None:
            text = self._text(request)
            answer = Answer(request, text, "stop", len(request.prompt) // 4, 0, len(text) // 4, 1e-6)
            yield answer
            if follow is not None:
                waiting.extend(follow(answer))

    def _text(self, request: Request) -> str:
        rest, words = request.seed, list[str]()
        while len(words) < 9:
            rest, place = divmod(rest, len(WORDS))
            words.append(WORDS[place])
        said = " ".join(words)
        if request.json_schema is None:
            return said
        label = request.json_schema["properties"]["stars"]
        stars, channel = label.get("const") or label["enum"][0], ("web", "phone", "shop")[rest % 3]
        return (
            f'{{"title": "{words[0]} {words[1]}", "review": "{said}", "channel": "{channel}", '
            f'"days": {request.seed % 366}, "returned": {"true" if rest % 2 else "false"}, "stars": "{stars}"}}'
        )


def private_rows(count: int) -> list[dict[str, Any]]:
    chance = random.Random(7)
    return [
        {
            "title": " ".join(chance.choices(WORDS, k=2)), "review": " ".join(chance.choices(WORDS, k=12)),
            "channel": chance.choice(("web", "phone", "shop")), "days": chance.randint(0, 365),
            "returned": chance.random() < 0.3, "stars": chance.choice(("low", "middle", "high")),
        }
        for _ in range(count)
    ]  # fmt: skip


def measure(records: int, core: int, kind: str, folder: Path, pack: bool) -> dict[str, Any]:
    """One whole run in this process; CPU seconds by phase, and the most memory it had."""
    os.environ["SELPE_LEDGER"], os.environ["SELPE_KEY"] = str(folder / "ledgers"), str(folder / "key")
    write_table(private_rows(300), SCHEMA, folder / "private.csv")
    SCHEMA.save(folder / "schema.yaml")
    config = check_config(
        {
            "dataset": "reviews", "data": str(folder / "private.csv"), "schema": str(folder / "schema.yaml"),
            "epsilon": 4.0, "records": records, "core": core, "llm": kind, "encoder": "hash",
            "out": str(folder / "runs"),
        },
        where="benchmark",
    )  # fmt: skip
    marks: dict[str, float] = {}

    def hear(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "further":
            marks.setdefault("core", time.process_time())
        elif isinstance(event, Finished):
            marks["further"] = time.process_time()

    model: ChatModel = StubModel() if kind == "stub" else FakeModel(context_length=10**6)
    wall, start = time.time(), time.process_time()
    outcome = Run.create(config, name="scale").execute(model=model, encoder=HashingEncoder(), emit=hear)
    end, took = time.process_time(), time.time() - wall
    release = folder / "runs" / "scale" / "release"
    if pack:
        pack_release(release.parent, outcome.manifest, SCHEMA, allowed=RELEASED, to=folder / "release.zip")
    return {
        "records": len(outcome.records), "core": core, "cpu": end - start, "wall": took,
        "cpu_core": marks["core"] - start, "cpu_further": marks["further"] - marks["core"],
        "cpu_release": end - marks["further"], "cpu_pack": time.process_time() - end if pack else None,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "released": sum(path.stat().st_size for path in release.iterdir()),
        "epsilon": outcome.manifest["spent"]["epsilon_replace_one"],
    }  # fmt: skip


def apart(records: int, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, whose memory is its own."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [sys.executable, __file__, "--one", str(records), "--core", str(options.core)]
        command += ["--model", options.model, "--folder", folder, *(["--pack"] if options.pack else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def packed(found: dict[str, Any]) -> str:
    return "" if found["cpu_pack"] is None else f"; packed in {found['cpu_pack']:.1f} s CPU"


def show(found: dict[str, Any]) -> None:
    beyond = found["records"] - found["core"]
    each = 1e6 * after_core(found) / beyond
    print(
        f"{found['records']:>9,} records  {found['cpu']:8.1f} s CPU ({found['wall']:.0f} s wall): "
        f"core {found['cpu_core']:.1f}, further {found['cpu_further']:.1f}, release {found['cpu_release']:.1f}; "
        f"{each:.0f} µs a further record ({1e6 / each:,.0f}/s); peak {found['peak'] / 1e9:.2f} GB; "
        f"release {found['released'] / 1e6:.0f} MB; ε {found['epsilon']:.4g}" + packed(found),
        flush=True,
    )


def after_core(found: dict[str, Any]) -> float:
    return float(found["cpu_further"] + found["cpu_release"])


def judged(results: list[dict[str, Any]]) -> bool:
    """Whether every limit holds; prints each ratio."""
    well = True
    steps = [
        (small, large, (after_core(large) - after_core(small)) / (large["records"] - small["records"]))
        for small, large in pairwise(results)
    ]
    for (first, second, before), (_, third, now) in pairwise(steps):
        ratio = now / before
        well &= (fine := ratio <= 1 + WITHIN)
        print(
            f"a further record: {1e6 * before:.0f} µs CPU from {first['records']:,} to {second['records']:,}, "
            f"{1e6 * now:.0f} µs from {second['records']:,} to {third['records']:,}: "
            f"ratio {ratio:.2f}, {'held' if fine else 'MISSED'} (at most {1 + WITHIN:g})"
        )
    for found in results[1:]:
        small = results[0]
        share = (found["cpu"] / small["cpu"]) / (found["records"] / small["records"])
        well &= (fine := share <= 1 + WITHIN)
        print(
            f"the whole run: {found['records'] / small['records']:g} times the records of {small['records']:,} take "
            f"{found['cpu'] / small['cpu']:.1f} times the CPU: {share:.2f} of what is linear, "
            f"{'held' if fine else 'MISSED'} (at most {1 + WITHIN:g})"
        )
    peak = max(found["peak"] for found in results)
    print(f"peak memory: {peak / 1e9:.2f} GB, {'held' if peak < MEMORY else 'MISSED'} (below {MEMORY / 1e9:g})")
    return well and peak < MEMORY


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--core", type=int, default=1_000)
    parser.add_argument("--model", choices=("stub", "fake"), default="stub")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--pack", action="store_true", help="pack the release too")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.core, options.model, options.folder, options.pack)))
        return 0
    results = []
    for size in sorted(options.sizes):
        results.append(apart(size, options))
        show(results[-1])
    return 0 if judged(results) else 1


if __name__ == "__main__":
    sys.exit(main())
