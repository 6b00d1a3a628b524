"""A team's server that is killed in the middle of its work: the log has every answer that was given, and goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from in_process import selpe
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.key import make_key
from selpe.serve.audit_check import verify_log
from selpe.serve.audit_log import FOLDER, AuditLog, LogLine
from serve_world import CSV, ONE_STEP, YAML, csv_of, rows
from small_world import SCHEMA

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def tokens(root: Path) -> dict[str, str]:
    """Ann submits, bob approves, eve reads."""
    roles = {"ann": "submit", "bob": "approve", "eve": "read"}
    made = (selpe("server", "make-token", who, "--role", role, "--root", root, "--json") for who, role in roles.items())
    return {one.lines[0]["client"]["name"]: one.lines[0]["token"] for one in made}


class Started:
    """`selpe serve` for these clients, in a process of its own."""

    def __init__(self, root: Path, tokens: dict[str, str]) -> None:
        words = ["--json", "serve", "--root", str(root), "--port", "0", "--model", "fake", "--encoder", "hash"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "selpe", *words, "--second-person"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = json.loads(self.process.stdout.readline())["serve"]
        self.tokens = tokens

    def by(self, who: str) -> httpx.Client:
        return httpx.Client(
            base_url=self.said["url"], headers={"Authorization": f"Bearer {self.tokens[who]}"}, timeout=120
        )

    def end(self, how: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(how)
        self.process.communicate(timeout=300)


@pytest.fixture
def started(root: Path, tokens: dict[str, str]) -> Iterator[list[Started]]:
    made: list[Started] = []
    yield made
    for one in made:
        one.end(signal.SIGKILL)


def lines(root: Path) -> list[LogLine]:
    found: list[LogLine] = []
    AuditLog(root / FOLDER, make_key()).read(found.append)
    return found


def take_in(client: httpx.Client, folder: Path) -> None:
    client.put("/v1/tables/desk", content=csv_of(rows(), folder), headers=CSV).raise_for_status()
    client.put("/v1/tables/desk/schema", content=SCHEMA.to_yaml(), headers=YAML).raise_for_status()


def test_a_killed_server_leaves_a_log_that_has_every_answer_it_gave(
    root: Path, tmp_path: Path, tokens: dict[str, str], started: list[Started]
) -> None:
    given: list[str] = []

    def submit_until_it_is_gone(url: Started) -> None:
        with url.by("ann") as client, suppress(httpx.HTTPError):
            while True:
                answer = client.post("/v1/tables/desk/runs", json={**ONE_STEP, "epsilon": 0.5, "budget": 9.0})
                if answer.status_code == 202:
                    given.append(answer.json()["run"])
                    client.post(f"/v1/runs/{given[-1]}/cancel")

    for number in range(2):
        server = Started(root, tokens)
        started.append(server)
        assert server.said["clients"] == 3
        if not number:
            with server.by("ann") as client:
                take_in(client, tmp_path)
        before = len(given)
        threads = [threading.Thread(target=submit_until_it_is_gone, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(given) < before + 4:
            threads[0].join(0.05)
        server.end(signal.SIGKILL)
        for thread in threads:
            thread.join()
        told = {line.data["run"] for line in lines(root) if line.kind == "submitted"}
        assert set(given) <= told
        assert verify_log(root).ok
    with suppress(FileNotFoundError):
        assert Ledger.open("desk").charges() == []


def test_a_token_that_is_revoked_at_the_command_line_is_refused_by_the_server_that_runs(
    root: Path, tmp_path: Path, tokens: dict[str, str], started: list[Started]
) -> None:
    server = Started(root, tokens)
    started.append(server)
    with server.by("ann") as ann, server.by("bob") as bob, server.by("eve") as eve:
        take_in(ann, tmp_path)
        run = ann.post("/v1/tables/desk/runs", json={**ONE_STEP, "epsilon": 0.5}).json()["run"]
        assert ann.post(f"/v1/runs/{run}/approve").status_code == 403
        assert selpe("server", "revoke-token", "eve", "--root", root).code == 0
        assert eve.get("/v1/tables").status_code == 401
        assert bob.post(f"/v1/runs/{run}/approve").status_code == 202
        assert selpe("server", "revoke-token", "bob", "--root", root).code == 0
        assert bob.get("/v1/tables").status_code == 401
    server.end(signal.SIGTERM)
    kinds = [(line.kind, line.data.get("what")) for line in lines(root)]
    assert kinds.count(("token", "revoked")) == 2
    assert selpe("server", "verify-log", "--root", root).code == 0
