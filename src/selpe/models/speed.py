"""How fast a model is on this machine, measured on work of the shape that a run gives it.

Candidates in two stages over a shared prompt: a few sentences of free text, then a five-field record under a JSON
schema. So the figure includes prefill, grammar and sampling, and can be multiplied by a run's candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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
_BATCH, _MOST_TOKENS = 64, 12  # of the short measurement
_LETTERS = 4  # of a token, about


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


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a model reads prompts and writes answers, in tokens a second, with its batch full."""

    reading: float
    writing: float

    def seconds(self, cold: float, written: float) -> float:
        """How long it takes to read so many tokens and to write so many."""
        return cold / self.reading + written / self.writing


def measure_pace(
    model: ChatModel, *, context: int = 0, lasting: float = 1.0, clock: Callable[[], float] = time.perf_counter
) -> Pace:
    """The pace of a model on this machine, found in about twice `lasting` seconds.

    Reading: one prompt, of a size that fits the time. Writing: what a batch takes longer for several tokens each than
    for one, behind a common beginning of about `context` tokens where the model remembers what it has read: attention
    to a long prompt can take longer than all else. It is for models in this process: a server would have to be paid.
    """
    _timed(model, [Request(prompt=_SHARED[:60], max_tokens=2)], clock)  # the first call of all is slow
    reading, seconds = _timed(model, [Request(prompt=_SHARED[60:300], max_tokens=1)], clock)
    beginning = ""
    if 4 * seconds < lasting:
        long = _SHARED[300:] + _SHARED * (1 + context * _LETTERS // len(_SHARED))
        long = long[: max(len(_SHARED), context * _LETTERS)]
        reading, seconds = _timed(model, [Request(prompt=long, max_tokens=1)], clock)
        if context and model.capabilities().prefix_cache:
            beginning = long
    cold = sum(answer.prompt_tokens - answer.cached_tokens for answer in reading)
    one, short = _timed(model, _batch(model, 1, beginning), clock)
    several = max(3, min(_MOST_TOKENS, round(lasting / max(short, 1e-6) * 2)))
    many, longer = _timed(model, _batch(model, several, beginning), clock)
    if not (one and many and _written(many)):
        raise ModelError("the model wrote nothing while its speed was measured")
    more, behind = _written(many) - _written(one), longer - short
    if more <= 0 or behind < 0.2 * longer:  # too uneven to tell: the whole is a lower bound
        more, behind = _written(many), longer
    return Pace(max(1, cold) / max(seconds, 1e-6), more / max(behind, 1e-6))


def _timed(
    model: ChatModel, requests: Sequence[Request], clock: Callable[[], float]
) -> tuple[list[Answer], float]:  # fmt: skip
    since = clock()
    answers = [answer for answer in model.generate(requests) if answer.finish in ("stop", "length")]
    return answers, clock() - since


def _batch(model: ChatModel, tokens: int, beginning: str) -> list[Request]:
    """A batch of prompts, none of which goes on like those before it."""
    size = max(1, min(_BATCH, model.capabilities().parallel))
    return [Request(prompt=f"{beginning}{tokens} {k}: the", max_tokens=tokens, min_p=0.05, seed=k) for k in range(size)]


def _written(answers: Sequence[Answer]) -> int:
    return sum(answer.completion_tokens for answer in answers)


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
