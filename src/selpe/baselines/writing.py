"""Free texts from language models: prompts in, raw texts out, in the order they were asked for.

No grammar and no retry for what is not a record: the baselines take a model's text as it comes. Only an answer that
never came, because a server was busy or slow, is asked for again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from selpe.baselines.reading import Sample, some_readable
from selpe.config import RunConfig
from selpe.errors import StoppedError
from selpe.events import Answered, PoolReady, StageStarted
from selpe.method.generation import ASKINGS, NO_REPEAT, record_tokens
from selpe.method.guides import Family, family_of
from selpe.models.base import Answer, Message, Place, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.run.estimate import Estimate, Tokens, estimate
from selpe.run.methods import Parts, SpendingPlan
from selpe.run.workspace import WorkFolder
from selpe.schema import CategoryField, Schema

MIN_P = 0.05  # as in SelPE's own generator (and NO_REPEAT, too), so that methods are compared and not samplers
SHOWN_EXAMPLES = 3
MOST_LETTERS = 3000  # of a text that is shown to a model again
MOST_LEFT_OUT = 32  # examples of a kind, where a prompt is too long
CHAT_TOKENS = 32  # what a chat template adds


@dataclass(frozen=True, slots=True)
class TextTask:
    """One text to write: for a class, from a template with its values, by one of the models."""

    label: str
    seed: int
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    model: int = 0


class TextWriter:
    """Writes texts with the models of a run and tells its progress."""

    def __init__(self, parts: Parts, *, temperature: float) -> None:
        self._parts = parts
        self._schema = parts.schema
        self._temperature = temperature
        self._prompts = Environment(
            loader=PackageLoader("selpe.method", "prompts"), undefined=StrictUndefined, autoescape=False
        )  # prompts are text for a model, not HTML; records are rendered as data, never as templates

    def write(self, stage: str, number: int, asks: Sequence[TextTask]) -> list[Sample]:
        """A sample for each ask, in order; an empty text where the model never answered."""
        emit = self._parts.emit
        emit(StageStarted(stage, number, len(asks)))
        texts, retries = [""] * len(asks), 0
        for model in sorted({ask.model for ask in asks}):
            mine = [place for place, ask in enumerate(asks) if ask.model == model]
            retries += self._written(asks, mine, texts)
        if self._parts.cancel is not None and self._parts.cancel.is_set():
            # A pool cut short must not go on to a private look: that would pay for half a pool.
            raise StoppedError("stopped as asked; every finished answer is kept")
        samples = [Sample(ask.label, text, ask.model) for ask, text in zip(asks, texts, strict=True)]
        lost = sum(not text for text in texts)
        shown = some_readable(self._schema, samples)
        emit(
            PoolReady(stage, number, len(samples) - lost, _count("model error", retries), _count("empty", lost), shown)
        )
        return samples

    def _written(self, asks: Sequence[TextTask], places: Sequence[int], texts: list[str]) -> int:
        """Fills in the texts at these places, all by one model. Says how many had to be asked for again."""
        model = self._parts.models[asks[places[0]].model]
        again: Counter[int] = Counter()

        def follow(answer: Answer) -> Iterable[Request]:
            place, attempt = _handle(answer)
            if answer.finish != "error" or again[place] + 1 >= self._parts.config.attempts:
                return ()
            again[place] += 1
            # First as it was: a pool should not depend on what went wrong on the way, or a resumed run has another.
            if again[place] % ASKINGS:
                return (answer.request,)
            return (self._request(asks[place], place, attempt + 1),)

        requests = (self._request(asks[place], place, 0) for place in places)
        for answer in model.generate(requests, follow=follow, cancel=self._parts.cancel):
            if answer.error is not None and not answer.error.retryable:
                raise answer.error
            if answer.finish in ("stop", "length"):
                texts[_handle(answer)[0]] = self._whole(answer)
            if answer.finish != "cancelled":
                self._parts.emit(Answered.of(answer, "II"))
        return again.total()

    # -- prompts -------------------------------------------------------------------------------------------------

    def _request(self, ask: TextTask, place: int, attempt: int) -> Request:
        family = self._families[ask.model]
        common: dict[str, Any] = {
            "seed": seed_of(ask.seed, attempt), "min_p": MIN_P, "no_repeat": NO_REPEAT,
            "temperature": self._temperature, "max_tokens": record_tokens(self._schema),
            "key": f"II:{place}:{attempt}", "place": Place("II", place, attempt),
        }  # fmt: skip
        text = self._fitting(ask, family, common["max_tokens"])
        if family == "chat":
            return Request(messages=(Message("user", text),), **common)
        return Request(prompt=f"{text}\n{self._opening}", stop=("\n\n",), **common)

    def _whole(self, answer: Answer) -> str:
        """An answer as a text of its own: a document was begun for the model, unless it has begun anew itself."""
        text = answer.text.strip()
        return text if answer.request.messages or not text or text.startswith("{") else f"{self._opening} {text}"

    def _fitting(self, ask: TextTask, family: Family, room: int) -> str:
        """The prompt, with fewer examples where a small model's context would not hold it and an answer."""
        model = self._parts.models[ask.model]
        most = self._contexts[ask.model] - room - CHAT_TOKENS
        text = self.prompt(ask, family)
        for less in range(1, MOST_LEFT_OUT):
            if len(text) <= most or model.count_tokens(text) <= most:  # no token is shorter than a letter
                break
            text = self.prompt(ask, family, less)
        return text

    def prompt(self, ask: TextTask, family: Family, less: int = 0) -> str:
        """The prompt of one ask, with so many examples `less` of each kind."""
        schema = self._schema
        own = [record for record in schema.examples if schema.label_of(record) == (ask.label or None)]
        other = [record for record in schema.examples if schema.label_of(record) != (ask.label or None)]
        examples, few = [*other, *own], max(0, SHOWN_EXAMPLES - less)
        values: dict[str, Any] = {
            "family": family, "description": schema.description or schema.name, "fields": schema.fields,
            "rules": [rule.text for rule in schema.rules], "shown": examples[-few:] if few else [],
            "opening": self._named(ask.label), "cut": one_line, "json": schema.dumps,
            "heading": lambda record: self._named(schema.label_of(record) or ""),
        }  # fmt: skip
        for name, value in ask.values.items():
            values[name] = value[: max(1, len(value) - less)] if isinstance(value, list) else value
        return self._prompts.get_template(f"{ask.template}.j2").render(**values).strip()

    def _named(self, label: str) -> str:
        field = self._schema.label_field
        if field is None or not label:
            return ""
        said = field.descriptions.get(label, "") if isinstance(field, CategoryField) else ""
        return f"{field.title} {label}" + (f" ({said})" if said and said != label else "")

    @cached_property
    def _opening(self) -> str:
        """How a record begins: a small model that is to continue a document tends to drift into prose without it."""
        return f"{{{json.dumps(self._schema.fields[0].name, ensure_ascii=False)}:"

    @cached_property
    def _contexts(self) -> tuple[int, ...]:
        return tuple(model.capabilities().context_length for model in self._parts.models)

    @cached_property
    def _families(self) -> tuple[Family, ...]:
        return tuple(family_of(model.name, model.capabilities()) for model in self._parts.models)


def by_class(labels: Iterable[str], samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of each of these classes, in order."""
    found: dict[str, list[Sample]] = {label: [] for label in labels}
    for sample in samples:
        found[sample.label].append(sample)
    return found


def one_line(text: str) -> str:
    """A text as a prompt shows it again: on one line, and not longer than a record can well be."""
    return " ".join(text.split())[:MOST_LETTERS]


def seed_of(*parts: object) -> int:
    """A seed of its own for every combination of names and numbers, the same in every process."""
    digest = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def text_estimate(
    config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]], asks: Sequence[TextTask]
) -> Estimate:
    """What a run that writes texts will take, judged by a few typical asks where no earlier run tells."""
    candidates = plan.candidates if isinstance(plan, GaussianPlan) else 0

    def dry() -> Tokens:
        seen: list[Answered] = []
        parts = Parts(config, schema, plan, (FakeModel(context_length=10**6),), HashingEncoder(), WorkFolder(Path()))
        parts = replace(parts, emit=lambda event: seen.append(event) if isinstance(event, Answered) else None)
        TextWriter(parts, temperature=1.0).write("estimate", 0, asks)
        prompt, completion = sum(one.prompt_tokens for one in seen), sum(one.completion_tokens for one in seen)
        return Tokens.counted(prompt, completion, len(asks))

    return estimate(config, schema, candidates=candidates, runs=runs, dry=dry)


def _handle(answer: Answer) -> tuple[int, int]:
    return answer.place.number, answer.place.attempt


def _count(reason: str, number: int) -> dict[str, int]:
    return {reason: number} if number else {}
