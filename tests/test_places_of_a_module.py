"""What a module keeps for all its tests stays: in a module of its own, since no other test here may see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.key import key_path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ledgers that several tests share."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_LEDGER", str(folder))
        yield folder


def test_the_places_of_a_module_stay(world: Path, tmp_path: Path) -> None:
    assert Ledger.open("clinic").path.is_relative_to(world)
    assert key_path().is_relative_to(tmp_path)
