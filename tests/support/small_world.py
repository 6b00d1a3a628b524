"""A small schema, some records and a public plan: enough to run the whole method in a second."""

from __future__ import annotations

import json

from selpe.models import Request
from selpe.models.fake import FakeModel
from selpe.schema import Record, Schema

SCHEMA = Schema.from_yaml(
    """
name: desk
description: One entry per visitor of a help desk.
label: urgency
fields:
  topic: {kind: text, min_length: 3, max_length: 60, description: What the visitor asks}
  channel: {kind: category, values: {phone: by telephone, mail: by letter, visit: in person}}
  minutes: {kind: integer, min: 1, max: 90, unit: min}
  waited: {kind: integer, min: 0, max: 240, optional: true}
  score: {kind: number, min: 0, max: 10, step: 0.5, optional: true}
  solved: {kind: boolean}
  day: {kind: date, min: 2024-01-01, max: 2024-12-31}
  urgency: {kind: category, values: {low: can wait, high: today}}
rules:
  - if solved == true then minutes >= 2
examples:
  - {topic: lost password, channel: phone, minutes: 5, waited: 2, score: 8.5, solved: true, day: 2024-03-01,
     urgency: low}
  - {topic: line is dead, channel: visit, minutes: 30, waited: null, score: null, solved: false, day: 2024-04-09,
     urgency: high}
"""
)
UNLABELLED = Schema.from_yaml(SCHEMA.to_yaml().replace("label: urgency\n", ""))


def drawn(count: int, *, offset: int = 0, schema: Schema = SCHEMA) -> list[Record]:
    """Valid records, drawn by the fake model."""
    found: list[Record] = []
    number = offset
    while len(found) < count:
        request = Request(prompt="draw", json_schema=schema.to_json_schema(), seed=number)
        record = json.loads(next(iter(FakeModel().generate([request]))).text)
        number += 1
        if not schema.check(record):
            found.append(record)
    return found
