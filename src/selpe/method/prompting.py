"""Prompts: what a model reads before it writes, laid out so that nearly all of it is read once for a whole run.

Description, fields and a few examples stand first and are the same for every class and guide. What differs comes behind
them, the rarer the later: examples of the class, the guide's text, exemplars, and last the class with its facts. Stage
II goes on where stage I stopped: the same prompt, what was written, and the question for the record. So engines and
servers that share beginnings read little more than the notes of stage I.

Only public things enter a prompt: schema, guide, facts drawn from released tables, and synthetic exemplars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from selpe.method.guides import Family, Form, Guide
from selpe.method.phrases import prompt_templates
from selpe.method.record_forms import Fact, written
from selpe.models.base import Message
from selpe.schema import CategoryField, Record, Schema, Span, Value

COMMON = 2  # examples at the beginning, of different classes as far as there are any
_MOST_KEPT = 4096  # rendered prompts


@dataclass(frozen=True, slots=True)
class Proposal:
    """One candidate to generate: its class, the guide, the exemplars of the round before, and facts that it must have.

    Facts were drawn from measured tables, or are given by whoever asks for the record. They bind while decoding. A
    record has its class in any case; without `class_told` the model writes it knowing the facts alone.
    """

    guide: Guide
    seed: int
    label: str | None = None
    positives: tuple[Record, ...] = ()
    negatives: tuple[Record, ...] = ()
    facts: tuple[tuple[str, Fact], ...] = ()
    class_told: bool = True


class PromptWriter:
    """Lays out prompts of a schema. `staged` says that notes are written before the record."""

    def __init__(self, schema: Schema, *, staged: bool) -> None:
        self._schema = schema
        self._staged = staged
        self._templates = prompt_templates()
        self._beginnings: dict[tuple[Family, Form], str] = {}
        self._whole: dict[tuple[Any, ...], str] = {}

    def opening(self, proposal: Proposal, fixed: Mapping[str, Fact]) -> dict[str, Any]:
        """What a request for the first answer says: for notes, or without stages for the record."""
        text = self._text(proposal, self._told(proposal, fixed))
        if proposal.guide.family == "document":
            return {"prompt": text if self._staged else text + "\n"}
        return {"messages": (Message("user", text),)}

    def record(self, proposal: Proposal, fixed: Mapping[str, Fact], notes: str) -> dict[str, Any]:
        """What a request for the record says, when its notes are written: all that was said before, and them."""
        fixed = self._told(proposal, fixed)
        text = self._text(proposal, fixed)
        if proposal.guide.family == "document":
            return {"prompt": f"{text} {notes}\nRecord:\n"}
        then = self._render("chat_record.j2", ask=self._ask(fixed), form=_form(proposal.guide))
        return {"messages": (Message("user", text), Message("assistant", notes), Message("user", then))}

    def in_order(self, proposals: Sequence[Proposal]) -> list[int]:
        """The numbers of these proposals, so that neighbours have as much of their prompts in common as possible."""
        ranks: dict[tuple[Any, ...], int] = {}
        places = []
        for one in proposals:
            guide, own = one.guide, self._own(one)
            told = one.label if one.class_told else None
            parts = (guide.family, guide.form), told, own, guide.text, one.negatives, one.positives
            known = tuple(repr(part) for part in parts)
            places.append([ranks.setdefault(known[:end], len(ranks)) for end in range(1, len(known) + 1)])
        return sorted(range(len(proposals)), key=places.__getitem__)

    def _told(self, proposal: Proposal, fixed: Mapping[str, Fact]) -> Mapping[str, Fact]:
        """What a prompt says that the record must have. Everything, but for a class that is not to be told."""
        return fixed if proposal.class_told else {k: fact for k, fact in fixed.items() if k != self._schema.label}

    # -- texts ---------------------------------------------------------------------------------------------------

    def _text(self, proposal: Proposal, fixed: Mapping[str, Fact]) -> str:
        """A prompt up to where the model goes on. There are few of them, each for many requests."""
        shown = self._own(proposal), proposal.positives, proposal.negatives
        key = (proposal.guide, proposal.label, proposal.class_told, tuple(fixed.items()), repr(shown))
        if key not in self._whole:
            if len(self._whole) >= _MOST_KEPT:
                self._whole.clear()
            self._whole[key] = self._beginning(proposal.guide) + self._ending(proposal, fixed)
        return self._whole[key]

    def _beginning(self, guide: Guide) -> str:
        """What all prompts of a run begin with."""
        key = (guide.family, guide.form)
        if key not in self._beginnings:
            text = self._render(
                f"{guide.family}_beginning.j2",
                description=self._schema.description or self._schema.name,
                fields=self._schema.fields,
                rules=[rule.text for rule in self._schema.rules],
                staged=self._staged,
                common=self._common,
                heading=lambda record: self._heading(self._class_of(record)),
                **self._record_forms(guide),
            )
            self._beginnings[key] = text + "\n\n"
        return self._beginnings[key]

    def _ending(self, proposal: Proposal, fixed: Mapping[str, Fact]) -> str:
        """What is a request's own: its class, its guide, its exemplars and its facts."""
        guide = proposal.guide

        def heading(record: Record) -> str:
            """An example's values in the fields of the facts, as above the record asked for: so the model sees how a
            record follows from its heading."""
            return self._heading({name: record.get(name) for name in fixed})

        return self._render(
            f"{guide.family}_ending.j2",
            guide=guide.text,
            own=self._own(proposal),
            positives=proposal.positives,
            negatives=proposal.negatives,
            staged=self._staged,
            opening=self._heading(fixed),
            ask=self._ask(fixed),
            form=_form(guide),
            heading=heading,
            **self._record_forms(guide),
        )

    def _record_forms(self, guide: Guide) -> dict[str, Any]:
        schema = self._schema
        return {
            "notes": lambda record: schema.linearise(record, without=tuple(self._class_of(record))),
            "sentence": schema.linearise,
            "realised": lambda record: written(schema, record, guide.form),
        }

    def _render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(**values).strip()

    # -- examples ------------------------------------------------------------------------------------------------

    @cached_property
    def _common(self) -> Sequence[Record]:
        """The examples at the beginning of every prompt: few, because a small model copies what it sees much of."""
        first = {self._schema.label_of(record): record for record in reversed(self._schema.examples)}
        if len(first) < COMMON:
            return self._schema.examples[:COMMON]
        labels = [label for label in self._schema.labels if label in first]
        return [first[labels[i * (len(labels) - 1) // (COMMON - 1)]] for i in range(COMMON)]

    def _own(self, proposal: Proposal) -> list[Record]:
        """Examples of the class behind the common ones; the seed says which.

        What stands last steers a small model most: exemplars, which won a private vote, take their place. Where the
        class is not to be told, none of its examples are shown.
        """
        if not proposal.class_told:
            return []
        of_class = [record for record in self._schema.examples if self._schema.label_of(record) == proposal.label]
        found = [record for record in of_class if record not in self._common]
        if self._schema.label is not None:
            found = found or of_class  # said twice is better than another class said last
        room = min(max(0, proposal.guide.shots - len(proposal.positives)), len(found))
        return [found[(proposal.seed + i) % len(found)] for i in range(room)]

    # -- words ---------------------------------------------------------------------------------------------------

    def _class_of(self, record: Record) -> dict[str, Value]:
        return {} if self._schema.label is None else {self._schema.label: record.get(self._schema.label)}

    def _heading(self, values: Mapping[str, Fact]) -> str:
        parts = [self._named(name, value) for name, value in values.items()]
        return (", ".join(parts) + ":") if parts else "Entry:"

    def _ask(self, fixed: Mapping[str, Fact]) -> str:
        if not fixed:
            return ""
        return "It must have " + " and ".join(self._named(name, value) for name, value in fixed.items()) + "."

    def _named(self, name: str, value: Fact) -> str:
        one = self._schema.field(name)
        if isinstance(value, Span):
            return f"{one.title} {value}"
        said = one.descriptions.get(str(value), "") if isinstance(one, CategoryField) else ""
        return f"{one.title} {one.text_of(value)}" + (f" ({said})" if said and said != value else "")


def _form(guide: Guide) -> str:
    return "one JSON object" if guide.form == "json" else "'field: value' lines"
