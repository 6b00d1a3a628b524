"""Fuzzes the targets with atheris, which keeps the inputs that reach new branches. `make fuzz` starts it; not a test.

    python tests/fuzz/guided.py --seconds 300 csv rule

Without names, all targets take their turns. What falls is written to fuzz-found/ with the name of its target, and can
be tried again by `--replay fuzz-found/csv-crash-…`. Needs `pip install atheris`, which has wheels for Linux.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support")]
MOST_SECONDS, MOST_MEMORY = 20, 1200  # of one input, in MB


def fuzz(target: str, seconds: int, found: Path, kept: Path) -> None:
    """Fuzzes one target in this process; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["selpe", "openpyxl", "rule_engine"]):
        from fuzz_targets import SAME_CORPUS, TARGETS

    corpus = HERE / "corpus" / SAME_CORPUS.get(target, target)
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", f"-timeout={MOST_SECONDS}", f"-rss_limit_mb={MOST_MEMORY}",
         "-max_len=16384", "-print_final_stats=1", f"-artifact_prefix={found / target}-", str(kept), str(corpus)],
        TARGETS[target],
    )  # fmt: skip
    atheris.Fuzz()


def main() -> int:
    """Fuzzes each target in a process of its own; 1 where something fell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="default: all of them")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--replay", type=Path, help="one input, whose target its name begins with")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--kept", type=Path, help="a folder for the inputs that reached new branches")
    chosen = parser.parse_args()
    chosen.found.mkdir(exist_ok=True)
    if chosen.one is not None:  # what is imported before is not watched
        fuzz(chosen.one, chosen.seconds, chosen.found, chosen.kept)
    from fuzz_targets import TARGETS

    if chosen.replay is not None:
        TARGETS[chosen.replay.name.partition("-")[0]](chosen.replay.read_bytes())
        return 0
    fell = 0
    for target in chosen.targets or TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            kept = chosen.kept or Path(folder)
            command = [sys.executable, __file__, "--one", target, "--kept", str(kept), "--found", str(chosen.found)]
            fell += subprocess.run([*command, "--seconds", str(chosen.seconds)], check=False).returncode != 0
    return int(fell > 0)


if __name__ == "__main__":
    sys.exit(main())
