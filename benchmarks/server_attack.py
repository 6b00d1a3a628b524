"""One client attacks `selpe serve` while 50 others work: how much longer they wait, as a ratio within one run.

    python benchmarks/server_attack.py [--requests 10000] [--clients 50] [--pairs 4] [--only NAME …] [--out FILE]

The clients are those of `server_load.py`, with the same mix of requests, each asking as soon as it is answered. Calm
and attacked stretches take turns, so that other work on the machine weighs on both; `--requests` is the number of each
kind in all. The attacker is a process of its own at 127.0.0.2 (so it needs Linux) with a token that is right, and does
all at once, or what `--only` names:

    heads     300 connections that send the head of a request byte by byte
    untaken   20 connections that ask for much and take no answer
    strangers 8 connections that ask without a token, each as soon as it is refused
    uploads   tables of 5 MB, 4 at a time
    patterns  checks of 8 uploads whose pattern takes for ever on its cells
    bombs     checks of 4 small parquet files that unpack to 60 million rows

Meanwhile somebody asks `/v1/health` four times a second, on a new connection each time. It fails where that is not
answered, where a client gets an answer that it must not get, and where the ratio of the 99th percentiles is above 2.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from benchmarks.server_load import CSV, TABLES, YAML, Client, Tally, percentile, started

from selpe.intake import write_table
from small_world import SCHEMA, drawn

ATTACKER = "127.0.0.2"
NEVER = 60.0  # seconds after which health counts as not told
PARQUET = {"Content-Type": "application/vnd.apache.parquet"}
PATTERN = """
name: worst
label: level
fields:
  code: {kind: text, max_length: 200, pattern: "(a+)+"}
  level: {kind: category, values: [low, high]}
"""


# -- the attacker ------------------------------------------------------------------------------------------------------


class Attacker:
    """Everything that one client can do at once to keep others waiting."""

    def __init__(self, url: str, token: str) -> None:
        self._at = urlsplit(url)
        transport = httpx.AsyncHTTPTransport(local_address=ATTACKER, limits=httpx.Limits(max_connections=200))
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, transport=transport, timeout=600)
        self._head = f"GET /openapi.json HTTP/1.1\r\nHost: {self._at.netloc}\r\n".encode()

    def ways(self) -> dict[str, list[Callable[[int], Awaitable[None]]]]:
        """What is done over and over, and how often at once."""
        return {
            "heads": [self._drip] * 300, "untaken": [self._take_nothing] * 20, "strangers": [self._ask_unknown] * 8,
            "uploads": [self._upload] * 4, "patterns": [self._worst_pattern] * 8, "bombs": [self._bomb] * 4,
        }  # fmt: skip

    async def work(self, only: list[str]) -> None:
        """Attacks without end."""
        chosen = [way for name, ways in self.ways().items() if not only or name in only for way in ways]
        await asyncio.gather(*(self._again(way, number) for number, way in enumerate(chosen)))

    async def _again(self, way: Callable[[int], Awaitable[None]], number: int) -> None:
        while True:
            with suppress(httpx.HTTPError, OSError):
                await way(number)
            await asyncio.sleep(0.01)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._at.hostname, self._at.port, local_addr=(ATTACKER, 0))

    async def _drip(self, number: int) -> None:
        _, writer = await self._connected()
        try:
            for byte in self._head + b"X-Long: " + b"x" * 10_000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1.0)
        finally:
            writer.close()

    async def _take_nothing(self, number: int) -> None:
        _, writer = await self._connected()
        try:
            writer.write((self._head + b"\r\n") * 500)
            await asyncio.sleep(60)
        finally:
            writer.close()

    async def _ask_unknown(self, number: int) -> None:
        answer = await self._http.get("/v1/tables", headers={"Authorization": "Bearer wrong"})
        if answer.status_code != 401:
            raise RuntimeError(answer.text)

    async def _upload(self, number: int) -> None:
        await self._http.put(f"/v1/tables/bulk-{number % 4}", content=b"a,b\n" + b"1,2\n" * 1_300_000, headers=CSV)

    async def _worst_pattern(self, number: int) -> None:
        cells = b"code,level\n" + b"".join(b"%s%d,low\n" % (b"a" * 60, row) for row in range(50))
        await self._checked(f"worst-{number % 8}", cells, CSV)

    async def _bomb(self, number: int) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"code": pa.nulls(60_000_000, pa.string())}), sink, compression="zstd")
        await self._checked(f"bomb-{number % 4}", sink.getvalue().to_pybytes(), PARQUET)

    async def _checked(self, name: str, content: bytes, kind: dict[str, str]) -> None:
        await self._http.put(f"/v1/tables/{name}", content=content, headers=kind)
        await self._http.put(f"/v1/tables/{name}/schema", content=PATTERN, headers=YAML)
        await self._http.post(f"/v1/tables/{name}/check", json={})


def attack(url: str, token: str, only: list[str]) -> None:
    """The attacker's process."""
    asyncio.run(Attacker(url, token).work(only))


# -- the others --------------------------------------------------------------------------------------------------------


class Others:
    """The clients whose waiting is measured."""

    def __init__(self, url: str, token: str, contents: list[bytes], clients: int) -> None:
        self._url, self._contents = url, contents
        self._headers = {"Authorization": f"Bearer {token}"}
        self._makers = [
            Client(self._client(), Tally(), {}, random.Random(number), contents[-1]) for number in range(clients)
        ]
        self.health: list[float] = []

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=600)

    async def prepare(self) -> None:
        """Uploads the tables, and has the runs done that their budgets allow, so that these weigh on nothing later."""
        async with self._client() as first:
            for number, content in enumerate(self._contents[:TABLES]):
                (await first.put(f"/v1/tables/table-{number}", content=content, headers=CSV)).raise_for_status()
                schema = await first.put(f"/v1/tables/table-{number}/schema", content=SCHEMA.to_yaml(), headers=YAML)
                schema.raise_for_status()
            document = (await first.get("/openapi.json")).json()
            allowed = {
                f"{method.upper()} {path}": {int(code) for code in operation["responses"]} - {500}
                for path, operations in document["paths"].items()
                for method, operation in operations.items()
            }
            for client in self._makers:
                client.allowed = allowed
            await self.stretch(10 * len(self._makers))
            while any(run["state"] in ("queued", "running") for run in (await first.get("/v1/runs")).json()["runs"]):
                await asyncio.sleep(0.5)

    async def stretch(self, requests: int) -> Tally:
        """What the clients see in so many requests."""
        tally = Tally()
        share, rest = divmod(requests, len(self._makers))
        works: list[Coroutine[Any, Any, None]] = []
        for number, client in enumerate(self._makers):
            tally.runs |= client.tally.runs
            client.tally = tally
            works.append(client.work(share + (number < rest)))
        asking = asyncio.create_task(self._ask_health())
        await asyncio.gather(*works)
        asking.cancel()
        return tally

    async def _ask_health(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            began = time.perf_counter()
            with suppress(httpx.HTTPError):
                async with httpx.AsyncClient(base_url=self._url, timeout=NEVER) as fresh:
                    (await fresh.get("/v1/health")).raise_for_status()
                    self.health.append(time.perf_counter() - began)
                    continue
            self.health.append(NEVER)

    async def close(self) -> None:
        """Lets go of the connections."""
        for client in self._makers:
            await client.http.aclose()


async def measure(url: str, token: str, contents: list[bytes], chosen: argparse.Namespace) -> dict[str, Any]:
    """Calm and attacked stretches in turn, and what was seen in each kind."""
    others = Others(url, token, contents, chosen.clients)
    await others.prepare()
    seen: dict[str, Tally] = {"calm": Tally(), "attacked": Tally()}
    health: dict[str, list[float]] = {"calm": [], "attacked": []}
    took = {"calm": 0.0, "attacked": 0.0}
    for number in range(2 * chosen.pairs):
        kind = ("calm", "attacked")[number % 2]
        attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(url, token, chosen.only))
        if kind == "attacked":
            attacker.start()
            await asyncio.sleep(chosen.lead)
        others.health, began = health[kind], time.perf_counter()
        try:
            tally = await others.stretch(chosen.requests // chosen.pairs)
        finally:
            if attacker.is_alive():
                attacker.kill()
                attacker.join()
        took[kind] += time.perf_counter() - began
        for name, values in tally.seconds.items():
            seen[kind].seconds[name] += values
        seen[kind].wrong += tally.wrong
        seen[kind].statuses += tally.statuses
        await asyncio.sleep(1.0)
    await others.close()
    return {kind: _summary(seen[kind], health[kind], took[kind]) for kind in seen}


def _summary(tally: Tally, health: list[float], took: float) -> dict[str, Any]:
    every = [value for values in tally.seconds.values() for value in values]
    by_name = {name: round(1000 * percentile(values, 0.99)) for name, values in sorted(tally.seconds.items())}
    return {
        "requests": len(every), "seconds": round(took, 1), "per_second": round(len(every) / took, 1),
        **{f"p{share}_ms": round(1000 * percentile(every, share / 100), 1) for share in (50, 90, 99)},
        "max_ms": round(1000 * max(every)), "p99_ms_by_request": by_name,
        "told_to_come_back": sum(count for (_, status), count in tally.statuses.items() if status == 429),
        "health_asked": len(health), "health_p50_s": round(percentile(health, 0.5), 3),
        "health_max_s": round(max(health), 2), "wrong": tally.wrong[:20],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=4, help="of stretches, one calm and one attacked")
    parser.add_argument("--lead", type=float, default=5.0, help="seconds by which the attack comes first")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        contents = [
            write_table(drawn(40, offset=9000 + 1000 * number), SCHEMA, folder / "rows.csv").read_bytes()
            for number in range(TABLES + 1)
        ]
        process, url, token = started(folder)
        try:
            found = asyncio.run(measure(url, token, contents, chosen))
        finally:
            process.terminate()
            code = process.wait(timeout=120)
    calm, attacked = found["calm"], found["attacked"]
    ratios = {name: round(attacked[name] / calm[name], 2) for name in ("p50_ms", "p90_ms", "p99_ms")}
    result = {**found, "attacked / calm": ratios, "exit_code": code}
    print(json.dumps(result, indent=2))
    if chosen.out:
        chosen.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    missed = ratios["p99_ms"] > 2 or attacked["health_max_s"] >= NEVER
    return 1 if missed or calm["wrong"] or attacked["wrong"] or code else 0


if __name__ == "__main__":
    sys.exit(main())
