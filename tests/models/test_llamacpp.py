"""llama.cpp in this process, on the real embedded model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import jsonschema
import pytest

from selpe.errors import ModelError, ModelNotFoundError, PromptTooLongError
from selpe.models.base import Answer, ChatModel, Message, Request
from selpe.models.llamacpp import LlamaCppModel

pytest.importorskip("xllamacpp", reason="the llama.cpp engine is not installed")
pytestmark = pytest.mark.real_model

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "colour": {"enum": ["red", "green"]},
    },
    "required": ["name", "age", "colour"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[LlamaCppModel]:
    with LlamaCppModel(smollm2, parallel=4, context=512, threads=1) as opened:
        yield opened


def test_it_is_a_chat_model_and_says_what_it_can_do(model: LlamaCppModel) -> None:
    assert isinstance(model, ChatModel)
    can = model.capabilities()
    assert (can.grammar, can.json_schema, can.seed, can.chat_template) == (True, True, True, True)
    assert (can.context_length, can.parallel) == (512, 4)


def test_greedy_text_is_the_same_twice_and_counts_its_tokens(model: LlamaCppModel) -> None:
    request = Request(prompt="The capital of France is", max_tokens=6, temperature=0.0, key="k")
    first, second = model.generate([request, request])
    assert first.text == second.text
    assert "Paris" in first.text
    assert (first.finish, first.completion_tokens, first.request.key) == ("length", 6, "k")
    assert first.prompt_tokens == model.count_tokens("The capital of France is") == 5


def test_seeds_decide_the_sample(model: LlamaCppModel) -> None:
    def text(seed: int) -> str:
        (answer,) = model.generate([Request(prompt="Once upon a time", max_tokens=12, seed=seed)])
        return answer.text

    assert text(2**40 + 3) == text(2**40 + 3)
    assert text(1) != text(2)


def test_json_schema_holds_for_prompts_and_chats(model: LlamaCppModel) -> None:
    chat = (Message("user", "Invent a person."),)
    prompts = [Request(prompt="A person: ", json_schema=PERSON, max_tokens=90, seed=k) for k in range(3)]
    chats = [Request(messages=chat, json_schema=PERSON, max_tokens=90, seed=k) for k in range(3)]
    answers = list(model.generate(prompts + chats))
    assert len(answers) == 6
    for answer in answers:
        assert answer.finish == "stop", answer
        jsonschema.validate(json.loads(answer.text), PERSON)


def test_lark_grammar_holds(model: LlamaCppModel) -> None:
    answers = list(
        model.generate([Request(prompt="Yes or no? ", grammar='start: "yes" | "no"', seed=k) for k in range(4)])
    )
    assert {answer.text for answer in answers} <= {"yes", "no"}


@pytest.mark.parametrize(
    "request_",
    [
        Request(prompt="x", grammar="start: missing"),
        Request(prompt="x", json_schema={"type": "nonsense"}),
    ],
)
def test_a_broken_grammar_is_an_error_of_its_request_alone(model: LlamaCppModel, request_: Request) -> None:
    both = [request_, Request(prompt="Hello", max_tokens=2)]
    answers = {answer.finish: answer for answer in model.generate(both)}
    assert isinstance(answers["error"].error, ModelError)
    assert "grammar" in answers["error"].error.message
    assert answers["length"].completion_tokens == 2


def test_a_prompt_longer_than_the_window_is_a_clear_error(model: LlamaCppModel) -> None:
    (answer,) = model.generate([Request(prompt="word " * 900, max_tokens=4)])
    assert answer.finish == "error"
    assert isinstance(answer.error, PromptTooLongError)
    assert "512" in answer.error.message


def test_stop_strings_end_the_text_and_are_left_out(model: LlamaCppModel) -> None:
    request = Request(prompt="Count: one, two, three,", stop=(",",), temperature=0.0, max_tokens=20)
    (answer,) = model.generate([request])
    assert answer.finish == "stop"
    assert "," not in answer.text


def test_followers_are_served_before_new_requests_are_pulled(model: LlamaCppModel) -> None:
    pulled = 0

    def requests() -> Iterator[Request]:
        nonlocal pulled
        for k in range(12):
            pulled += 1
            yield Request(prompt="Hello", max_tokens=2, key=f"first-{k}")

    def follow(answer: Answer) -> list[Request]:
        return [Request(prompt="Bye", max_tokens=2, key="second")] if answer.request.key == "first-0" else []

    stream = model.generate(requests(), follow=follow)
    next(stream)
    assert pulled <= 5  # one batch of four slots and at most one more
    keys = [answer.request.key for answer in stream]
    assert "second" in keys[:9]
    assert len(keys) == 12


def test_cancel_ends_the_stream_soon_and_the_model_lives_on(model: LlamaCppModel) -> None:
    cancel = threading.Event()
    endless = (Request(prompt=f"Tell a long story number {k}.", max_tokens=400) for k in range(10**9))
    finishes = []
    threading.Timer(0.6, cancel.set).start()
    for answer in model.generate(endless, cancel=cancel):
        finishes.append(answer.finish)
    assert "cancelled" in finishes
    assert len(finishes) < 50
    (after,) = model.generate([Request(prompt="Hello", max_tokens=2)])
    assert after.finish == "length"


def test_leaving_the_stream_early_frees_the_slots(model: LlamaCppModel) -> None:
    stream = model.generate(Request(prompt="Story:", max_tokens=400 if k else 1) for k in range(4))
    assert next(stream).completion_tokens == 1
    del stream
    (after,) = model.generate([Request(prompt="Hello", max_tokens=2)])
    assert after.finish == "length"


def test_the_port_is_closed_to_others(model: LlamaCppModel) -> None:
    address = model._running().listening_address
    assert address.startswith("http://127.0.0.1:")
    assert httpx.get(f"{address}/props", trust_env=False).status_code == 401


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such model file"):
        LlamaCppModel(tmp_path / "none.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(ModelError, match="cannot load") as caught:
        LlamaCppModel(broken)
    assert caught.value.where == str(broken)


def test_a_closed_model_says_so(smollm2: Path) -> None:
    model = LlamaCppModel(smollm2, parallel=1, context=128)
    model.close()
    with pytest.raises(ModelError, match="closed"):
        next(model.generate([Request(prompt="Hello")]))
