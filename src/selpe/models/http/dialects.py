"""The ways in which servers want to be asked for structured output, and how answers are read back.

Nearly all take OpenAI's `response_format`, but some ignore it without a word on one of their routes. So each way is
tried with a schema that only a constrained model can satisfy, and the first that works is remembered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from selpe.models.base import Finish, Request

Route = Literal["chat", "completion"]
Constraint = Literal["schema", "grammar"]

OPENAI_PATHS: Mapping[Route, str] = {"chat": "chat/completions", "completion": "completions"}
OLLAMA_PATHS: Mapping[Route, str] = {"chat": "/api/chat", "completion": "/api/generate"}

# Settings that some servers do not know. They are sent even at their neutral values, because servers have defaults
# of their own (llama.cpp cuts at min-p 0.05 and the 40 likeliest tokens).
DROPPABLE = ("min_p", "top_k", "top_p", "seed", "stop", "temperature", "max_tokens")
_EXTRAS = ("min_p", "top_k")
_SEEDS = 2**31 - 1

PROBE_VALUE = {"probe": "zq-4071"}
PROBE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"probe": {"type": "string", "const": "zq-4071"}},
    "required": ["probe"],
    "additionalProperties": False,
}
PROBE_GRAMMAR = 'start: "zq-4071"\n'


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to ask for structured output: the fields that a request gains."""

    name: str
    schema: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    grammar: Callable[[str], dict[str, Any]] | None = None
    native: bool = False
    owner: str = ""

    def fields(self, request: Request) -> dict[str, Any]:
        """What this dialect adds to the body of a request."""
        if request.json_schema is not None and self.schema is not None:
            return self.schema(request.json_schema)
        if request.grammar is not None and self.grammar is not None:
            return self.grammar(request.grammar)
        return {}


def _openai(schema: Mapping[str, Any]) -> dict[str, Any]:
    form = {"name": "record", "schema": dict(schema), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _llguidance(schema: Mapping[str, Any]) -> dict[str, Any]:
    # Small models get lost in the whitespace that JSON allows between tokens; only this way can it be forbidden.
    compact = {**schema, "x-guidance": {"whitespace_flexible": False}}
    return {"grammar": f"%llguidance {{}}\nstart: %json {json.dumps(compact)}\n"}


DIALECTS: tuple[Dialect, ...] = (
    Dialect("openai", schema=_openai),
    Dialect(
        "vllm",
        schema=lambda schema: {"structured_outputs": {"json": dict(schema)}},
        grammar=lambda lark: {"structured_outputs": {"grammar": lark}},
        owner="vllm",
    ),
    Dialect(
        "vllm-guided",
        schema=lambda schema: {"guided_json": dict(schema)},
        grammar=lambda lark: {"guided_grammar": lark},
        owner="vllm",
    ),
    Dialect(
        "llamacpp-llguidance",
        schema=_llguidance,
        grammar=lambda lark: {"grammar": "%llguidance {}\n" + lark},
        owner="llamacpp",
    ),
    Dialect("llamacpp", schema=lambda schema: {"json_schema": dict(schema)}, owner="llamacpp"),
    Dialect(
        "llamacpp-format",
        schema=lambda schema: {"response_format": {"type": "json_object", "schema": dict(schema)}},
        owner="llamacpp",
    ),
    Dialect(
        "sglang",
        schema=lambda schema: {"json_schema": json.dumps(schema)},
        grammar=lambda lark: {"ebnf": lark},
        owner="sglang",
    ),
    Dialect("ollama", schema=lambda schema: {"format": dict(schema)}, native=True, owner="library"),
)
_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


@dataclass(slots=True)
class Traits:
    """What was learnt about one endpoint. A dialect of '' means: tried them all, none is honoured."""

    model: str = ""
    owner: str = ""
    context_length: int = 0
    dialects: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, set[str]] = field(default_factory=dict)  # while dialects are tried
    dropped: set[str] = field(default_factory=set)
    no_routes: set[str] = field(default_factory=set)
    token_field: str = "max_tokens"
    tokenizes: bool = True
    introduced: bool = False
    settled: bool = False
    reuses_prefix: bool = False
    noticed_unconstrained: int = 0
    streak: int = 0
    tolerance: int = 3

    @property
    def lessons(self) -> int:
        """How much was learnt so far."""
        return self.introduced + len(self.dialects) + sum(map(len, self.ignored.values()))

    def dialect(self, constraint: Constraint, route: Route) -> Dialect | None:
        """The dialect in use, if any was found to work."""
        return _BY_NAME.get(self.dialects.get(f"{constraint}/{route}", ""))

    def knows(self, constraint: Constraint, route: Route) -> bool:
        """Whether the dialects have been tried."""
        return f"{constraint}/{route}" in self.dialects

    def candidates(self, constraint: Constraint) -> list[Dialect]:
        """The dialects worth trying, those of this kind of server first."""
        usable = [d for d in DIALECTS if (d.schema if constraint == "schema" else d.grammar) is not None]
        return sorted(usable, key=lambda d: bool(self.owner) and d.owner != self.owner)

    def notice(self, constrained: bool, route: Route) -> None:
        """Counts answers that break their schema's outline; a run of them has the dialect probed anew."""
        if constrained:
            self.streak = 0
            return
        self.noticed_unconstrained += 1
        self.streak += 1
        if self.streak >= self.tolerance and self.dialects.get(f"schema/{route}"):
            del self.dialects[f"schema/{route}"]
            self.streak = 0
            self.tolerance = min(self.tolerance * 2, 96)  # the model may just be bad: do not probe for ever

    def as_dict(self) -> dict[str, Any]:
        """What is worth remembering across runs: what the server can do. What it refused is asked again next time.

        A server that was starting up, or is a newer one by then, would else be without it for ever.
        """
        return {
            "dialects": {key: name for key, name in self.dialects.items() if name},
            "token_field": self.token_field,
        }

    def recall(self, known: Mapping[str, Any]) -> None:
        """Takes over what an earlier run has learnt; what is not understood is left out, to be probed."""
        self.dialects = {str(k): v for k, v in dict(known.get("dialects", {})).items() if v in _BY_NAME}
        if known.get("token_field") in ("max_tokens", "max_completion_tokens"):
            self.token_field = str(known["token_field"])


def route_of(request: Request) -> Route:
    """Whether a request is a chat or a text to continue."""
    return "chat" if request.messages else "completion"


def constraint_of(request: Request) -> Constraint | None:
    """How a request is constrained, if at all."""
    if request.json_schema is not None:
        return "schema"
    return "grammar" if request.grammar is not None else None


def wire(request: Request, traits: Traits, model: str, dialect: Dialect | None) -> tuple[str, dict[str, Any]]:
    """The path and the body that ask this endpoint for this request."""
    route = route_of(request)
    content = (
        {"messages": [{"role": m.role, "content": m.content} for m in request.messages]}
        if route == "chat"
        else {"prompt": request.prompt}
    )
    sampling = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": -1,
        "min_p": request.min_p,
        "seed": request.seed % _SEEDS,
        **({"stop": list(request.stop)} if request.stop else {}),
    }
    sampling = {name: value for name, value in sampling.items() if name not in traits.dropped}
    named = {"model": model} if model else {}
    extra = dialect.fields(request) if dialect is not None else {}
    if dialect is not None and dialect.native:
        options = {**sampling, "num_predict": request.max_tokens, "repeat_penalty": 1.0}
        raw = {"raw": True} if route == "completion" else {}
        return OLLAMA_PATHS[route], {**named, **content, **raw, **extra, "stream": False, "options": options}
    body = {**named, **content, **sampling, traits.token_field: request.max_tokens, "stream": False, **extra}
    return OPENAI_PATHS[route], body


def adapt(traits: Traits, body: Mapping[str, Any], named: tuple[str, ...]) -> bool:
    """Drops the settings that a server does not know; whether anything was left to drop."""
    sent = {**body, **body.get("options", {})}
    unknown = {name for name in named if name in sent and name != "max_tokens"}
    traits.dropped |= unknown
    if not unknown and "max_tokens" in named and "max_tokens" in sent:
        traits.token_field = "max_completion_tokens"
        return True
    return bool(unknown)


def drop_extras(traits: Traits) -> set[str]:
    """Drops what is not OpenAI's own, for servers that refuse it without saying what; the names of what was dropped."""
    fresh = set(_EXTRAS) - traits.dropped
    traits.dropped |= fresh
    return fresh


@dataclass(frozen=True, slots=True)
class Said:
    """What a server answered."""

    text: str
    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


def read(data: Any) -> Said | None:
    """The answer in a reply, of OpenAI's or of Ollama's shape, or None if there is none in it."""
    if not isinstance(data, dict):
        return None
    if "done" in data:
        message = data.get("message")
        text = message.get("content") if isinstance(message, dict) else data.get("response")
        usage = {"prompt_tokens": data.get("prompt_eval_count"), "completion_tokens": data.get("eval_count")}
        return _said(text, data.get("done_reason"), usage)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    message = choices[0].get("message")
    text = message.get("content") if isinstance(message, dict) else choices[0].get("text")
    if text is None and isinstance(message, dict):
        text = ""  # a model that spent all its tokens on thinking
    return _said(text, choices[0].get("finish_reason"), data.get("usage"), data.get("timings"))


def _said(text: object, reason: object, usage: object, timings: object = None) -> Said | None:
    if not isinstance(text, str):
        return None
    # Half a surrogate pair can be sent in JSON, but not written to a file.
    text = text.encode("utf-8", "replace").decode()
    counts = usage if isinstance(usage, dict) else {}
    return Said(
        text,
        "length" if reason == "length" else "stop",
        _count(counts.get("prompt_tokens")),
        cached_tokens(counts, timings),
        _count(counts.get("completion_tokens")) or (len(text.encode()) + 3) // 4,
    )


def cached_tokens(usage: Mapping[str, Any], timings: object = None) -> int:
    """Prompt tokens that a server did not compute again: by its usage, or by the timings that llama.cpp adds."""
    details = usage.get("prompt_tokens_details")
    said = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return said or (_count(timings.get("cache_n")) if isinstance(timings, dict) else 0)


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def outline_holds(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether a text is a JSON object with the schema's top-level keys; the caller checks the rest."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return schema.get("type") not in (None, "object")
    known = set(schema.get("properties", {}))
    extra = set() if schema.get("additionalProperties", True) else value.keys() - known
    return not extra and set(schema.get("required", ())) <= value.keys()


def passes_probe(said: Said, constraint: Constraint) -> bool:
    """Whether only a constrained model could have written this answer to a probe."""
    text = said.text.strip()
    if constraint == "grammar":
        return text == PROBE_VALUE["probe"]
    if said.finish == "length" and text.startswith("{"):
        # Constrained, but lost in whitespace until the token limit.
        return json.dumps(PROBE_VALUE, separators=(",", ":")).startswith("".join(text.split()))
    try:
        return bool(json.loads(text) == PROBE_VALUE)
    except (ValueError, RecursionError):
        return False
