"""transformers on the real embedded model, read from its GGUF file."""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selpe.errors import ModelError, PromptTooLongError
from selpe.models.base import Answer, ChatModel, Message, Request
from selpe.models.hf import HFModel

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "colour": {"enum": ["red", "green"]},
    },
    "required": ["name", "age", "colour"],
    "additionalProperties": False,
}


def test_without_torch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".", maxsplit=1)[0] in ("torch", "transformers"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModelError) as caught:
        HFModel(tmp_path)
    assert 'pip install "selpe[hf]"' in caught.value.hint


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[HFModel]:
    pytest.importorskip("torch", reason="the extra [hf] (torch, transformers) is not installed")
    pytest.importorskip("transformers", reason="the extra [hf] (torch, transformers) is not installed")
    opened = HFModel(smollm2, batch=4, device="cpu")
    yield opened
    opened.close()


pytestmark = pytest.mark.real_model


def test_it_is_a_chat_model_and_says_what_it_can_do(model: HFModel) -> None:
    assert isinstance(model, ChatModel)
    can = model.capabilities()
    assert (can.grammar, can.seed, can.chat_template, can.parallel) == (True, True, True, 4)
    assert can.context_length == 8192
    assert model.count_tokens("The capital of France is") == 5


def test_greedy_text_does_not_depend_on_longer_neighbours(model: HFModel) -> None:
    request = Request(prompt="The capital of France is", max_tokens=8, temperature=0.0)
    (alone,) = model.generate([request])
    longer = [Request(prompt="A long story about a dog: " * k, max_tokens=5) for k in (3, 5, 9)]
    (beside,) = (answer for answer in model.generate([*longer, request]) if answer.request == request)
    assert alone.text == beside.text
    assert "Paris" in alone.text
    assert (alone.finish, alone.completion_tokens, alone.prompt_tokens) == ("length", 8, 5)


def test_seeds_decide_the_sample(model: HFModel) -> None:
    def texts(*seeds: int) -> list[str]:
        batch = [Request(prompt="Once upon a time", max_tokens=10, seed=seed) for seed in seeds]
        return [answer.text for answer in model.generate(batch)]

    first, second, third = texts(1, 2, 1)
    assert first == third != second


def test_json_schema_and_grammar_hold_within_one_batch(model: HFModel) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    chat = (Message("user", "Invent a person."),)
    batch = [
        Request(prompt="A person: ", json_schema=PERSON, max_tokens=80, seed=1),
        Request(messages=chat, json_schema=PERSON, max_tokens=80, seed=2),
        Request(prompt="Yes or no? ", grammar='start: "yes" | "no"', seed=3, key="choice"),
        Request(prompt="Hello", max_tokens=3, key="free"),
    ]
    for answer in model.generate(batch):
        if answer.request.json_schema is not None:
            assert answer.finish == "stop", answer
            jsonschema.validate(json.loads(answer.text), PERSON)
        elif answer.request.key == "choice":
            assert (answer.text in ("yes", "no"), answer.finish) == (True, "stop")
        else:
            assert (answer.completion_tokens, answer.finish) == (3, "length")


def test_stop_strings_end_the_text_and_are_left_out(model: HFModel) -> None:
    request = Request(prompt="Count: one, two, three,", stop=(",",), temperature=0.0, max_tokens=20)
    (answer,) = model.generate([request])
    assert answer.finish == "stop"
    assert "," not in answer.text


def test_errors_concern_their_request_alone(model: HFModel) -> None:
    long, broken, good = model.generate(
        [
            Request(prompt="word " * 9000, max_tokens=2),
            Request(prompt="x", grammar="start: missing"),
            Request(prompt="Hello", max_tokens=2),
        ]
    )
    assert isinstance(long.error, PromptTooLongError)
    assert isinstance(broken.error, ModelError)
    assert "grammar" in broken.error.message
    assert good.finish == "length"


def test_followers_lead_the_next_batch(model: HFModel) -> None:
    pulled = 0

    def requests() -> Iterator[Request]:
        nonlocal pulled
        for k in range(8):
            pulled += 1
            yield Request(prompt="Hello", max_tokens=1, key=str(k))

    def follow(answer: Answer) -> list[Request]:
        return [Request(prompt="Bye", max_tokens=1, key="follower")] if answer.request.key == "0" else []

    keys = []
    for answer in model.generate(requests(), follow=follow):
        keys.append(answer.request.key)
        assert pulled <= len(keys) + 4
    assert keys.index("follower") == 4
    assert len(keys) == 9


def test_cancel_ends_the_batch_and_the_stream(model: HFModel) -> None:
    cancel = threading.Event()
    endless = (Request(prompt="Tell a long story.", max_tokens=3000, seed=k) for k in range(10**9))
    timer = threading.Timer(1.0, cancel.set)
    timer.start()
    finishes = [answer.finish for answer in model.generate(endless, cancel=cancel)]
    timer.join()
    assert "cancelled" in finishes
    assert len(finishes) <= 12
