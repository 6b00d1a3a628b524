"""How long one private selection takes, and how much memory, as pools and tables grow.

Synthetic embeddings stand in for an encoder: 13 semantic channels of 384 dimensions on an integer grid and one scalar
channel, as the kernel has them. Each size runs in its own process, so that peak memory is its own.

    python benchmarks/selection_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.mechanisms import NoisyMax
from selpe.privacy.table import PrivateTable
from selpe.privacy.votes import Approval
from selpe.schema import Record, Schema

CHANNELS, DIMENSION, GRID = 13, 384, 2000
LIMIT_SECONDS, LIMIT_BYTES = 60.0, 2 * 2**30
SCHEMA = Schema.from_dict({"name": "speed", "fields": {"id": {"kind": "integer", "min": 0, "max": 10**9}}})


@dataclass(frozen=True, slots=True)
class Embedded:
    """Records as unit vectors per channel, in whole numbers of 1/GRID, and one scalar."""

    vectors: tuple[NDArray[np.float32], ...]
    scalar: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.scalar)

    def __getitem__(self, rows: NDArray[np.intp]) -> Embedded:
        return Embedded(tuple(v[rows] for v in self.vectors), self.scalar[rows])


@dataclass(frozen=True, slots=True)
class Pool:
    candidates: Embedded

    def __len__(self) -> int:
        return len(self.candidates)

    def distances(self, rows: Embedded) -> NDArray[np.float32]:
        weight = np.float32(1 / (CHANNELS + 1))
        total = np.abs(rows.scalar[:, None] - self.candidates.scalar[None, :]) * weight
        for mine, theirs in zip(rows.vectors, self.candidates.vectors, strict=True):
            near = mine @ theirs.T
            near *= np.float32(-1 / GRID**2)
            near += np.float32(1.0)
            np.clip(near, 0.0, 1.0, out=near)
            near *= weight
            total += near
        return np.asarray(total)

    def prototype(self, rows: Embedded) -> NDArray[np.float32]:
        return np.asarray(self.distances(rows).mean(axis=0))

    def among(self, i: Sequence[int]) -> NDArray[np.float32]:
        return self.distances(self.candidates[np.asarray(i, dtype=np.intp)])


class Synthetic:
    """A kernel whose encoder is a random generator: what is measured is the selection."""

    remote = None

    def represent(self, records: Sequence[Record]) -> Embedded:
        rng = np.random.default_rng(len(records))
        vectors = []
        for _ in range(CHANNELS):
            raw = rng.standard_normal((len(records), DIMENSION), dtype=np.float32)
            raw *= np.float32(GRID) / np.linalg.norm(raw, axis=1, keepdims=True)
            vectors.append(np.rint(raw, out=raw))
        return Embedded(tuple(vectors), rng.random(len(records), dtype=np.float32))

    def over(self, pool: Embedded) -> Pool:
        return Pool(pool)


class Purse:
    run = "speed"

    def charge(self, charge: Charge) -> Receipt:
        return Receipt("speed", 0, "", charge)

    def stored(self, selection: str) -> dict[str, Any] | None:
        return None

    def store(self, receipt: Receipt, result: Mapping[str, Any]) -> None:
        return None


def measure(size: tuple[int, int]) -> tuple[float, int]:
    """Seconds that one selection over M candidates by n rows takes, and the peak memory of its process."""
    candidates, rows = size
    kernel = Synthetic()
    pool = kernel.over(kernel.represent([{}] * candidates))
    table = PrivateTable(({"id": i} for i in range(rows)), SCHEMA, account=Purse())
    began = time.perf_counter()
    table.select({"": pool}, kernel=kernel, mechanism=NoisyMax(1.0), selection="speed", vote=Approval(0.25))
    return time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed and memory of one private selection.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    scale = 10 if parser.parse_args().quick else 1
    big, rows = 30_000 // scale, 1_000 // scale
    sizes = [(big // 4, rows), (big // 2, rows), (big, rows), (big, rows // 2), (big, rows // 4)]
    found = {}
    print(f"{CHANNELS} semantic channels of {DIMENSION} dimensions and 1 scalar channel")
    for size in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as worker:
            found[size] = worker.apply(measure, (size,))
        seconds, peak = found[size]
        print(f"  M = {size[0]:6,}  n = {size[1]:5,}: {seconds:6.1f} s, peak {peak / 2**30:.2f} GB")
    seconds, peak = found[big, rows]
    in_m, in_n = seconds / found[big // 2, rows][0], seconds / found[big, rows // 2][0]
    print(f"twice the candidates take {in_m:.2f} times as long, twice the rows {in_n:.2f} times")
    kept = scale > 1 or (seconds < LIMIT_SECONDS and peak < LIMIT_BYTES)
    print("within" if kept else "OVER", f"{LIMIT_SECONDS:.0f} s and {LIMIT_BYTES / 2**30:.0f} GB")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
