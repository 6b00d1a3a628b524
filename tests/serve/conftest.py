from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from selpe.serve.limits import Limits
from serve_world import House


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Makes servers without a socket, all in one folder, and ends them."""
    made: list[House] = []

    def build(limits: Limits | None = None, *, worker: Sequence[str] | None = None, apart: bool = False) -> House:
        made.append(House(tmp_path / "root", limits, worker=worker, apart=apart))
        return made[-1]

    yield build
    for house in made:
        if not house.loop.is_closed():
            house.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server without a socket and without tables, for tests that leave nothing behind."""
    house = House(tmp_path_factory.mktemp("shared") / "root")
    yield house
    house.close()


@pytest.fixture
def house(build: Callable[..., House]) -> House:
    """A server without a socket, whose runs stay in the queue."""
    return build()
