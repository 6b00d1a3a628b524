"""The page of an experiment: what was done, its own tables (layouts.py), every figure, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from selpe.experiments import paper
from selpe.experiments.arms import CONTROLS, title_of
from selpe.experiments.blocks import Block, TableBlock, Text, mean_cell, spent_cell
from selpe.experiments.grid import ALL_ROWS, Cell
from selpe.experiments.results import KINDS, Mean, Meant, Results
from selpe.report.words import NOTHING, compact, epsilon
from selpe.run.progress import duration


@dataclass(frozen=True, slots=True)
class Setting:
    """What a reader must know about an experiment: amounts, models, yardstick, and what was left out."""

    experiment: str
    size: str
    llms: Sequence[str]
    encoder: str
    views: Sequence[str]
    on: str
    seeds: Sequence[int]
    per_class: int
    epsilons: Sequence[float]
    papers: Mapping[str, str] = field(default_factory=dict)  # data set -> its name in the paper
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def ordered(self) -> list[float]:
        """ε from the largest to the smallest, as in the paper."""
        return sorted(set(self.epsilons), reverse=True)


TITLES = {
    "main": "Main results",
    "backbone": "Transfer between models",
    "scale": "Private rows a class",
    "hyper": "Hyper-parameters",
    "ablation": "Ablation",
    "privacy": "Attacks",
    "compare": "Methods compared",
}
READING = (
    "Means over seeds ± standard error. AUC is ROC-AUC in percent, one-vs-rest, macro average, of a model trained on "
    "the released records and tested on real ones. R-CFG and S-CFG are percentages of raw outputs. NRS is the share of "
    "records that copy no private row, DCR the mean distance to the closest private row, TPR the percentage of private "
    "rows that a membership attack finds at 1 % false alarms (guessing finds about 1). Time is what a run takes alone. "
    "In brackets: the figure that the paper prints, with another model, other splits, RoBERTa and TabSTAR "
    f"({paper.CITATION})."
)


def page(results: Results, setting: Setting) -> list[Block]:
    """The whole page of an experiment."""
    from selpe.experiments.layouts import LAYOUTS

    total = sum(cell.method not in setting.skipped for cell in results.cells)
    part = "" if results.done == total else f" **{results.done} of {total} cells are done.**"
    blocks: list[Block] = [Text(TITLES[setting.experiment], 1), Text(_said(setting, results) + part)]
    blocks += LAYOUTS[setting.experiment](results, setting)
    if setting.experiment != "compare":
        blocks += [Text("Every figure", 2), *everything(results)]
    return [*blocks, *_left_out(setting), Text(READING)]


def _said(setting: Setting, results: Results) -> str:
    most = max(cell.private for cell in results.cells)
    private = "all private rows" if most >= ALL_ROWS else f"up to {most} private rows a class"
    seeds = f"{len(setting.seeds)} seed{'s' if len(setting.seeds) != 1 else ''}"
    said = (
        f"Size `{setting.size}`: {setting.per_class} synthetic records a class and {private}, {seeds}. Model "
        f"{', '.join(setting.llms)}; encoder {setting.encoder}; views {', '.join(setting.views)}; measured on the "
        f"{setting.on} rows."
    )
    return " ".join([said, *setting.notes])


def _left_out(setting: Setting) -> list[Block]:
    lines = [f"- {method}: skipped. {why}" for method, why in setting.skipped.items()]
    lines += [f"- {cell}: failed. {why}" for cell, why in setting.failed.items()]
    return [Text("Left out", 2), Text("\n".join(lines))] if lines else []


# -- every figure ----------------------------------------------------------------------------------------------------

_FIGURES: Sequence[tuple[str, str, str, int]] = (
    ("R-CFG", "r_cfg", "", 1), ("S-CFG", "s_cfg", "", 1), ("spreads", "marginals", "", 3), ("recall", "recall", "", 2),
    ("NRS", "nrs", "", 3), ("DCR", "dcr", "", 2), ("TPR text", "tpr", "text", 1), ("TPR kernel", "tpr", "kernel", 1),
    ("records", "records", "", 0),
)  # fmt: skip
HEADINGS = (
    "method", "ε asked", "ε replace-one", "ε add-remove", "δ", "AUC text", "AUC structured", "mean",
    *(name for name, *_ in _FIGURES), "time", "tokens",
)  # fmt: skip


def everything(results: Results) -> list[Block]:
    """One line per row, ε and factor, with all measures; a table per data set."""
    blocks: list[Block] = []
    for data in results.data():
        found = dict.fromkeys(_meant(cell) for cell in results.cells if cell.data == data)
        lines = sorted(found, key=lambda meant: meant.row in CONTROLS)
        if len(results.data()) > 1:
            blocks.append(Text(data, 3))
        blocks.append(TableBlock(HEADINGS, tuple(_line(results, meant) for meant in lines)))
    return blocks


def _meant(cell: Cell) -> Meant:
    return Meant(cell.data, cell.row, cell.epsilon, tuple(cell.factors.items()))


def _line(results: Results, meant: Meant) -> tuple[str, ...]:
    told = ", ".join(f"{name} {value}" for name, value in meant.factors)
    asked = "" if meant.row in CONTROLS else epsilon(meant.epsilon)
    names = ("epsilon_replace_one", "epsilon_add_remove", "delta")
    spent = [spent_cell(results.mean(name, meant)) for name in names]
    figures = [mean_cell(results.mean(measure, meant, view=view), digits) for _, measure, view, digits in _FIGURES]
    seconds, tokens = results.mean("seconds", meant), results.mean("completion_tokens", meant)
    return (
        f"{title_of(meant.row)}{f' ({told})' if told else ''}", asked, *spent, *utility_cells(results, meant), *figures,
        NOTHING if seconds is None else duration(seconds.value), NOTHING if tokens is None else compact(tokens.value),
    )  # fmt: skip


def utility_cells(results: Results, meant: Meant) -> list[str]:
    """AUC of both kinds of view, and their mean."""
    cells = [mean_cell(results.mean("auc", meant, kind=kind)) for kind in KINDS]
    return [*cells, mean_cell(Mean.of(list(results.utility(meant).values())))]
