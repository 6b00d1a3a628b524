"""Many runs at once on a budget for a few of them: as many finish as fit, the others spend nothing.

    python benchmarks/runs_at_once.py [--runs 50] [--fit 5] [--times 3]

Every run is a process of `selpe run` with the fake model on a table of the tests. Fails where a time shows anything but
`fit` releases, exactly `fit` times ε spent, and a refusal with exit code 3 for every other run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from faults_world import ledger, make_project, places, spent

EPSILON = 0.5
COMMAND = (
    sys.executable, "-m", "selpe", "run", "--epsilon", str(EPSILON), "--records", "4", "--set", "rounds=2",
    "--set", "batches=1", "--set", "bundles=0", "--yes", "--allow-fake",
)  # fmt: skip


def at_once(folder: Path, runs: int, fit: int) -> tuple[Counter[int], float, int, int]:
    """Exit codes, ε spent, releases and open reservations of so many runs on a budget for `fit` of them."""
    make_project(folder)
    environment = {**os.environ, **places(folder), "OMP_NUM_THREADS": "1"}
    os.environ.update(places(folder))
    ledger(folder).set_budget(fit * EPSILON)
    started = [
        subprocess.Popen([*COMMAND, "--name", f"r{number}"], cwd=folder, env=environment, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        for number in range(runs)
    ]  # fmt: skip
    codes = Counter(process.wait() for process in started)
    releases = len(list(folder.glob("runs/*/release/synthetic.csv")))
    return codes, spent(folder), releases, len(ledger(folder).reservations())


def main() -> None:
    """Prints a line a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--fit", type=int, default=5)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    right = True
    for time in range(asked.times):
        with tempfile.TemporaryDirectory() as folder:
            codes, total, releases, held = at_once(Path(folder), asked.runs, asked.fit)
        expected = Counter({0: asked.fit, 3: asked.runs - asked.fit})
        good = codes == expected and releases == asked.fit and abs(total - asked.fit * EPSILON) < 1e-9 and not held
        right &= good
        print(
            f"time {time + 1}: {releases} releases, ε {total:g} of {asked.fit * EPSILON:g} spent, exit codes "
            f"{dict(sorted(codes.items()))}, {held} reservations left: {'right' if good else 'WRONG'}"
        )
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
