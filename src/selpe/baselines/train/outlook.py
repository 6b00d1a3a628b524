"""What a training will cost and take, before it begins; and what is said of it when it is done. All of it public."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from selpe.baselines.train.course import Course
from selpe.baselines.train.texts import fields_by_line
from selpe.config.methods import TrainingSettings
from selpe.run.estimate import Estimate
from selpe.run.methods import Parts, SpendingPlan
from selpe.schema import Schema

# Tokens a second and core, for 135 million parameters in single precision: learnt from, and written.
_LEARNT, _WRITTEN, _PARAMETERS = 130.0, 35.0, 135e6
_DRAW = 12e-6  # seconds a core takes for the noise of one parameter
_LOADING = 30.0
_BYTES_PER_PARAMETER = 0.73  # of the default model's file
_LETTERS_PER_TOKEN = 4.0


def training_estimate(
    schema: Schema, plan: SpendingPlan, own: TrainingSettings, *, texts: int, public_records: int = 0
) -> Estimate:
    """A guess from typical speeds: training takes much longer than writing."""
    from selpe.models.machine import this_machine

    cores = max(1.0, this_machine().usable_cores)
    parameters = _parameters(own.model)
    per_record = min(float(own.tokens), _letters(schema) / _LETTERS_PER_TOKEN)
    slower = max(0.1, parameters / _PARAMETERS)
    learnt = (plan.units * own.steps + public_records) * per_record
    drawn = own.steps * (parameters if own.tuning == "full" else 0.0017 * parameters * own.rank / 4)
    written = texts * per_record
    seconds = _LOADING + (learnt * slower / _LEARNT + written * slower / _WRITTEN + drawn * _DRAW) / cores
    return Estimate(
        texts, round(texts * 8), round(written), seconds, f"typical speed of training on {cores:g} cores", None
    )  # fmt: skip


def context_of(parts: Parts, own: TrainingSettings, *more: str) -> str:
    """A hash of what a training starts from, so that a stored stretch is never taken for another training's."""
    settings = {"own": own.model_dump(mode="json"), "seed": parts.config.seed, "schema": parts.schema.fingerprint()}
    return hashlib.sha256(json.dumps([settings, *more], sort_keys=True).encode()).hexdigest()


def notes_of(course: Course, parameters: int, model: str) -> dict[str, Any]:
    """Public facts about a training, for the manifest."""
    adjacency = course.looks.plan.adjacency
    return {
        "model": model,
        "parameters": parameters,
        "steps": sum(made.steps for made in course.done),
        "clip": course.clip,
        "sigma": [str(look.sigma(adjacency)) for look in course.stretches],
        "state": course.state,
    }


def _parameters(model: str) -> float:
    """How many parameters a model has, by the size of its file; one of ordinary size where nobody knows yet."""
    from selpe.run.estimate import weight_of

    return weight_of(model) / (4.0 if Path(model).is_dir() else _BYTES_PER_PARAMETER)


def _letters(schema: Schema) -> float:
    """The length of a record as text: of the examples, else a guess by field."""
    texts = [fields_by_line(schema, record) for record in schema.examples]
    return sum(map(len, texts)) / len(texts) if texts else 28.0 * len(schema.fields)
