"""Grades of samples, kept beside the runs: what a model was found to be worth for a schema, before ε was spent.

A grade holds for one schema, one model and one way to ask it; where one of them changes there is none. It depends on
no private row.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

from selpe.config import RunConfig
from selpe.evaluation.sample_grade import CandidateSample, SampleGrade, grade_sample
from selpe.events import Emit, Graded
from selpe.method.attempts import Candidate
from selpe.method.generation import Generation
from selpe.models.encoders.base import Encoder
from selpe.models.nearby import billions_in
from selpe.models.store.blobs import read_json, write_json
from selpe.models.store.curated import CURATED, curated
from selpe.schema import Schema

log = logging.getLogger(__name__)

SAMPLE = 32  # candidates; enough to tell poor from good, and written in a minute or two
_BOOK = "grades.json"
_BETTER = (8.0, 2.0)  # times the parameters of a model that is worth naming as a larger one: wanted, and at least
_FREE = "Apache-2.0"
_WRITING = ("guides", "stages", "temperature", "record_temperature", "attempts")  # settings that change what is written


def sample_of(made: Generation, attempts: int, most: int = SAMPLE) -> tuple[list[Candidate], CandidateSample]:
    """Candidates of a pool, class by class in turn and evenly over all of it, and the sample that they are.

    What was given up is in it with its share of the pool.
    """
    classes: dict[str, list[Candidate]] = {}
    for candidate in made.candidates:
        if candidate is not None:
            classes.setdefault(candidate.proposal.label or "", []).append(candidate)
    total, valid = len(made.candidates), sum(map(len, classes.values()))
    asked = min(most, total)
    wanted = round(asked * valid / max(1, total))
    each = -(-wanted // max(1, len(classes)))
    spread = [own[:: max(1, len(own) // max(1, each))] for own in classes.values()]
    found = [one for turn in zip_longest(*spread) for one in turn if one is not None][:wanted]
    copied = made.effort.retries["echo"] + made.effort.given_up["echo"]
    return found, CandidateSample(
        records=[candidate.record for candidate in found],
        asked=asked,
        tries=sum(candidate.attempts for candidate in found) + attempts * (asked - len(found)),
        copied=round(copied * asked / max(1, total)),
    )


def graded(config: RunConfig, schema: Schema, sample: CandidateSample, encoder: Encoder) -> SampleGrade:
    """The grade of a sample, kept for later."""
    grade = grade_sample(schema, sample, encoder, larger=larger_than(config.llm))
    _keep(config, schema, grade)
    return grade


def first_pool_grader(config: RunConfig, schema: Schema, encoder: Encoder, emit: Emit) -> _Grader | None:
    """What grades the first pool of a run and tells of it; None for the fake model, whose texts mean nothing."""
    return None if config.llm == "fake" else _Grader(config, schema, encoder, emit)


class _Grader:
    """Called with the first pool of a run, before any private row has been looked at."""

    def __init__(self, config: RunConfig, schema: Schema, encoder: Encoder, emit: Emit) -> None:
        self._config, self._schema, self._encoder, self._emit = config, schema, encoder, emit

    def __call__(self, made: Generation) -> None:
        sample = sample_of(made, self._config.attempts)[1]
        if sample.records:
            grade = graded(self._config, self._schema, sample, self._encoder)
            self._emit(Graded(grade.grade, grade.records, tuple(map(asdict, grade.measures)), grade.steps))


def kept_grade(config: RunConfig, schema: Schema) -> SampleGrade | None:
    """The grade that was found for this schema, model and way to ask, if there was one."""
    found = (read_json(_book(config)) or {}).get(_key(config, schema))
    try:
        return None if found is None else SampleGrade.from_dict(found)
    except (KeyError, TypeError, ValueError):
        return None  # of another version


def larger_than(llm: str) -> str:
    """A model of the list that is clearly larger than this one and free for any use, by its name; '' if none is."""
    known = curated(llm)
    size = known.billions if known is not None else billions_in(llm.rpartition("#")[2])
    free = [model for model in CURATED if model.licence == _FREE and size is not None]
    able = (model for times in _BETTER for model in free if model.billions >= times * (size or 0.0))
    return next((f"{model.name} (selpe models pull {model.name})" for model in able), "")


def _keep(config: RunConfig, schema: Schema, grade: SampleGrade) -> None:
    book = _book(config)
    try:
        book.parent.mkdir(parents=True, exist_ok=True)
        write_json(book, {**(read_json(book) or {}), _key(config, schema): grade.as_dict()})
    except OSError:  # then the next run grades its own candidates
        log.info("the grade of the sample cannot be kept in %s", book)


def _book(config: RunConfig) -> Path:
    return Path(config.out) / _BOOK


def _key(config: RunConfig, schema: Schema) -> str:
    asked: Sequence[object] = [getattr(config, name) for name in _WRITING]
    whole = repr((schema.fingerprint(), config.llm, _prompts(), asked))
    return hashlib.sha256(whole.encode()).hexdigest()[:24]


@cache
def _prompts() -> str:
    """The version of the prompts: a digest of their templates."""
    folder = files("selpe.method") / "prompts"
    texts = sorted((one.name, one.read_bytes()) for one in folder.iterdir() if one.name.endswith(".j2"))
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]
