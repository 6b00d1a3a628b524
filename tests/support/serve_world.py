"""A server for tests: in this process without a socket, or as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import httpx

from selpe.intake import write_table
from selpe.schema import Record
from selpe.serve.app import build_app
from selpe.serve.clients import Door
from selpe.serve.guard import Guard
from selpe.serve.limits import Limits, Operator
from selpe.serve.reader import answer
from selpe.serve.reading import Reader
from selpe.serve.refusals import from_child
from selpe.serve.service import Desk
from selpe.serve.store import Store
from selpe.serve.supervisor import Supervisor
from selpe.serve.token import Token
from selpe.serve.trail import Trail
from small_world import SCHEMA, drawn

T = TypeVar("T")
HOST = "127.0.0.1:8460"
SECRET = "a-token-for-tests-0123456789-abcdefghij"
MARKER = "QX7-Zebra-4711"
YAML, CSV = {"Content-Type": "application/yaml"}, {"Content-Type": "text/csv"}
ONE_STEP: dict[str, Any] = {"records": 12, "guides": "off", "bundles": 0}
# A run with several private choices and answers that take a while, to be stopped in the middle.
LONG: dict[str, Any] = {"records": 24, "epsilon": 4.0, "rounds": 2, "batches": 1, "alpha": 0.25, "bundles": 4}


def rows(count: int = 40, *, marked: bool = False) -> list[Record]:
    """Private rows; where they are marked, every text carries the marker."""
    found = drawn(count, offset=9000)
    return [row | {"topic": f"{MARKER} {i}"} for i, row in enumerate(found)] if marked else found


def csv_of(records: Sequence[Record], folder: Path) -> bytes:
    """Rows as csv."""
    return write_table(records, SCHEMA, folder / "rows.csv").read_bytes()


class InlineReader(Reader):
    """Does the reader's jobs in this process."""

    async def ask(self, do: str, *, keep: bool = True, upload: str = "", **job: Any) -> dict[str, Any]:
        said = answer(json.dumps({"do": do, **job}).encode())
        if "error" in said:
            raise from_child(said["error"], self._root)
        result: dict[str, Any] = said["result"]
        return result


class House:
    """A server without a socket. Its runs stay in the queue unless it has workers.

    Uploads are read in this process, unless they are to be read `apart`, as a server does it.
    """

    def __init__(
        self, root: Path, limits: Limits | None = None, *, worker: Sequence[str] | None = None, apart: bool = False,
        door: Door | None = None, trail: Trail | None = None, second_person: bool = False,
    ) -> None:  # fmt: skip
        self.root = root
        self.loop = asyncio.new_event_loop()
        limits = limits or Limits(workers=0)
        operator = Operator({"fake": "fake"}, {"hash": "hash"}, limits, second_person)
        self.supervisor = Supervisor(limits, **({"command": worker} if worker else {}))
        store = Store(root)
        self.token = Token(SECRET)
        reader = (Reader if apart else InlineReader)(limits, root=str(store.root))
        self.desk = Desk(store, operator, reader, self.supervisor, trail)
        self.app: Guard = build_app(self.desk, door or self.token, hosts=[HOST])
        self._clients: list[httpx.AsyncClient] = []

    def client(self, address: str = "127.0.0.1", **headers: str) -> httpx.AsyncClient:
        """Somebody who asks, with the token unless told otherwise."""
        known = {"Authorization": f"Bearer {SECRET}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app, raise_app_exceptions=False, client=(address, 1)),
            base_url=f"http://{HOST}",
            headers={name: value for name, value in known.items() if value},
        )
        self._clients.append(client)
        return client

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of some asynchronous work."""
        return self.loop.run_until_complete(work)

    def ask(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
        """The answer to one request."""
        return self.do(self.client().request(method, path, headers=headers, **more))

    def raw(self, method: str, path: str, *, body: Sequence[dict[str, Any]] = (), **headers: str) -> tuple[int, bytes]:
        """Status and body of a request whose path is sent as it stands, as no well-behaved client would."""
        known = {"host": HOST, "authorization": f"Bearer {SECRET}", "content-type": "text/csv", **headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path), "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in known.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8460),
        }  # fmt: skip
        messages = list(body) or [{"type": "http.request", "body": b"a\n1\n", "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        self.do(self.app(scope, receive, send))
        status = sent[0]["status"] if sent else 0
        return int(status), b"".join(message.get("body", b"") for message in sent[1:])

    def take_in(self, name: str = "desk", records: Sequence[Record] | None = None) -> None:
        """Uploads a table with its schema."""
        content = csv_of(rows() if records is None else records, self.root.parent)
        assert self.ask("PUT", f"/v1/tables/{name}", content=content, headers=CSV).status_code in (200, 201)
        done = self.ask("PUT", f"/v1/tables/{name}/schema", content=SCHEMA.to_yaml(), headers=YAML)
        assert done.status_code == 200, done.text

    def submit(self, name: str = "desk", **settings: Any) -> httpx.Response:
        """Asks for a run."""
        return self.ask("POST", f"/v1/tables/{name}/runs", json={**ONE_STEP, **settings})

    def until(self, run: str, *states: str, seconds: float = 120.0) -> str:
        """The state of a run, once it is one of these."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.do(asyncio.sleep(0.05))
            state = str(self.ask("GET", f"/v1/runs/{run}").json()["state"])
            if state in states:
                return state
        raise TimeoutError(f"{run} is {state}, not {states}")

    def close(self) -> None:
        """Ends it as a server ends."""
        for client in self._clients:
            self.do(client.aclose())
        self.do(self.desk.close())
        self.loop.close()


SLOW_WORKER = """
import sys, selpe.models.fake as fake
fake.FakeModel.__init__.__kwdefaults__["seconds_per_answer"] = {seconds}
from selpe.serve import worker
worker.main()
"""
# A worker that says where it is and then never ends: C code holds its interpreter, so that none of its threads runs.
STUCK_WORKER = """
import os, re
from selpe.serve import worker
def work(folder, cancel):
    (folder / "stuck").write_text(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 60 + "b")
worker.work = work
worker.main()
"""
_SERVER = """
import json, logging, os, sys
from pathlib import Path
from selpe.serve.limits import Limits, Operator
from selpe.serve.server import Commands, ListenAddress, serve
from selpe.serve.token import Token
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
root, secret, worker, limits, files, spare = sys.argv[1:]
if int(files):
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
def ready(url):
    if int(spare):
        for _ in range(int(files) - int(spare) - len(os.listdir("/dev/fd"))):
            os.open(os.devnull, os.O_RDONLY)  # something else takes the files
    print(url, flush=True)
operator = Operator({"fake": "fake"}, {"hash": "hash"}, Limits(**json.loads(limits)))
commands = Commands(worker=(sys.executable, "-c", worker)) if worker else Commands()
serve(Path(root), operator, Token(secret), ListenAddress(), ready=ready, commands=commands)
"""


@dataclass
class Served:
    """A server in a process of its own, and somebody who asks it."""

    process: subprocess.Popen[str]
    client: httpx.Client
    log: Path

    def until(self, run: str, *states: str, seconds: float = 120.0) -> str:
        """The state of a run, once it is one of these."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = str(self.client.get(f"/v1/runs/{run}").json()["state"])
            if state in states:
                return state
            time.sleep(0.05)
        raise TimeoutError(f"{run} is {state}, not {states}")

    def take_in(self, folder: Path, name: str = "desk", records: Sequence[Record] | None = None) -> None:
        """Uploads a table with its schema."""
        content = csv_of(rows() if records is None else records, folder)
        self.client.put(f"/v1/tables/{name}", content=content, headers=CSV).raise_for_status()
        self.client.put(f"/v1/tables/{name}/schema", content=SCHEMA.to_yaml(), headers=YAML).raise_for_status()

    def end(self, how: int = signal.SIGTERM) -> int:
        """Ends the server by a signal; its exit code."""
        self.client.close()
        with suppress(ProcessLookupError):
            self.process.send_signal(how)
        code = self.process.wait(timeout=300)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def served(folder: Path, *, worker: str = "", files: int = 0, spare: int = 0, **limits: Any) -> Served:
    """A server that works in `folder/root`, with ledgers and key beside it.

    It may have `files` files open; where `spare` is said, all but so many are taken by something else.
    """
    environment = {**os.environ, "SELPE_LEDGER": str(folder / "ledgers"), "SELPE_KEY": str(folder / "key")}
    log = folder / "server.log"
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(folder / "root"), SECRET, worker, json.dumps(limits),
             str(files), str(spare)],
            env=environment, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url, log.read_text()
    client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {SECRET}"}, timeout=300)
    return Served(process, client, log)


def at_once(count: int, work: Any) -> list[Any]:
    """What comes of doing something in several threads at once."""
    found: list[Any] = []
    gate = threading.Barrier(count)

    def one(number: int) -> None:
        gate.wait()
        found.append(work(number))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
