"""On a Ray cluster of three nodes: a node dies mid-round, a request kills workers, and no private cell leaves here.

One cluster serves all tests; it starts slowly. Nothing runs on its head, so that the driver's node outlives the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crew_world import HERE, prompts
from selpe.config import RunConfig, check_config
from selpe.config.execution import RaySettings
from selpe.events import Answered, Event, StageStarted
from selpe.execute.ray import RayHands, connected, crew_of
from selpe.execute.spread import SpreadEncoder, SpreadModel
from selpe.execute.worker import Order
from selpe.intake import write_table
from selpe.models.base import Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.run.release import RELEASED
from small_world import SCHEMA, drawn

# A busy machine must not make Ray believe that its nodes are dead, or that they never start.
PATIENCE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_health_check_initial_delay_ms": "60000",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_health_check_failure_threshold": "10",
}
os.environ.update(PATIENCE)
ray = pytest.importorskip("ray", reason="Ray is not installed (make test-ray)")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]

MARKER = "QX7-Zebra-4711"  # stands in every private topic
NODE = {"object_store_memory": 80 << 20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent / "support"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **NODE})
    nodes = [made.add_node(num_cpus=1, **NODE) for _ in range(3)]
    made.wait_for_nodes()
    made.spare = nodes
    yield made
    made.shutdown()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    """Settings for a run in a place of its own, on rows with a marked topic each."""
    marked = [record | {"topic": f"{MARKER} {i}"} for i, record in enumerate(drawn(40, offset=9000))]
    write_table(marked, SCHEMA, tmp_path / "private.csv")
    SCHEMA.save(tmp_path / "schema.yaml")

    def build(place: str, **more: object) -> RunConfig:
        monkeypatch.setenv("SELPE_LEDGER", str(tmp_path / place / "ledgers"))
        return check_config(
            {
                "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
                "epsilon": 4.0, "records": 24, "rounds": 2, "batches": 2, "alpha": 0.25, "bundles": 4,
                "llm": "fake", "encoder": "hash", "out": str(tmp_path / place / "runs"), "seed": 5, **more,
            },
            where="test",
        )  # fmt: skip

    return build


@dataclass(slots=True)
class Spy:
    """Everything that Ray turned into bytes in this process, and everything that was given it for a worker."""

    serialized: list[bytes] = field(default_factory=list)
    given: list[bytes] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    from ray._private.serialization import SerializationContext

    seen, serialize, send = Spy(), SerializationContext.serialize, RayHands.send

    def serialized(self: Any, value: Any) -> Any:
        seen.serialized.append(ray.cloudpickle.dumps(value))
        return serialize(self, value)

    def sent(self: RayHands, worker: int, method: str, *arguments: object) -> Any:
        seen.calls.append(method)
        seen.given.append(ray.cloudpickle.dumps(arguments))
        return send(self, worker, method, *arguments)

    monkeypatch.setattr(SerializationContext, "serialize", serialized)
    monkeypatch.setattr(RayHands, "send", sent)
    return seen


def released(run: Run) -> dict[str, bytes]:
    return {name: (run.release / name).read_bytes() for name in RELEASED}


def on(cluster: Any) -> RaySettings:
    return RaySettings(address=cluster.address, workers=3)


def test_a_request_that_kills_its_worker_is_given_up_and_the_others_are_answered(cluster: Any) -> None:
    with connected(on(cluster)) as connection:
        crew = crew_of(connection, Order("fake", maker=f"{HERE}:fatal"), on(cluster))
        model = SpreadModel(crew)
        answers = list(model.generate([*prompts(60), Request(prompt="POISON", key="bad")]))
        model.close()
    assert {answer.request.key: answer.text for answer in answers if answer.finish == "stop"} == {
        answer.request.key: answer.text for answer in FakeModel().generate(prompts(60))
    }
    assert [(answer.request.key, answer.finish) for answer in answers if answer.finish != "stop"] == [("bad", "error")]
    assert crew.losses == 3


def test_commands_run_and_resume_on_a_cluster(cluster: Any, settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    from selpe.cli import main

    config = settings("typed")
    kept = {**config.model_dump(mode="json", by_alias=True), "ray": {"restarts": 3}}
    (tmp_path / "selpe.yaml").write_text(json.dumps(kept))
    place = ["--execute", "ray", "--address", cluster.address, "--workers", "2"]
    with pytest.raises(SystemExit) as left:
        main(["--json", "run", "--yes", str(tmp_path / "selpe.yaml"), "--name", "typed", *place])
    assert left.value.code in (0, None)
    run = Run.open(tmp_path / "typed" / "runs" / "typed")
    assert (run.manifest["state"], run.config.ray.workers, run.config.ray.restarts) == ("done", 2, 3)
    run.manifest["state"] = "interrupted"  # as after a kill; all answers and choices are there
    run._save()
    before = released(run)
    with pytest.raises(SystemExit) as left:
        main(["--json", "resume", str(run.folder), "--workers", "1"])
    assert left.value.code in (0, None)
    again = Run.open(run.folder)
    assert (again.manifest["state"], again.config.ray.workers) == ("done", 1)
    assert released(again) == before


def test_a_run_that_loses_a_node_mid_round_releases_the_same_bytes_and_sends_no_private_cell(
    cluster: Any, settings: Callable[..., RunConfig], spy: Spy
) -> None:
    local = Run.create(settings("local"), name="same")
    local.execute(model=FakeModel(), encoder=HashingEncoder(), test_seed=11)

    heard: list[Event] = []

    def lose_a_node(event: Event) -> None:
        heard.append(event)
        rounds = sum(isinstance(one, StageStarted) and one.stage == "round" for one in heard)
        if rounds == 1 and isinstance(event, Answered) and cluster.spare and cluster.spare[0] is not None:
            cluster.remove_node(cluster.spare[0], allow_graceful=False)
            cluster.spare[0] = None

    run = Run.create(settings("ray", execute="ray", ray={"address": cluster.address, "workers": 3}), name="same")
    with connected(on(cluster)) as connection:
        crew = crew_of(connection, Order("0.02", "hash", maker=f"{HERE}:slow"), run.config.ray)
        while len(crew.ready()) < 3:
            crew.news((), 1.0)
        encoder = HashingEncoder()
        public = SpreadEncoder(crew, name=encoder.name, dimension=encoder.dimension)
        run.execute(
            model=SpreadModel(crew), encoder=encoder, public_encoder=public, test_seed=11, emit=lose_a_node
        )  # fmt: skip
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        jobs = str(ray._private.state.jobs())
        crew.close()

    assert cluster.spare[0] is None
    assert crew.losses >= 1
    assert released(run) == released(local)
    counted = [(made.manifest["counts"]["answers"], made.manifest["counts"]["candidates"]) for made in (local, run)]
    assert counted[0] == counted[1]  # nothing lost, nothing doubled
    answers = (run.folder / "work" / "answers.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in answers}) == len(answers)

    assert {"describe", "answer", "encode"} <= set(spy.calls)
    for seen_by in (spy.given, spy.serialized):
        assert len(seen_by) > len(answers)
        assert b"help desk" in b"".join(seen_by)  # prompts were seen
        assert all(MARKER.encode() not in raw for raw in seen_by)
    logs = [path for path in session.rglob("*") if path.is_file()]
    assert logs
    assert all(MARKER.encode() not in path.read_bytes() for path in logs)
    assert "pytest" not in jobs  # nor the command line
