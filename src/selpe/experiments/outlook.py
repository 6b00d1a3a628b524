"""What a grid will take, before it starts: cells, tokens, time.

Answers that cells share are counted once, others for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from selpe.errors import SelPEError
from selpe.experiments.cells import Bench
from selpe.experiments.code import code_fingerprint
from selpe.experiments.grid import Cell
from selpe.experiments.shared import speed_of

_JUDGING = 12.0  # seconds a cell, where none has been judged yet
# Settings that change neither the number of candidates nor their length; nor do ε and seed.
_UNTOLD = frozenset({"rounds", "batches", "alpha", "temperature", "contrast", "quota", "kernel", "explore", "votes",
                     "inclusion", "mechanism"})  # fmt: skip
_NOT_VOTED = ("mixed", "off")
_OF_TEXTS = ("guides", "multiplicity", "stages", "temperature", "record_temperature", "seed")


@dataclass(frozen=True, slots=True)
class GridOutlook:
    """The estimate of a grid. `slowest` is the time of each row's cells together."""

    cells: int
    done: int
    tokens: int
    seconds: float
    basis: str
    slowest: dict[str, float]
    older: int = 0  # cells that were done by another version of the code

    def as_dict(self) -> dict[str, Any]:
        """The estimate as plain data."""
        return {
            "cells": self.cells, "done": self.done, "tokens": self.tokens, "seconds": round(self.seconds),
            "older": self.older, "basis": self.basis,
            "by_row": {row: round(seconds) for row, seconds in self.slowest.items()},
        }  # fmt: skip


def outlook(cells: Sequence[Cell], todo: Sequence[Cell], bench: Bench) -> GridOutlook:
    """The estimate for what is still to do."""
    known: dict[tuple[Any, ...], tuple[int, float, str, float]] = {}
    by_row: dict[str, float] = {}
    there = {_pool(cell) for cell in cells if bench.result(cell) is not None}
    tokens, bases = 0, dict.fromkeys(["nothing to do"])
    judging = _judging(cells, bench)
    for cell in todo:
        written, seconds, basis = 0, 0.0, ""
        if cell.kind == "run":
            told = sorted((name, value) for name, value in cell.settings.items() if name not in _UNTOLD)
            # What is measured depends on ε and on the rows.
            spent = (cell.epsilon, cell.private) if cell.method == "selpe" else ()
            alike = (cell.data, cell.method, cell.llm, cell.per_class, str(told), *spent)
            if alike not in known:
                known[alike] = _estimate(cell, bench)
            written, seconds, basis, anew = known[alike]
            if (pool := _pool(cell)) is not None:
                if pool in there:
                    written, seconds = round(written * anew), seconds * anew
                there.add(pool)
        tokens += written
        by_row[cell.row] = by_row.get(cell.row, 0.0) + seconds + judging
        bases[basis] = None
    said = [basis for basis in bases if basis and (not todo or basis != "nothing to do")]
    keys = {bench.key(cell) for cell in cells if not bench.refusal(cell)}
    done = {bench.key(cell): result for cell in cells if (result := bench.result(cell)) is not None}
    older = sum(result.get("code") != code_fingerprint() for result in done.values())
    return GridOutlook(
        len(keys), len(keys) - len(todo), tokens, sum(by_row.values()), "; ".join(said), by_row, older
    )  # fmt: skip


def _pool(cell: Cell) -> tuple[Any, ...] | None:
    """The texts that a run writes before its first private choice: ε and draws share them. Else None."""
    settings = cell.settings
    if cell.method != "selpe" or settings.get("rounds") != 1 or settings.get("guides") not in _NOT_VOTED:
        return None
    return cell.data, cell.seed, cell.llm, cell.per_class, *(settings.get(name) for name in _OF_TEXTS)


def _estimate(cell: Cell, bench: Bench) -> tuple[int, float, str, float]:
    """Tokens, seconds, where that is from, and the share that is written around what was measured: at every draw."""
    from selpe.run.methods import recipe_of

    config, split = bench.config(cell), bench.split(cell)
    try:
        recipe = recipe_of(cell.method)
        plan = recipe.plan(config, split.schema, len(split.private(cell.private)))
        found = recipe.estimate(config, split.schema, plan, [])
    except SelPEError:
        return 0, 0.0, "no estimate for some cells", 0.0
    # Of the records of the core, so many need not be written anew; they are what is expected less than is possible.
    core = min(config.records, config.core)
    anew = (core - (found.candidates - found.likely)) / max(1, found.likely) if found.likely < found.candidates else 0.0
    speed = speed_of(bench.root / "answers", cell.llm)
    if speed is None or "training" in found.basis:
        return found.completion_tokens, found.seconds, found.basis, anew
    return found.completion_tokens, found.completion_tokens / speed, "the speed of earlier cells", anew


def _judging(cells: Sequence[Cell], bench: Bench) -> float:
    """Seconds that it takes to judge a cell, by those that are done."""
    found = [result["judging_seconds"] for cell in cells if (result := bench.result(cell)) is not None]
    return fmean(found) if found else _JUDGING
