"""How much faster two Ray workers are than one, on a model that sleeps instead of computing.

    python benchmarks/ray_throughput.py

Needs the extra `[ray]`. Sleeping takes no core, so the ratio shows what giving out and taking in cost. Both crews are
there all the time and take turns; the best round of each counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from selpe.config.execution import RaySettings
from selpe.execute.ray import connected, crew_of
from selpe.execute.spread import SpreadModel
from selpe.execute.worker import Order
from selpe.execute.workers import Crew
from selpe.models.base import Request
from selpe.models.fake import FakeModel

WANTED = 1.6


def sleeping(llm: str, **_: object) -> FakeModel:
    """A model that serves one request at a time and sleeps for as many seconds as its name says."""
    return FakeModel(seconds_per_answer=float(llm))


def requests(count: int) -> list[Request]:
    return [Request(prompt=f"request {number}", seed=number) for number in range(count)]


def seconds(model: SpreadModel, count: int) -> float:
    """How long a batch takes."""
    began = time.perf_counter()
    answers = list(model.generate(requests(count)))
    assert [answer.finish for answer in answers] == ["stop"] * count
    return time.perf_counter() - began


def complete(crew: Crew) -> None:
    """Returns when all workers are there."""
    while len(crew.ready()) < len(crew.members):
        crew.news((), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--sleep", type=float, default=0.05, help="seconds per answer")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    order = Order(str(given.sleep), maker=f"{Path(__file__).stem}:sleeping")
    with connected(RaySettings(workers=3)) as ray:
        crews = {count: crew_of(ray, order, RaySettings(workers=count)) for count in (1, 2)}
        for crew in crews.values():
            complete(crew)
        models = {count: SpreadModel(crew) for count, crew in crews.items()}
        taken: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(given.rounds):
            for count, model in models.items():
                taken[count].append(seconds(model, given.requests))
        for model in models.values():
            model.close()
    best = {count: min(found) for count, found in taken.items()}
    alone = given.sleep * given.requests
    print(f"{given.requests} requests of {given.sleep * 1000:g} ms: {alone:.2f} s by themselves")
    for count, found in best.items():
        print(f"{count} worker{'s' if count > 1 else ''}: {found:.2f} s")
    ratio = best[1] / best[2]
    print(f"two workers are {ratio:.2f} times as fast as one (at least {WANTED} wanted)")
    if ratio < WANTED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
