"""vLLM in this process: for nodes with GPUs that hold the weights themselves instead of asking a server.

vLLM is no dependency of ours; it is installed beside SelPE on the nodes that have a use for it. The same requests go
through its engine loop as through any other, so that stage II of one record overlaps with stage I of another.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from selpe.errors import ConfigError, PromptTooLongError
from selpe.models.base import Answer, Capabilities, Finish, Follow, Request

PARALLEL = 256  # as many sequences as vLLM runs at once by default


class VllmModel:
    """A ChatModel on vLLM's own engine. `settings` go to `vllm.EngineArgs`."""

    def __init__(self, model: str, *, parallel: int = PARALLEL, **settings: Any) -> None:
        if find_spec("vllm") is None:
            raise ConfigError(
                "vLLM is not installed", where=f"vllm:{model}", hint="pip install vllm, on every node that has a worker"
            )
        # vLLM reports its use to its makers unless it is told not to before it is imported.
        os.environ |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        import vllm
        from transformers import AutoTokenizer

        self._model = model
        self._parallel = parallel
        self._vllm: Any = vllm
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
        arguments = vllm.EngineArgs(model=model, max_num_seqs=parallel, enable_prefix_caching=True, **settings)
        self._engine: Any = vllm.LLMEngine.from_engine_args(arguments)
        self._length = int(self._engine.get_model_config().max_model_len)
        self._count = 0

    @property
    def name(self) -> str:
        """The engine and the model."""
        return f"vllm:{self._model}"

    def capabilities(self) -> Capabilities:
        """What the engine can do. Lark grammars are left out: which of its back ends takes them is not to be told."""
        return Capabilities(
            json_schema=True,
            seed=True,
            prefix_cache=True,
            chat_template=bool(getattr(self._tokenizer, "chat_template", None)),
            context_length=self._length,
            parallel=self._parallel,
        )

    def count_tokens(self, text: str) -> int:
        """By the model's own tokenizer."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def close(self) -> None:
        """Lets go of the engine; its memory is freed with it."""
        self._engine = None

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        """Answers as they finish; as many requests are under way as the engine runs at once."""
        running: dict[str, tuple[Request, float]] = {}
        waiting: deque[Request] = deque()
        source: Iterator[Request] = iter(requests)

        def ended(answer: Answer) -> Answer:
            if follow is not None:
                waiting.extend(follow(answer))
            return answer

        try:
            while cancel is None or not cancel.is_set():
                while len(running) < self._parallel:
                    request = waiting.popleft() if waiting else next(source, None)
                    if request is None:
                        break
                    refused = self._begin(request, running)
                    if refused is not None:
                        yield ended(refused)
                if not running:
                    return
                for output in self._engine.step():
                    if output.finished:
                        yield ended(_answer(output, *running.pop(output.request_id)))
            yield from (Answer(request, "", "cancelled") for request, _ in running.values())
            yield from (Answer(request, "", "cancelled") for request in waiting)
        finally:
            if running:
                self._engine.abort_request(list(running))

    def _begin(self, request: Request, running: dict[str, tuple[Request, float]]) -> Answer | None:
        """Hands a request to the engine; an answer where it does not fit."""
        tokens = self._tokens(request)
        if len(tokens) >= self._length:
            error = PromptTooLongError(f"the prompt has {len(tokens)} tokens; at most {self._length - 1} fit")
            return Answer(request, "", "error", prompt_tokens=len(tokens), error=error)
        self._count += 1
        key = str(self._count)
        running[key] = (request, time.perf_counter())
        room = self._length - len(tokens)
        self._engine.add_request(key, {"prompt_token_ids": tokens}, self._sampling(request, room))
        return None

    def _tokens(self, request: Request) -> list[int]:
        if request.prompt:
            return list(self._tokenizer.encode(request.prompt))
        turns = [{"role": turn.role, "content": turn.content} for turn in request.messages]
        text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return list(self._tokenizer.encode(text, add_special_tokens=False))  # the template has them

    def _sampling(self, request: Request, room: int) -> Any:
        constrained = {} if request.json_schema is None else self._constraint(request)
        return self._vllm.SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            min_p=request.min_p,
            max_tokens=max(1, min(request.max_tokens, room)),
            stop=list(request.stop) or None,
            seed=request.seed,
            **constrained,
        )

    def _constraint(self, request: Request) -> dict[str, Any]:
        """The schema as this version of vLLM wants it; the name changed in 0.11."""
        from vllm import sampling_params

        schema = {key: value for key, value in (request.json_schema or {}).items() if not key.startswith("x-")}
        if hasattr(sampling_params, "StructuredOutputsParams"):
            return {"structured_outputs": sampling_params.StructuredOutputsParams(json=schema)}
        return {"guided_decoding": sampling_params.GuidedDecodingParams(json=schema)}


def _answer(output: Any, request: Request, began: float) -> Answer:
    (written,) = output.outputs
    finish: Finish = "length" if written.finish_reason == "length" else "stop"
    return Answer(
        request,
        written.text,
        finish,
        prompt_tokens=len(output.prompt_token_ids or ()),
        cached_tokens=getattr(output, "num_cached_tokens", None) or 0,
        completion_tokens=len(written.token_ids),
        seconds=time.perf_counter() - began,
    )
