"""Measured tables without any noise, the worst case: what only private rows hold is nowhere in what a run leaves.

At ε = ∞ counts are exact and nothing is protected, but still no text, number or name of a row may get out: codes are
public things, and rows are counted in them.
"""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from evolving_world import World
from selpe.config import check_config
from selpe.intake import write_table
from selpe.method.algorithm import Method
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.measure_plan import Measurable
from selpe.run.lifecycle import Run
from selpe.schema import Record, Schema

MARKS = ("zebraquux", "471147", "wyvernblot")  # in words, in whole and decimal numbers, in names of people
SCHEMA = Schema.from_yaml(
    """
name: claims
description: One claim each.
label: outcome
fields:
  title: {kind: text, max_length: 60}
  story: {kind: text, max_length: 400}
  remark: {kind: text, max_length: 80, optional: true}
  branch: {kind: category, values: [north, south, sea]}
  amount: {kind: integer, min: 0, max: 1000000000}
  rate: {kind: number, min: 0, max: 1000000, step: 0.001, optional: true}
  day: {kind: date, min: 2020-01-01, max: 2029-12-31}
  witness: {kind: boolean}
  outcome: {kind: category, values: [paid, refused]}
examples:
  - {title: broken window, story: The window broke in the storm., remark: null, branch: sea, amount: 300, rate: 2.5,
     day: 2021-03-01, witness: true, outcome: paid}
  - {title: lost parcel, story: It never came., remark: again, branch: north, amount: 40, rate: null,
     day: 2022-04-09, witness: false, outcome: refused}
"""
)
EVERY = tuple(name for name in SCHEMA.names if name != "outcome")
ROWS: list[Record] = [
    {
        "title": f"zebraquux{i} in the window", "story": f"zebraquux{i} came in the storm and " * 6,
        "remark": f"wyvernblot{i}" if i % 3 else None, "branch": ("north", "sea")[i % 2], "amount": 471147000 + i,
        "rate": round(471147.001 + i / 1000, 3) if i % 4 else None,
        "day": f"2024-0{1 + i % 9}-11", "witness": i % 5 == 0,
        "outcome": SCHEMA.labels[i % 2],
    }
    for i in range(60)
]  # fmt: skip


def clean(text: str) -> bool:
    return not any(mark in text.lower() for mark in MARKS)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("looks", [1, 2])
def test_codebooks_counts_facts_records_and_events_hold_nothing_of_a_row(tmp_path: Path, looks: int) -> None:
    offered = Measurable(EVERY, named=True, pairs=(("branch", "amount"), ("title", "witness")))
    world = World(tmp_path, schema=SCHEMA, rows=ROWS, rounds=1, bundles=4, epsilon=math.inf, measure=offered)
    assert world.plan.measure is not None
    measure = replace(world.plan.measure, looks=(math.inf,) * looks, clusters=12, fine_clusters=40, phrases=150)
    world.plan = replace(world.plan, measure=measure)
    evolved = world.evolve(Method(bundles=4), test_seed=None)
    tables = evolved.tables
    assert tables is not None
    assert [look.counts.private for look in tables.looks] == [False] * looks
    assert all(field.counts.sum() == 60 for field in tables.fields.values())  # all rows were counted
    books = [repr(look.fields[name].codebook.to_dict()) for look in tables.looks for name in EVERY]
    assert clean(" ".join(books))
    assert clean(repr(tables))
    assert clean(repr(evolved))
    assert clean(repr([candidate.proposal for candidate in evolved.candidates]))
    assert clean(repr(world.events))
    assert clean(repr([event.as_dict() for event in world.events]))
    written = files(tmp_path)
    assert any(path.suffix == ".jsonl" for path in written)
    assert all(clean(path.read_bytes().decode("utf-8", "replace")) for path in written)


def test_a_whole_run_without_noise_leaves_nothing_of_a_row_in_files_logs_or_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "house").mkdir()
    write_table(ROWS, SCHEMA, tmp_path / "house" / "private.csv")
    SCHEMA.save(tmp_path / "house" / "schema.yaml")
    assert not clean((tmp_path / "house" / "private.csv").read_text())
    config = check_config(
        {
            "dataset": "claims", "data": str(tmp_path / "house" / "private.csv"),
            "schema": str(tmp_path / "house" / "schema.yaml"), "epsilon": math.inf, "records": 24, "bundles": 4,
            "llm": "fake", "encoder": "hash", "out": str(tmp_path / "runs"),
            "measure": [*EVERY, ["branch", "amount"]],
        },
        where="test",
    )  # fmt: skip
    outcome = Run.create(config).execute(model=FakeModel(), encoder=HashingEncoder(64))
    counted = json.loads((outcome.folder / "release" / "measurements.json").read_text())
    assert {table["table"] for look in counted["looks"] for table in look["tables"]} >= {
        f"outcome × {name}" for name in EVERY
    }
    assert not outcome.manifest["private"]
    left = [*files(outcome.folder), *files(tmp_path / "ledgers"), *files(tmp_path / "config")]
    assert len(left) > 10
    for path in left:
        assert clean(path.read_bytes().decode("utf-8", "replace")), path.name
    assert clean(caplog.text)
    assert clean("".join(capfd.readouterr()))
    assert clean(repr(outcome))
