"""How servers are asked: the dialect of each is found and remembered, and settings it does not know are left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from faulty_server import MODELS, Behaviour, Call, FaultyServer, cut, hang_up, mixture, ok, said, status
from http_client import RECORD, SCHEMA, chat, echo, model
from selpe.errors import ModelError
from selpe.models import Request
from selpe.models.http.dialects import read

# --- what a reply says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "cached"),
    [
        ({"usage": {"prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": 64}}}, 64),
        ({"usage": {"prompt_tokens": 90}, "timings": {"cache_n": 70, "prompt_n": 20}}, 70),
        ({"usage": {"prompt_tokens": 90, "prompt_tokens_details": None}, "timings": "fast"}, 0),
        ({}, 0),
    ],
)
def test_cached_tokens_are_read_where_a_server_says_them(more: dict[str, Any], cached: int) -> None:
    found = read({"choices": [{"text": "x", "finish_reason": "stop"}], **more})
    assert found is not None
    assert found.cached_tokens == cached


# --- dialects --------------------------------------------------------------------------------------------------------


def speaks(understood: Callable[[str, Any], Any], *, otherwise: Behaviour | None = None) -> Behaviour:
    """A server that heeds a schema only where `understood(path, body)` finds one, and chats or refuses otherwise."""

    async def behave(call: Call) -> None:
        schema = understood(call.path, call.body)
        if schema is None:
            await (otherwise or ok("Sure! Here is a colour."))(call)
            return
        text = '{"probe": "zq-4071"}' if "probe" in schema["properties"] else RECORD
        if call.path.startswith("/api/"):
            await call.reply(200, {"done": True, "done_reason": "stop", "message": {"content": text}, "response": text})
        else:
            await call.reply(200, said(text))

    return behave


def _at(*path: str) -> Callable[[str, Any], Any]:
    def find(_: str, body: Any) -> Any:
        for step in path:
            body = body.get(step) if isinstance(body, dict) else None
        return body

    return find


SPOKEN: dict[str, Callable[[str, Any], Any]] = {
    "openai": _at("response_format", "json_schema", "schema"),
    "vllm": _at("structured_outputs", "json"),
    "vllm-guided": _at("guided_json"),
    "llamacpp-llguidance": lambda _, body: (
        json.loads(body["grammar"].partition("%json ")[2]) if "%json" in body.get("grammar", "") else None
    ),
    "llamacpp": lambda _, body: body["json_schema"] if isinstance(body.get("json_schema"), dict) else None,
    "llamacpp-format": _at("response_format", "schema"),
    "sglang": lambda _, body: json.loads(body["json_schema"]) if isinstance(body.get("json_schema"), str) else None,
    "ollama": lambda path, body: body.get("format") if path.startswith("/api/") else None,
}


@pytest.mark.parametrize("route", ["chat", "completion"])
@pytest.mark.parametrize("refuses", [False, True], ids=["ignores the rest", "refuses the rest"])
@pytest.mark.parametrize("dialect", SPOKEN)
def test_the_server_s_dialect_is_found_and_remembered(dialect: str, refuses: bool, route: str) -> None:
    behaviour = speaks(SPOKEN[dialect], otherwise=status(400) if refuses else None)
    request = chat(json_schema=SCHEMA) if route == "chat" else Request(prompt="A person:", json_schema=SCHEMA)
    learnt: dict[str, Mapping[str, Any]] = {}
    with FaultyServer(rest=behaviour) as server:
        with model(server.url, learnt=learnt.__setitem__) as client:
            assert [a.text for a in client.generate([request])] == [RECORD]
            probed = len(server.posts)
            assert [a.text for a in client.generate([request] * 3)] == [RECORD] * 3
            assert len(server.posts) == probed + 3
            (seen,) = client.endpoints()
        assert seen.dialects == {f"schema/{route}": dialect}
        assert seen.json_schema is True
        with model(server.url, known=learnt) as again:
            assert [a.text for a in again.generate([request])] == [RECORD]
            assert len(server.posts) == probed + 4


def test_what_a_server_refused_is_asked_again_by_the_next_run() -> None:
    """It may have been starting up, or be a newer one by then."""
    learnt: dict[str, Mapping[str, Any]] = {}
    with FaultyServer(rest=status(404)) as server:
        with model(server.url, learnt=learnt.__setitem__) as client:
            (answer,) = client.generate([chat(json_schema=SCHEMA)])
            assert answer.finish == "error"
        server.rest = ok("Sure!")
        with model(server.url, known=learnt, learnt=learnt.__setitem__) as client:
            assert client.capabilities().json_schema is False
        server.rest = speaks(SPOKEN["vllm"])
        with model(server.url, known=learnt) as client:
            assert client.capabilities().json_schema is True
            assert [a.text for a in client.generate([chat(json_schema=SCHEMA)])] == [RECORD]


def test_a_server_that_ignores_every_dialect_is_flagged_and_still_asked() -> None:
    with FaultyServer(rest=ok("Sure!")) as server, model(server.url) as client:
        assert client.capabilities().json_schema is False
        (answer,) = client.generate([chat(json_schema=SCHEMA)])
        (seen,) = client.endpoints()
    assert answer.text == "Sure!"
    assert seen.json_schema is False
    assert seen.noticed_unconstrained == 1


def test_a_server_that_crashes_on_a_probe_is_not_said_to_ignore_schemas() -> None:
    crashes = [status(500)] * len(SPOKEN)
    with FaultyServer(script=crashes, rest=speaks(SPOKEN["vllm"])) as server, model(server.url) as client:
        (answer,) = client.generate([chat(json_schema=SCHEMA)])
        assert answer.text == RECORD
        assert client.endpoints()[0].dialects == {"schema/chat": "vllm"}


def test_what_a_server_can_do_is_found_out_through_faults_that_pass() -> None:
    """Prompts are built on it: a run that found something else when it goes on would be another run."""
    speech = speaks(SPOKEN["sglang"])
    for seed in range(5):
        behaviour = mixture(speech, [status(500), cut, hang_up], share=0.3, seed=seed)
        listing = mixture(status(200, MODELS), [status(500), cut], share=0.3, seed=seed)
        with FaultyServer(rest=behaviour, models=listing) as server, model(server.url) as client:
            found = client.capabilities()
            assert (found.json_schema, found.context_length, found.chat_template) == (True, 4096, True)
            assert {name for name, spoken in client.endpoints()[0].dialects.items() if not spoken} == {
                "grammar/chat", "grammar/completion",
            }  # fmt: skip


def test_a_server_that_cannot_be_asked_what_it_can_do_is_an_error_and_not_a_guess() -> None:
    with (
        FaultyServer(models=status(500)) as server,
        model(server.url, patience=1e9, attempts=2) as client,
        pytest.raises(ModelError, match="the server failed"),
    ):
        client.capabilities()


def test_answers_that_stop_validating_have_the_dialect_probed_again() -> None:
    speech = [speaks(SPOKEN["openai"])]

    async def behave(call: Call) -> None:
        await speech[0](call)

    with FaultyServer(rest=behave) as server, model(server.url) as client:
        request = chat(json_schema=SCHEMA)
        assert [a.text for a in client.generate([request])] == [RECORD]
        speech[0] = speaks(SPOKEN["vllm"])  # the server was replaced behind our back
        for _ in range(4):
            texts = [a.text for a in client.generate([request])]
        assert texts == [RECORD]
        (seen,) = client.endpoints()
    assert seen.noticed_unconstrained == 3
    assert seen.dialects == {"schema/chat": "vllm"}


def test_constrained_requests_go_where_they_are_honoured() -> None:
    with (
        FaultyServer(rest=ok("Sure!")) as free,
        FaultyServer(rest=speaks(SPOKEN["openai"])) as strict,
        model(free.url, strict.url) as client,
    ):
        assert client.capabilities().json_schema is True
        asked = len(free.posts)
        texts = {a.text for a in client.generate([chat(json_schema=SCHEMA)] * 20)}
        assert len(free.posts) == asked
    assert texts == {RECORD}


def test_a_grammar_for_a_server_without_grammars_is_an_error_of_that_request() -> None:
    with FaultyServer() as server, model(server.url) as client:
        (answer,) = client.generate([chat(grammar='start: "a"')])
    assert answer.error is not None
    assert "grammar" in answer.error.message
    assert not answer.error.retryable


# --- settings that not every server knows ----------------------------------------------------------------------------


def strict_about(*unknown: str, words: str = "Unrecognized request arguments supplied: {}") -> Behaviour:
    async def behave(call: Call) -> None:
        found = [name for name in unknown if name in call.body]
        if found:
            await call.reply(400, {"error": {"message": words.format(", ".join(found)), "param": None}})
        else:
            await echo()(call)

    return behave


def test_settings_are_passed_as_asked() -> None:
    request = chat("x", temperature=0.7, min_p=0.05, top_p=0.9, seed=7, stop=("\n",), max_tokens=9)
    with FaultyServer(rest=echo()) as server, model(server.url) as client:
        list(client.generate([request]))
        body = server.posts[0].body
    wanted = {"temperature": 0.7, "min_p": 0.05, "top_p": 0.9, "seed": 7, "stop": ["\n"], "max_tokens": 9}
    assert wanted.items() <= body.items()
    assert body["model"] == "toy"


def test_unknown_settings_are_dropped_once_and_remembered() -> None:
    with FaultyServer(rest=strict_about("min_p", "top_k", "seed")) as server, model(server.url) as client:
        assert [a.finish for a in client.generate([chat("1")])] == ["stop"]
        asked = len(server.posts)
        assert [a.finish for a in client.generate([chat("2")])] == ["stop"]
        assert len(server.posts) == asked + 1
        assert client.endpoints()[0].dropped == ("min_p", "seed", "top_k")
        assert client.capabilities().seed is False


def test_settings_refused_without_being_named_are_found_by_leaving_out_the_unusual_ones() -> None:
    with FaultyServer(rest=strict_about("min_p", words="Bad request")) as server, model(server.url) as client:
        assert [a.finish for a in client.generate([chat("1")])] == ["stop"]
        assert client.endpoints()[0].dropped == ("min_p", "top_k")


def test_a_server_that_wants_max_completion_tokens_gets_them() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    with FaultyServer(rest=strict_about("max_tokens", words=words)) as server, model(server.url) as client:
        list(client.generate([chat("1", max_tokens=5)]))
        assert server.posts[-1].body["max_completion_tokens"] == 5


def test_a_value_out_of_range_is_an_error_and_nothing_is_dropped() -> None:
    bad = status(400, {"error": {"message": "'stop' must have at most 4 entries", "param": "stop"}})
    with FaultyServer(rest=bad) as server, model(server.url) as client:
        (answer,) = client.generate([chat("1", stop=("a",) * 5)])
        assert client.endpoints()[0].dropped == ()
    assert answer.finish == "error"


def test_where_a_server_knows_no_stop_the_text_is_cut_here() -> None:
    async def behave(call: Call) -> None:
        await (status(400, {"error": "unknown field stop"}) if "stop" in call.body else ok("one\ntwo"))(call)

    with FaultyServer(rest=behave) as server, model(server.url) as client:
        (answer,) = client.generate([chat(stop=("\n",))])
    assert answer.text == "one"


def test_a_server_without_completions_says_so_and_still_chats() -> None:
    async def behave(call: Call) -> None:
        await (echo() if call.path.endswith("/chat/completions") else status(404, {"detail": "Not Found"}))(call)

    with FaultyServer(rest=behave) as server, model(server.url) as client:
        assert client.capabilities().completion is False
        first, second = sorted(client.generate([Request(prompt="x"), chat("y")]), key=lambda a: a.finish)
    assert first.error is not None
    assert not first.error.retryable
    assert second.text == "y"


def test_capabilities_come_from_the_server() -> None:
    with FaultyServer(rest=speaks(SPOKEN["openai"])) as server, model(server.url, parallel=8) as client:
        found = client.capabilities()
    assert (found.context_length, found.parallel, found.json_schema, found.grammar) == (4096, 8, True, False)
