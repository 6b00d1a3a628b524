"""The other side of the view `tabstar`: runs in TabSTAR's own environment and imports nothing of ours.

A job comes in as JSON on standard input; every answer goes out as one line of JSON. Records never touch the disk. What
goes wrong is said by kind and place, never by message: messages of libraries quote cells.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

HELD_OUT = 0.1  # share of each class that decides when training stops, as in the package itself
MOST_HELD_OUT = 1000
NUMERALS = 50  # distinct values above which the package takes a column of digits for numbers
TEXT_ENCODER = "intfloat/e5-small-v2"
WEIGHTS = {"alana89/TabSTAR": None, TEXT_ENCODER: ["*.json", "*.txt", "model.safetensors"]}
Say = Callable[[Mapping[str, Any]], None]


def main() -> int:
    """0 when the job was done."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the package prints must not stand between answers

    def say(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        work(json.load(sys.stdin), say)
    except Exception as problem:
        place = traceback.extract_tb(problem.__traceback__)[-1]
        say({"error": type(problem).__name__, "place": f"{Path(place.filename).name}:{place.lineno}"})
        return 1
    finally:
        answers.close()
    return 0


def work(job: Mapping[str, Any], say: Say) -> None:
    """Trains once per seed and says the chances of every test record; a job without records fetches the weights."""
    if not job:
        fetch(say)
        return
    kinds = job["kinds"]
    train, test = aligned(frame(job["train"], kinds), frame(job["test"], kinds))
    for seed in job["seeds"]:
        say({"seed": seed, **trained(train, job["labels"], test, job, seed)})


def fetch(say: Say) -> None:
    """Says that the weights are here, or which are not; they come from the Hugging Face hub at first use."""
    version("tabstar")  # cheaper than importing it
    for repository, files in WEIGHTS.items():
        if repository == TEXT_ENCODER and os.environ.get("E5_SMALL_LOCAL_PATH"):
            continue  # the package's own way to name a folder
        try:
            download(repository, files)
        except Exception as problem:
            say({"error": type(problem).__name__, "weights": repository})
            return
    say({"ready": True})


def download(repository: str, files: Sequence[str] | None) -> None:
    """Fetches what of a repository is not in the cache; a cached one needs no network."""
    hub = import_module("huggingface_hub")
    try:
        hub.snapshot_download(repo_id=repository, allow_patterns=files, local_files_only=True)
    except Exception:
        hub.snapshot_download(repo_id=repository, allow_patterns=files)


def frame(columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, str]) -> Any:
    """A table with a type per kind of field: numbers, days, and objects (pandas' own string type is not understood)."""
    pandas = import_module("pandas")
    types = {"integer": "float64", "number": "float64"}
    made = {
        name: pandas.to_datetime(pandas.Series(values, dtype="object"), errors="coerce")
        if kinds[name] == "date"
        else pandas.Series(values, dtype=types.get(kinds[name], "object"))
        for name, values in columns.items()
    }
    return pandas.DataFrame(made)


def aligned(train: Any, test: Any) -> tuple[Any, Any]:
    """Both tables, columns of digits turned into numbers: the package would, and stumble over other test values."""
    pandas = import_module("pandas")
    for name in [name for name in train.columns if train[name].dtype == object]:
        distinct = set(train[name].dropna())
        if len(distinct) > NUMERALS and sum(not str(value).isdigit() for value in distinct) <= 1:
            train[name] = pandas.to_numeric(train[name], errors="coerce")
            test[name] = pandas.to_numeric(test[name], errors="coerce")
    return train, test


def trained(train: Any, labels: Sequence[str], test: Any, job: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The classes and every test record's chances after one training."""
    pandas = import_module("pandas")
    model = import_module("tabstar.tabstar_model").TabSTARClassifier(
        random_state=seed, device=device(), output_dir=job["folder"], keep_model=False, **job["options"]
    )
    target = pandas.Series(list(labels), dtype="object", name=job["label"])
    held = held_out(labels, seed)
    counts, decides = Counter(labels), frozenset(held)
    kept = [row for row, label in enumerate(labels) if row not in decides or counts[label] == 1]
    model.fit(train.iloc[kept], target.iloc[kept], train.iloc[held], target.iloc[held])
    return {"classes": [str(name) for name in model.classes_], "chances": model.predict_proba(test).tolist()}


def held_out(labels: Sequence[str], seed: int) -> list[int]:
    """Rows that decide when training stops: a tenth of every class, at least one; a class of one is on both sides.

    The package's own split fails on small tables and can leave a class without a record.
    """
    rng = random.Random(seed)
    share = min(HELD_OUT, MOST_HELD_OUT / max(1, len(labels)))
    held: list[int] = []
    for name in sorted(set(labels)):
        rows = [row for row, label in enumerate(labels) if label == name]
        held += rng.sample(rows, max(1, round(share * len(rows))))
    return held


def device() -> str | None:
    """'cpu' where the environment hides every GPU: the package cannot read an empty list of them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or visible.isdigit():
        return None
    first = visible.split(",")[0]
    if first.isdigit():
        os.environ["CUDA_VISIBLE_DEVICES"] = first
        return None
    del os.environ["CUDA_VISIBLE_DEVICES"]
    return "cpu"


if __name__ == "__main__":
    sys.exit(main())
