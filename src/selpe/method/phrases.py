"""Phrases (ours): many cheap values of one text field, written alone, so that its codebook is broad.

A whole record costs a hundred tokens, and models like to repeat themselves in it: of 300 titles of reviews 27 were
'Good'. The field alone costs eight tokens, and asked for in several frames and at a high temperature nearly every one
is new. Only public things enter a prompt.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from selpe.errors import StoppedError
from selpe.method.codebooks import Phrase, is_brief
from selpe.method.echoes import EchoCheck
from selpe.method.guides import default_guide
from selpe.method.record_forms import line_rule, parse
from selpe.models.base import Answer, ChatModel, Message, Place, Request
from selpe.schema import CategoryField, Record, Schema, TextField

MOST_REPEATS = 3
ASKINGS, SEEDS = 3, 8  # of one phrase whose answer never came, and with how many seeds
Frame = Literal["all classes", "own class", "no class", "most common", "alike"]
HEAT, MIN_P = 1.3, 0.03
MOST_TOKENS = 60
SHOWN_ALIKE = 6


@dataclass(frozen=True, slots=True)
class PhraseWriter:
    """Asks a model for values of one text field at a time."""

    model: ChatModel
    schema: Schema
    seed: int = 0
    cancel: threading.Event | None = None
    watch: Callable[[Answer], None] = lambda answer: None

    def write(self, field: TextField, count: int) -> list[Phrase]:
        """Different values of a field, from at most `count` answers: class by class, in several frames."""
        labels, frames = self.schema.labels or ("",), self._frames(field)
        asked = []
        for i in range(count):
            label, frame = labels[i % len(labels)], frames[(i // len(labels)) % len(frames)]
            asked.append((frame, None if frame == "no class" else label or None, self._examples(field, frame, label)))
        return self._answers(field, "phrases", asked)

    def alike(self, field: TextField, groups: Sequence[tuple[Sequence[str], int]]) -> list[Phrase]:
        """More values like those of each group, so many for each: where rows are, the codebook becomes finer."""
        asked: list[tuple[Frame, str | None, list[Record]]] = []
        for number, (texts, count) in enumerate(groups):
            chance = random.Random(f"{self.seed}:{field.name}:{number}")
            for _ in range(count):
                shown = chance.sample(list(texts), min(SHOWN_ALIKE, len(texts)))
                asked.append(("alike", None, [{field.name: text} for text in sorted(shown)]))
        return self._answers(field, "alike", asked)

    def _frames(self, field: TextField) -> tuple[Frame, ...]:
        own: tuple[Frame, ...] = ("all classes", "own class") if self.schema.labels else ()
        return (*own, "no class", "most common") if is_brief(field, self.schema) else (*own, "no class")

    def _examples(self, field: TextField, frame: Frame, label: str) -> list[Record]:
        """The schema's examples in one order for each frame: requests of a frame share what they begin with."""
        known = [record for record in self.schema.examples if record.get(field.name) is not None]
        random.Random(frame).shuffle(known)
        if frame == "most common":
            return []
        own = [record for record in known if self.schema.label_of(record) == label]
        return (own or known) if frame == "own class" else known

    def _answers(
        self, field: TextField, name: str, asked: Sequence[tuple[Frame, str | None, list[Record]]]
    ) -> list[Phrase]:
        """The valid answers without repetitions, in the order of the requests whatever order they come in."""
        # Frame by frame and class by class: neighbours share what they begin with.
        order = sorted(range(len(asked)), key=lambda i: (asked[i][0], asked[i][1] or ""))
        echoes = EchoCheck(self.schema)
        unlike = echoes.texts(())
        requests = (replace(self._request(field, Place(name, i), *asked[i]), unlike=unlike) for i in order)
        texts: dict[int, str] = {}

        def again(answer: Answer) -> Iterable[Request]:
            """A lost answer is asked for as it was, and at last with another seed: no phrase is left out by chance."""
            place, request = answer.place, answer.request
            if answer.error is None or not answer.error.retryable or place.attempt + 1 == ASKINGS * SEEDS:
                return ()
            later = replace(place, attempt=place.attempt + 1)
            seed = request.seed + 1 if later.attempt % ASKINGS == 0 else request.seed
            return (replace(request, place=later, seed=seed),)

        for answer in self.model.generate(requests, follow=again, cancel=self.cancel):
            if answer.error is not None:
                if answer.error.retryable and answer.place.attempt + 1 < ASKINGS * SEEDS:
                    continue
                raise answer.error  # a codebook without it would be another one than the resumed run's
            self.watch(answer)
            text = self._read(field, answer)
            if text is None or field.check(text) is not None or repetitive(text):
                continue
            if not echoes.copies(text, unlike):  # a phrase becomes a fact, which nobody looks at again
                texts[answer.place.number] = text
        if self.cancel is not None and self.cancel.is_set():
            raise StoppedError("stopped as asked; every finished answer is kept")
        return list(dict.fromkeys(Phrase(texts[i], asked[i][1]) for i in sorted(texts)))

    def _request(self, field: TextField, place: Place, frame: Frame, label: str | None, shown: list[Record]) -> Request:
        guide = default_guide(self.model.name, self.model.capabilities())
        text = prompt_templates().get_template(f"{guide.family}_phrase.j2").render(
            description=self.schema.description or self.schema.name,
            field=field,
            about=field.title + (f" ({field.description})" if field.description else ""),
            frame=frame,
            shown=shown,
            heading=lambda record: self._heading(label if record is None else self.schema.label_of(record)),
        )  # fmt: skip
        digest = hashlib.sha256(f"{self.seed}:{place.stage}:{field.name}:{place.number}".encode()).digest()
        common: dict[str, Any] = {
            "seed": int.from_bytes(digest[:6], "big"), "temperature": HEAT, "min_p": MIN_P,
            "max_tokens": MOST_TOKENS, "place": place, "key": f"{field.name}:{place}",
        }  # fmt: skip
        present = replace(field, optional=False)  # the sign for 'missing' is no phrase
        if guide.form == "lines":
            common["grammar"] = f'start: " " value "\\n"\nvalue: {line_rule(present)}\n'
        else:
            common["json_schema"] = Schema("phrase", (present,)).to_json_schema()
        if guide.family == "chat":
            return Request(messages=(Message("user", text.strip()),), **common)
        return Request(prompt=text.rstrip(), **common)

    def _read(self, field: TextField, answer: Answer) -> str | None:
        if answer.finish != "stop":
            return None
        if answer.request.grammar is not None:
            return answer.text.strip()
        value = (parse(self.schema, answer.text, "json") or {}).get(field.name)
        return value if isinstance(value, str) else None

    def _heading(self, label: str | None) -> str:
        one = self.schema.label_field
        if one is None or label is None:
            return "an entry"
        said = one.descriptions.get(label, "") if isinstance(one, CategoryField) else ""
        return f"{one.title} {label}" + (f" ({said})" if said and said != label else "")


def of_pool(field: TextField, records: Iterable[tuple[Record, str | None]]) -> list[Phrase]:
    """The values that whole records have in a field, with their classes."""
    found = (Phrase(str(record[field.name]), label) for record, label in records if record.get(field.name) is not None)
    return list(dict.fromkeys(found))


@cache
def prompt_templates() -> Environment:
    """The templates of prompts: text for a model, not HTML; records are rendered as data, never as templates."""
    return Environment(
        loader=PackageLoader("selpe.method", "prompts"),
        undefined=StrictUndefined,
        keep_trailing_newline=False,
        autoescape=False,
    )


def repetitive(text: str) -> bool:
    """Whether a text repeats itself, as small models do: the same three words in a row, four times or more."""
    words = text.lower().split()
    if len(words) - 2 <= MOST_REPEATS:
        return False
    triples = Counter(zip(words, words[1:], words[2:], strict=False))
    return max(triples.values()) > MOST_REPEATS
