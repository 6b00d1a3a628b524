"""Records of a made-up repair shop whose class can be learned from every kind of field, though not perfectly."""

from __future__ import annotations

import random
from datetime import date, timedelta

from selpe.schema import Record, Schema

SHOP = Schema.from_yaml(
    """
name: shop
label: fault
fields:
  complaint: {kind: text, max_length: 120}
  device: {kind: category, values: [phone, laptop, camera, radio]}
  age: {kind: integer, min: 0, max: 30, optional: true}
  price: {kind: number, min: 0, max: 3000, step: 0.01, optional: true}
  dropped: {kind: boolean}
  bought: {kind: date, min: 2000-01-01, max: 2030-12-31}
  fault: {kind: category, values: [battery, screen, sound]}
"""
)
WORDS = {
    "battery": ["empty", "charging", "dies", "power", "hot", "swollen"],
    "screen": ["cracked", "dark", "glass", "lines", "flicker", "black"],
    "sound": ["silent", "noise", "speaker", "crackling", "volume", "quiet"],
}
PLAIN = ["it", "is", "always", "again", "after", "work", "since", "monday", "badly", "please", "help", "now"]
DEVICES = {"battery": [5, 3, 1, 1], "screen": [4, 4, 2, 0], "sound": [2, 2, 1, 5]}


def learnable(count: int, *, seed: int, clear: float = 0.25, gaps: float = 0.1) -> list[Record]:
    """Valid records, classes in turn. `clear` is the share of telling words, `gaps` that of missing values."""
    rng = random.Random(seed)
    return [_one(SHOP.labels[number % 3], rng, clear, gaps) for number in range(count)]


def _one(fault: str, rng: random.Random, clear: float, gaps: float) -> Record:
    kind = SHOP.labels.index(fault)
    words = [rng.choice(WORDS[fault] if rng.random() < clear else PLAIN) for _ in range(5)]
    return {
        "complaint": " ".join(words),
        "device": rng.choices(["phone", "laptop", "camera", "radio"], DEVICES[fault])[0],
        "age": None if rng.random() < gaps else min(30, max(0, round(rng.gauss(4 + 3 * kind, 4)))),
        "price": None if rng.random() < gaps else round(rng.uniform(20, 2000 - 300 * kind), 2),
        "dropped": rng.random() < (0.2, 0.6, 0.2)[kind],
        "bought": (date(2018, 1, 1) + timedelta(days=rng.randrange(1500) + 200 * kind)).isoformat(),
        "fault": fault,
    }
