"""A small private table with its ledger, and settings of runs on it with the fake model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selpe.config import RunConfig, check_config
from selpe.intake import write_table
from small_world import SCHEMA, drawn

ROWS = 40
SMALL = {
    "augpe": {"rounds": 3, "expansion": 3},
    "wasp": {"rounds": 3, "votes": 4, "shown": 4},
}


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., RunConfig]:
    write_table(drawn(ROWS, offset=9000), SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")

    def build(method: str, **more: Any) -> RunConfig:
        content: dict[str, Any] = {
            "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
            "method": method, "epsilon": 2.0, "records": 20, "llm": "fake", "encoder": "hash",
            "out": str(tmp_path / "runs"), **SMALL,
        }  # fmt: skip
        for name, value in more.items():
            content[name] = {**content[name], **value} if isinstance(content.get(name), dict) else value
        return check_config(content, where="test")

    return build
