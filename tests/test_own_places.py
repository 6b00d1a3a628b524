"""Every test has ledgers and a key of its own: one that says nothing of them cannot touch a user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from selpe.models.store.store import cache_folder
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.anchor import anchors_folder
from selpe.privacy.ledger.key import key_path

SPEND = "from selpe.privacy.ledger import Ledger; Ledger.open('clinic').set_budget(1.0)"


def test_a_ledger_with_its_key_and_anchor_lies_in_the_folder_of_the_test(tmp_path: Path) -> None:
    Ledger.open("clinic").set_budget(1.0)
    assert Ledger.open("clinic").path.is_relative_to(tmp_path)
    assert [key_path().parent, anchors_folder().parent] == [tmp_path / "config"] * 2
    assert list(anchors_folder().glob("*.json")) != []


@pytest.mark.parametrize("budget", [1.0, 2.0])
def test_a_test_finds_no_ledger_of_another(budget: float) -> None:
    assert Ledger.names() == []
    Ledger.open("clinic").set_budget(budget)


def test_a_process_of_a_test_inherits_its_places(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SPEND], check=True)
    assert Ledger.names() == ["clinic"]
    assert key_path().is_relative_to(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="the cache is linked where links can be made")
def test_notes_on_servers_are_kept_for_the_session_and_weights_for_good(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    assert cache_folder().is_relative_to(tmp_path_factory.getbasetemp())
    assert not (cache_folder() / "models").resolve().is_relative_to(tmp_path_factory.getbasetemp())
