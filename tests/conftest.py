"""Shared fixtures: a key and ledgers for each test; the real data and the real model, where they are to be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from selpe.errors import ModelNotFoundError
from selpe.models.store.store import ModelStore, cache_folder

# A test that is right on a busy machine too: none of them measures time.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

SHARED = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def places_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Ledgers, key and cache of this session, so that none of a user's own are touched, whatever a fixture forgets.

    Processes that tests start inherit them. Weights alone are shared with the user: they are large and the same.
    """
    folder = tmp_path_factory.mktemp("session")
    places = {"SELPE_LEDGER": str(folder / "ledgers"), "SELPE_KEY": str(folder / "config" / "ledger.key")}
    with pytest.MonkeyPatch.context() as patch:
        for name, place in places.items():
            patch.setenv(name, place)
        if os.name == "posix":  # elsewhere not everybody may make links, and the whole cache is shared
            weights = cache_folder() / "models"
            weights.mkdir(parents=True, exist_ok=True)
            (folder / "cache").mkdir()
            (folder / "cache" / "models").symlink_to(weights.resolve(), target_is_directory=True)
            patch.setenv("SELPE_CACHE", str(folder / "cache"))
        yield places


@pytest.fixture(autouse=True)
def own_places(places_of_the_session: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers and key of one test alone, the notes beside the key included; a module's own fixture may name others."""
    own = {"SELPE_LEDGER": tmp_path / "ledgers", "SELPE_KEY": tmp_path / "config" / "ledger.key"}
    for name, place in own.items():
        if os.environ.get(name) == places_of_the_session[name]:
            monkeypatch.setenv(name, str(place))


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """A lookup for real data files that live beside the checkout; skips the test where they are absent."""

    def find(name: str) -> Path:
        path = (SHARED / name).resolve()
        if not path.exists():
            pytest.skip(f"real data file {name} is not beside this checkout")
        return path

    return find


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of the embedded default model, fetched once into the model cache."""
    try:
        return ModelStore().ensure("smollm2")
    except ModelNotFoundError as problem:
        pytest.skip(f"the weights of smollm2 are not to be had here: {problem.message}")
