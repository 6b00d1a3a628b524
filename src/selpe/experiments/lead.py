"""Who leads, by how much, and whether it is owed to the private rows: differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from selpe.experiments.arms import ARMS, NOTHING, OURS, title_of
from selpe.experiments.blocks import Block, TableBlock, Text, mean_cell
from selpe.experiments.results import Mean, Meant, Results

BASELINES = tuple(name for name in ARMS if name not in OURS)


@dataclass(frozen=True, slots=True)
class Lead:
    """SelPE at one ε on one data set: its mean over views, beside the best baseline and the ε = 0 control."""

    data: str
    epsilon: float
    ours: Mean
    best: str
    over_best: Mean | None
    over_nothing: Mean | None

    @property
    def leads(self) -> bool | None:
        """Whether no baseline is above it."""
        return None if self.over_best is None else self.over_best.value >= 0

    @property
    def owed(self) -> bool | None:
        """Whether it is above the ε = 0 control by more than a standard error; None where it cannot be said."""
        found = self.over_nothing
        return None if found is None or found.seeds < 2 else found.value > found.error


def difference(one: dict[int, float], other: dict[int, float]) -> Mean | None:
    """The mean difference over seeds that both have."""
    return Mean.of([one[seed] - other[seed] for seed in one if seed in other])


def leads(results: Results, epsilons: Sequence[float]) -> list[Lead]:
    """Where SelPE stands, for every data set and finite ε."""
    found = (_lead(results, data, value) for data in results.data() for value in epsilons if math.isfinite(value))
    return [lead for lead in found if lead is not None]


def _lead(results: Results, data: str, epsilon: float) -> Lead | None:
    mine = results.utility(Meant(data, "selpe", epsilon))
    ours = Mean.of(list(mine.values()))
    if ours is None:
        return None
    others = {name: _of_baseline(results, data, name, epsilon) for name in BASELINES}
    known = {name: fmean(values.values()) for name, values in others.items() if values}
    best = max(known, key=known.__getitem__, default="")
    nothing = results.utility(Meant(data, NOTHING))
    over = difference(mine, others[best]) if best else None
    return Lead(data, epsilon, ours, best, over, difference(mine, nothing))


def _of_baseline(results: Results, data: str, name: str, epsilon: float) -> dict[int, float]:
    """A baseline's figures at ε, or at the next larger one at which it was run."""
    ran = {cell.epsilon for cell in results.cells if (cell.data, cell.row) == (data, name)}
    for value in sorted(value for value in ran if epsilon <= value < math.inf):
        meant = Meant(data, name, value)
        found = results.utility(meant) or results.of_classifier(meant)
        if found:
            return found
    return {}


def lead_table(results: Results, epsilons: Sequence[float]) -> list[Block]:
    """The verdicts as a table; nothing where SelPE was not run."""
    found = leads(results, epsilons)
    if not found:
        return []
    rows = tuple(
        (
            f"{lead.data}, ε = {lead.epsilon:g}", mean_cell(lead.ours), title_of(lead.best) or "–",
            mean_cell(lead.over_best, sign=True), _word(lead.leads), mean_cell(lead.over_nothing, sign=True),
            _word(lead.owed),
        )
        for lead in found
    )  # fmt: skip
    headings = ("data", "SelPE, mean of views", "best baseline", "SelPE above it", "leads", "above ε = 0",
                "by more than one standard error")  # fmt: skip
    said = (
        "Differences are paired by seed. A baseline takes part with its figures at a larger ε where it was not run at "
        "this one, and DP-DS, which releases a classifier and no records, with that classifier's AUC."
    )
    return [Text("Does it lead?", 2), TableBlock(headings, rows), Text(said)]


def _word(answer: bool | None) -> str:
    return {True: "yes", False: "no", None: "–"}[answer]
