"""How each experiment's own tables are laid out: as in the paper, with its printed figures in brackets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from selpe.experiments import paper
from selpe.experiments.arms import ARMS, CONTROLS, title_of
from selpe.experiments.blocks import Block, TableBlock, Text, mean_cell
from selpe.experiments.designs import LATER, TWO_ROUNDS
from selpe.experiments.grid import Factor
from selpe.experiments.lead import difference, lead_table
from selpe.experiments.results import Mean, Meant, Results
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
    headings, columns = [what], []
    for value in epsilons:
        headings += [f"ε = {epsilon(value)}: text", "structured", validity.replace("_", "-").upper()]
        for place, (measure, kind) in enumerate((("auc", "text"), ("auc", "structured"), (validity, ""))):
            means = [results.mean(measure, line.meant(value), kind=kind) for line in lines]
            top = _top([None if line.row in CONTROLS else mean for line, mean in zip(lines, means, strict=True)])
            beside = [printed[place] if (printed := line.printed(value)) else None for line in lines]
            columns.append(
                [
                    mean_cell(mean, paper=other, best=number == top)
                    for number, (mean, other) in enumerate(zip(means, beside, strict=True))
                ]
            )
    cells = zip(*columns, strict=True)
    return TableBlock(tuple(headings), tuple((line.title, *row) for line, row in zip(lines, cells, strict=True)))


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
        lines = [TableLine(title_of(row), data, row, printed=_from_main(name, row)) for row in results.ordered_rows()]
        blocks.append(Text(f"{data} (the paper: {name})" if name else data, 2))
        blocks.append(by_epsilon(results, setting.ordered, lines, "r_cfg", "method"))
    return blocks + lead_table(results, setting.ordered)


def _from_main(name: str, row: str) -> Callable[[float], paper.Figures | None]:
    return lambda value: paper.main(name, _printed_name(row), value)


def _backbone(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    for data in results.data():
        lines = [
            TableLine(f"{llm}: {title_of(row)}", data, row, (("backbone", llm),), _from_backbone(llm, row))
            for llm in results.values("backbone")
            for row in results.ordered_rows()
            if any(cell.row == row and cell.factors.get("backbone") == llm for cell in results.cells)
        ]
        lines += [TableLine(title_of(row), data, row) for row in results.ordered_rows() if row.endswith("rows")]
        blocks.append(Text(data, 2))
        blocks.append(by_epsilon(results, setting.ordered, lines, "s_cfg", "model"))
    return [*blocks, Text("As printed, on MIMIC", 2), _as_printed()]


def _from_backbone(llm: str, row: str) -> Callable[[float], paper.Figures | None]:
    name = "" if row in CONTROLS else _same(llm)
    return lambda value: paper.backbone(name, value)


def _same(llm: str) -> str:
    """The paper's name of a model that is called something like it."""

    def plain(name: str) -> str:
        return "".join(letter for letter in name.casefold() if letter.isalnum())

    return next((name for name in paper.backbones() if plain(name) in plain(llm)), "")


def _as_printed() -> TableBlock:
    headings = ["model"]
    for value in paper.EPSILONS:
        headings += [f"ε = {epsilon(value)}: text", "structured", "S-CFG"]
    rows = tuple(
        (name, *(f"{cell:g}" for value in paper.EPSILONS for cell in paper.backbone(name, value) or ()))
        for name in paper.backbones()
    )
    return TableBlock(tuple(headings), rows)


def _scale(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    sizes = results.values("rows")
    headings = ("method", *(f"n = {size}" for size in sizes))
    for data in results.data():
        for value in setting.ordered:
            for kind in ("text", "structured"):
                rows = tuple(
                    (
                        title_of(row),
                        *(mean_cell(results.mean("auc", Meant.under(data, row, value, rows=size), kind=kind))
                          for size in sizes),
                    )
                    for row in results.ordered_rows()
                )  # fmt: skip
                blocks.append(Text(f"{data}, ε = {epsilon(value)}, {kind} AUC by private rows a class", 2))
                blocks.append(TableBlock(headings, rows))
    return [*blocks, _AS_FIGURE]


def _hyper(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    headings = ("text", "structured", "mean", "S-CFG")
    (base,) = {cell.row for cell in results.cells if "parameter" in cell.factors}
    for data in results.data():
        for value in setting.ordered:
            for parameter, title in PARAMETERS.items():
                found = {cell.factors["value"] for cell in results.cells if cell.factors.get("parameter") == parameter}
                rows = []
                for exact in sorted(found, key=float):
                    meant = Meant.under(data, base, value, parameter=parameter, value=exact)
                    rows.append((f"{exact}", *_short(results, meant)))
                if rows:
                    blocks.append(Text(f"{data}, ε = {epsilon(value)}: {title}", 2))
                    blocks.append(TableBlock((parameter, *headings), tuple(rows)))
        controls = [row for row in results.ordered_rows() if row in CONTROLS]
        blocks.append(Text(f"{data}: controls", 2))
        blocks.append(
            TableBlock(("control", *headings), tuple((row, *_short(results, Meant(data, row))) for row in controls))
        )
    return [*blocks, _AS_FIGURE]


def _short(results: Results, meant: Meant) -> list[str]:
    return [*utility_cells(results, meant), mean_cell(results.mean("s_cfg", meant))]


def _ablation(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    headings = ("variant", "text", "structured", "mean", "mean less full", "S-CFG")
    for data in results.data():
        for value in setting.ordered:
            full, two = (results.utility(Meant(data, row, value)) for row in ("full", TWO_ROUNDS))
            rows = []
            for row in results.ordered_rows():
                meant = Meant.under(data, row, value)
                printed = paper.ABLATION.get(row) if setting.papers.get(data) == "Mimic" else None
                text, structured = (
                    mean_cell(results.mean("auc", meant, kind=kind), paper=printed[place] if printed else None)
                    for place, kind in enumerate(("text", "structured"))
                )
                mine = results.utility(meant)
                whole = two if two and row in LATER else full
                apart = "" if row == "full" else mean_cell(difference(mine, whole), sign=True)
                valid = mean_cell(results.mean("s_cfg", meant))
                rows.append((title_of(row), text, structured, mean_cell(Mean.of(list(mine.values()))), apart, valid))
            blocks.append(Text(f"{data}, ε = {epsilon(value)}", 2))
            blocks.append(TableBlock(headings, tuple(rows)))
            if two:
                blocks.append(Text(f"{', '.join(LATER)}: two rounds, less those of '{TWO_ROUNDS}'.".capitalize()))
    return blocks


def _privacy(results: Results, setting: Setting) -> list[Block]:
    blocks: list[Block] = []
    headings = ("method", "NRS", "DCR", "TPR by text", "TPR by kernel", "alarms", "AUC text", "AUC structured", "mean")
    for data in results.data():
        for value in setting.ordered:
            rows = tuple(
                (title_of(row), *_attacked(results, Meant.under(data, row, value), setting.papers.get(data, "")),
                 *utility_cells(results, Meant.under(data, row, value)))
                for row in results.ordered_rows()
            )  # fmt: skip
            blocks.append(Text(f"{data}, ε = {epsilon(value)}", 2))
            blocks.append(TableBlock(headings, rows))
    return blocks


def _attacked(results: Results, meant: Meant, name: str) -> list[str]:
    printed = paper.privacy(name, _printed_name(meant.row))
    cells = [
        mean_cell(results.mean(measure, meant, view=view), digits, paper=printed[place] if printed else None)
        for place, (measure, view, digits) in enumerate((("nrs", "", 3), ("dcr", "", 2), ("tpr", "text", 1)))
    ]
    return [*cells, mean_cell(results.mean("tpr", meant, view="kernel")), mean_cell(results.mean("alarms", meant))]


def _compare(results: Results, setting: Setting) -> list[Block]:
    return [*everything(results), *lead_table(results, setting.ordered)]


LAYOUTS: Mapping[str, Callable[[Results, Setting], list[Block]]] = {
    "main": _main, "backbone": _backbone, "scale": _scale, "hyper": _hyper, "ablation": _ablation,
    "privacy": _privacy, "compare": _compare,
}  # fmt: skip
