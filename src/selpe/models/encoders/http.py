"""Sentence embeddings from an OpenAI-compatible server.

Texts leave this process, so `remote` names the host and the caller decides whether that is allowed. The texts may be
private: no error of this module holds a word of a request or of a response.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.encoders.base import EncoderBase
from selpe.models.http.background import BackgroundLoop
from selpe.models.http.endpoint import Backoff, Breaker, Clock, Limit, WallClock
from selpe.models.http.faults import Fault
from selpe.models.http.fleet import Done, Endpoint, Fleet
from selpe.models.http.secret import Secret
from selpe.models.http.transport import Address, Timeouts, Transport

Rows = NDArray[np.float32]

_PUBLIC_TEXT = "dimension"


class HttpEncoder(EncoderBase):
    """An encoder behind `/v1/embeddings`, with the same retries, benches and limits as the models over HTTP."""

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        key: Secret | None = None,
        dimension: int = 0,
        batch: int = 64,
        timeouts: Timeouts | None = None,
        parallel: int = 8,
        attempts: int = 5,
        budget: float = 300.0,
        patience: float = 60.0,
        max_body: int = 64 << 20,
        ca_file: str = "",
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._address = Address.parse(url)
        host = self._address.host
        # Not row by row: what a server does with a batch is its own affair. Private texts go to it one by one.
        super().__init__(f"{model or 'default'}@{host}", dimension, remote=host, rowwise=False)
        self._model = model
        self._batch = batch
        transport = Transport(self._address, key=key, timeouts=timeouts, max_body=max_body, ca_file=ca_file, quiet=True)
        endpoint = Endpoint(transport, Breaker(patience=patience), Limit(start=2, ceiling=parallel))
        self._fleet = Fleet([endpoint], clock or WallClock(), backoff or Backoff(), attempts=attempts, budget=budget)
        self._loop = BackgroundLoop("selpe-encoder")

    def __repr__(self) -> str:
        return f"HttpEncoder({self.name!r})"

    def __reduce__(self) -> Any:
        raise TypeError("an encoder over HTTP cannot be pickled; build it anew from its settings")

    def __enter__(self) -> HttpEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dimension(self) -> int:
        """The length of each vector; asked for once, with a text of our own."""
        if not self._dimension:
            self.encode([_PUBLIC_TEXT])
        return self._dimension

    def encode(self, texts: Sequence[str]) -> Rows:
        """One L2-normalised row per text, in order. Raises ModelError when a part could not be had."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return self._loop.run(self._encode(list(texts)))

    def close(self) -> None:
        """Ends the thread and the connections. The encoder cannot be used afterwards."""
        self._loop.close(self._fleet.close())

    async def _encode(self, texts: list[str]) -> Rows:
        waiting = asyncio.Semaphore(2 * self._fleet.endpoints[0].limit.ceiling)

        async def part(start: int, stop: int) -> Rows:
            async with waiting:
                return await self._rows(texts[start:stop])

        step = self._batch
        tasks = [asyncio.ensure_future(part(i, i + step)) for i in range(0, len(texts), step)]
        try:
            rows = np.concatenate(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
        return self._checked(rows)

    async def _rows(self, texts: list[str]) -> Rows:
        """The rows of one batch; a batch that the server finds too large is halved, then and from now on."""
        delivery = await self._fleet.deliver(lambda endpoint: self._ask(endpoint, texts))
        if not isinstance(delivery.outcome, Fault):
            return delivery.outcome.value
        fault = delivery.outcome
        if fault.kind in ("refused", "too-long", "too-big") and len(texts) > 1:
            half = len(texts) // 2
            rows = np.concatenate([await self._rows(texts[:half]), await self._rows(texts[half:])])
            self._batch = min(self._batch, max(1, len(texts) - half))
            return rows
        raise fault.error(delivery.tries)

    async def _ask(self, endpoint: Endpoint, texts: list[str]) -> Done[Rows] | Fault:
        body = {
            "input": [text if text.strip() else "-" for text in texts],  # servers refuse empty texts
            "encoding_format": "float",
            **({"model": self._model} if self._model else {}),
        }
        began = time.perf_counter()
        reply = await endpoint.transport.post("embeddings", body)
        if isinstance(reply, Fault):
            return reply
        rows = _read(reply.data, len(texts))
        if rows is None:
            return Fault("garbage", endpoint.host, 200)
        return Done(rows, len(texts), time.perf_counter() - began)

    def _checked(self, rows: Rows) -> Rows:
        if self._dimension and rows.shape[1] != self._dimension:
            raise ModelError(
                f"vectors must have {self._dimension} entries. Got {rows.shape[1]} instead",
                where=self._address.host,
                hint="the server holds another model than before",
            )
        self._dimension = rows.shape[1]
        return rows


def _read(data: Any, count: int) -> Rows | None:
    """The rows in a reply, in the order of the texts and of length one; None unless there is one for each text."""
    items = data.get("data") if isinstance(data, dict) else None
    if not isinstance(items, list) or len(items) != count:
        return None
    try:
        order = [int(item["index"]) for item in items]
        rows = np.asarray([item["embedding"] for item in items], dtype=np.float32)
    except (KeyError, TypeError, ValueError):
        return None
    if rows.ndim != 2 or rows.shape[1] == 0 or sorted(order) != list(range(count)):
        return None
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(rows).all() or not (lengths > 0).all():
        return None
    placed = np.empty_like(rows)
    placed[order] = rows / lengths
    return placed
