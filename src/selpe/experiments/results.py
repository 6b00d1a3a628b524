"""Results as tidy data: a row per figure; and means with standard errors over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from selpe.errors import ConfigError
from selpe.experiments.arms import CONTROLS
from selpe.experiments.grid import Cell, Factor
from selpe.owner_only import claim, make_folder

KINDS = ("text", "structured")  # of views
_SPENT = ("epsilon_replace_one", "epsilon_add_remove", "delta")


@dataclass(frozen=True, slots=True)
class Point:
    """One figure of one cell."""

    cell: Cell
    measure: str
    value: float
    view: str = ""
    kind: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds with its standard error, 0 for a single one."""

    value: float
    error: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean | None:
        """The mean of some values, None without any."""
        if not values:
            return None
        several = len(values) > 1 and all(map(math.isfinite, values))
        error = stdev(values) / math.sqrt(len(values)) if several else 0.0
        return cls(fmean(values), error, len(values))


@dataclass(frozen=True, slots=True)
class Meant:
    """Which cells a figure is of: a row of a data set, at one ε and with certain factors where they are said."""

    data: str
    row: str
    epsilon: float | None = None
    factors: tuple[tuple[str, Factor], ...] = ()

    @classmethod
    def under(cls, data: str, row: str, epsilon: float, **factors: Factor) -> Meant:
        """A row at an ε; a control has the same figures under every ε."""
        return cls(data, row, None if row in CONTROLS else epsilon, tuple(factors.items()))

    def __call__(self, cell: Cell) -> bool:
        """Whether a cell is meant."""
        same = (cell.data, cell.row) == (self.data, self.row) and self.epsilon in (None, cell.epsilon)
        return same and all(cell.factors.get(name) == value for name, value in self.factors)


@dataclass(frozen=True, slots=True)
class Results:
    """All figures of an experiment. `cells` are those it asked for, done or not."""

    points: tuple[Point, ...]
    cells: tuple[Cell, ...]
    done: int

    def mean(self, measure: str, meant: Meant, *, view: str = "", kind: str = "") -> Mean | None:
        """The mean over seeds of a figure, among the cells that are meant; of several in one seed, their own mean."""
        by_seed: dict[int, list[float]] = {}
        for point in self.points:
            same = point.measure == measure and view in ("", point.view) and kind in ("", point.kind)
            if same and meant(point.cell) and not math.isnan(point.value):
                by_seed.setdefault(point.cell.seed, []).append(point.value)
        return Mean.of([fmean(values) for values in by_seed.values()])

    def utility(self, meant: Meant) -> dict[int, float]:
        """The mean over views of AUC, seed by seed; seeds in which a view is missing are left out."""
        views = self.views()
        found: dict[int, dict[str, list[float]]] = {}
        for point in self.points:
            if point.measure == "auc" and point.view in views and meant(point.cell):
                found.setdefault(point.cell.seed, {}).setdefault(point.view, []).append(point.value)
        whole = {seed: by_view for seed, by_view in found.items() if len(by_view) == len(views)}
        return {seed: fmean(fmean(values) for values in by_view.values()) for seed, by_view in whole.items()}

    def of_classifier(self, meant: Meant) -> dict[int, float]:
        """AUC of a method that releases a classifier and no records, seed by seed."""
        return {p.cell.seed: p.value for p in self.points if p.measure == "auc" and p.view == "dp-ds" and meant(p.cell)}

    def views(self) -> tuple[str, ...]:
        """The views that figures are of, text first."""
        found = {point.view: point.kind for point in self.points if point.measure == "auc" and point.view != "dp-ds"}
        return tuple(sorted(found, key=lambda view: (found[view] != "text", view)))

    def values(self, factor: str) -> list[Any]:
        """The values of a factor, in order."""
        found = {cell.factors[factor] for cell in self.cells if factor in cell.factors}
        return sorted(found, key=lambda value: (isinstance(value, str), value))

    def tried(self, parameter: str) -> list[tuple[str, Factor]]:
        """The values of a parameter that was varied, in order, each with the row that it was varied in."""
        cells = [cell for cell in self.cells if cell.factors.get("parameter") == parameter]
        return sorted({(cell.row, cell.factors["value"]) for cell in cells}, key=lambda one: float(one[1]))

    def ordered_rows(self) -> list[str]:
        """The names of the rows as they were asked for, controls below the others."""
        return sorted(dict.fromkeys(cell.row for cell in self.cells), key=lambda row: row in CONTROLS)

    def data(self) -> list[str]:
        """The data sets."""
        return list(dict.fromkeys(cell.data for cell in self.cells))


def gather(cells: Sequence[Cell], results: Mapping[str, Mapping[str, Any]], key: Callable[[Cell], str]) -> Results:
    """The figures of the cells that are done."""
    points = [
        point for cell in cells if (found := results.get(key(cell))) is not None for point in _points(cell, found)
    ]
    return Results(tuple(points), tuple(cells), sum(key(cell) in results for cell in cells))


def _points(cell: Cell, result: Mapping[str, Any]) -> Iterable[Point]:
    for measure in result["measures"]:
        yield Point(cell, **measure)
    run = result.get("run") or {}
    told = {name: run.get(name) for name in ("seconds", "prompt_tokens", "completion_tokens")}
    told |= {name: (run.get("spent") or {}).get(name) for name in _SPENT}
    yield from (Point(cell, name, float(value)) for name, value in told.items() if value is not None)


def tidy(results: Results, experiment: str) -> list[dict[str, Any]]:
    """A row per figure, with everything that says which figure it is."""
    factors = list(dict.fromkeys(name for cell in results.cells for name in cell.factors))
    return [
        {
            "experiment": experiment, "data": point.cell.data, "seed": point.cell.seed, "row": point.cell.row,
            "method": point.cell.method or point.cell.kind, "epsilon": point.cell.epsilon, "llm": point.cell.llm,
            "draw": point.cell.draw, "private_per_class": point.cell.private, "records_per_class": point.cell.per_class,
            **{_column(name): point.cell.factors.get(name) for name in factors},
            "measure": point.measure, "view": point.view, "kind": point.kind, "value": point.value,
            "low": point.low, "high": point.high,
        }
        for point in results.points
    ]  # fmt: skip


def _column(factor: str) -> str:
    """The column of a factor: the value that a parameter was given is not the value that was measured."""
    return "parameter_value" if factor == "value" else factor


def write_tidy(results: Results, experiment: str, folder: Path) -> None:
    """Writes results.csv and results.parquet."""
    import pandas as pd

    frame = pd.DataFrame(tidy(results, experiment))
    try:
        make_folder(folder)
        for name in ("results.csv", "results.parquet"):
            claim(folder / name)
        frame.to_csv(folder / "results.csv", index=False)
        # A factor can be a word in one row and a number in another; parquet wants one kind.
        for name in frame.columns:
            if frame[name].dtype == object:
                frame[name] = frame[name].map(lambda cell: None if pd.isna(cell) else str(cell))
        frame.to_parquet(folder / "results.parquet", index=False)
    except OSError as error:
        raise ConfigError(f"results cannot be written ({error.strerror})", where=str(folder)) from None
