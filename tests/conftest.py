"""Shared fixtures: a key and ledgers for each test; the real data and the real model, where they are to be had."""

from __future__ import annotations

import os
import random
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --shuffle 7`: another order of the tests, the same one for the same number."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run modules, and the tests of each, in random order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffles modules as wholes, since what a module makes once would else be made again for every test."""
    if (seed := config.getoption("--shuffle")) is None:
        return
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    order, chance = list(modules.values()), random.Random(seed)
    chance.shuffle(order)
    for tests in order:
        chance.shuffle(tests)
    items[:] = [item for tests in order for item in tests]


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
        patch.setenv("SELPE_ALLOW_FAKE", "1")  # tables of tests are made up, and so may be what is written from them
        if os.name == "posix":  # elsewhere not everybody may make links, and the whole cache is shared
            weights = cache_folder() / "models"
            weights.mkdir(parents=True, exist_ok=True)
            (folder / "cache").mkdir()
            (folder / "cache" / "models").symlink_to(weights.resolve(), target_is_directory=True)
            patch.setenv("SELPE_CACHE", str(folder / "cache"))
        patch.setenv("SELPE_LOCAL_SERVERS", "off")  # whatever model server runs on this machine is no part of a test
        yield places


@pytest.fixture(autouse=True)
def own_places(places_of_the_session: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers and key of one test alone, the notes beside the key included; a module's own fixture may name others."""
    own = {"SELPE_LEDGER": tmp_path / "ledgers", "SELPE_KEY": tmp_path / "config" / "ledger.key"}
    for name, place in own.items():
        if os.environ.get(name) == places_of_the_session[name]:
            monkeypatch.setenv(name, str(place))


@pytest.fixture
def few_rows_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes are held however few rows there are: for tests of what a vote does, on tables that are quick to make."""
    monkeypatch.setattr("selpe.privacy.measure_plan.WORTH_A_VOTE", 1.0)
    monkeypatch.setattr("selpe.privacy.measure_plan.WORTH_A_FIELD", 1.0)


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
