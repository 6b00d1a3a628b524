"""How each experiment's own tables are laid out: as in the paper, with its printed figures in brackets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from selpe.experiments import paper
from selpe.experiments.arms import ARMS, CONTROLS, title_of
from selpe.experiments.blocks import Block, TableBlock, Text, mean_cell
from selpe.experiments.designs import LATER, TWO_ROUNDS
from selpe.experiments.grid import Factor
from selpe.experiments.lead import difference, lead_table
from selpe.experiments.results import KINDS, Mean, Meant, Results
from selpe.experiments.tables import Setting, everything, utility_cells
from selpe.report.words import epsilon

PARAMETERS = {
    "rounds": "T, rounds",
    "multiplicity": "K, candidates per record",
    "batches": "b, batches",
    "temperature": "τ, temperature of stage I",
}
_AS_FIGURE = Text("The paper shows this as a figure without numbers.")


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of a table by ε: what it is called, which cells it is of, and what the paper prints there."""

    title: str
    data: str
    row: str
    factors: tuple[tuple[str, Factor], ...] = ()
    printed: Callable[[float], paper.Figures | None] = lambda value: None

    def meant(self, value: float) -> Meant:
        """The cells at an ε."""
        return Meant.under(self.data, self.row, value, **dict(self.factors))


def by_epsilon(
    results: Results, epsilons: Sequence[float], lines: Sequence[TableLine], validity: str, what: str
) -> TableBlock:
    """Three columns for every ε: both kinds of view and a rate of validity. Controls stand under each."""
    columns = [[line.title for line in lines]]
    for value in epsilons:
        printed = [line.printed(value) for line in lines]
        for place, (measure, kind) in enumerate((*(("auc", kind) for kind in KINDS), (validity, ""))):
            means = [results.mean(measure, line.meant(value), kind=kind) for line in lines]
            top = _top([None if line.row in CONTROLS else mean for line, mean in zip(lines, means, strict=True)])
            columns.append(
                [
                    mean_cell(mean, paper=_at(place, beside), best=number == top)
                    for number, (mean, beside) in enumerate(zip(means, printed, strict=True))
                ]
            )
    return TableBlock(_headings(what, epsilons, validity), tuple(zip(*columns, strict=True)))


def _headings(what: str, epsilons: Sequence[float], validity: str) -> tuple[str, ...]:
    rate = validity.replace("_", "-").upper()
    return (what, *(name for value in epsilons for name in (f"ε = {epsilon(value)}: text", "structured", rate)))


def _at(place: int, printed: paper.Figures | None) -> float | None:
    return printed[place] if printed else None


def _titled(title: str, headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> list[Block]:
    """A table under a heading of its own."""
    return [Text(title, 2), TableBlock(tuple(headings), tuple(rows))]


def _top(means: Sequence[Mean | None]) -> int:
    """The place of the highest mean, -1 where there is nothing to compare."""
    known = {place: mean.value for place, mean in enumerate(means) if mean is not None}
    return max(known, key=known.__getitem__) if len(known) > 1 else -1


def _printed_name(row: str) -> str:
    return ARMS[row].paper if row in ARMS else ""


def _main(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    for data in results.data():
        name = setting.papers.get(data, "")
        lines = [
            TableLine(title_of(row), data, row, printed=partial(paper.main, name, _printed_name(row)))
            for row in results.ordered_rows()
        ]
        blocks.append(Text(f"{data} (the paper: {name})" if name else data, 2))
        blocks.append(by_epsilon(results, setting.ordered, lines, "r_cfg", "method"))
    return blocks + lead_table(results, setting.ordered)


def _backbone(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    there = {(cell.row, cell.factors.get("backbone")) for cell in results.cells}
    for data in results.data():
        lines = [
            TableLine(
                f"{llm}: {title_of(row)}", data, row, (("backbone", llm),),
                partial(paper.backbone, "" if row in CONTROLS else _same(llm)),
            )
            for llm in results.values("backbone")
            for row in results.ordered_rows()
            if (row, llm) in there
        ]  # fmt: skip
        lines += [TableLine(title_of(row), data, row) for row in results.ordered_rows() if row.endswith("rows")]
        blocks += [Text(data, 2), by_epsilon(results, setting.ordered, lines, "s_cfg", "model")]
    rows = (
        (name, *(f"{cell:g}" for value in paper.EPSILONS for cell in paper.backbone(name, value) or ()))
        for name in paper.backbones()
    )
    return blocks + _titled("As printed, on MIMIC", _headings("model", paper.EPSILONS, "s_cfg"), rows)


def _same(llm: str) -> str:
    """The paper's name of a model that is called something like it."""

    def plain(name: str) -> str:
        return "".join(letter for letter in name.casefold() if letter.isalnum())

    return next((name for name in paper.backbones() if plain(name) in plain(llm)), "")


def _scale(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    sizes = results.values("rows")
    headings = ("method", *(f"n = {size}" for size in sizes))
    for data, value, kind in product(results.data(), setting.ordered, KINDS):
        rows = []
        for row in results.ordered_rows():
            meant = (Meant.under(data, row, value, rows=size) for size in sizes)
            rows.append((title_of(row), *(mean_cell(results.mean("auc", one, kind=kind)) for one in meant)))
        blocks += _titled(f"{data}, ε = {epsilon(value)}, {kind} AUC by private rows a class", headings, rows)
    return [*blocks, _AS_FIGURE]


def _hyper(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    headings = ("text", "structured", "mean", "S-CFG")
    for data in results.data():
        for value, (parameter, title) in product(setting.ordered, PARAMETERS.items()):
            rows = [
                (f"{exact}", *_short(results, Meant.under(data, row, value, parameter=parameter, value=exact)))
                for row, exact in results.tried(parameter)
            ]
            if rows:
                blocks += _titled(f"{data}, ε = {epsilon(value)}: {title}", (parameter, *headings), rows)
        controls = [row for row in results.ordered_rows() if row in CONTROLS]
        rows = [(row, *_short(results, Meant(data, row))) for row in controls]
        blocks += _titled(f"{data}: controls", ("control", *headings), rows)
    return [*blocks, _AS_FIGURE]


def _short(results: Results, meant: Meant) -> list[str]:
    return [*utility_cells(results, meant), mean_cell(results.mean("s_cfg", meant))]


def _ablation(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    headings = ("variant", "text", "structured", "mean", "mean less full", "S-CFG")
    for data, value in product(results.data(), setting.ordered):
        full, two = (results.utility(Meant(data, row, value)) for row in ("full", TWO_ROUNDS))
        rows = []
        for row in results.ordered_rows():
            meant = Meant.under(data, row, value)
            printed = paper.ABLATION.get(row) if setting.papers.get(data) == "Mimic" else None
            *_, mean, valid = _short(results, meant)
            whole = two if two and row in LATER else full
            apart = "" if row == "full" else mean_cell(difference(results.utility(meant), whole), sign=True)
            kinds = (
                mean_cell(results.mean("auc", meant, kind=kind), paper=_at(place, printed))
                for place, kind in enumerate(KINDS)
            )
            rows.append((title_of(row), *kinds, mean, apart, valid))
        blocks += _titled(f"{data}, ε = {epsilon(value)}", headings, rows)
        if two:
            blocks.append(Text(f"{', '.join(LATER)}: two rounds, less those of '{TWO_ROUNDS}'.".capitalize()))
    return blocks


def _privacy(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    headings = ("method", "NRS", "DCR", "TPR by text", "TPR by kernel", "alarms", "AUC text", "AUC structured", "mean")
    for data, value in product(results.data(), setting.ordered):
        rows = []
        for row in results.ordered_rows():
            meant, name = Meant.under(data, row, value), setting.papers.get(data, "")
            rows.append((title_of(row), *_attacked(results, meant, name), *utility_cells(results, meant)))
        blocks += _titled(f"{data}, ε = {epsilon(value)}", headings, rows)
    return blocks


def _attacked(results: Results, meant: Meant, name: str) -> list[str]:
    printed = paper.privacy(name, _printed_name(meant.row))
    cells = [
        mean_cell(results.mean(measure, meant, view=view), digits, paper=_at(place, printed))
        for place, (measure, view, digits) in enumerate((("nrs", "", 3), ("dcr", "", 2), ("tpr", "text", 1)))
    ]
    return [*cells, mean_cell(results.mean("tpr", meant, view="kernel")), mean_cell(results.mean("alarms", meant))]


def _compare(results: Results, setting: Setting) -> list[Block]:
    return [*everything(results), *lead_table(results, setting.ordered)]


LAYOUTS: Mapping[str, Callable[[Results, Setting], list[Block]]] = {
    "main": _main, "backbone": _backbone, "scale": _scale, "hyper": _hyper, "ablation": _ablation,
    "privacy": _privacy, "compare": _compare,
}  # fmt: skip
