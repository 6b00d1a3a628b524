"""Where a run is done is a matter of its settings, and of nothing else."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import command_line
from crew_world import HERE, ThreadHands
from selpe.cli.run import _with_place
from selpe.config import RunConfig, check_config, load_config
from selpe.errors import ConfigError, ModelError, PromptTooLongError
from selpe.execute.spread import SpreadEncoder, SpreadModel
from selpe.execute.worker import Broken, Order, Reply
from selpe.execute.workers import Crew
from selpe.intake import write_table
from selpe.models.base import Answer, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.estimate import estimate
from selpe.run.lifecycle import Run
from selpe.run.release import RELEASED
from selpe.run.session import executing
from small_world import SCHEMA, drawn

BAD = 17  # the seeds of requests that are bad, modulo a number of the test's


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    write_table(drawn(40, offset=9000), SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")

    def build(place: str = "here", **more: object) -> RunConfig:
        monkeypatch.setenv("SELPE_LEDGER", str(tmp_path / place / "ledgers"))
        content: dict[str, object] = {
            "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
            "epsilon": 4.0, "records": 16, "rounds": 2, "batches": 2, "alpha": 0.25, "bundles": 4,
            "llm": "fake", "encoder": "hash", "out": str(tmp_path / place / "runs"), "seed": 5,
        }  # fmt: skip
        return check_config({**content, **more}, where="test")

    return build


@pytest.fixture
def hands() -> Iterator[ThreadHands]:
    made = ThreadHands(Order("fake", "hash", maker=f"{HERE}:quick"), 2)
    yield made
    made.close()


def released(run: Run) -> dict[str, bytes]:
    return {name: (run.release / name).read_bytes() for name in RELEASED}


class Failing(FakeModel):
    """A model that fails at some requests, as a server does."""

    def _answer(self, request: Request) -> Answer:
        if request.seed % 40 == BAD:
            return Answer(request, "", "error", error=ModelError("it failed", retryable=True))
        return super()._answer(request)


def test_a_run_whose_requests_kill_workers_releases_what_one_does_whose_model_fails_at_them(
    settings: Callable[..., RunConfig], hands: ThreadHands
) -> None:
    here = Run.create(settings("here"), name="same")
    here.execute(model=Failing(), encoder=HashingEncoder(), test_seed=3)
    hands.fatal = lambda given: isinstance(given, Request) and given.seed % 40 == BAD
    crew, encoder = Crew(hands, 2), HashingEncoder()
    there = Run.create(settings("there"), name="same")
    there.execute(
        model=SpreadModel(crew),
        encoder=encoder,
        public_encoder=SpreadEncoder(crew, name=encoder.name, dimension=encoder.dimension),
        test_seed=3,
    )
    assert crew.losses > 3
    # How many answers are lost depends on which spares are asked for, and so on timing; what is released does not.
    assert all(run.manifest["counts"]["retries"]["model error"] > 0 for run in (here, there))
    assert released(there) == released(here)


def test_without_ray_the_error_says_what_to_install(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="Ray is not installed") as caught, executing(settings(execute="ray")):
        pass
    assert "selpe[ray]" in caught.value.hint


def test_the_check_says_that_ray_is_missing_and_does_not_look_for_the_model_here(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    content = settings(execute="ray", llm="smollm2").model_dump(mode="json", by_alias=True)
    (tmp_path / "selpe.yaml").write_text(json.dumps(content))
    checked = command_line.run("check", tmp_path / "selpe.yaml")
    assert checked.code == 2
    assert "Ray is not installed" in checked.out
    assert "smollm2" not in checked.out


def test_the_local_executor_closes_what_it_opened(settings: Callable[..., RunConfig]) -> None:
    closed: list[str] = []
    with executing(settings()) as executor:
        model = executor.model("fake")
        model.close = lambda: closed.append("model")  # type: ignore[method-assign]
        assert executor.public_encoder(executor.encoder()) is None
    assert closed == ["model"]


@pytest.mark.parametrize("address", ["local", "auto", "10.0.0.1:6379", "ray://head.cluster:10001", "[::1]:6379"])
def test_addresses_of_clusters_are_taken(settings: Callable[..., RunConfig], address: str) -> None:
    assert settings(ray={"address": address}).ray.address == address


@pytest.mark.parametrize("address", ["", "http://head:10001", "ray://user:word@head:1", "head", "ray://head/x:1"])
def test_addresses_that_cannot_be_are_refused(settings: Callable[..., RunConfig], address: str) -> None:
    with pytest.raises(ConfigError):
        settings(ray={"address": address})


def test_flags_complete_the_file_and_mean_ray(tmp_path: Path, settings: Callable[..., RunConfig]) -> None:
    content = settings(ray={"cpus": 3, "workers": 9}).model_dump(mode="json", by_alias=True)
    (tmp_path / "selpe.yaml").write_text(json.dumps(content))
    config = load_config(tmp_path / "selpe.yaml", flags=_with_place({}, None, "auto", 4), environment={})
    assert (config.execute, config.ray.address, config.ray.workers, config.ray.cpus) == ("ray", "auto", 4, 3.0)
    with pytest.raises(ConfigError, match="--address"):
        _with_place({}, "local", "auto", None)
    assert _with_place({"seed": 1}, None, None, None) == {"seed": 1}


def test_a_resumed_run_can_be_done_elsewhere_and_its_manifest_says_so(settings: Callable[..., RunConfig]) -> None:
    run = Run.create(settings(execute="ray", ray={"workers": 7, "cpus": 2}), name="moved")
    run.move(_with_place({}, None, "head:6379", None))
    assert (run.config.ray.address, run.config.ray.workers) == ("head:6379", 7)
    run.move(_with_place({}, "local", None, None))
    assert run.config.execute == "local"
    run.execute(model=FakeModel(), encoder=HashingEncoder())
    assert Run.open(run.folder).config.execute == "local"


def test_the_estimate_counts_the_workers_but_not_those_who_ask_a_server(settings: Callable[..., RunConfig]) -> None:
    def seconds(**more: Any) -> float:
        return estimate(settings(**more), SCHEMA, candidates=100).seconds

    one = seconds(llm="smollm2", execute="ray", ray={"workers": 1})
    assert seconds(llm="smollm2", execute="ray", ray={"workers": 4}) == pytest.approx(one / 4)
    assert seconds(llm="http://host/v1", execute="ray", ray={"workers": 4}) == seconds(llm="http://host/v1")
    earlier = {
        "state": "done", "seconds": 10.0, "settings": {"llm": "smollm2", "execute": "ray", "ray": {"workers": 2}},
        "counts": {"answers": 10, "candidates": 10, "prompt_tokens": 10, "completion_tokens": 1000},
    }  # fmt: skip
    known = estimate(settings(llm="smollm2", execute="ray", ray={"workers": 6}), SCHEMA, candidates=100, runs=[earlier])
    assert known.completion_tokens / known.seconds == pytest.approx(300.0)  # 50 a second by each


def test_errors_come_through_the_wire_whole() -> None:
    error = PromptTooLongError("too long", hint="shorten it", where="node", retryable=True, retry_after=2.0)
    for sent in (Reply("", "error", error=error), Broken(error)):
        found = pickle.loads(pickle.dumps(sent)).error
        assert isinstance(found, PromptTooLongError)
        assert (found.message, found.hint, found.where) == ("too long", "shorten it", "node")
        assert (found.retryable, found.retry_after) == (True, 2.0)
