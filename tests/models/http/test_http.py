"""Models over HTTP: streams of answers, several endpoints, keys that stay secret, and a real server."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from faulty_server import MODELS, Behaviour, Call, FaultyServer, status
from http_client import SCHEMA, chat, chats, echo, model
from llama_server import start
from selpe.errors import ConfigError, ModelError
from selpe.models import Answer, ChatModel, Request
from selpe.models.http.model import HttpModel
from selpe.models.http.secret import Secret
from selpe.models.http.transport import Address

# --- streams ---------------------------------------------------------------------------------------------------------


def test_each_request_is_answered_once_and_carries_its_request() -> None:
    with FaultyServer(rest=echo()) as server, model(server.url) as client:
        assert isinstance(client, ChatModel)
        answers = list(client.generate(chats(60)))
    assert sorted(int(a.text) for a in answers) == list(range(60))
    assert all(a.text == a.request.key and a.finish == "stop" for a in answers)
    assert all((a.prompt_tokens, a.completion_tokens) == (3, 4) and a.seconds > 0 for a in answers)


def test_requests_are_pulled_only_as_far_as_the_window() -> None:
    pulled = 0

    def endless() -> Iterator[Request]:
        nonlocal pulled
        while True:
            pulled += 1
            yield chat(str(pulled))

    with FaultyServer(rest=echo()) as server, model(server.url, parallel=4, max_in_flight=6) as client:
        stream = client.generate(endless())
        for taken in range(1, 40):
            next(stream)
            assert pulled <= taken + 6
        stream.close()  # type: ignore[attr-defined]
        assert server.busiest <= 4


def test_follow_ups_are_served_before_new_requests() -> None:
    def follow(answer: Answer) -> list[Request]:
        return [chat(answer.request.key + "b")] if not answer.request.key.endswith("b") else []

    with FaultyServer(rest=echo()) as server, model(server.url, parallel=1, max_in_flight=1) as client:
        answers = list(client.generate(chats(3), follow=follow))
    assert [a.request.key for a in answers] == ["0", "0b", "1", "1b", "2", "2b"]


def test_cancelling_ends_the_stream_and_names_what_was_left() -> None:
    cancel = threading.Event()
    with FaultyServer(script=[echo()], rest=echo(after=30)) as server, model(server.url) as client:
        stream = client.generate((chat(str(i)) for i in range(1000)), cancel=cancel)
        first = next(stream)
        began = time.monotonic()
        cancel.set()
        rest = list(stream)
        assert time.monotonic() - began < 5
    assert first.finish == "stop"
    assert rest
    assert {a.finish for a in rest} == {"cancelled"}
    assert len(rest) < 20


def test_an_error_in_the_caller_s_generator_comes_through_and_the_model_stays_usable() -> None:
    def broken() -> Iterator[Request]:
        yield chat("1")
        raise ZeroDivisionError

    with FaultyServer(rest=echo()) as server, model(server.url) as client:
        with pytest.raises(ZeroDivisionError):
            list(client.generate(broken()))
        assert [a.text for a in client.generate([chat("2")])] == ["2"]


def test_a_closed_model_says_so() -> None:
    with FaultyServer() as server, model(server.url) as client:
        list(client.generate(chats(1)))
    with pytest.raises(ModelError, match="closed"):
        list(client.generate(chats(1)))
    client.close()


def test_one_bad_request_does_not_touch_the_others() -> None:
    async def picky(call: Call) -> None:
        bad = call.body["messages"][-1]["content"].endswith(" 3")
        await (status(400) if bad else echo())(call)

    with FaultyServer(rest=picky) as server, model(server.url) as client:
        answers = {a.request.key: a for a in client.generate(chats(8))}
    assert {k for k, a in answers.items() if a.finish == "error"} == {"3"}
    assert len(answers) == 8


def test_a_server_is_not_called_dead_when_only_requests_are_left_that_it_fails_at() -> None:
    async def picky(call: Call) -> None:
        bad = call.body["messages"][-1]["content"].startswith("hello bad")
        await (status(500) if bad else echo())(call)

    requests = [*chats(4), *(chat(f"bad{i}") for i in range(12))]
    with FaultyServer(rest=picky) as server, model(server.url, patience=100.0, parallel=2) as client:
        answers = list(client.generate(requests))
    assert {a.request.key for a in answers if a.finish == "error"} == {f"bad{i}" for i in range(12)}
    assert all(a.error is not None and a.error.retryable for a in answers if a.finish == "error")


# --- several endpoints -----------------------------------------------------------------------------------------------


def test_when_one_of_two_endpoints_dies_midway_all_answers_still_arrive_once() -> None:
    with FaultyServer(rest=echo(after=0.01)) as lasting, FaultyServer(rest=echo(after=0.01)) as dying:
        with model(lasting.url, dying.url) as client:
            answers = []
            for answer in client.generate(chats(120)):
                answers.append(answer)
                if len(answers) == 30:
                    dying.stop()
            states = {s.host: s.state for s in client.endpoints()}
        assert len(dying.posts) > 0
    assert sorted(int(a.request.key) for a in answers) == list(range(120))
    assert all(a.finish == "stop" and a.text == a.request.key for a in answers)
    assert states[f"127.0.0.1:{dying.port}"] == "open"
    assert states[f"127.0.0.1:{lasting.port}"] == "closed"


def test_the_faster_endpoint_gets_more_of_the_work() -> None:
    with FaultyServer(rest=echo(after=0.004)) as fast, FaultyServer(rest=echo(after=0.5)) as slow:
        with model(slow.url, fast.url, parallel=4) as client:
            list(client.generate(chats(120)))
        assert len(fast.posts) > 2 * len(slow.posts)
        assert len(slow.posts) > 0


def test_a_benched_endpoint_is_looked_at_again_and_taken_back() -> None:
    with FaultyServer(script=[status(500)] * 3, rest=echo()) as server, model(server.url, parallel=1) as client:
        answers = list(client.generate(chats(10)))
        looks = [call for call in server.calls if call.method == "GET"]
        assert client.endpoints()[0].state == "closed"
    assert {a.finish for a in answers} == {"stop"}
    assert len(looks) >= 2  # the introduction, and the look before it was trusted again


def test_an_endpoint_with_a_refused_key_is_left_out_for_good() -> None:
    with FaultyServer(models=status(401)) as closed, FaultyServer(rest=echo()) as open_:
        with model(closed.url, open_.url) as client:
            answers = list(client.generate(chats(20)))
        assert [a.finish for a in answers] == ["stop"] * 20
        assert closed.posts == []


def test_asking_for_capabilities_does_not_wait_for_an_endpoint_that_is_down() -> None:
    with FaultyServer(rest=echo()) as gone, FaultyServer(rest=echo()) as server:
        gone.stop()
        with model(gone.url, server.url, patience=1e9) as client:
            assert client.capabilities().context_length == 4096


def test_when_all_endpoints_are_dead_the_error_names_each() -> None:
    with FaultyServer(models=status(401)) as first, FaultyServer(models=status(500)) as second:
        with model(first.url, second.url, patience=5.0) as client, pytest.raises(ModelError) as raised:
            list(client.generate(chats(3)))
        assert f"127.0.0.1:{first.port}" in str(raised.value)
        assert f"127.0.0.1:{second.port}" in str(raised.value)
    assert raised.value.retryable
    assert "resume" in raised.value.hint


def test_the_number_of_requests_at_once_falls_when_the_server_turns_them_away() -> None:
    def narrow(slots: int) -> tuple[Behaviour, list[int]]:
        seen: list[int] = []
        busy = 0

        async def behave(call: Call) -> None:
            nonlocal busy
            if busy >= slots:
                seen.append(1)
                await call.reply(429, {}, {"Retry-After": "0"})
                return
            busy += 1
            await asyncio.sleep(0.05)
            busy -= 1
            await echo()(call)

        return behave, seen

    behaviour, turned_away = narrow(3)
    with FaultyServer(rest=behaviour) as server, model(server.url, budget=1e9) as client:
        answers = list(client.generate(chats(80)))
        assert client.endpoints()[0].parallel <= 12
    assert [a.finish for a in answers] == ["stop"] * 80
    assert 0 < len(turned_away) < 80


# --- what is asked, what is estimated --------------------------------------------------------------------------------


def test_the_model_s_name_is_taken_from_the_server_where_none_is_given() -> None:
    with FaultyServer(rest=echo()) as server, HttpModel(server.url) as client:
        list(client.generate(chats(1)))
        assert server.posts[0].body["model"] == MODELS["data"][0]["id"]  # type: ignore[index]


def test_tokens_are_counted_by_the_server_once_or_estimated() -> None:
    with FaultyServer(rest=status(200, {"tokens": [1, 2, 3]})) as server, model(server.url) as client:
        assert [client.count_tokens("some words") for _ in range(3)] == [3, 3, 3]
        assert [call.path for call in server.posts] == ["/tokenize"]
    with FaultyServer(rest=status(404)) as server, model(server.url) as client:
        assert client.count_tokens("x" * 40) == 10
        assert client.count_tokens("y" * 44) == 11
        assert len(server.posts) == 1


@pytest.mark.parametrize(
    ("url", "base", "root"),
    [
        ("http://h:1", "http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1/v1", "http://h:1"),
        ("https://h/v1/chat/completions", "https://h/v1", "https://h"),
        ("https://h/api/deployments/x", "https://h/api/deployments/x", "https://h/api/deployments/x"),
    ],
)
def test_addresses_are_understood_in_their_usual_spellings(url: str, base: str, root: str) -> None:
    address = Address.parse(url)
    assert (address.base, address.root) == (base, root)


@pytest.mark.parametrize("url", ["ftp://h", "h:80", "", "http://", "http://user:pass@h/v1"])
def test_addresses_that_cannot_be_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        HttpModel(url)
    assert "pass@" not in str(raised.value)


# --- keys ------------------------------------------------------------------------------------------------------------

KEY = "sk-test-4071-SECRET"


@pytest.fixture(params=["env", "file"])
def key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Secret:
    if request.param == "env":
        monkeypatch.setenv("TOY_KEY", KEY)
        return Secret(env="TOY_KEY")
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    return Secret(file=path)


def test_the_key_reaches_the_server_and_nothing_else(key: Secret, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    leak = status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    with FaultyServer(rest=leak) as server, model(server.url, key=key) as client:
        with pytest.raises(ModelError) as raised:
            list(client.generate(chats(2)))
        assert server.posts[0].headers["authorization"] == f"Bearer {KEY}"
        told = [str(raised.value), repr(raised.value.as_dict()), repr(client), repr(client.endpoints()), repr(key)]
        told += traceback.format_exception(raised.value)
    told += [record.getMessage() for record in caplog.records]
    told.append(repr(pickle.dumps((key, raised.value))))
    assert not any(KEY in text for text in told)
    with pytest.raises(TypeError):
        pickle.dumps(client)


def test_a_missing_key_is_an_error_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    for source in (Secret(env="NO_SUCH_KEY"), Secret(file=tmp_path / "absent")):
        with FaultyServer() as server, model(server.url, key=source) as client:
            with pytest.raises(ConfigError):
                list(client.generate(chats(1)))
            assert server.calls == []


# --- a real server ---------------------------------------------------------------------------------------------------


@pytest.mark.real_model
def test_a_real_llama_cpp_server_chats_completes_and_obeys_schemas(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_KEY", KEY)
    with (
        start(smollm2, parallel=4, threads=1, api_key=KEY) as server,
        HttpModel(server.base_url, key=Secret(env="TOY_KEY")) as client,
    ):
        found = client.capabilities()
        assert (found.json_schema, found.grammar, found.completion, found.seed) == (True,) * 4
        assert found.context_length == 1024
        requests = [
            chat("free", max_tokens=8, temperature=0.0),
            Request(prompt="One, two, three,", max_tokens=4, temperature=0.0, key="text"),
            Request(prompt="Answer:", grammar='start: "yes" | "no"\n', max_tokens=4, key="grammar"),
            *(chat("record", json_schema=SCHEMA, max_tokens=60, seed=i) for i in range(4)),
            *(Request(prompt="Person:", json_schema=SCHEMA, max_tokens=60, seed=i, key="record") for i in range(4)),
        ]
        answers = list(client.generate(requests))
        assert client.endpoints()[0].noticed_unconstrained == 0
        assert client.count_tokens("hello there") == 2
        again = [a.text for a in client.generate([requests[1]])]
    assert {a.error for a in answers} == {None}
    by_key = {a.request.key: a for a in answers}
    assert by_key["text"].text.startswith(" four")
    assert again == [by_key["text"].text]
    assert by_key["grammar"].text in ("yes", "no")
    assert by_key["free"].finish == "length"
    records = [json.loads(a.text) for a in answers if a.request.key == "record"]
    assert len(records) == 8
    for record in records:
        jsonschema.validate(record, SCHEMA)


@pytest.mark.real_model
def test_a_real_server_that_is_killed_midway_loses_nothing_to_its_neighbour(smollm2: Path) -> None:
    with (
        start(smollm2, parallel=2, threads=1) as dying,
        start(smollm2, parallel=2, threads=1) as lasting,
        HttpModel([dying.base_url, lasting.base_url], parallel=2) as client,
    ):
        requests = [Request(prompt="One, two,", max_tokens=6, seed=i, key=str(i)) for i in range(24)]
        answers = []
        for answer in client.generate(requests):
            answers.append(answer)
            if len(answers) == 6:
                dying.kill()
    assert sorted(int(a.request.key) for a in answers) == list(range(24))
    assert {a.finish for a in answers} <= {"stop", "length"}
