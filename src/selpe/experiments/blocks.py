"""What a page of results is made of: paragraphs and tables, first as data, then as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from selpe.experiments.results import Mean
from selpe.report.words import NOTHING, figure


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, or a heading where `level` says so."""

    content: str
    level: int = 0


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table: the first column is what a row is about."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block: TypeAlias = Text | TableBlock


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as a Markdown page."""
    return "\n\n".join(_text(block) if isinstance(block, Text) else _table(block) for block in blocks) + "\n"


def _text(block: Text) -> str:
    return f"{'#' * block.level} {block.content}" if block.level else block.content


def _table(block: TableBlock) -> str:
    lines = [block.headings, ("---", *("---:" for _ in block.headings[1:])), *block.rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def mean_cell(
    mean: Mean | None, digits: int = 1, *, paper: float | None = None, best: bool = False, sign: bool = False
) -> str:
    """A mean with its standard error, in bold where it is the best; the paper's figure in brackets."""
    beside = "" if paper is None else f" ({paper:g})"
    if mean is None:
        return f"{NOTHING}{beside}"
    value = f"{'+' if sign and mean.value > 0 else ''}{figure(mean.value, digits)}"
    error = f" ± {figure(mean.error, digits)}" if mean.seeds > 1 else ""
    return f"**{value}**{error}{beside}" if best else f"{value}{error}{beside}"


def spent_cell(mean: Mean | None) -> str:
    """A true ε or δ."""
    if mean is None:
        return NOTHING
    return "∞" if math.isinf(mean.value) else f"{mean.value:.3g}"
