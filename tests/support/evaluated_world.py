"""A finished run with everything an evaluation wants: private and test tables, a control, and a marker to look for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from private_world import MARKER
from selpe.config import check_config
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.schema import Record
from small_world import SCHEMA, drawn

QUICK: dict[str, Any] = {"encoder": HashingEncoder(64), "views": ("minilm",), "bootstrap": 20}


@dataclass(frozen=True)
class World:
    """Where everything is."""

    folder: Path
    run: Path
    control: Path
    test: Path

    def released(self) -> dict[str, bytes]:
        """The files of the release."""
        return {path.name: path.read_bytes() for path in (self.run / "release").iterdir()}

    def records(self) -> list[Record]:
        """The synthetic records."""
        return [json.loads(line) for line in self.released()["synthetic.jsonl"].decode().splitlines()]


def make_world(folder: Path) -> World:
    """Two finished runs on a table with the marker in every private text; ledgers and key lie in the folder too.

    `SELPE_LEDGER` and `SELPE_KEY` must point into the folder.
    """
    private = [record | {"topic": f"{MARKER} {number}"} for number, record in enumerate(drawn(60, offset=5000))]
    write_table(private, SCHEMA, folder / "private.csv")
    write_table(drawn(40, offset=7000), SCHEMA, folder / "test.csv")
    SCHEMA.save(folder / "schema.yaml")
    runs = {name: _run(folder, name, epsilon) for name, epsilon in (("desk-1", 2.0), ("control", 0.0))}
    return World(folder, runs["desk-1"], runs["control"], folder / "test.csv")


def _run(folder: Path, name: str, epsilon: float) -> Path:
    settings = {
        "dataset": "desk", "data": str(folder / "private.csv"), "schema": str(folder / "schema.yaml"),
        "test": str(folder / "test.csv"), "epsilon": epsilon, "records": 24, "guides": "off", "bundles": 0, "rounds": 2,
        "llm": "fake", "encoder": "hash", "out": str(folder / "runs"),
    }  # fmt: skip
    run = Run.create(check_config(settings, where="test"), name=name)
    run.execute(model=FakeModel(), encoder=HashingEncoder(64))
    return run.folder
