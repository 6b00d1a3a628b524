"""Whole records by the run's own model, under the schema's grammar: for baselines that need more than free text."""

from __future__ import annotations

from collections.abc import Sequence

from selpe.errors import StoppedError
from selpe.events import Answered, PoolReady, StageStarted
from selpe.method.from_settings import generator_of
from selpe.method.generation import Candidate, Proposal
from selpe.models.base import Answer
from selpe.run.methods import Parts
from selpe.schema import Record


def write_records(
    parts: Parts, stage: str, number: int, proposals: Sequence[Proposal], *, taken: Sequence[Record] = ()
) -> tuple[Candidate | None, ...]:
    """A record for each proposal, or None where all attempts failed; tells its progress."""

    def watch(answer: Answer) -> None:
        if answer.finish != "cancelled":
            parts.emit(Answered.of(answer))

    parts.emit(StageStarted(stage, number, len(proposals)))
    generator = generator_of(parts.config, parts.schema, parts.model, parts.cancel)
    made = generator.generate(proposals, taken=taken, watch=watch)
    if generator.stopped:
        raise StoppedError("stopped as asked; every finished answer is kept")
    found = tuple(candidate.record for candidate in made.candidates if candidate is not None)
    effort = made.effort
    parts.emit(PoolReady(stage, number, len(found), dict(effort.retries), dict(effort.given_up), found[:4]))
    return made.candidates
