"""Embeddings over HTTP: order and length of vectors, retries, and errors without a word of anyone's text."""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "llm"))  # the faulty server lives with the models' tests

from faulty_server import (
    Behaviour,
    Call,
    FastClock,
    FaultyServer,
    cut,
    garbage,
    hang,
    huge,
    raw,
    status,
)
from llama_server import start
from selpe.encode import Encoder
from selpe.encode.http import HttpEncoder
from selpe.errors import ModelError
from selpe.llm.models import ModelStore
from selpe.llm.transport import Timeouts

PRIVATE = "the patient Zebulon Quark has gout"


def vector(text: str) -> list[float]:
    """Some vector that depends on the text alone."""
    return [float(byte) + 1.0 for byte in hashlib.sha256(text.encode()).digest()[:8]]


async def embed(call: Call) -> None:
    """One vector per text, handed back in reverse order, as the protocol allows."""
    items = [{"index": i, "embedding": vector(text)} for i, text in enumerate(call.body["input"])]
    await call.reply(200, {"data": items[::-1]})


def encoder(url: str, **settings: Any) -> HttpEncoder:
    usual: dict[str, Any] = {
        "clock": FastClock(),
        "timeouts": Timeouts(2.0, 0.25, 0.5),
        "attempts": 3,
        "patience": 20.0,
    }
    return HttpEncoder(url, "toy", **(usual | settings))


def test_rows_come_in_the_order_of_the_texts_and_have_length_one() -> None:
    texts = [f"text {i}" for i in range(50)]
    with FaultyServer(rest=embed) as server, encoder(server.url, batch=7) as remote:
        rows = remote.encode(texts)
        assert isinstance(remote, Encoder)
        assert (remote.dimension, remote.remote) == (8, f"127.0.0.1:{server.port}")
        assert sum(len(call.body["input"]) for call in server.posts) == 50
    wanted = np.asarray([vector(text) for text in texts], dtype=np.float32)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, wanted, atol=1e-6)
    assert rows.dtype == np.float32


def test_no_texts_give_no_rows_and_send_nothing_private() -> None:
    with FaultyServer(rest=embed) as server, encoder(server.url) as remote:
        assert remote.encode([]).shape == (0, 8)
        assert [call.body["input"] for call in server.posts] == [["dimension"]]


def test_empty_texts_are_replaced_because_servers_refuse_them() -> None:
    with FaultyServer(rest=embed) as server, encoder(server.url) as remote:
        assert remote.encode(["", "  ", "x"]).shape == (3, 8)
        assert all(text.strip() for text in server.posts[0].body["input"])


def test_a_batch_that_is_too_large_for_the_server_is_halved_from_then_on() -> None:
    async def small(call: Call) -> None:
        await (embed if len(call.body["input"]) <= 4 else status(413))(call)

    with FaultyServer(rest=small) as server, encoder(server.url, batch=16) as remote:
        assert remote.encode([str(i) for i in range(16)]).shape == (16, 8)
        refused = len(server.posts)
        assert remote.encode([str(i) for i in range(16)]).shape == (16, 8)
        assert len(server.posts) == refused + 4


@pytest.mark.parametrize(
    "fault",
    [status(429), status(500), status(503), hang, cut, garbage, raw(b"{"), raw(b'{"data": []}')],
    ids=["429", "500", "503", "hang", "cut", "garbage", "not json", "too few rows"],
)
def test_a_fault_that_passes_is_survived(fault: Behaviour) -> None:
    with FaultyServer(script=[fault, fault], rest=embed) as server, encoder(server.url) as remote:
        assert remote.encode(["a", "b"]).shape == (2, 8)


def answer(*rows: list[float]) -> Behaviour:
    return status(200, {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]})


def echoing(code: int) -> Behaviour:
    """A server that repeats the request in its error, as some do."""

    async def behave(call: Call) -> None:
        await call.reply(code, {"error": {"message": f"cannot embed {call.body['input']}"}})

    return behave


@pytest.mark.parametrize(
    "fault",
    [
        echoing(400),
        echoing(401),
        echoing(404),
        echoing(422),
        echoing(500),
        echoing(503),
        echoing(200),
        hang,
        cut,
        garbage,
        huge(4 << 20),
        raw(PRIVATE.encode()),
        answer([0.0, 0.0]),
        answer([float("nan"), 1.0]),
        status(200, {"data": [{"index": 1, "embedding": [1.0]}]}),
        status(200, {"data": [{"index": 0, "embedding": PRIVATE}]}),
    ],
)
def test_no_error_holds_a_word_of_the_texts(fault: Behaviour, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FaultyServer(rest=fault) as server, encoder(server.url, max_body=1 << 20) as remote:
        with pytest.raises(ModelError) as raised:
            remote.encode([PRIVATE])
        assert PRIVATE in server.posts[0].body["input"]
    error = raised.value
    told = [str(error), error.hint, repr(vars(error)), *traceback.format_exception(error), repr(pickle.dumps(error))]
    told += [record.getMessage() for record in caplog.records]
    assert not any("Zebulon" in text or "Quark" in text for text in told)
    assert error.__cause__ is None
    assert error.__context__ is None


def test_half_a_surrogate_pair_is_sent_as_it_is_and_raises_nothing_that_quotes_it() -> None:
    with FaultyServer(rest=answer([1.0, 2.0])) as server, encoder(server.url) as remote:
        assert remote.encode(["Zebulon \ud800"]).shape == (1, 2)
        assert server.posts[0].body["input"] == ["Zebulon \ud800"]


def test_a_server_whose_vectors_change_their_length_is_an_error() -> None:
    with (
        FaultyServer(script=[answer([1.0, 2.0])], rest=answer([1.0, 2.0, 3.0])) as server,
        encoder(server.url) as remote,
    ):
        assert remote.encode(["a"]).shape == (1, 2)
        with pytest.raises(ModelError, match="Got 3 instead"):
            remote.encode(["a"])


@pytest.mark.real_model
def test_a_real_server_s_vectors_are_near_for_near_texts() -> None:
    gguf = ModelStore().ensure("smollm2")
    with start(gguf, parallel=1, threads=1, embedding=True) as server, HttpEncoder(server.base_url) as remote:
        rows = remote.encode(["a small cat", "a small cat!", "interest rates of the central bank rose in 1987"])
    assert rows.shape[1] == 576
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
