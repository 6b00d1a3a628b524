"""How large an experiment is: minutes on two cores, an evening, a night a split, or the paper's setting for a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from selpe.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Size:
    """The amounts of an experiment. `settings` are those of the runs; `most_test` caps test rows a class."""

    name: str
    per_class: int  # synthetic records, or more where a table has few classes: see `least`
    private: int  # private rows a class
    seeds: int
    epsilons: tuple[float, ...]
    most_test: int | None
    views: tuple[str, ...]
    rows: tuple[int, ...]  # private rows a class of the experiment on scale
    hyper: Mapping[str, tuple[float, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    draws: int = 1  # of SelPE's private choices, for each split and ε
    slow_at: tuple[float, ...] = ()  # ε at which slow methods are run, among several; all where empty
    least: int = 0  # synthetic records in all, however few classes there are

    def records_of(self, classes: int) -> int:
        """Synthetic records a class of a table with so many classes."""
        return max(self.per_class, math.ceil(self.least / classes)) if classes else self.per_class


_EMBEDDED = ("minilm", "boosted")
_TRAINING_TINY = {"steps": 4, "stretches": 2, "layers": 2, "tokens": 128}
_TRAINING_SMALL = {"steps": 3, "stretches": 3, "layers": 8, "tokens": 192}
SIZES: Mapping[str, Size] = {
    size.name: size
    for size in (
        Size(
            "tiny",
            per_class=4,
            private=20,
            seeds=1,
            epsilons=(2.0,),
            most_test=40,
            views=_EMBEDDED,
            rows=(5, 20),
            hyper={"rounds": (1, 3), "multiplicity": (1, 3), "batches": (1, 2), "temperature": (0.7, 1.2)},
            settings={
                "multiplicity": 2, "guide_sample": 2, "bundles": 16,
                "augpe": {"rounds": 2, "expansion": 2},
                "wasp": {"rounds": 2, "votes": 4, "shown": 4},
                "ctcl": {**_TRAINING_TINY, "public_records": 20, "public_steps": 2, "topics": 4},
                "dpgen": {**_TRAINING_TINY, "public_steps": 2},
                "dpds": _TRAINING_TINY,
            },
        ),
        Size(
            "small",
            per_class=40,
            least=200,  # more records are free of ε
            private=20,
            seeds=3,
            epsilons=(4.0, 2.0, 1.0),  # ε = ∞ is among the controls
            draws=4,
            slow_at=(4.0,),
            most_test=None,
            views=_EMBEDDED,
            rows=(5, 10, 20, 35, 50),
            hyper={
                "rounds": (1, 2, 3, 5, 8), "multiplicity": (1, 2, 3, 5), "batches": (1, 2, 4),
                "temperature": (0.6, 0.8, 1.0, 1.2, 1.4),
            },
            settings={
                # One round, as planned for ε up to 2: the texts of later ones would have to be written for each draw.
                # Guides in turn: samples to vote on would be most of all texts at this size, and the vote gains little.
                "rounds": 1, "guides": "mixed",
                "augpe": {"rounds": 2, "expansion": 2},
                "ctcl": {**_TRAINING_SMALL, "public_records": 60, "topics": 6},
                "dpgen": _TRAINING_SMALL,
                # An encoder of 22 million parameters: a better classifier than a small generator, and six times faster.
                "dpds": {"model": "minilm", "steps": 10, "stretches": 2, "tokens": 192},
            },
        ),
        Size(
            "medium",
            per_class=400,
            private=20,
            seeds=3,
            epsilons=(4.0, 2.0, 1.0),
            draws=2,
            slow_at=(4.0,),
            most_test=None,
            views=_EMBEDDED,
            rows=(5, 20, 50, 100, 200, 400),
            hyper={
                "rounds": (1, 2, 3), "multiplicity": (1, 2, 3), "batches": (1, 2, 4), "temperature": (0.6, 1.0, 1.4),
            },
            settings={
                "rounds": 1, "guides": "mixed",
                "augpe": {"rounds": 2, "expansion": 2},
                "ctcl": {**_TRAINING_SMALL, "public_records": 60, "topics": 6},
                "dpgen": _TRAINING_SMALL,
                "dpds": {"model": "minilm", "steps": 10, "stretches": 2, "tokens": 192},
            },
        ),
        Size(
            "paper",
            per_class=400,
            private=20,
            seeds=3,
            epsilons=(math.inf, 4.0, 2.0, 1.0),
            most_test=None,
            views=("roberta", "tabstar"),
            rows=(5, 10, 20, 35, 50),
            hyper={
                "rounds": (1, 2, 3, 4, 5, 6, 8), "multiplicity": (1, 2, 3, 4, 5, 6), "batches": (1, 2, 5, 10, 20),
                "temperature": (0.6, 0.8, 1.0, 1.2, 1.4),
            },
        ),
    )
}  # fmt: skip


def size_of(name: str) -> Size:
    """The size of that name."""
    if name not in SIZES:
        raise ConfigError(f"there is no size '{name}'", where="--size", hint=f"the sizes are {', '.join(SIZES)}")
    return SIZES[name]
