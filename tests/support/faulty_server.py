"""A server of ours on 127.0.0.1 that misbehaves on purpose, one scripted way per request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest


@dataclass
class Call:
    """One request as the server saw it, and the means to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    writer: asyncio.StreamWriter
    sent: int = 0

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()
        self.sent += len(raw)

    async def reply(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"content-type": "application/json", "content-length": str(len(raw)), **(headers or {})}
        head = f"HTTP/1.1 {status} Status\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
        await self.send(head.encode() + b"\r\n" + raw)


Behaviour = Callable[[Call], Awaitable[None]]


def said(text: str, *, finish: str = "stop", tokens: int = 4) -> dict[str, Any]:
    """An answer that fits the chat and the completion route alike."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "text": text, "finish_reason": finish}
    return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


def ok(text: str = "fine", *, after: float = 0.0) -> Behaviour:
    async def behave(call: Call) -> None:
        await asyncio.sleep(after)
        await call.reply(200, said(text))

    return behave


def status(code: int, body: object = None, headers: Mapping[str, str] | None = None) -> Behaviour:
    async def behave(call: Call) -> None:
        await call.reply(code, {"error": {"message": "no"}} if body is None else body, headers)

    return behave


def raw(content: bytes, content_type: str = "application/json") -> Behaviour:
    """A well-formed 200 around any bytes."""
    return status(200, content, {"content-type": content_type})


async def hang(call: Call) -> None:
    """Takes the request and never says a word."""
    await asyncio.sleep(60)


async def cut(call: Call) -> None:
    """Promises a body, sends half of it and hangs up."""
    await call.send(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"choices": [')
    call.writer.close()


async def cut_stream(call: Call) -> None:
    """Sends the body piece by piece and hangs up before the last piece."""
    await call.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    await call.send(b'd\r\n{"choices": [\r\n')
    call.writer.close()


async def hang_up(call: Call) -> None:
    """Closes the connection without an answer."""
    call.writer.close()


async def garbage(call: Call) -> None:
    """Sends bytes that are not HTTP."""
    await call.send(bytes(range(128, 256)) * 4 + b"\r\n\r\n")
    call.writer.close()


async def drip(call: Call) -> None:
    """Sends a byte now and then, for ever: only the total timeout ends this."""
    await call.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90000\r\n\r\n")
    while True:
        await call.send(b" ")
        await asyncio.sleep(0.02)


def huge(size: int) -> Behaviour:
    async def behave(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        for _ in range(size // 65_536):
            await call.send(b" " * 65_536)
        call.writer.close()

    return behave


def mixture(good: Behaviour, bad: Sequence[Behaviour], *, share: float, seed: int = 0) -> Behaviour:
    """Behaves badly for this share of requests, each bad way as often as the others."""
    chance = random.Random(seed)

    async def behave(call: Call) -> None:
        await (chance.choice(bad) if chance.random() < share else good)(call)

    return behave


MODELS = {"object": "list", "data": [{"id": "toy", "owned_by": "ours", "max_model_len": 4096}]}


@dataclass
class FaultyServer:
    """A server that answers POSTs by `script`, one behaviour each, and by `rest` when the script is over."""

    script: Iterable[Behaviour] = ()
    rest: Behaviour = field(default_factory=ok)
    models: Behaviour = field(default_factory=lambda: status(200, MODELS))
    certificate: tuple[Path, Path] | None = None
    port: int = 0  # any that is free
    lifetime: float = float("inf")  # the number of POSTs after which nobody is there any more
    calls: list[Call] = field(default_factory=list)
    busiest: int = 0

    def __enter__(self) -> FaultyServer:
        self._todo = iter(self.script)
        self._now = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}/v1"

    @property
    def posts(self) -> list[Call]:
        return [call for call in self.calls if call.method == "POST"]

    def stop(self) -> None:
        """Dies at once: no more connections, and those there are end."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()

    async def _start(self) -> asyncio.Server:
        context = None
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
        return await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=context)

    async def _stop(self) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while not writer.is_closing():
                await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"\x16":  # a TLS handshake, answered as plain servers do
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()
            return
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        call = Call(method, path, headers, json.loads(content) if content else None, writer)
        self.calls.append(call)
        if method == "GET":
            await self.models(call)
            return
        if len(self.posts) > self.lifetime:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            return
        self._now += 1
        self.busiest = max(self.busiest, self._now)
        try:
            await next(self._todo, self.rest)(call)
        finally:
            self._now -= 1


class FastClock:
    """Time that runs a hundred times as fast, so that waiting costs tests nothing."""

    factor = 100.0

    def now(self) -> float:
        return time.monotonic() * self.factor

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.factor)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that only we vouch for, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key
