"""How many records are tried again because they break a rule: with rules that bind while decoding, and without.

    python benchmarks/rules.py examples/triage/schema.yaml 48

Both write the same proposals with the embedded model, one after the other. Tokens and tries are counted, not seconds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from selpe.method.generation import Candidate, Generator, Proposal
from selpe.method.guides import builtin_guides
from selpe.method.record_forms import Notes
from selpe.models.answers import InFront
from selpe.models.base import Answer, Capabilities, ChatModel
from selpe.models.open import open_model
from selpe.schema import Schema


class WithoutSteps(InFront):
    """The same model, as one that takes a single grammar for the whole record."""

    def __init__(self, model: ChatModel) -> None:
        super().__init__(model)
        self.generate = model.generate
        self.close = model.close

    def capabilities(self) -> Capabilities:
        """What the model behind can do, save steps."""
        return replace(self._model.capabilities(), steps=False)


class Counting(Generator):
    """A generator that keeps the answers which broke a rule."""

    broken: tuple[Answer, ...] = ()

    def _candidate(self, proposal: Proposal, notes: Notes, answer: Answer, attempt: int) -> Candidate | str:
        outcome = super()._candidate(proposal, notes, answer, attempt)
        if outcome == "rule":
            self.broken += (answer,)
        return outcome


def count(model: ChatModel, schema: Schema, records: int, name: str) -> None:
    guides = builtin_guides(schema, model.name, model.capabilities())
    classes = schema.labels or (None,)
    proposals = [
        Proposal(guides[seed % len(guides)], seed, classes[seed // len(guides) % len(classes)])
        for seed in range(records)
    ]
    generator = Counting(model, schema)
    effort = generator.generate(proposals).effort
    tried_again = len({answer.place.number for answer in generator.broken})
    thrown_away = sum(answer.completion_tokens for answer in generator.broken)
    print(
        f"{name}: {tried_again} of {records} records broke a rule, {effort.retries['rule']} tries again; "
        f"{thrown_away} of {effort.completion_tokens} tokens written for nothing, {effort.prompt_tokens} read",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schema", type=Path)
    parser.add_argument("records", type=int, nargs="?", default=48)
    asked = parser.parse_args()
    schema = Schema.load(asked.schema)
    model = open_model()
    count(model, schema, asked.records, "rules bind")
    count(WithoutSteps(model), schema, asked.records, "rules are checked")


if __name__ == "__main__":
    main()
