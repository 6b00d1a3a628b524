"""Charts of an experiment as SVG files that stand alone: lines with intervals over ε, private rows or a parameter; and
rows of dots where there is nothing to go along."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, floor

from markupsafe import Markup

from selpe.experiments.arms import CONTROLS, EVERYTHING, NOTHING, PRIVATE_ROWS, REAL_ROWS, title_of
from selpe.experiments.drawing import Panel, Series, alone, line_chart
from selpe.experiments.layouts import PARAMETERS
from selpe.experiments.results import KINDS, Mean, Meant, Results
from selpe.experiments.tables import TITLES, Setting
from selpe.report.charts import Level, Scale, lines
from selpe.report.charts import Line as DotLine
from selpe.report.svg import text
from selpe.report.words import epsilon

# Colours that people who see few of them tell apart; SelPE's is the strongest.
_COLOURS = {
    "selpe": "#0072b2", "selpe-paper": "#56b4e9", "augpe": "#e69f00", "wasp": "#d55e00", "ctcl": "#cc79a7",
    "dpgen": "#009e73", "dpds": "#8a8a8a", "aim": "#b15928", "mst": "#6a3d9a", "aim-text": "#dd9a6a",
    "mst-text": "#a98cc9", "prior": "#b0b0b0", NOTHING: "#8a8a8a", EVERYTHING: "#8a8a8a", PRIVATE_ROWS: "#5b636d",
    REAL_ROWS: "#5b636d",
}  # fmt: skip
_SPARE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a")
_DASHES = {NOTHING: "2 3", EVERYTHING: "7 3", PRIVATE_ROWS: "1 0", REAL_ROWS: "8 3 2 3"}


def charts(results: Results, setting: Setting) -> dict[str, str]:
    """The charts of an experiment by file name; those without a figure are left out."""
    made: dict[str, list[Panel]] = {}
    if setting.experiment == "main":
        made["auc-by-epsilon"] = _by_epsilon(results, setting, "row", results.ordered_rows())
    elif setting.experiment == "backbone":
        made["auc-by-epsilon"] = _by_epsilon(results, setting, "backbone", results.values("backbone"))
    elif setting.experiment == "scale":
        made["auc-by-rows"] = _by_rows(results, setting)
    elif setting.experiment == "hyper":
        made["auc-by-parameter"] = _by_parameter(results, setting)
    title = TITLES[setting.experiment]
    found = {f"{name}.svg": line_chart(panels, title) for name, panels in made.items() if _known(panels)}
    if setting.experiment in ("ablation", "privacy", "compare") and (dots := _dots(results, setting)):
        found["auc-by-row.svg"] = dots
    return found


def _known(panels: Sequence[Panel]) -> bool:
    return any(mean is not None for panel in panels for series in panel.series for mean in series.means)


# -- panels ----------------------------------------------------------------------------------------------------------


def _by_epsilon(results: Results, setting: Setting, factor: str, names: Sequence[str]) -> list[Panel]:
    ordered = sorted(setting.ordered)
    panels = []
    for data, kind in product(results.data(), KINDS):
        series = []
        for place, name in enumerate(names):
            if factor == "row":
                means = [results.mean("auc", Meant.under(data, name, value), kind=kind) for value in ordered]
            else:
                means = [_with_model(results, data, name, value, kind) for value in ordered]
            series.append(_series(name, means, place))
        panels.append(Panel(f"{data}: {kind} AUC by ε", tuple(epsilon(value) for value in ordered), tuple(series)))
    return panels


def _with_model(results: Results, data: str, llm: str, value: float, kind: str) -> Mean | None:
    (row,) = {cell.row for cell in results.cells if cell.row not in CONTROLS}
    return results.mean("auc", Meant(data, row, value, (("backbone", llm),)), kind=kind)


def _by_rows(results: Results, setting: Setting) -> list[Panel]:
    sizes = results.values("rows")
    panels = []
    for data, value, kind in product(results.data(), setting.ordered, KINDS):
        series = []
        for place, row in enumerate(results.ordered_rows()):
            meant = (Meant.under(data, row, value, rows=size) for size in sizes)
            series.append(_series(row, [results.mean("auc", one, kind=kind) for one in meant], place))
        panels.append(Panel(f"{data}, ε = {epsilon(value)}: {kind} AUC by rows", tuple(map(str, sizes)), tuple(series)))
    return panels


def _by_parameter(results: Results, setting: Setting) -> list[Panel]:
    panels = []
    for data, value, (parameter, title) in product(results.data(), setting.ordered, PARAMETERS.items()):
        tried = results.tried(parameter)
        series = []
        for place, kind in enumerate(KINDS):
            meant = [Meant.under(data, row, value, parameter=parameter, value=tick) for row, tick in tried]
            series.append(_series(kind, [results.mean("auc", one, kind=kind) for one in meant], place))
            nothing = results.mean("auc", Meant(data, NOTHING), kind=kind)
            series.append(Series(f"{kind}, ε = 0", (nothing,) * len(tried), _SPARE[place], _DASHES[NOTHING]))
        if tried:
            panels.append(Panel(f"{data}: {title}", tuple(f"{float(tick):g}" for _, tick in tried), tuple(series)))
    return panels


def _series(name: str, means: Sequence[Mean | None], place: int) -> Series:
    colour = _COLOURS.get(name, _SPARE[place % len(_SPARE)])
    return Series(title_of(name), tuple(means), colour, _DASHES.get(name, ""), strong=name == "selpe")


def _dots(results: Results, setting: Setting) -> str:
    """Rows under each other, each with a dot and a standard error for both kinds of view."""
    rows = []
    for data, value, row in product(results.data(), setting.ordered, results.ordered_rows()):
        if levels := _levels(results, Meant.under(data, row, value)):
            rows.append(DotLine(f"{data}, ε = {epsilon(value)}: {title_of(row)}", levels))
    if not rows:
        return ""
    bounds = [bound for row in rows for level in row.levels for bound in (level.low, level.high) if bound is not None]
    low, high = 5 * floor(min(bounds) / 5), 5 * ceil(max(bounds) / 5)
    scale = Scale(low, max(high, low + 5), tuple(float(tick) for tick in range(int(low), int(high) + 1, 5)))
    picture = lines(rows, scale, title=TITLES[setting.experiment])
    tall = sum(28 + 20 * len(row.levels) for row in rows) + 26
    key = [
        Markup('<circle cx="{}" cy="{}" r="5" class="mark {}"/>').format(10 + 180 * place, tall + 18, kind)
        + text(f"{kind} AUC", 22 + 180 * place, tall + 22)
        for place, kind in enumerate(KINDS)
    ]
    return alone(TITLES[setting.experiment], "ROC-AUC by row, percent", [picture, *key], 700, tall + 34)


def _levels(results: Results, meant: Meant) -> tuple[Level, ...]:
    found = []
    for kind in KINDS:
        mean = results.mean("auc", meant, kind=kind)
        if mean is not None:
            found.append(Level(kind, mean.value, mean.value - mean.error, mean.value + mean.error, kind))
    return tuple(found)
