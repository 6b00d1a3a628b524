"""HTTP/2, against a small TLS server that offers nothing else: it is spoken, and the key stays out of the logs."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from faulty_server import MODELS, make_certificate, said
from http_client import chats
from selpe.models.http.model import HttpModel
from selpe.models.http.secret import Secret

KEY = "sk-over-http2-SECRET"


async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[dict[str, str]]) -> None:
    """Serves one connection: the list of models for a GET, an answer for anything else."""
    link = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    link.initiate_connection()
    asked: dict[int, dict[str, str]] = {}
    while True:
        writer.write(link.data_to_send())
        data = await reader.read(65_536)
        if not data:
            break
        for event in link.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                asked[event.stream_id] = {str(k): str(v) for k, v in event.headers}
            elif isinstance(event, h2.events.DataReceived):
                link.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                headers = asked[event.stream_id]
                seen.append(headers)
                body = MODELS if headers[":method"] == "GET" else said("fine")
                link.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/json")])
                link.send_data(event.stream_id, json.dumps(body).encode(), end_stream=True)
    writer.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path, list[dict[str, str]]]]:
    cert, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    seen: list[dict[str, str]] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(lambda r, w: speak(r, w, seen), "127.0.0.1", 0, ssl=context)

    listening = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    yield f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}", cert, seen
    loop.call_soon_threadsafe(listening.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_http2_is_spoken_where_it_is_offered_and_the_key_is_not_logged(
    server: tuple[str, Path, list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TOY_KEY", KEY)
    url, cert, seen = server
    with HttpModel(url, key=Secret(env="TOY_KEY"), ca_file=str(cert)) as client:
        answers = list(client.generate(chats(12)))
    assert [a.text for a in answers] == ["fine"] * 12
    assert {headers["authorization"] for headers in seen} == {f"Bearer {KEY}"}
    assert len(seen) == 13
    assert not any(KEY in record.getMessage() for record in caplog.records)
