"""A fake language model: deterministic, schema-aware, instant, and able to fail in every way a real one does.

It is a first-class back end: the whole pipeline, its tests and `--llm fake` run on it. Under a JSON Schema it
writes a valid record drawn from the request's own seed; without one it imitates the JSON objects that the prompt shows,
or writes a short free-form context where there are none. Words of the prompt colour its output, so that exemplars steer
it a little, as they steer a real model.
"""

from __future__ import annotations

import json
import random
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from selpe.errors import ModelError, PromptTooLongError
from selpe.models.base import Answer, Capabilities, Finish, Follow, Request
from selpe.models.sampled_text import sample_pattern

_NOUNS = """ankle account arrival bottle breath budget cough debt dizziness dressing fever fracture handle headache
income invoice kettle kitchen ladder lid loan meal mortgage nausea parcel payment phone rash refund rent review roof
salary savings shoulder sleep stairs stomach strap sweat tablet term throat vomiting wrist""".split()
_WORDS = """slowly since morning after again mild severe steady sudden small large second third recent earlier
walking home work night calm worried unsure better worse left right both once twice with without and then but also
reported noted felt asked needed wanted kept lost paid owed fell hurt came went told""".split()


@dataclass(frozen=True, slots=True)
class Faults:
    """The share of requests that fail in each way. All zero: a model that never fails."""

    invalid_json: float = 0.0
    truncated: float = 0.0
    wrong_enum: float = 0.0
    timeout: float = 0.0
    rate_limited: float = 0.0


class FakeModel:
    """A ChatModel that needs no weights. The same request always gets the same answer."""

    def __init__(
        self, *, faults: Faults | None = None, context_length: int = 8192, seconds_per_answer: float = 0.0
    ) -> None:
        self._faults = faults or Faults()
        self._context_length = context_length
        self._seconds = seconds_per_answer
        self.requests_served = 0

    @property
    def name(self) -> str:
        """A name that stays the same across runs."""
        return "fake"

    def capabilities(self) -> Capabilities:
        """Everything a real engine can do, save Lark grammars."""
        return Capabilities(
            json_schema=True, seed=True, chat_template=True, context_length=self._context_length, parallel=16
        )

    def count_tokens(self, text: str) -> int:
        """Words and punctuation marks."""
        return len(re.findall(r"\w+|[^\w\s]", text))

    def close(self) -> None:
        """Nothing to free."""

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        """Answers in the order of the requests, followers before new ones."""
        waiting: deque[Request] = deque()
        source = iter(requests)
        while True:
            request = waiting.popleft() if waiting else next(source, None)
            if request is None:
                return
            if cancel is not None and cancel.is_set():
                yield Answer(request, "", "cancelled")
                continue
            if self._seconds:
                threading.Event().wait(self._seconds)
            answer = self._answer(request)
            self.requests_served += 1
            yield answer
            if follow is not None:
                waiting.extend(follow(answer))

    def _answer(self, request: Request) -> Answer:
        prompt = request.prompt or "\n".join(message.content for message in request.messages)
        used = self.count_tokens(prompt)
        if used + request.max_tokens > self._context_length:
            error: ModelError = PromptTooLongError(f"the prompt has {used} tokens, too many for this model")
            return Answer(request, "", "error", prompt_tokens=used, error=error)
        # Seeded by the request alone, so that neither order nor batch changes an answer.
        chance = random.Random(f"{request.seed}|{request.temperature}|{prompt}|{request.json_schema}")
        fault = self._fault(chance)
        if fault in ("timeout", "rate_limited"):
            message = "the fake model took too long" if fault == "timeout" else "the fake model is busy"
            error = ModelError(message, retryable=True, retry_after=0.0 if fault == "rate_limited" else None)
            return Answer(request, "", "error", prompt_tokens=used, error=error)
        text, finish = self._text(request, prompt, chance, fault)
        written, seconds = self.count_tokens(text), self._seconds or 1e-6  # no time at all means: from a store
        return Answer(request, text, finish, prompt_tokens=used, completion_tokens=written, seconds=seconds)

    def _fault(self, chance: random.Random) -> str | None:
        draw = chance.random()
        for name in ("invalid_json", "truncated", "wrong_enum", "timeout", "rate_limited"):
            draw -= getattr(self._faults, name)
            if draw < 0:
                return name
        return None

    def _text(self, request: Request, prompt: str, chance: random.Random, fault: str | None) -> tuple[str, Finish]:
        shown = _objects(prompt) if request.json_schema is None else []
        if request.json_schema is not None:
            record = _record(request.json_schema, chance, _vocabulary(prompt))
        elif shown and request.grammar is None:
            record = _imitation(shown, chance, _vocabulary(prompt))
        else:
            return _sentence(chance, _vocabulary(prompt), chance.randint(12, 30)), "stop"
        if fault == "wrong_enum":
            _spoil_category(record, request.json_schema or {"properties": {name: {} for name in record}})
        text = json.dumps(record, ensure_ascii=False)
        if fault == "invalid_json":
            return "Sure! Here is the record: " + text.replace('"', "'").rstrip("}") + ",}", "stop"
        if fault == "truncated":
            return text[: len(text) // 2], "length"
        return text, "stop"


def _vocabulary(prompt: str) -> list[str]:
    """Words of the prompt's tail beside our own: this is how exemplars steer the fake."""
    tail = re.findall(r"[a-z]{4,12}", prompt[-1500:].lower())
    return _WORDS + tail[-40:]


def _sentence(chance: random.Random, words: list[str], length: int) -> str:
    return " ".join([chance.choice(_NOUNS), *(chance.choice(words + _NOUNS) for _ in range(length - 1))])


def _objects(prompt: str) -> list[dict[str, Any]]:
    """The flat JSON objects that a prompt shows."""
    found = []
    for text in re.findall(r"\{[^{}]*\}", prompt):
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def _imitation(shown: list[dict[str, Any]], chance: random.Random, words: list[str]) -> dict[str, Any]:
    """An object like those shown: values from any of them, whole numbers from between them, new words for texts."""
    made: dict[str, Any] = {}
    for name in shown[-1]:
        everything = [one[name] for one in shown if name in one]
        seen = [one for one in everything if "_" not in str(one)] or everything  # a blank is to be filled, not copied
        value = chance.choice(seen)
        whole = [one for one in seen if isinstance(one, int) and not isinstance(one, bool)]
        if value in whole and not isinstance(value, bool):
            value = chance.randint(min(whole), max(whole))
        elif isinstance(value, str) and " " in value:
            longest = max(len(one) for one in seen if isinstance(one, str))
            value = _sentence(chance, words, chance.randint(3, 8))[: max(30, longest)].rstrip()
        made[name] = value
    return made


def _record(schema: Mapping[str, Any], chance: random.Random, words: list[str]) -> dict[str, Any]:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return {name: _value(domain, chance, words) for name, domain in properties.items()}


def _value(domain: Mapping[str, Any], chance: random.Random, words: list[str]) -> Any:
    if "const" in domain:
        return domain["const"]
    if "enum" in domain:
        return chance.choice(list(domain["enum"]))
    if "anyOf" in domain:
        branches = list(domain["anyOf"])
        return _value(branches[-1] if chance.random() < 0.1 else branches[0], chance, words)
    kind = domain.get("type")
    if kind == "boolean":
        return chance.random() < 0.5
    if kind in ("integer", "number"):
        return _on_grid(domain, chance)
    if kind == "string":
        return _string(domain, chance, words)
    return None


def _on_grid(domain: Mapping[str, Any], chance: random.Random) -> int | float:
    """A multiple of the step between the bounds, in exact decimals."""
    step = Decimal(str(domain.get("multipleOf", 1)))
    low, high = Decimal(str(domain.get("minimum", 0))), Decimal(str(domain.get("maximum", 100)))
    first, last = (low / step).to_integral_value(ROUND_CEILING), (high / step).to_integral_value(ROUND_FLOOR)
    # A bell around the middle: uniform digits would look like nothing real.
    place = (chance.random() + chance.random() + chance.random()) / 3
    exact = (first + (last - first) * Decimal(str(round(place, 6)))).to_integral_value() * step
    return int(exact) if exact == exact.to_integral_value() else float(exact)


def _string(domain: Mapping[str, Any], chance: random.Random, words: list[str]) -> str:
    if "pattern" in domain:
        return sample_pattern(str(domain["pattern"]), chance, domain.get("minLength", 0), domain.get("maxLength", 400))
    low, high = int(domain.get("minLength", 0)), int(domain.get("maxLength", 400))
    text = _sentence(chance, words, chance.randint(3, 12))
    while len(text) < low:
        text += " " + chance.choice(_WORDS)
    return text[:high].rstrip() if len(text[:high].rstrip()) >= low else text[:high].replace(" ", "-")


def _spoil_category(record: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Puts a value outside its enum into the first category; into the first key where there is none."""
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    name = next((key for key, domain in properties.items() if "enum" in domain), next(iter(properties), None))
    if name is not None:
        record[name] = "no-such-value"
