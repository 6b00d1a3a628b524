"""Guides (ours): different public ways to ask the model for records of the same schema.

A guide says how prompts are laid out (`family`), what they tell the model, how many examples of the class they show at
the end (`shots`), how many fields are seeded with random values from the schema, and by which factor the temperature is
changed. What prompts begin with is the same for all guides (`prompting.py`). Guides are public text. One private vote
among them, before round 1, chooses the one that all later rounds use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from selpe.models.base import Capabilities, ChatModel, Message, Request
from selpe.schema import CategoryField, Schema

Family = Literal["chat", "document"]
Form = Literal["json", "lines"]
SMALL_MODELS = ("smollm", "135m", "360m", "fake")
WRITTEN = 3  # guides that a model writes, where it can follow instructions


@dataclass(frozen=True, slots=True)
class Guide:
    """One way to ask for records."""

    name: str
    family: Family = "document"
    form: Form = "json"
    text: str = ""
    shots: int = 1
    hints: int = 0
    heat: float = 1.0


def family_of(name: str, capabilities: Capabilities) -> Family:
    """The prompt family that suits a model: small models continue documents, larger ones follow instructions.

    A 135M model echoes instructions back; a labelled document to continue serves it clearly better.
    """
    small = any(mark in name.lower() for mark in SMALL_MODELS)
    return "document" if small or not capabilities.chat_template else "chat"


def default_guide(name: str, capabilities: Capabilities) -> Guide:
    """The guide that is used when none is voted on.

    Small models write 'field: value' lines: shorter than JSON, and closer to the text that they know.
    """
    family = family_of(name, capabilities)
    return Guide("plain", family=family, form="lines" if family == "document" and capabilities.grammar else "json")


def builtin_guides(schema: Schema, name: str, capabilities: Capabilities) -> tuple[Guide, ...]:
    """Guides that really differ, written from the schema alone. Each should be worth trying: a bad one costs time."""
    plain = default_guide(name, capabilities)
    classes = _class_notes(schema)
    described = replace(plain, name="classes described", text=classes)
    if plain.family == "chat":
        return plain, described, replace(plain, name="seeded values", hints=2)
    return (
        plain,
        described,
        replace(plain, name="own class last", shots=2),
        replace(plain, name="own class last, cooler", shots=2, heat=0.75),
        replace(plain, name="no class last", shots=0),
        # Random values draw a small model away from its class, so one at most.
        replace(plain, name="seeded value", hints=1),
    )


def written_guides(schema: Schema, model: ChatModel, *, count: int, seed: int) -> tuple[Guide, ...]:
    """Guides that the model writes from the schema: what a typical record of each class looks like."""
    plain = default_guide(model.name, model.capabilities())
    label = schema.label_field
    about = f" for each {label.title} ({', '.join(schema.labels)})" if label is not None else ""
    ask = (
        f"{schema.description or schema.name}\n\nWrite short advice for somebody who makes up realistic records of "
        f"this kind: what a typical one looks like{about}, which values go together, and how the text is phrased. "
        "Five sentences at most."
    )
    asked = (
        Request(messages=(Message("user", ask),), max_tokens=220, temperature=0.9, seed=seed + i) for i in range(count)
    )
    if not model.capabilities().chat_template:
        return ()
    answers = sorted(model.generate(asked), key=lambda answer: answer.request.seed)
    for answer in answers:
        if answer.error is not None:
            raise answer.error  # a guide that came later would make another run of this one
    texts = [" ".join(answer.text.split()) for answer in answers if answer.finish in ("stop", "length")]
    return tuple(replace(plain, name=f"written {i}", text=text, hints=1) for i, text in enumerate(texts, 1) if text)


def user_guides(texts: Sequence[str], name: str, capabilities: Capabilities) -> tuple[Guide, ...]:
    """The user's own guide texts."""
    plain = default_guide(name, capabilities)
    return tuple(replace(plain, name=f"own {i}", text=text) for i, text in enumerate(texts, 1))


def _class_notes(schema: Schema) -> str:
    """What the schema says about each class, as a few lines of prose."""
    field = schema.label_field
    if field is None:
        return ""
    described = field.descriptions if isinstance(field, CategoryField) else {}
    return "\n".join(f"{field.title} {label}: {described.get(label, label)}." for label in schema.labels)
