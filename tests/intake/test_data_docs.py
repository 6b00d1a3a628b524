"""The examples of docs/data.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOC = Path(__file__).resolve().parents[2] / "docs" / "data.md"


def test_the_examples_of_the_data_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", DOC.read_text(encoding="utf-8"), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(next(text for kind, text in blocks if kind == "csv"), encoding="utf-8")
    names: dict[str, object] = {}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(DOC), "exec"), names)
    assert (tmp_path / "visits.parquet").exists()
    assert len(names["frame"]) == 3  # type: ignore[arg-type]
