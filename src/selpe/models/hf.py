"""Any Hugging Face model by transformers, on a GPU where there is one (extra `[hf]`).

A batch runs through transformers' `generate`. We choose every token ourselves, with the same sampler and the same
kind of grammar as the embedded engine: a logits processor leaves `generate` a single candidate per row. So a row's
text follows from its request's seed, and a grammar holds, whatever else is in the batch.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import ModelError, PromptTooLongError
from selpe.models.base import JSON_STYLE, Answer, Capabilities, Finish, Follow, Request

if TYPE_CHECKING:
    import numpy as np

_INSTALL = 'Install them: pip install "selpe[hf]"'
_STOP_WINDOW = 48  # tokens decoded at each step to look for a stop string


class HFModel:
    """A model folder, a GGUF file or a name on the hub, run by transformers in batches of `batch` requests."""

    def __init__(
        self,
        source: Path | str,
        *,
        batch: int = 16,
        context: int | None = None,
        device: str | None = None,
        dtype: str | None = None,
        name: str = "",
    ) -> None:
        torch, transformers = _libraries()
        device = device or best_device(torch)
        place, options = where(source)
        precision = dtype or ("float32" if device == "cpu" else "auto")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, padding_side="left", **options)
            model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=precision, **options)
        except (OSError, ValueError, ImportError, KeyError) as problem:
            raise ModelError(
                f"transformers cannot load this model ({type(problem).__name__})",
                where=str(source),
                hint="Check the name, or try the llama.cpp engine for a GGUF file: llamacpp:<path>",
            ) from problem
        name = name or f"hf:{Path(source).stem if Path(source).exists() else source}"
        self._take(model, tokenizer, name=name, batch=batch, context=context, device=device)

    @classmethod
    def around(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        batch: int = 16,
        context: int | None = None,
        device: str = "cpu",
        top_k: int = 0,
    ) -> HFModel:
        """A model that is in memory already; every choice is among the `top_k` most probable tokens, or all of them."""
        made = cls.__new__(cls)
        made._take(model, tokenizer, name=name, batch=batch, context=context, device=device, top_k=top_k)
        return made

    def _take(
        self, model: Any, tokenizer: Any, *, name: str, batch: int, context: int | None, device: str, top_k: int = 0
    ) -> None:
        self._name, self._batch, self._device, self._top_k = name, batch, device, top_k
        self._tokenizer = tokenizer
        self._model: Any = model.to(device).eval()
        config = model.config
        self._context = min(context or 10**9, int(getattr(config, "max_position_embeddings", 2048)))
        self._ends = _end_tokens(tokenizer, model.generation_config)
        self._grammars = _Grammars(tokenizer, int(config.vocab_size), self._ends)

    @property
    def name(self) -> str:
        """The engine and the model."""
        return self._name

    def capabilities(self) -> Capabilities:
        """What the loaded model says about itself."""
        return Capabilities(
            grammar=True,
            json_schema=True,
            seed=True,
            chat_template=bool(self._tokenizer.chat_template),
            context_length=self._context,
            parallel=self._batch,
        )

    def count_tokens(self, text: str) -> int:
        """The number of tokens by the model's own tokenizer, without a start token."""
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def close(self) -> None:
        """Frees the model."""
        self._model = None

    def generate(
        self,
        requests: Iterable[Request],
        *,
        follow: Follow | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[Answer]:
        """Answers batch by batch; those that follow from one batch lead the next."""
        if self._model is None:
            raise ModelError(f"{self._name} has been closed")
        waiting: deque[Request] = deque()
        source = iter(requests)
        stopped = cancel.is_set if cancel is not None else _never
        while not stopped():
            rows: list[_BatchRow] = []
            while len(rows) < self._batch:
                request = waiting.popleft() if waiting else next(source, None)
                if request is None:
                    break
                row = self._row(request)
                if isinstance(row, _BatchRow):
                    rows.append(row)
                else:
                    yield row
                    waiting.extend(follow(row) if follow else ())
            if not rows:
                return
            for answer in self._run(rows, stopped):
                waiting.extend(follow(answer) if follow and answer.finish != "cancelled" else ())
                yield answer
        yield from (Answer(request, "", "cancelled") for request in waiting)

    def _row(self, request: Request) -> _BatchRow | Answer:
        """A request made ready for a batch, or its error."""
        from selpe.models.engine.sampling import Echoes, Taste, generator

        text = request.prompt
        if request.messages:
            turns = [{"role": turn.role, "content": turn.content} for turn in request.messages]
            text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        # A chat template writes its own start token.
        tokens = self._tokenizer(text, add_special_tokens=not request.messages)["input_ids"]
        if len(tokens) + request.max_tokens > self._context:
            long = PromptTooLongError(
                f"{len(tokens)} tokens of prompt and {request.max_tokens} of answer exceed {self._context}",
                hint="Use fewer or shorter examples, or fewer tokens per answer.",
            )
            return Answer(request, "", "error", prompt_tokens=len(tokens), error=long)
        try:
            guide = self._grammars.guide(request)
        except ModelError as faulty:
            return Answer(request, "", "error", prompt_tokens=len(tokens), error=faulty)
        taste = Taste(request.temperature, request.min_p, request.top_p, self._top_k)
        echoes = Echoes(request.no_repeat) if request.no_repeat else None
        return _BatchRow(request, tokens, taste, generator(request.seed).random, guide, echoes)

    def _run(self, rows: Sequence[_BatchRow], stopped: Callable[[], bool]) -> list[Answer]:
        """One call of transformers' `generate`."""
        import torch
        from transformers import GenerationConfig

        started = time.perf_counter()
        widest = max(len(row.prompt) for row in rows)
        pad = self._ends[0] if self._tokenizer.pad_token_id is None else int(self._tokenizer.pad_token_id)
        ids = torch.tensor([[pad] * (widest - len(row.prompt)) + row.prompt for row in rows])
        mask = torch.tensor([[0] * (widest - len(row.prompt)) + [1] * len(row.prompt) for row in rows])
        chooser = _Chooser(rows, widest, frozenset(self._ends), self._tokenizer, stopped)
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max(row.request.max_tokens for row in rows),
            pad_token_id=pad,
            eos_token_id=list(self._ends),
        )
        try:
            with torch.inference_mode():
                self._model.generate(
                    ids.to(self._device),
                    attention_mask=mask.to(self._device),
                    generation_config=config,
                    logits_processor=[chooser.choose],
                    stopping_criteria=[chooser.ended],
                )
        except torch.OutOfMemoryError as problem:
            raise ModelError(
                f"{len(rows)} requests at once do not fit into the memory of {self._device}",
                hint="Use a smaller `batch`.",
                retryable=True,
            ) from problem
        seconds = time.perf_counter() - started
        return [self._answer(row, seconds) for row in rows]

    def _answer(self, row: _BatchRow, seconds: float) -> Answer:
        text = self._tokenizer.decode(row.written, skip_special_tokens=True)
        found = [place for place in (text.find(stop) for stop in row.request.stop) if place >= 0]
        return Answer(
            row.request,
            text[: min(found)] if found else text,
            row.finish or "cancelled",
            prompt_tokens=len(row.prompt),
            completion_tokens=len(row.written),
            seconds=seconds,
        )


@dataclass(slots=True)
class _BatchRow:
    """One request while its batch runs."""

    request: Request
    prompt: list[int]
    taste: Any
    draw: Callable[[], float]
    guide: Any  # LLGuidance's matcher, None without a grammar
    echoes: Any = None  # what must not be said again, None where anything goes
    written: list[int] = field(default_factory=list)
    finish: Finish | None = None


class _Chooser:
    """Chooses each row's next token, and says which rows have come to their end."""

    def __init__(
        self, rows: Sequence[_BatchRow], widest: int, ends: frozenset[int], tokenizer: Any, stopped: Callable[[], bool]
    ) -> None:
        self._rows = rows
        self._widest = widest
        self._ends = ends
        self._tokenizer = tokenizer
        self._stopped = stopped

    def choose(self, ids: Any, scores: Any) -> Any:
        """The scores with one candidate left in each row that still runs."""
        import torch

        logits = scores.float().cpu().numpy()
        chosen = [self._next(row, logits[k]) for k, row in enumerate(self._rows)]
        places = torch.tensor(chosen, device=scores.device).unsqueeze(1)
        return torch.full_like(scores, float("-inf")).scatter(1, places, 0.0)

    def _next(self, row: _BatchRow, logits: np.ndarray[Any, Any]) -> int:
        import numpy as np

        from selpe.models.engine.sampling import choose

        if row.finish is not None:
            return 0  # `generate` writes padding after a row's end
        mask = None
        if row.guide is not None:
            mask = np.zeros((len(logits) + 31) // 32 * 4, np.uint8)
            row.guide.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if row.echoes is not None:
            logits = row.echoes.held_back(logits, self._piece)
        token = choose(logits, row.taste, row.draw(), mask)
        if token in self._ends:
            row.finish = "stop"
            return token
        row.written.append(token)
        if row.echoes is not None:
            row.echoes.note(token)
        if row.guide is not None and not row.guide.consume_token(token):
            row.finish = "length"  # the grammar gave up (too complex); what is written will not validate
        return token

    def _piece(self, token: int) -> bytes:
        return str(self._tokenizer.decode([token])).encode()

    def ended(self, ids: Any, scores: Any, **_: Any) -> Any:
        """True for each row that is done: by a stop string, its token limit, its grammar, or a cancellation."""
        import torch

        everyone = self._stopped()
        for row in self._rows:
            if row.finish is None:
                row.finish = self._finish(row)
            if row.finish is None and everyone:
                row.finish = "cancelled"
        return torch.tensor([row.finish is not None for row in self._rows], device=ids.device)

    def _finish(self, row: _BatchRow) -> Finish | None:
        if row.guide is not None and row.guide.is_stopped():
            return "stop"
        if row.request.stop:
            tail = self._tokenizer.decode(row.written[-_STOP_WINDOW:], skip_special_tokens=True)
            if any(stop in tail for stop in row.request.stop):
                return "stop"
        return "length" if len(row.written) >= row.request.max_tokens else None


class _Grammars:
    """LLGuidance matchers for requests, each distinct grammar compiled once."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: tuple[int, ...]) -> None:
        self._source = (tokenizer, vocabulary, ends)
        self._tokenizer: Any = None
        self._compiled: dict[str, Any] = {}

    def guide(self, request: Request) -> Any:
        """A fresh matcher, None for a request without grammar."""
        if request.json_schema is None and request.grammar is None:
            return None
        key = request.grammar if request.grammar is not None else json.dumps(request.json_schema)
        if key not in self._compiled:
            self._compiled[key] = self._compile(request)
        return self._compiled[key].deep_copy()

    def _compile(self, request: Request) -> Any:
        from llguidance import LLMatcher
        from llguidance.hf import from_tokenizer

        if self._tokenizer is None:
            tokenizer, vocabulary, ends = self._source
            self._tokenizer = from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=list(ends))
        if request.grammar is not None:
            source = LLMatcher.grammar_from_lark(request.grammar)
        else:
            source = LLMatcher.grammar_from_json_schema(json.dumps(request.json_schema), defaults=JSON_STYLE)
        matcher = LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise ModelError(f"the grammar of this request cannot be used: {matcher.get_error().splitlines()[0]}")
        return matcher


def _libraries() -> tuple[Any, Any]:
    patient_threads()
    try:
        import torch
        import transformers
    except ImportError as problem:
        raise ModelError("the packages torch and transformers are not installed", hint=_INSTALL) from problem
    return torch, transformers


def patient_threads() -> None:
    """Lets torch's threads sleep while they wait for each other, before torch is loaded.

    By default they spin: on cores that others use, too, that is several times slower than a single thread.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def best_device(torch: Any) -> str:
    """A graphics card where there is one."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def where(source: Path | str) -> tuple[str, dict[str, Any]]:
    """What transformers calls the place of a model, with the options that reading it takes."""
    from selpe.models.store.store import offline

    path = Path(source)
    if path.suffix == ".gguf":
        return str(path.parent), {"gguf_file": path.name, "local_files_only": True}
    return str(source), {"local_files_only": path.exists() or offline()}


def _end_tokens(tokenizer: Any, config: Any) -> tuple[int, ...]:
    told = config.eos_token_id
    ends = [tokenizer.eos_token_id, *(told if isinstance(told, list) else [told])]
    return tuple(dict.fromkeys(int(end) for end in ends if end is not None))


def _never() -> bool:
    return False
