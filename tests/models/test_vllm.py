"""The way through vLLM's engine loop, on a stand-in for vLLM that keeps to the part of its interface that we use."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from selpe.errors import ConfigError
from selpe.models.base import Answer, Message, Request
from selpe.models.open import open_model
from selpe.models.vllm import VllmModel


class Tokenizer:
    chat_template = "yes"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) for letter in text]

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> str:
        return "".join(f"<{turn['role']}>{turn['content']}" for turn in turns)


class Engine:
    """Ends one request a step, the last one first; the text is the prompt backwards."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[list[int], Any]] = {}
        self.most = 0
        self.aborted: list[str] = []

    def get_model_config(self) -> Any:
        return SimpleNamespace(max_model_len=64)

    def add_request(self, key: str, prompt: dict[str, list[int]], params: Any) -> None:
        self.running[key] = (prompt["prompt_token_ids"], params)
        self.most = max(self.most, len(self.running))

    def step(self) -> list[Any]:
        key, (tokens, params) = self.running.popitem()
        text = "".join(map(chr, reversed(tokens)))
        finish = "length" if len(text) > params.max_tokens else "stop"
        written = SimpleNamespace(text=text[: params.max_tokens], finish_reason=finish, token_ids=tokens)
        return [SimpleNamespace(request_id=key, finished=True, outputs=[written], prompt_token_ids=tokens)]

    def abort_request(self, keys: list[str]) -> None:
        self.aborted += keys


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made, module, sampling = Engine(), ModuleType("vllm"), ModuleType("vllm.sampling_params")
    fields: Any = module
    fields.EngineArgs = SimpleNamespace
    fields.LLMEngine = SimpleNamespace(from_engine_args=lambda _: made)
    fields.SamplingParams = SimpleNamespace
    fields.sampling_params = sampling
    fields.__spec__ = SimpleNamespace()
    structured: Any = sampling
    structured.StructuredOutputsParams = lambda **given: given
    transformers: Any = ModuleType("transformers")
    transformers.AutoTokenizer = SimpleNamespace(from_pretrained=lambda _: Tokenizer())
    for name, one in {"vllm": module, "vllm.sampling_params": sampling, "transformers": transformers}.items():
        monkeypatch.setitem(sys.modules, name, one)
    for name in ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_answers_follow_their_requests_and_as_many_run_as_fit(engine: Engine) -> None:
    model = open_model("vllm:org/name", parallel=3)
    requests = [Request(prompt=f"p{i}", key=str(i), max_tokens=8) for i in range(10)]

    def follow(answer: Answer) -> list[Request]:
        first = answer.request.prompt.startswith("p")
        return [Request(messages=(Message("user", "more"),), key=f"{answer.request.key}+")] if first else []

    answers = {answer.request.key: answer for answer in model.generate(requests, follow=follow)}
    assert {key for key in answers if "+" not in key} == {str(i) for i in range(10)}
    assert len(answers) == 20
    assert answers["3"].text == "3p"
    assert answers["3+"].text == "erom>resu<"
    assert engine.most == 3
    assert (model.name, model.capabilities().context_length, model.count_tokens("four")) == ("vllm:org/name", 64, 4)


def test_requests_are_put_as_they_are_meant(engine: Engine) -> None:
    schema = {"type": "object", "x-guidance": {"whitespace_flexible": False}}
    seen: list[Any] = []
    add = engine.add_request
    engine.add_request = lambda key, prompt, params: (seen.append(params), add(key, prompt, params))[1]  # type: ignore[method-assign,func-returns-value]
    request = Request(prompt="x" * 60, json_schema=schema, temperature=0.5, min_p=0.1, seed=7, stop=("\n",))
    too_long = Request(prompt="x" * 64)
    cut, refused = sorted(VllmModel("m").generate([request, too_long]), key=lambda one: one.finish, reverse=True)
    assert (seen[0].temperature, seen[0].min_p, seen[0].seed, seen[0].stop) == (0.5, 0.1, 7, ["\n"])
    assert seen[0].max_tokens == 4  # as much as there is room for
    assert seen[0].structured_outputs == {"json": {"type": "object"}}
    assert (cut.finish, refused.finish) == ("length", "error")


def test_cancelling_aborts_what_runs(engine: Engine) -> None:
    cancel = threading.Event()
    stream = VllmModel("m", parallel=4).generate([Request(prompt=f"p{i}") for i in range(9)], cancel=cancel)
    next(stream)
    cancel.set()
    assert [answer.finish for answer in stream] == ["cancelled"] * 3
    assert len(engine.aborted) == 3


def test_without_vllm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match="vLLM is not installed"):
        open_model("vllm:org/name")
