"""Records with texts that are long enough to be copied: a note of many words, a ward, an age and a class."""

from __future__ import annotations

import numpy as np

from selpe.schema import Record, Schema

NOTES = Schema.from_yaml(
    """
name: notes
description: One note per visit.
label: level
fields:
  note: {kind: text, min_length: 1, max_length: 2000}
  ward: {kind: category, values: [north, south, east, west]}
  age: {kind: integer, min: 0, max: 110, unit: years}
  fever: {kind: number, min: 35, max: 42, step: 0.1, optional: true}
  level: {kind: category, values: [low, high]}
"""
)
_FIRST, _LAST = ("ba", "ce", "di", "fo", "gu", "ha"), ("ran", "lit", "mos", "ket", "dur", "pen", "vil", "sor", "tam")
_WORDS = np.array([f"{first}{last}" for first in _FIRST for last in _LAST])


def written(count: int, seed: int, *, words: int = 30) -> list[Record]:
    """Records of one distribution: words with a few frequent ones, a fever and an age that go with the class."""
    random = np.random.default_rng(seed)
    chance = 1 / np.arange(1, len(_WORDS) + 1)
    found: list[Record] = []
    for _ in range(count):
        high = bool(random.random() < 0.4)
        length = int(random.integers(words // 2, words))
        chosen = random.choice(_WORDS[::-1] if high else _WORDS, size=length, p=chance / chance.sum())
        found.append(
            {
                "note": " ".join(chosen.tolist()),
                "ward": ("north", "south", "east", "west")[int(random.integers(4))],
                "age": int(np.clip(random.normal(60 if high else 40, 15), 0, 110)),
                "fever": None if random.random() < 0.2 else round(float(random.normal(38.5 if high else 37, 0.4)), 1),
                "level": "high" if high else "low",
            }
        )
    return found
