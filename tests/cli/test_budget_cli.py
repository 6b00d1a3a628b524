"""`selpe budget`: what people see, what machines read, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from selpe.cli import budget, console
from selpe.errors import BudgetError, ConfigError, DataError, LedgerError
from selpe.privacy.ledger import Charge, Ledger, ledger_root
from selpe.privacy.ledger.fingerprint import fingerprint


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(console, "MANNERS", console.Manners())
    for name in ("out", "err"):  # the consoles remember the stream they were made for
        getattr(console, name).cache_clear()
    yield tmp_path
    for name in ("out", "err"):
        getattr(console, name).cache_clear()


def invoke(*words: str) -> Result:
    app = typer.Typer()
    budget.register(app)
    app.command("other")(lambda: None)
    console.out.cache_clear()
    return CliRunner().invoke(app, ["budget", *words])


def said(*words: str) -> str:
    result = invoke(*words)
    assert result.exception is None, result.exception
    return result.output


def as_json(*words: str) -> Any:
    console.MANNERS.json = True
    found = json.loads(said(*words))
    console.MANNERS.json = False
    return found


@pytest.fixture
def used() -> Ledger:
    ledger = Ledger.open("clinic")
    ledger.set_budget(4.0)
    for n in range(3):
        ledger.store(ledger.charge(Charge("first", f"round {n}", "permute-and-flip", 0.25, 0.5)), {"winner": n})
    ledger.charge(Charge("second", "round 0", "permute-and-flip", 0.5, 1.0))
    return ledger


def test_show_names_runs_sums_and_the_cap(used: Ledger) -> None:
    text = said("show", "clinic")
    assert "ε 2.5 of 4 (replace-one, basic composition)" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["first", "3", "1.5", "0.75"] in rows
    assert ["second", "1", "1", "0.5"] in rows
    assert ["all", "4", "2.5", "1.25"] in rows
    assert "1 charge(s) without a stored result" in text


def test_the_bar_is_as_long_as_what_was_spent(used: Ledger) -> None:
    text = said("show", "clinic")
    assert text.count("█") == round(30 * 2.5 / 4)
    assert text.count("█") + text.count("░") == 30


def test_show_for_machines(used: Ledger) -> None:
    found = as_json("show", "clinic")
    assert found["spent"] == {"epsilon_add_remove": 1.25, "epsilon_replace_one": 2.5, "delta": 0.0}
    assert found["left"] == 1.5
    assert found["budget"]["adjacency"] == "replace-one"
    assert found["not_private"] is False
    assert [d["dataset"] for d in as_json("show")["datasets"]] == ["clinic"]


def test_show_says_that_a_control_has_read_the_table(used: Ledger) -> None:
    used.charge(Charge("control", "round 0", "argmax", math.inf, math.inf))
    assert "not a private release" in said("show", "clinic")
    assert as_json("show", "clinic")["not_private"] is True


def test_where_there_is_no_ledger_the_place_is_named_and_nothing_claimed_about_others() -> None:
    told = said("show")
    assert f"No table has a ledger in {ledger_root()}" in told.replace("\n", "")
    assert "spent" not in told
    assert as_json("show") == {"datasets": []}


def test_a_table_without_a_budget_is_not_said_to_be_closed() -> None:
    Ledger.open("clinic").note("seen")
    told = said("show", "clinic")
    assert "the next run that spends sets it" in told
    assert "nothing can be spent" not in told


def test_an_unknown_data_set_is_bad_input_and_creates_nothing(used: Ledger) -> None:
    for command in ("show", "history"):
        refused = invoke(command, "clinik").exception
        assert isinstance(refused, DataError)
        assert refused.exit_code == 2
        assert "clinic" in refused.hint
    assert Ledger.names() == ["clinic"]


def test_set_makes_lowers_and_refuses_to_raise(used: Ledger) -> None:
    said("set", "new", "--epsilon", "2", "--adjacency", "add-remove", "--delta", "1e-5")
    cap = Ledger.open("new").budget
    assert cap is not None
    assert (cap.epsilon, cap.adjacency, cap.delta, cap.composition) == (2.0, "add-remove", 1e-5, "joint")
    said("set", "clinic", "--epsilon", "3")
    refused = invoke("set", "clinic", "--epsilon", "8").exception
    assert isinstance(refused, BudgetError)
    assert refused.exit_code == 3
    assert "--raise" in refused.hint


def test_raising_needs_a_reason_and_a_confirmation(used: Ledger) -> None:
    wider = ("set", "clinic", "--epsilon", "8", "--raise")
    for words in (wider, (*wider, "--reason", "more data")):
        assert isinstance(invoke(*words).exception, BudgetError)
    said(*wider, "--reason", "more data", "--yes")
    assert "RAISED: more data" in said("history", "clinic")
    assert used.budget is not None
    assert used.budget.epsilon == 8


@pytest.mark.parametrize(
    "words",
    [
        ("--epsilon", "-1"),
        ("--epsilon", "inf"),
        ("--epsilon", "nan"),
        ("--epsilon", "1", "--adjacency", "swap"),
        ("--epsilon", "1", "--composition", "magic"),
        ("--epsilon", "1", "--composition", "joint"),
        ("--epsilon", "1", "--delta", "1"),
    ],
)
def test_an_impossible_cap_is_bad_input(words: tuple[str, ...]) -> None:
    refused = invoke("set", "clinic", *words).exception
    assert isinstance(refused, ConfigError)
    assert Ledger.names() == []


def test_history_tells_every_entry_in_words(used: Ledger) -> None:
    used.recognise(fingerprint([{"a": "x"}]))
    used.note("a remark")
    with used.path.open("ab") as file:
        file.write(b"{torn")
    used.charge(Charge("second", "round 1", "gaussian", 0.5, 0.5, note="[bold]"))
    text = said("history", "clinic", "--verify")
    for words in (
        "first / round 0: ε 0.5 replace-one, 0.25 add-remove (permute-and-flip)",
        "stored, paid by #3",
        "first seen",
        "a remark",
        "5 torn bytes moved to",
        "Every seal holds.",
    ):
        assert words in text
    assert [e["seq"] for e in as_json("history", "clinic")["entries"]] == list(range(1, 14))


def test_verify_says_which_line_is_wrong(used: Ledger) -> None:
    raw = used.path.read_bytes()
    used.path.write_bytes(raw.replace(b'"epsilon_replace_one":1.0', b'"epsilon_replace_one":0.1'))
    refused = invoke("history", "clinic", "--verify").exception
    assert isinstance(refused, LedgerError)
    assert refused.exit_code == 3
    assert "line 9" in refused.message


def test_a_missing_key_is_told_and_can_be_replaced(used: Ledger, home: Path) -> None:
    (home / "config" / "ledger.key").unlink()
    assert "The key is missing" in said("show", "clinic")
    assert "9 seals could not be checked" in said("history", "clinic", "--verify")
    said("reseal", "clinic", "--reason", "new laptop")
    Ledger.open("clinic").charge(Charge("third", "round 0", "permute-and-flip", 0.1, 0.2))
    assert "new laptop" in said("history", "clinic")


def test_a_torn_end_is_told(used: Ledger) -> None:
    with used.path.open("ab") as file:
        file.write(b"{torn")
    assert "torn by a crash" in said("show", "clinic")
    assert as_json("show", "clinic")["torn"] is True


def test_the_ledger_and_its_commands_load_without_numpy() -> None:
    code = (
        "import sys, selpe.cli.budget, selpe.privacy.ledger; sys.exit('numpy' in sys.modules or 'rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
