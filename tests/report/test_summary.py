"""The page that may leave the house: made from the release alone, the same every time, with nothing internal in it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from page_reader import HOSTILE, Page
from selpe.config import check_config
from selpe.errors import RunError
from selpe.intake import write_table
from selpe.privacy.card import build_card
from selpe.privacy.ledger import Ledger
from selpe.report.summary import summary_page, write_summary
from selpe.schema import Schema
from small_world import SCHEMA, UNLABELLED, drawn


def card(folder: Path, *, epsilon: float = 2.0, schema: Schema = SCHEMA, **settings: Any) -> dict[str, Any]:
    config = check_config({"dataset": "desk", "data": "x.csv", "epsilon": epsilon, **settings}, where="test")
    ledger = Ledger.open("desk", root=folder / "ledger")
    made = build_card(schema=schema, config=config, run="desk-1", ledger=ledger, records=12, model="fake")
    loaded: dict[str, Any] = json.loads(json.dumps(made))
    return loaded


def test_it_tells_promise_validity_spread_and_card(tmp_path: Path) -> None:
    text = summary_page(SCHEMA, drawn(30), card(tmp_path))
    page = Page(text)
    for word in (
        "took part in making this release",
        "S-CFG",
        "Distinct pairs of words",
        "What is not covered",
        "minutes",
    ):
        assert word in page.words
    assert page.tags.count("svg") == len(SCHEMA.fields)
    assert "NOT FOR RELEASE" not in text


def test_it_is_self_contained(tmp_path: Path) -> None:
    text = summary_page(SCHEMA, drawn(30), card(tmp_path))
    assert "script" not in Page(text).tags
    assert not re.search(r"url\(|@import|https?://|src=", text)


def test_the_same_release_makes_the_same_page(tmp_path: Path) -> None:
    records, made = drawn(30), card(tmp_path)
    first = summary_page(SCHEMA, records, made)
    assert summary_page(SCHEMA, [dict(record) for record in records], json.loads(json.dumps(made))) == first
    assert summary_page(SCHEMA, records[1:], made) != first


def test_a_control_is_stamped(tmp_path: Path) -> None:
    page = Page(summary_page(SCHEMA, drawn(8), card(tmp_path, epsilon=math.inf)))
    assert "NOT PRIVATE" in page.words
    assert "Synthetic, and differentially private" not in page.words


def test_hostile_records_and_names_are_text(tmp_path: Path) -> None:
    records = [record | {"topic": HOSTILE} for record in drawn(6)]
    made = card(tmp_path)
    made["dataset"] = made["run"] = HOSTILE
    page = Page(summary_page(SCHEMA, records, made))
    assert not {"script", "img"} & set(page.tags)


def test_large_and_unlabelled_tables_are_summed_up(tmp_path: Path) -> None:
    few = drawn(20, schema=UNLABELLED)
    page = Page(summary_page(UNLABELLED, few * 150, card(tmp_path, schema=UNLABELLED)))
    assert "3,000 synthetic records" in page.words
    assert "over 2,000 records" in page.words


def test_a_release_that_is_torn_is_not_summed_up(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be read"):
        write_summary(tmp_path, SCHEMA)
    write_table(drawn(4), SCHEMA, tmp_path / "synthetic.jsonl")
    (tmp_path / "privacy-card.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match="not a privacy card"):
        write_summary(tmp_path, SCHEMA)
