"""Which cells an experiment has: the paper's tables and figures, and the comparison on one data set.

Controls belong to every one of them: ε = 0 (what the public model can do alone), ε = ∞, training on the private rows
themselves, and training on as many real rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from selpe.config.methods import is_baseline
from selpe.errors import ConfigError
from selpe.experiments.arms import ARMS, EVERYTHING, NOTHING, PRIVATE_ROWS, REAL_ROWS, Arm, arm_of
from selpe.experiments.grid import Cell, Factor, merged
from selpe.experiments.sizes import Size

ALL = tuple(ARMS)
# What the paper takes away, and what of ours can be taken away; the rest stays as it is.
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "without contrast": {"contrast": False},
    "without progressive quota": {"quota": "uniform"},
    "without two stages": {"stages": 1},
    "without field kernel": {"kernel": "global"},
}
# These act from the second round on.
LATER = ("without contrast", "without progressive quota", "without exploration")
TWO_ROUNDS = "two rounds"
WITHOUT_OURS: Mapping[str, Mapping[str, Any]] = {
    "without measured tables": {"measure": "off"},
    "without guides": {"guides": "off"},
    "without bundles": {"bundles": 0},
    "without exploration": {"explore": 0.0},
    "votes as in the paper": {"votes": "prototype"},
}


@dataclass(frozen=True, slots=True)
class Ask:
    """What an experiment is asked for: data sets, seeds, ε, methods, models, amounts, settings over all others."""

    size: Size
    data: Sequence[str]
    seeds: Sequence[int]
    epsilons: Sequence[float]
    methods: Sequence[str] = ALL
    llms: Sequence[str] = ("smollm2",)
    base: str = "selpe"  # of ablation, hyper-parameters and backbones
    vary: Sequence[str] = ()  # parameters of hyper, or parts of the ablation; all where empty
    classes: Mapping[str, int] = field(default_factory=dict)  # of each data set, where they are known
    most_private: Mapping[str, int] = field(default_factory=dict)  # rows a class that there are, where it is known
    settings: Mapping[str, Any] = field(default_factory=dict)

    def cell(
        self,
        data: str,
        seed: int,
        arm: Arm,
        epsilon: float,
        *,
        row: str | None = None,
        llm: str | None = None,
        private: int | None = None,
        settings: Mapping[str, Any] | None = None,
        factors: Mapping[str, Factor] | None = None,
        draw: int = 0,
    ) -> Cell:
        """A run of an arm."""
        # What is for other methods changes nothing: it stays out, so that cells are shared between experiments.
        sized = {name: value for name, value in self.size.settings.items() if _concerns(name, arm.method)}
        every = merged(sized, arm.settings, settings or {}, self.settings)
        own = {name: value for name, value in every.items() if not is_baseline(name) or name == arm.method}
        return Cell(
            data, seed, arm.name if row is None else row, "run", arm.method, epsilon, llm or self.llms[0],
            self.per_class(data), private or self.size.private, own, dict(factors or {}), draw,
        )  # fmt: skip

    def per_class(self, data: str) -> int:
        """Synthetic records a class of a data set."""
        return self.size.records_of(self.classes.get(data, 0))

    def rows(self, data: str) -> tuple[int, ...]:
        """Private rows a class to compare: a number is left out where the one before it is more than there are."""
        numbers = sorted(self.size.rows)
        most = self.most_private.get(data, numbers[-1])
        return (*numbers[:1], *(more for less, more in pairwise(numbers) if less < most))

    def draws(self, data: str, seed: int, arm: Arm, epsilon: float, **more: Any) -> Iterator[Cell]:
        """A run of an arm; of SelPE, as many as the size draws.

        The candidates are the same for every draw, so that it costs little, and a difference between two single
        draws is mostly noise.
        """
        for draw in range(self.size.draws if arm.name == "selpe" else 1):
            yield self.cell(data, seed, arm, epsilon, draw=draw, **more)

    def epsilons_of(self, arm: Arm) -> Sequence[float]:
        """The ε at which an arm is run: some take long, and a small size runs them at few."""
        few = [epsilon for epsilon in self.epsilons if arm.slow and epsilon in self.size.slow_at]
        return few or self.epsilons

    def controls(self, data: str, seed: int, *, arm: Arm | None = None, **more: Any) -> Iterator[Cell]:
        """The four controls of a split."""
        mine = arm or ARMS["selpe"]
        yield from self.draws(data, seed, mine, 0.0, row=NOTHING, **more)
        yield self.cell(data, seed, mine, math.inf, row=EVERYTHING, **more)
        yield from self.real(data, seed, private=more.get("private"), factors=more.get("factors"))

    def real(
        self, data: str, seed: int, *, private: int | None = None, factors: Mapping[str, Factor] | None = None
    ) -> Iterator[Cell]:
        """The two controls that train on real rows."""
        rows = private or self.size.private
        for row, kind in ((PRIVATE_ROWS, "private rows"), (REAL_ROWS, "real rows")):
            yield Cell(data, seed, row, kind, "", 0.0, "", self.per_class(data), rows, {}, dict(factors or {}))  # type: ignore[arg-type]


def varied(ask: Ask, known: Iterable[str]) -> tuple[str, ...]:
    """Those of the known names that are to be varied, in their order; 'without' may be left out."""
    names = tuple(known)
    for word in ask.vary:
        if word not in names and f"without {word}" not in names:
            raise ConfigError(f"there is nothing called '{word}' to vary", where="--vary", hint=", ".join(names))
    return tuple(name for name in names if not ask.vary or {name, name.removeprefix("without ")} & {*ask.vary})


def _one_round(ask: Ask, arm: Arm, settings: Mapping[str, Any] | None = None) -> bool:
    """Whether these runs write all of their texts before the first private choice among records."""
    return merged(ask.size.settings, arm.settings, settings or {}, ask.settings).get("rounds") == 1


def _concerns(name: str, method: str) -> bool:
    """Whether a size's setting is one of this method's: a baseline's own stand in a group of its name."""
    return name == method if is_baseline(method) else not is_baseline(name)


def main(ask: Ask) -> Iterator[Cell]:
    """Data sets × methods × ε: the paper's main table."""
    for data, seed in _places(ask):
        yield from ask.controls(data, seed)
        # Releases differ most when chosen by chance; and everything is compared with this row.
        for draw in range(ask.size.draws, 2 * ask.size.draws if ask.size.draws > 1 else 1):
            yield ask.cell(data, seed, ARMS["selpe"], 0.0, row=NOTHING, draw=draw)
        for name in ask.methods:
            arm = arm_of(name)
            for epsilon in ask.epsilons_of(arm):
                yield from ask.draws(data, seed, arm, epsilon)


def backbone(ask: Ask) -> Iterator[Cell]:
    """One method × models × ε."""
    arm = arm_of(ask.base)
    for data, seed in _places(ask):
        for llm in ask.llms:
            told: dict[str, Factor] = {"backbone": llm}
            yield from ask.draws(data, seed, arm, 0.0, row=NOTHING, llm=llm, factors=told)
            yield ask.cell(data, seed, arm, math.inf, row=EVERYTHING, llm=llm, factors=told)
            for epsilon in ask.epsilons:
                yield from ask.draws(data, seed, arm, epsilon, llm=llm, factors=told)
        yield from ask.real(data, seed)


def scale(ask: Ask) -> Iterator[Cell]:
    """Methods × private rows a class, at one ε: the figure on stability."""
    for data, seed in _places(ask):
        for rows in ask.rows(data):
            told: dict[str, Factor] = {"rows": rows}
            yield from ask.controls(data, seed, private=rows, factors=told)
            for name in ask.methods:
                for epsilon in ask.epsilons:
                    yield from ask.draws(data, seed, arm_of(name), epsilon, private=rows, factors=told)


def hyper(ask: Ask) -> Iterator[Cell]:
    """T, K, b and τ, one at a time around the base.

    Runs of one round are drawn as often as the size says: they share their texts. Others must write them again.
    """
    arm = arm_of(ask.base)
    for data, seed in _places(ask):
        yield from ask.controls(data, seed, arm=arm)
        for parameter in varied(ask, ask.size.hyper):
            for value in ask.size.hyper[parameter]:
                exact = value if parameter == "temperature" else int(value)
                taken, told = {parameter: exact}, {"parameter": parameter, "value": exact}
                for epsilon in ask.epsilons:
                    if _one_round(ask, arm, taken):
                        yield from ask.draws(data, seed, arm, epsilon, settings=taken, factors=told)
                    else:
                        yield ask.cell(data, seed, arm, epsilon, settings=taken, factors=told)


def ablation(ask: Ask) -> Iterator[Cell]:
    """The base, and the base without each of its parts.

    Where a size takes one round, parts that matter from the second round on are taken from a run of two, which is a
    row of its own. Its texts have to be written for each draw: there are fewer.
    """
    arm = arm_of(ask.base)
    known = {**WITHOUT, **(WITHOUT_OURS if ask.base == "selpe" else {})}
    parts = {"full": {}, **{row: known[row] for row in varied(ask, known)}}
    later: dict[str, Mapping[str, Any]] = {}
    if _one_round(ask, arm) and any(row in parts for row in LATER):
        later = {TWO_ROUNDS: {}, **{row: parts.pop(row) for row in LATER if row in parts}}
    for data, seed in _places(ask):
        yield from ask.controls(data, seed, arm=arm)
        for epsilon in ask.epsilons:
            for row, taken in parts.items():
                yield from ask.draws(data, seed, arm, epsilon, row=row, settings=taken)
            for row, taken in later.items():
                for draw in range(max(1, ask.size.draws // 8)):
                    yield ask.cell(data, seed, arm, epsilon, row=row, settings={"rounds": 2, **taken}, draw=draw)
            if ask.base == "selpe" and not ask.vary:
                yield ask.cell(data, seed, ARMS["selpe-paper"], epsilon)


def privacy(ask: Ask) -> Iterator[Cell]:
    """Attacks on what each method released; DP-DS releases nothing."""
    for data, seed in _places(ask):
        yield from ask.controls(data, seed)
        for name in ask.methods:
            for epsilon in ask.epsilons:
                if name != "dpds":
                    yield from ask.draws(data, seed, arm_of(name), epsilon)


def compare(ask: Ask) -> Iterator[Cell]:
    """Every method on the same data, by every measure, each drawn once."""
    return main(replace(ask, size=replace(ask.size, draws=1, slow_at=())))


DESIGNS: Mapping[str, Callable[[Ask], Iterator[Cell]]] = {
    "main": main, "backbone": backbone, "scale": scale, "hyper": hyper, "ablation": ablation, "privacy": privacy,
    "compare": compare,
}  # fmt: skip
# ε of experiments that the paper does at one.
ONE_EPSILON = frozenset({"scale", "hyper", "ablation", "privacy", "compare"})
VARYING = ("hyper", "ablation")  # experiments that take `vary`


def _places(ask: Ask) -> Iterator[tuple[str, int]]:
    """Data sets and seeds in an order in which cells of one split follow each other: they share model answers."""
    for data in ask.data:
        for seed in ask.seeds:
            yield data, seed
