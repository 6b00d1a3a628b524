"""Any GGUF file by llama.cpp, in this process: the second local engine, and the one for GPUs and rare architectures.

llama.cpp's own server does the batching: each of its slots serves one request at a time, and a thread of ours waits
on each slot. The server also opens a port on 127.0.0.1 that we need for nothing but counting tokens; a key that no
one else knows closes it to other users of the machine.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from selpe.errors import ModelError, ModelNotFoundError, PromptTooLongError
from selpe.models.base import JSON_STYLE, Answer, Capabilities, Finish, Follow, Request
from selpe.models.http.dialects import cached_tokens

_RANDOM_SEED = 0xFFFFFFFF  # llama.cpp reads this value as 'no seed'
_INSTALL = 'Install it: pip install "selpe[llamacpp]"'


class LlamaCppModel:
    """A GGUF file as a language model. `context` is the window of each of the `parallel` slots."""

    def __init__(
        self,
        path: Path | str,
        *,
        parallel: int = 8,
        context: int = 2048,
        threads: int | None = None,
        gpu_layers: int | None = None,
        name: str = "",
    ) -> None:
        self._path = Path(path)
        self._name = name or f"llamacpp:{self._path.stem}"
        self._parallel = parallel
        self._key = secrets.token_urlsafe(24)
        self._closing = threading.Event()
        self._server: Any = _start(
            self._path, self._key, parallel=parallel, context=context, threads=threads, gpu_layers=gpu_layers
        )
        self._capabilities = self._ask()

    @property
    def name(self) -> str:
        """The engine and the file's name."""
        return self._name

    def capabilities(self) -> Capabilities:
        """What the loaded model says about itself."""
        return self._capabilities

    def count_tokens(self, text: str) -> int:
        """The number of tokens by the model's own tokenizer, without a start token."""
        answer = self._local("POST", "/tokenize", {"content": text, "add_special": False})
        return len(answer["tokens"])

    def close(self) -> None:
        """Ends what is running and frees the model."""
        self._closing.set()
        self._server = None

    def __enter__(self) -> LlamaCppModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(
        self,
        requests: Iterable[Request],
        *,
        follow: Follow | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[Answer]:
        """Answers as they finish; as many requests are under way as there are slots."""
        server = self._running()
        done: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        waiting: deque[Request] = deque()
        source = iter(requests)
        abandoned = threading.Event()

        def stopped() -> bool:
            return abandoned.is_set() or self._closing.is_set() or (cancel is not None and cancel.is_set())

        def serve(request: Request) -> None:
            done.put(_answer(server, request, stopped))

        with ThreadPoolExecutor(self._parallel, thread_name_prefix="llamacpp") as slots:
            under_way = 0
            try:
                while True:
                    while under_way < self._parallel and not stopped():
                        request = waiting.popleft() if waiting else next(source, None)
                        if request is None:
                            break
                        slots.submit(serve, request)
                        under_way += 1
                    if not under_way:
                        break
                    answer = done.get()
                    under_way -= 1
                    if follow is not None and answer.finish != "cancelled":
                        waiting.extend(follow(answer))
                    yield answer
                yield from (Answer(request, "", "cancelled") for request in waiting)
            finally:
                abandoned.set()  # the reader left early: free the slots

    def _running(self) -> Any:
        if self._server is None:
            raise ModelError(f"{self._name} has been closed")
        return self._server

    def _ask(self) -> Capabilities:
        props = self._local("GET", "/props")
        return Capabilities(
            grammar=True,
            json_schema=True,
            seed=True,
            prefix_cache=True,
            chat_template=bool(props.get("chat_template")),
            context_length=int(props["default_generation_settings"]["n_ctx"]),
            parallel=self._parallel,
        )

    def _local(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One call to the server's own port; proxies are for the world outside, not for this."""
        import httpx

        url = f"{self._running().listening_address}{path}"
        headers = {"Authorization": f"Bearer {self._key}"}
        with httpx.Client(trust_env=False, timeout=30.0) as http:
            response = http.request(method, url, json=body, headers=headers)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer


def _start(path: Path, key: str, *, parallel: int, context: int, threads: int | None, gpu_layers: int | None) -> Any:
    """llama.cpp's server around the file."""
    try:
        import xllamacpp
    except ImportError as problem:
        raise ModelError("the llama.cpp engine is not installed", hint=_INSTALL) from problem
    if not path.is_file():
        raise ModelNotFoundError("there is no such model file", where=str(path))
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.hostnames = ["127.0.0.1"]
    params.api_keys = [key]
    params.n_parallel = parallel
    params.n_ctx = context * parallel
    params.kv_unified = False  # each slot has a window of its own: a long neighbour takes nothing away
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads or os.cpu_count() or 1
    if gpu_layers is not None:
        params.n_gpu_layers = gpu_layers
    params.warmup = params.ui = params.fit_params = params.endpoint_slots = False
    params.offline = True
    params.verbosity = -1
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as problem:
        raise ModelError(
            "llama.cpp cannot load this file",
            where=str(path),
            hint="Check that it is a whole GGUF file (selpe models verify) and that memory suffices.",
        ) from problem


def _answer(server: Any, request: Request, stopped: Callable[[], bool]) -> Answer:
    """One request on one slot, from its first token to its end."""
    started = time.perf_counter()
    if problem := _grammar_problem(_constraint(request)):
        error = ModelError(f"the grammar of this request cannot be used: {problem}")
        return Answer(request, "", "error", error=error)
    chunks: list[dict[str, Any]] = []

    def receive(chunk: dict[str, Any]) -> bool:
        chunks.append(chunk)
        return stopped()  # True ends the request and frees its slot

    try:
        if stopped():
            return Answer(request, "", "cancelled")
        handle = server.handle_chat_completions if request.messages else server.handle_completions
        handle(_payload(request), receive)
    except Exception as problem:  # whatever the native code raises concerns this request alone
        error = ModelError(f"llama.cpp failed on a request: {type(problem).__name__}", retryable=True)
        return Answer(request, "", "error", error=error, seconds=time.perf_counter() - started)
    return _read(request, chunks, time.perf_counter() - started)


def _payload(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "min_p": request.min_p,
        "top_p": request.top_p,
        "top_k": 0,
        # Temperature first, as in our other engines and in most servers; llama.cpp alone has it last.
        "samplers": ["temperature", "top_p", "min_p"],
        "seed": request.seed % _RANDOM_SEED,
        "stop": list(request.stop),
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": True,
    }
    if request.messages:
        body["messages"] = [{"role": turn.role, "content": turn.content} for turn in request.messages]
    else:
        body["prompt"] = request.prompt
    constraint = _constraint(request)
    if constraint:
        body["grammar"] = f"%llguidance {{}}\n{constraint}"
    return body


def _constraint(request: Request) -> str:
    """The request's grammar or schema as one Lark grammar, '' without either."""
    if request.json_schema is not None:
        style = {**JSON_STYLE, **request.json_schema.get("x-guidance", {})}
        return f"start: %json {json.dumps({**request.json_schema, 'x-guidance': style})}\n"
    return request.grammar or ""


@lru_cache(maxsize=256)
def _grammar_problem(lark: str) -> str:
    """What is wrong with a grammar, '' when nothing is: llama.cpp itself ignores a broken one without a word."""
    if not lark:
        return ""
    from llguidance import LLMatcher, grammar_from

    return str(LLMatcher.validate_grammar(grammar_from("lark", lark))).split("\n", maxsplit=1)[0]


def _read(request: Request, chunks: list[dict[str, Any]], seconds: float) -> Answer:
    text, finish = "", ""
    usage: Mapping[str, Any] = {}
    timings: Mapping[str, Any] = {}
    for chunk in chunks:
        if "error" in chunk:
            return Answer(request, "", "error", seconds=seconds, error=_error(chunk["error"]))
        usage, timings = chunk.get("usage") or usage, chunk.get("timings") or timings
        for choice in chunk.get("choices", ()):
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            finish = choice.get("finish_reason") or finish
    ended: dict[str, Finish] = {"stop": "stop", "length": "length"}
    return Answer(
        request,
        text,
        ended.get(finish, "cancelled"),
        prompt_tokens=int(usage.get("prompt_tokens", 0)),
        cached_tokens=cached_tokens(usage, timings),
        completion_tokens=int(usage.get("completion_tokens", len(chunks))),
        seconds=seconds,
    )


def _error(told: Mapping[str, Any]) -> ModelError:
    if told.get("type") == "exceed_context_size_error":
        return PromptTooLongError(
            f"the prompt has {told.get('n_prompt_tokens')} tokens, the context window {told.get('n_ctx')}",
            hint="Use fewer or shorter examples, or a larger `context`.",
        )
    code = int(told.get("code", 500))
    return ModelError(f"llama.cpp refused a request with code {code}", retryable=code in (429, 503))
