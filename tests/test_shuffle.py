"""`pytest --shuffle SEED`: the same tests in another order, modules kept together, the same order for the same seed."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("tests/run/test_forecast.py", "tests/report/test_verdict.py")


def collected(*words: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *words, *MODULES], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_seed_gives_an_order_of_its_own_that_can_be_had_again() -> None:
    plain, first, again = collected(), collected("--shuffle", "1"), collected("--shuffle", "1")
    assert first == again != plain
    assert sorted(first) == sorted(plain)
    modules = [name.partition("::")[0] for name in first]
    assert sum(one != other for one, other in pairwise(modules)) == len(MODULES) - 1
