"""Load on `selpe serve`: 10,000 requests from 50 clients at once, right ones and wrong, while runs are done.

    python benchmarks/server_load.py [--requests 10000] [--clients 50] [--out results.json]

A server is started in a folder of its own with the fake model. The clients upload, check, plan, submit, watch, cancel,
resume and fetch, with names, tokens and bodies that are wrong now and then. It fails where an answer is not one that
the API's description allows (any 5xx, any status an address does not state, any broken connection), where a run that
was accepted fails, or where the ledger of a table holds more than its budget.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from selpe.intake import write_table
from selpe.privacy.ledger import Ledger
from small_world import SCHEMA, drawn

TABLES, CAP, EPSILON = 4, 1.0, 0.5
SETTINGS = {"records": 12, "guides": "off", "bundles": 0, "epsilon": EPSILON, "budget": CAP}
CSV, YAML = {"Content-Type": "text/csv"}, {"Content-Type": "application/yaml"}
OVER = ("done", "cancelled", "failed", "interrupted")


@dataclass
class Tally:
    """What the clients have seen."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    runs: set[str] = field(default_factory=set)
    ended: Counter[str] = field(default_factory=Counter)


@dataclass
class Client:
    """One client: it asks for one thing after another, each drawn at random."""

    http: httpx.AsyncClient
    tally: Tally
    allowed: dict[str, set[int]]
    chance: random.Random
    table_bytes: bytes

    async def work(self, count: int) -> None:
        """Makes so many requests."""
        ways = self._ways()
        for _ in range(count):
            [(name, act)] = self.chance.choices([way[1:] for way in ways], [way[0] for way in ways])
            began = time.perf_counter()
            try:
                answer = await act()
            except httpx.HTTPError as error:
                self.tally.wrong.append(f"{name}: {type(error).__name__}")
                continue
            self.tally.seconds[name].append(time.perf_counter() - began)
            self.tally.statuses[name, answer.status_code] += 1
            if answer.status_code not in self.allowed[name]:
                self.tally.wrong.append(f"{name}: {answer.status_code} {answer.text[:200]}")

    def _ways(self) -> list[tuple[int, str, Callable[[], Awaitable[httpx.Response]]]]:
        get, post = self.http.get, self.http.post
        return [
            (6, "GET /v1/health", lambda: get("/v1/health")),
            (8, "GET /v1/tables", lambda: get("/v1/tables")),
            (8, "GET /v1/tables/{table}", lambda: get(f"/v1/tables/{self._table()}")),
            (8, "GET /v1/tables/{table}/schema", lambda: get(f"/v1/tables/{self._table()}/schema")),
            (12, "GET /v1/tables/{table}/budget", lambda: get(f"/v1/tables/{self._table()}/budget")),
            (10, "GET /v1/runs", lambda: get("/v1/runs", params={"limit": self.chance.choice([1, 10, 100])})),
            (12, "GET /v1/runs/{run}", lambda: get(f"/v1/runs/{self._run()}")),
            (6, "GET /v1/runs/{run}/events", lambda: get(f"/v1/runs/{self._run()}/events")),
            (3, "GET /v1/runs/{run}/release", lambda: get(f"/v1/runs/{self._run()}/release")),
            (3, "GET /v1/runs/{run}/page", lambda: get(f"/v1/runs/{self._run()}/page")),
            (6, "POST /v1/tables/{table}/check", lambda: post(f"/v1/tables/{self._table()}/check", json={})),
            (8, "POST /v1/tables/{table}/plan", lambda: post(f"/v1/tables/{self._table()}/plan", json=self._asked())),
            (6, "POST /v1/tables/{table}/runs", self._submit),
            (2, "PUT /v1/tables/{table}", self._upload),
            (1, "POST /v1/runs/{run}/cancel", lambda: post(f"/v1/runs/{self._run()}/cancel")),
            (1, "POST /v1/runs/{run}/resume", lambda: post(f"/v1/runs/{self._run()}/resume")),
        ]

    def _table(self) -> str:
        """A table, or now and then a name that is none or leads nowhere."""
        known = [f"table-{number}" for number in range(TABLES)]
        return (
            self.chance.choice(known) if self.chance.random() < 0.9 else self.chance.choice(["none", "%2e%2e%2fx", "A"])
        )

    def _run(self) -> str:
        known = sorted(self.tally.runs)
        return (
            self.chance.choice(known) if known and self.chance.random() < 0.9 else self.chance.choice(["none", "..%2f"])
        )

    def _asked(self) -> dict[str, Any]:
        """Settings, wrong ones now and then."""
        wrong: list[dict[str, Any]] = [
            {"epsilon": -1},
            {"data": "/etc/passwd"},
            {"llm": "http://evil.example"},
            {"seed": "x"},
        ]
        asked = {**SETTINGS, "seed": self.chance.randrange(3)}
        return asked if self.chance.random() < 0.85 else {**asked, **self.chance.choice(wrong)}

    async def _submit(self) -> httpx.Response:
        answer = await self.http.post(f"/v1/tables/{self._table()}/runs", json=self._asked())
        if answer.status_code == 202:
            self.tally.runs.add(answer.json()["run"])
        return answer

    async def _upload(self) -> httpx.Response:
        kind = CSV if self.chance.random() < 0.9 else {"Content-Type": "text/html"}
        return await self.http.put(
            f"/v1/tables/spare-{self.chance.randrange(3)}", content=self.table_bytes, headers=kind
        )


def started(folder: Path) -> tuple[subprocess.Popen[str], str, str]:
    """A server, its address and its token."""
    environment = {**os.environ, "SELPE_LEDGER": str(folder / "ledgers"), "SELPE_KEY": str(folder / "key")}
    process = subprocess.Popen(
        [sys.executable, "-m", "selpe", "--json", "serve", "--root", str(folder / "root"), "--port", "0",
         "--model", "fake", "--encoder", "hash"],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())["serve"]
    return process, said["url"], Path(said["token_file"]).read_text(encoding="ascii").strip()


async def load(url: str, token: str, contents: list[bytes], *, requests: int, clients: int) -> tuple[Tally, float]:
    """What the clients saw, and how long they took; waits for the runs that were accepted."""
    headers, tally = {"Authorization": f"Bearer {token}"}, Tally()
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=300) as first:
        for number, content in enumerate(contents[:TABLES]):
            (await first.put(f"/v1/tables/table-{number}", content=content, headers=CSV)).raise_for_status()
            schema = await first.put(f"/v1/tables/table-{number}/schema", content=SCHEMA.to_yaml(), headers=YAML)
            schema.raise_for_status()
        document = (await first.get("/openapi.json")).json()
        allowed = {
            f"{method.upper()} {path}": {int(code) for code in operation["responses"]} - {500}
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        }
        makers = [
            Client(
                httpx.AsyncClient(base_url=url, headers=headers, timeout=300),
                tally,
                allowed,
                random.Random(n),
                contents[-1],
            )
            for n in range(clients)
        ]
        began = time.perf_counter()
        share, rest = divmod(requests, clients)
        await asyncio.gather(*(client.work(share + (n < rest)) for n, client in enumerate(makers)))
        took = time.perf_counter() - began
        for client in makers:
            await client.http.aclose()
        for run in tally.runs:
            while (about := (await first.get(f"/v1/runs/{run}")).json())["state"] not in OVER:
                await asyncio.sleep(0.5)
            tally.ended[about["state"]] += 1
            if about["state"] == "failed":
                tally.wrong.append(f"{run}: {about['error']}")
    return tally, took


def overspent(folder: Path) -> list[str]:
    """The tables whose ledgers hold more than their budget."""
    os.environ |= {"SELPE_LEDGER": str(folder / "ledgers"), "SELPE_KEY": str(folder / "key")}
    found = []
    for name in Ledger.names():
        ledger = Ledger.open(name)
        spent, cap = ledger.spent().epsilon_replace_one, ledger.budget
        print(f"  {name}: ε {spent:g} of {cap.epsilon if cap else 0:g} spent, {len(ledger.charges())} charges")
        if cap is None or spent > cap.epsilon * (1 + 1e-9):
            found.append(name)
    return found


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of all values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # Each table has rows of its own: the ledger knows rows under another name again, and refuses them.
        contents = [
            write_table(drawn(40, offset=9000 + 1000 * number), SCHEMA, folder / "rows.csv").read_bytes()
            for number in range(TABLES + 1)
        ]
        process, url, token = started(folder)
        try:
            tally, took = asyncio.run(load(url, token, contents, requests=chosen.requests, clients=chosen.clients))
        finally:
            process.terminate()
            code = process.wait(timeout=60)
        return report(tally, took, overspent(folder), code, chosen.out)


def report(tally: Tally, took: float, too_much: list[str], code: int, out: Path | None) -> int:
    """Says what came of it; the exit code is 0 where nothing was wrong."""
    times = tally.seconds
    every = [value for values in times.values() for value in values]
    statuses: Counter[int] = Counter()
    for (_, status), count in tally.statuses.items():
        statuses[status] += count
    result = {
        "requests": len(every), "seconds": round(took, 1), "per_second": round(len(every) / took),
        "p50_ms": round(1000 * percentile(every, 0.5), 1), "p99_ms": round(1000 * percentile(every, 0.99), 1),
        "max_ms": round(1000 * max(every), 1), "statuses": dict(sorted(statuses.items())), "runs": dict(tally.ended),
        "wrong": tally.wrong[:20], "overspent": too_much, "exit_code": code,
    }  # fmt: skip
    for name in sorted(times):
        codes = {status: count for (what, status), count in sorted(tally.statuses.items()) if what == name}
        p50, p99 = (1000 * percentile(times[name], share) for share in (0.5, 0.99))
        print(f"  {name:36} {len(times[name]):6} requests  p50 {p50:7.1f} ms  p99 {p99:8.1f} ms  {codes}")
    print(json.dumps(result, ensure_ascii=False, indent=2))
    if out:
        out.write_text(json.dumps(result, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return 1 if tally.wrong or too_much or code else 0


if __name__ == "__main__":
    sys.exit(main())
