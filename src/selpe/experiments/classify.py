"""The scores that a classifier trained by DP-DS gives to records: here, or in the interpreter that has torch.

python -m selpe.experiments.classify <run folder> <records.jsonl> <scores.json>
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from selpe.owner_only import write_text


def classifier_scores(run: Path, records: list[dict[str, Any]]) -> list[list[float]]:
    """A probability for every class of the schema and every record."""
    from selpe.baselines.dpds import open_classifier

    found: list[list[float]] = open_classifier(run).scores(records).tolist()
    return found


def main(arguments: list[str]) -> int:
    """Reads records, writes scores."""
    run, source, target = (Path(word) for word in arguments)
    records = [json.loads(line) for line in source.read_text(encoding="utf-8").split("\n") if line]
    write_text(target, json.dumps(classifier_scores(run, records)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
