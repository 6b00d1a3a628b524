"""Two checkouts do the same: releases, cards, ledgers and `--json` outputs, byte for byte.

    python benchmarks/same_bytes.py OTHER_CHECKOUT [--model smollm2]

Both are asked the same at the command line, on the shipped examples, with one key, in a folder of one name. Choices are
made without noise (ε = ∞), so that they can be compared. Times, checksums over times, free space on the disk and
progress are left out; everything else must be equal. For changes that are to change nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("triage", "credit")
# What depends on the time or on the speed of the machine.
PASSING = frozenset({
    "time", "sum", "mac", "since", "created", "finished", "seconds", "estimate", "versions", "basis", "prices",
    "sha256", "digest", "cost",
})  # fmt: skip


def asked(model: str, records: int) -> list[list[str]]:
    """The commands, in order."""
    small = ["--llm", model, "--encoder", "hash", "--records", str(records), "--seed", "7", "--yes"]
    return [
        ["check"],
        ["plan", "--epsilon", "2"],
        ["run", "--dry-run", "--epsilon", "2", *small],
        ["run", "--name", "exact", "--epsilon", "inf", *small],
        ["run", "--name", "paper", "--method", "paper", "--set", "rounds=2", "--epsilon", "inf", *small],
        ["evaluate", "exact", "--test", "test.csv", "--views", "boosted", "--encoder", "hash"],
        ["runs"],
        ["budget", "show"],
        ["budget", "history", "triage-example"],
    ]


def steady(value: Any) -> Any:
    """The value without what passes."""
    if isinstance(value, dict):
        return {name: steady(item) for name, item in value.items() if name not in PASSING}
    return [steady(item) for item in value] if isinstance(value, list) else value


def told(text: str) -> list[Any]:
    """What a command has said with `--json`, without what passes; other lines as they are."""
    lines = []
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            said = line
        if isinstance(said, dict) and "findings" in said:
            said["findings"] = [finding for finding in said["findings"] if finding["what"] != "disk"]
        if not (isinstance(said, dict) and "progress" in said):
            lines.append(steady(said))
    return lines


def done_by(checkout: Path, place: Path, model: str, records: int) -> dict[str, Any]:
    """Everything that a checkout says and writes, by the name of a command or a file."""
    found: dict[str, Any] = {}
    for example in EXAMPLES:
        folder = place / example
        if not (checkout / "examples" / example / "selpe.yaml").is_file():
            continue
        shutil.copytree(checkout / "examples" / example, folder)
        environment = {
            **os.environ, "PYTHONPATH": str(checkout / "src"), "SELPE_KEY": str(place / "key"),
            "SELPE_LEDGER": str(folder / "ledger"),
        }  # fmt: skip
        for words in asked(model, records):
            command = [sys.executable, "-m", "selpe", "--json", *words]
            result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            found[f"{example}: selpe {' '.join(words)}"] = (result.returncode, told(result.stdout))
        for path in sorted(folder.glob("runs/*/release/*")):
            if path.name != "seal.json":  # signs the ledger's lines, and so the time
                content = path.read_bytes()
                found[f"{example}: {path.relative_to(folder)}"] = hashlib.sha256(content).hexdigest()
        for path in sorted(folder.glob("ledger/*/ledger.jsonl")):
            found[f"{example}: {path.relative_to(folder)}"] = told(path.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Prints what differs; exit code 1 where anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--model", default="fake")
    parser.add_argument("--records", type=int, default=24)
    given = parser.parse_args()
    both = []
    with tempfile.TemporaryDirectory() as top:
        for checkout in (given.other.resolve(), ROOT):
            place = Path(top) / "place"
            place.mkdir()
            (place / "key").write_text("5e" * 32, encoding="ascii")
            (place / "key").chmod(0o600)
            both.append(done_by(checkout, place, given.model, given.records))
            shutil.rmtree(place)
    before, after = both
    different = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    for name in different:
        print(f"different: {name}\n  before: {before.get(name)}\n  after:  {after.get(name)}")
    print(f"{len(before)} outputs compared, {len(different)} different")
    sys.exit(1 if different or not before else 0)


if __name__ == "__main__":
    main()
