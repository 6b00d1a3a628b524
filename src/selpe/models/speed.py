"""How fast a model is on this machine, measured on work of the shape that a run gives it.

Candidates in two stages over a shared prompt: a few sentences of free text, then a five-field record under a JSON
schema. So the figure includes prefill, grammar and sampling, and can be multiplied by a run's candidates.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from selpe.errors import ModelError
from selpe.models.base import Answer, ChatModel, Request

_NOTE = (
    "Note {k}: A {who} came to the desk at {hour} in the {part} and asked about a {what}. The clerk wrote down the "
    "name, looked at the papers, and gave a date for the answer.\n"
)
_SHARED = "Short notes from the desk of a city office, one per visitor.\n\n" + "".join(
    _NOTE.format(k=k, who=who, hour=hour, part=part, what=what)
    for k, (who, hour, part, what) in enumerate(
        [
            ("woman of about forty", "nine", "morning", "parking permit"),
            ("student", "three", "afternoon", "certificate of residence"),
            ("retired teacher", "eleven", "morning", "tax letter"),
            ("young couple", "four", "afternoon", "marriage form"),
            ("shop owner", "ten", "morning", "licence for outdoor tables"),
            ("man with a dog", "two", "afternoon", "dog registration"),
        ],
        start=1,
    )
)
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "visitor": {"type": "string", "minLength": 3, "maxLength": 40},
        "matter": {"enum": ["permit", "certificate", "tax", "other"]},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "minutes": {"type": "number", "minimum": 1, "maximum": 60, "multipleOf": 0.5},
        "urgent": {"type": "boolean"},
    },
    "required": ["visitor", "matter", "age", "minutes", "urgent"],
    "additionalProperties": False,
}
STAGE_ONE_TOKENS = 64
_STAGE_TWO_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured."""

    tokens: int
    candidates: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens written, both stages."""
        return self.tokens / self.seconds

    @property
    def candidates_per_second(self) -> float:
        """Whole candidates: context and record."""
        return self.candidates / self.seconds

    def seconds_for(self, records: int, multiplicity: int = 3) -> float:
        """How long a run of that many records would generate, at `multiplicity` candidates per record."""
        return records * multiplicity / self.candidates_per_second


def measure(model: ChatModel, candidates: int = 32) -> Speed:
    """The speed of a model on `candidates` candidates, after a first one that warms it up."""
    _run(model, 1)
    started = time.perf_counter()
    tokens, finished = _run(model, candidates)
    seconds = time.perf_counter() - started
    if not finished:
        raise ModelError("the model finished none of the records of the measurement")
    return Speed(tokens, finished, seconds)


def _run(model: ChatModel, candidates: int) -> tuple[int, int]:
    def follow(answer: Answer) -> list[Request]:
        if answer.request.key != "I":
            return []
        prompt = f"{answer.request.prompt}{answer.text}\n\nThe same as JSON: "
        return [
            Request(
                prompt=prompt, json_schema=_SCHEMA, max_tokens=_STAGE_TWO_TOKENS, seed=answer.request.seed, key="II"
            )
        ]

    first = (
        Request(prompt=f"{_SHARED}Note 7:", max_tokens=STAGE_ONE_TOKENS, min_p=0.05, seed=k, key="I", stop=("\n",))
        for k in range(candidates)
    )
    tokens = finished = 0
    for answer in model.generate(first, follow=follow):
        tokens += answer.completion_tokens
        finished += answer.request.key == "II" and answer.finish == "stop"
    return tokens, finished
