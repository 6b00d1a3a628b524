"""The short measurement, on a model whose speed is known and a clock that only it moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from selpe.errors import ModelError
from selpe.models.base import Answer, Capabilities, Request
from selpe.models.speed import Pace, measure_pace


class Steady:
    """Reads and writes so many tokens a second, one token a letter; the first call of all takes five seconds more."""

    name = "steady"

    def __init__(self, reading: float, writing: float, finish: str = "length") -> None:
        self.reading, self.writing, self.finish = reading, writing, finish
        self.now, self.calls = 0.0, 0

    def capabilities(self) -> Capabilities:
        return Capabilities(parallel=16)

    def generate(self, requests: Iterable[Request], **more: Any) -> Iterator[Answer]:
        self.now += 5.0 if not self.calls else 0.0
        self.calls += 1
        for request in requests:
            self.now += len(request.prompt) / self.reading + request.max_tokens / self.writing
            yield Answer(request, "x", self.finish, len(request.prompt), 0, request.max_tokens)  # type: ignore[arg-type]

    def count_tokens(self, text: str) -> int:
        return len(text)

    def close(self) -> None:
        return


@pytest.mark.parametrize(("reading", "writing"), [(4000.0, 600.0), (400.0, 300.0), (50.0, 10.0)])
def test_reading_and_writing_are_told_apart(reading: float, writing: float) -> None:
    model = Steady(reading, writing)
    found = measure_pace(model, clock=lambda: model.now)
    assert found.writing == pytest.approx(writing, rel=0.05)
    assert found.reading == pytest.approx(reading, rel=0.05)


def test_a_fast_model_is_measured_in_about_two_seconds() -> None:
    model = Steady(4000.0, 600.0)
    measure_pace(model, clock=lambda: model.now)
    assert model.now - 5.0 < 2.5


def test_a_model_that_writes_nothing_is_said_to() -> None:
    model = Steady(100.0, 100.0, finish="error")
    with pytest.raises(ModelError, match="wrote nothing"):
        measure_pace(model, clock=lambda: model.now)


def test_seconds_are_those_of_reading_and_of_writing() -> None:
    assert Pace(100.0, 50.0).seconds(200, 100) == pytest.approx(4.0)


class Remembering(Steady):
    """Has what it read before, and takes longer for a token behind a long prompt."""

    def capabilities(self) -> Capabilities:
        return Capabilities(parallel=16, prefix_cache=True)

    def generate(self, requests: Iterable[Request], **more: Any) -> Iterator[Answer]:
        self.calls += 1
        known: list[str] = getattr(self, "known", [])
        for request in requests:
            cached = max((len(one) for one in known if request.prompt.startswith(one)), default=0)
            known.append(request.prompt)
            self.now += (len(request.prompt) - cached) / self.reading
            self.now += request.max_tokens / self.writing * (1 + len(request.prompt) / 4000)
            yield Answer(request, "x", "length", len(request.prompt), cached, request.max_tokens)
        self.known = known


def test_writing_is_measured_behind_prompts_as_long_as_those_of_the_run() -> None:
    short, long = Remembering(40_000.0, 600.0), Remembering(40_000.0, 600.0)
    beside = measure_pace(short, clock=lambda: short.now)
    behind = measure_pace(long, context=1000, clock=lambda: long.now)
    assert behind.reading == pytest.approx(beside.reading, rel=0.1) == pytest.approx(40_000, rel=0.1)
    assert beside.writing == pytest.approx(600.0, rel=0.05)
    assert behind.writing == pytest.approx(300.0, rel=0.05)  # 4,000 letters


def test_a_model_that_remembers_nothing_is_measured_with_short_prompts() -> None:
    model = Steady(4000.0, 600.0)
    assert measure_pace(model, context=1000, clock=lambda: model.now).writing == pytest.approx(600.0, rel=0.05)
    assert model.now - 5.0 < 3.5
