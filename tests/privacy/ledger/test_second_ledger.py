"""The same rows under another name: refused, or told on the cards of both data sets with what they paid together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from in_process import selpe
from page_reader import Page
from selpe import SelPE
from selpe.errors import BudgetError
from selpe.intake import write_table
from selpe.privacy.ledger import Charge, Ledger
from small_world import SCHEMA, drawn

QUICK: dict[str, Any] = {"records": 12, "llm": "fake", "encoder": "hash", "bundles": 0, "guides": "off"}
SETTINGS = {"data": "desk.csv", "schema": "schema.yaml", "budget": 20, **QUICK}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40), SCHEMA, tmp_path / "desk.csv")
    return tmp_path


def by_command(name: str, epsilon: float, *words: str, **more: Any) -> dict[str, Any]:
    """The card of a run by the command line."""
    Path("selpe.yaml").write_text(json.dumps({**SETTINGS, "dataset": name, **more}), encoding="utf-8")
    run = f"{name}-{epsilon:g}"
    done = selpe("run", "--yes", "--epsilon", epsilon, "--name", run, *words)
    if done.code:
        raise BudgetError(done.err)
    card: dict[str, Any] = json.loads(Path("runs", run, "release", "privacy-card.json").read_text(encoding="utf-8"))
    return card


def by_flag(name: str, epsilon: float) -> dict[str, Any]:
    return by_command(name, epsilon, "--same-data-new-ledger")


def by_setting(name: str, epsilon: float) -> dict[str, Any]:
    return by_command(name, epsilon, same_data_new_ledger=True)


def by_python(name: str, epsilon: float) -> dict[str, Any]:
    made = SelPE(SCHEMA, dataset=name, epsilon=epsilon, budget=20, **QUICK)
    return made.fit(pd.DataFrame(drawn(40)), name=f"{name}-{epsilon:g}", insist=True).card


def by_setting_in_python(name: str, epsilon: float) -> dict[str, Any]:
    made = SelPE(SCHEMA, dataset=name, epsilon=epsilon, budget=20, same_data_new_ledger=True, **QUICK)
    return made.fit(pd.DataFrame(drawn(40)), name=f"{name}-{epsilon:g}").card


@pytest.mark.parametrize("insisting", [by_flag, by_setting, by_python, by_setting_in_python])
def test_the_cards_of_both_data_sets_tell_of_the_other_and_of_the_sum(
    insisting: Callable[[str, float], dict[str, Any]],
) -> None:
    alone = by_command("first", 2.0)["cumulative"]
    assert (alone["elsewhere"], alone["together"]) == ([], None)
    later = insisting("second", 1.0)["cumulative"]
    assert [(other["dataset"], other["epsilon"]["replace_one"]) for other in later["elsewhere"]] == [
        ("first", pytest.approx(2.0))
    ]
    assert later["epsilon"]["replace_one"] == pytest.approx(1.0)
    assert later["together"]["epsilon"] == {"replace_one": pytest.approx(3.0), "add_remove": pytest.approx(1.5)}
    again = by_command("first", 4.0)["cumulative"]
    assert [other["dataset"] for other in again["elsewhere"]] == ["second"]
    assert again["together"]["epsilon"]["replace_one"] == pytest.approx(7.0)
    text = Path("runs", "first-4", "release", "privacy-card.md").read_text(encoding="utf-8")
    assert "another ledger, 'second': ε = 1 " in text
    assert "All of it together is what these rows have paid: ε = 7 " in text
    assert "also known as 'second'" in Page(Path("runs/first-4/release/summary.html").read_text(encoding="utf-8")).words


def test_without_the_owners_word_the_rows_are_refused_under_a_new_name() -> None:
    by_command("first", 2.0)
    with pytest.raises(BudgetError, match="known under another name"):
        by_command("second", 1.0)
    with pytest.raises(BudgetError, match="known under another name"):
        by_command("second", 1.0, same_data_new_ledger=False)
    assert Ledger.names() == ["first"]


def test_a_ledger_that_is_gone_is_still_told_of() -> None:
    by_command("first", 2.0)
    by_setting("second", 1.0)
    shutil.rmtree(Path("ledgers", "first"))
    told = by_command("second", 3.0)["cumulative"]
    assert [(other["dataset"], other["epsilon"]) for other in told["elsewhere"]] == [("first", None)]
    assert told["together"]["epsilon"]["replace_one"] == pytest.approx(4.0)


def test_data_sets_that_share_no_rows_do_not_tell_of_each_other() -> None:
    by_command("first", 2.0)
    other = Ledger.open("stranger")
    other.set_budget(1.0)
    other.charge(Charge("r", "round", "permute-and-flip", 1.0, 0.5))
    assert by_command("first", 1.0)["cumulative"]["elsewhere"] == []
