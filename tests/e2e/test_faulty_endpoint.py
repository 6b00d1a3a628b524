"""A whole run against a server that fails: it completes through faults that pass, and stops cleanly where they last."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from faulty_server import (
    MODELS,
    Call,
    FastClock,
    FaultyServer,
    cut,
    cut_stream,
    hang,
    mixture,
    ok,
    raw,
    said,
    status,
)
from in_process import Result, selpe
from selpe.intake import write_table
from selpe.models import Message, Request
from selpe.models.fake import FakeModel
from selpe.models.http.transport import Timeouts
from selpe.privacy.ledger import Ledger
from small_world import SCHEMA, drawn

RECORDS = {"low": 16, "high": 8}
EPSILON = 4.0
CONFIG = """
dataset: desk
data: desk.csv
schema: schema.yaml
epsilon: 4.0
records: 24
quotas: {low: 2, high: 1}
rounds: 2
batches: 2
alpha: 0.25
guide_sample: 1
bundles: 4
encoder: hash
"""
pytestmark = pytest.mark.usefixtures("few_rows_vote")
BUSY = status(429, headers={"Retry-After": "1"})
CHATTER = ok("Certainly! A visitor came to the desk this morning and asked about a parcel.")
FAULTS = (BUSY, status(500), hang, cut, cut_stream, raw(b'{"choices": [{]'), CHATTER)


class Clock(FastClock):
    """Fast, but not so fast that a busy machine makes a living server look dead."""

    factor = 20.0


@dataclass
class Written:
    """A server's model: the fake one, which heeds the usual way to ask for a schema. Keeps what it has answered."""

    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, call: Call) -> None:
        body = call.body
        form = body.get("response_format", {}).get("json_schema", {}).get("schema")
        request = Request(
            prompt=body.get("prompt", ""),
            messages=tuple(Message(**message) for message in body.get("messages", ())),
            json_schema=form,
            seed=body["seed"],
            temperature=body["temperature"],
        )
        (answer,) = FakeModel().generate([request])
        await call.reply(200, said(answer.text, tokens=answer.completion_tokens))
        self.bodies.append(body)


@dataclass
class Stubborn:
    """Refuses one body in eight as often as a client tries it, and answers it when it is asked again.

    Not the client's greeting: a server that does not even answer that is down.
    """

    written: Written
    refused: Counter[str] = field(default_factory=Counter)

    async def __call__(self, call: Call) -> None:
        text = json.dumps(call.body, sort_keys=True)
        chosen = zlib.crc32(text.encode()) % 8 == 0 and call.body.get("max_tokens") != 1 and "zq-4071" not in text
        if chosen and self.refused[text] < 5:
            self.refused[text] += 1
            await status(500)(call)
        else:
            await self.written(call)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, schema and table; clocks that run fast, and a client that does not wait long."""
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40, offset=9000), SCHEMA, tmp_path / "desk.csv")
    (tmp_path / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    for name in ("LEDGER", "KEY", "CACHE"):
        monkeypatch.setenv(f"SELPE_{name}", str(tmp_path / name.lower()))
    monkeypatch.setattr("selpe.models.http.model.WallClock", Clock)
    monkeypatch.setattr(
        "selpe.models.http.transport.Timeouts", lambda: Timeouts(connect=2.0, first_byte=0.6, total=5.0)
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def manifest(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / "runs" / "desk" / "manifest.json").read_text(encoding="utf-8"))
    return found


def released(project: Path) -> list[dict[str, Any]]:
    text = (project / "runs" / "desk" / "release" / "synthetic.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def charged(project: Path) -> Counter[str]:
    ledger = Ledger.open("desk", root=project / "ledger")
    return Counter(entry.data["selection"] for entry in ledger.entries() if entry.kind == "charge")


def require_whole(project: Path) -> None:
    """The release has exact class sizes and valid records, and was paid for once."""
    records = released(project)
    assert Counter(str(record["urgency"]) for record in records) == RECORDS
    assert all(SCHEMA.check(record) == [] for record in records)
    assert len({SCHEMA.dumps(record) for record in records}) == len(records)
    assert manifest(project)["state"] == "done"
    assert charged(project) == {"round-1": 1, "round-2": 1, "field-1": 1, "measure-1": 1, "bundle": 1}
    spent = Ledger.open("desk", root=project / "ledger").spent()
    assert spent.epsilon_replace_one == pytest.approx(EPSILON)
    assert spent.without_result == 0


def run(server: FaultyServer) -> Result:
    return selpe("run", "--llm", f"{server.url}#toy", "--name", "desk", "--yes")


def test_a_run_completes_where_three_requests_in_ten_fail(project: Path) -> None:
    written = Written()
    listing = mixture(status(200, MODELS), [one for one in FAULTS if one is not CHATTER], share=0.3, seed=1)
    with FaultyServer(rest=mixture(written, FAULTS, share=0.3), models=listing) as server:
        result = run(server)
        asked = len(server.posts)
    assert result.code == 0, result.err
    require_whole(project)
    assert asked - len(written.bodies) > 0.2 * asked
    counts = manifest(project)["counts"]
    assert counts["retries"]["not a record"] > 0
    assert manifest(project)["private"] is True


@pytest.mark.parametrize("lifetime", [0, 60, 150])
def test_a_server_that_dies_stops_the_run_cleanly_and_a_resumed_run_asks_for_nothing_again(
    project: Path, lifetime: int
) -> None:
    written = Written()
    with FaultyServer(rest=written, lifetime=lifetime) as server:
        died = run(server)
        port = server.port
    require_stopped(project, died)
    finished = {json.dumps(body, sort_keys=True) for body in written.bodies}
    again = Written()
    with FaultyServer(rest=again, port=port):
        result = selpe("resume", "desk")
    assert result.code == 0, result.err
    require_whole(project)
    probes = {text for text in finished if "zq-4071" in text}
    assert {json.dumps(body, sort_keys=True) for body in again.bodies} & finished <= probes


def test_going_on_while_the_server_is_still_dead_costs_nothing(project: Path) -> None:
    with FaultyServer(rest=Written(), lifetime=100) as server:
        died = run(server)
    require_stopped(project, died)
    paid = charged(project)
    assert paid
    require_stopped(project, selpe("resume", "desk"), "nobody listens at 127.0.0.1")
    assert charged(project) == paid


def test_candidates_do_not_depend_on_what_went_wrong_on_the_way(project: Path) -> None:
    """Otherwise a resumed run, where nothing goes wrong, would have other candidates than those that were voted on."""
    stubborn = Stubborn(Written())
    with FaultyServer(rest=stubborn, lifetime=210) as server:
        died = run(server)
        port = server.port
    require_stopped(project, died)
    assert charged(project)
    assert sum(count == 5 for count in stubborn.refused.values()) >= 1
    with FaultyServer(rest=Written(), port=port):
        result = selpe("resume", "desk")
    assert result.code == 0, result.err
    require_whole(project)


def test_a_server_that_asks_for_an_hour_s_patience_stops_the_run_until_then(project: Path) -> None:
    with FaultyServer(script=[Written()] * 30, rest=status(429, headers={"Retry-After": "3600"})) as server:
        result = run(server)
        port = server.port
    require_stopped(project, result, "the server asks us to slow down")
    with FaultyServer(rest=Written(), port=port):
        assert selpe("resume", "desk").code == 0
    require_whole(project)


def require_stopped(project: Path, result: Result, words: str = "the endpoint is not working (127.0.0.1") -> None:
    assert result.code == 1
    assert words in result.err
    assert "selpe resume runs/desk" in result.err
    assert "Traceback" not in result.err
    assert manifest(project)["state"] == "stopped"
    assert not (project / "runs" / "desk" / "release").exists()
