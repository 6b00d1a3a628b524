"""One row, one reading, at full size: pairs of tables that differ in one hostile row, for every reader.

Every other record, or that it is none, must be the same, and so must the number of rows that count.

    python benchmarks/one_row_one_reading.py [--pairs 20000] [--first 0]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from hostile_rows import READERS, differences, make_pair


def main() -> int:
    """0 where no pair differs."""
    parser = argparse.ArgumentParser(description="Replaces one row by a hostile one and compares all others.")
    parser.add_argument("--pairs", type=int, default=20_000, help="over all readers")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    settings = parser.parse_args()
    each, began, failed = -(-settings.pairs // len(READERS)), time.monotonic(), 0
    print(f"{'reader':10} {'pairs':>7} {'differences':>12}")
    with TemporaryDirectory() as folder:
        for reader in READERS:
            seeds = range(settings.first, settings.first + each)
            bad = [seed for seed in seeds if differences(make_pair(reader, seed, Path(folder)))]
            failed += len(bad)
            print(f"{reader:10} {each:7,} {len(bad):12,}  {'seeds ' + str(bad[:5]) if bad else ''}", flush=True)
    print(f"{'all':10} {each * len(READERS):7,} {failed:12,}  after {time.monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
