"""Embeddings over HTTP: order and length of vectors, retries, and errors without a word of anyone's text."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

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
from selpe.baselines.embedding import TextKernel
from selpe.errors import ModelError
from selpe.method.kernel import MultiChannelKernel
from selpe.method.set_scores import SetJudge
from selpe.models.encoders import Encoder
from selpe.models.encoders.alone import encode_alone
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.encoders.http import HttpEncoder
from selpe.models.http.transport import Timeouts
from selpe.models.store.store import ModelStore
from selpe.schema import Record
from small_world import SCHEMA, drawn

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


# -- private texts ---------------------------------------------------------------------------------------------------


class Waiting:
    """A server that is slow enough to have several requests at once, if anybody sends them."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __call__(self, call: Call) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        await embed(call)
        self.now -= 1


def by_kernel(remote: HttpEncoder) -> Callable[[Sequence[Record]], object]:
    return MultiChannelKernel(SCHEMA, remote).represent


def by_text_kernel(remote: HttpEncoder) -> Callable[[Sequence[Record]], object]:
    return TextKernel(SCHEMA, remote).represent


def by_judge(remote: HttpEncoder) -> Callable[[Sequence[Record]], object]:
    return SetJudge(
        SCHEMA, remote, MultiChannelKernel(SCHEMA, remote), [drawn(12), drawn(12, offset=70)], drawn(12)
    ).read


@pytest.mark.parametrize("sees", [by_kernel, by_text_kernel, by_judge])
def test_a_server_gets_private_texts_one_by_one_and_the_next_when_it_has_answered(sees: Any) -> None:
    waiting = Waiting()
    with FaultyServer(rest=waiting) as server, encoder(server.url) as remote:
        look = sees(remote)
        waiting.most, before = 0, len(server.posts)
        look(drawn(3, offset=400))
        asked = [call.body["input"] for call in server.posts[before:]]
    assert len(asked) >= 3
    assert {len(texts) for texts in asked} == {1}
    assert waiting.most == 1


def test_public_texts_are_sent_in_batches() -> None:
    with FaultyServer(rest=embed) as server, encoder(server.url) as remote:
        MultiChannelKernel(SCHEMA, remote).represent_pool(drawn(3))
        assert len(server.posts) == 1


def test_equal_private_texts_are_asked_once_and_every_text_gets_its_own_row() -> None:
    with FaultyServer(rest=embed) as server, encoder(server.url) as remote:
        rows = encode_alone(remote, ["b", "a", "b", "c"])
        assert [call.body["input"] for call in server.posts] == [["b"], ["a"], ["c"]]
        assert np.array_equal(rows, remote.encode(["b", "a", "b", "c"]))


def test_an_encoder_of_our_own_that_is_rowwise_gets_them_all_at_once() -> None:
    class Counting(HashingEncoder):
        calls = 0

        def encode(self, texts: Sequence[str]) -> Any:
            self.calls += 1
            return super().encode(texts)

    counting = Counting(16)
    assert encode_alone(counting, ["a", "b"]).shape == (2, 16)
    assert counting.calls == 1


@pytest.mark.real_model
def test_a_real_server_s_vectors_are_near_for_near_texts() -> None:
    gguf = ModelStore().ensure("smollm2")
    with start(gguf, parallel=1, threads=1, embedding=True) as server, HttpEncoder(server.base_url) as remote:
        rows = remote.encode(["a small cat", "a small cat!", "interest rates of the central bank rose in 1987"])
    assert rows.shape[1] == 576
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
