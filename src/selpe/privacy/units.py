"""Whose record it is: the one rule that joins spellings of a unit, for counting units and for admitting rows alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from selpe.intake.cells import MISSING, cell_text

if TYPE_CHECKING:
    from selpe.intake import Table

OWN = ""  # the name of a row that names nobody: it is a unit of its own
_NO_NAMES = (list, tuple, dict, set, frozenset, bytes, bytearray)
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")


def unit_name(cell: object) -> str:
    """The unit that a cell names, or OWN where it names none. It depends on this cell alone.

    Unicode NFKC, then letter case folded, then runs of white space as one space and none around; a whole number loses
    its '.0'. Spellings that may mean the same person count as one: joining two people protects both.
    """
    if cell is None or isinstance(cell, _NO_NAMES):
        return OWN
    try:
        text = cell_text(cell)
    except Exception:  # whatever the cell is, it is its own row's affair
        return OWN
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    whole = _WHOLE.fullmatch(text)
    return OWN if text in MISSING else whole[1] if whole else text


def grouped(names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The positions of each unit in order of their first; every row that names nobody is one for itself."""
    found: dict[object, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name if name != OWN else position, []).append(position)
    return tuple(tuple(rows) for rows in found.values())


def public_figure(units: int) -> int:
    """A number of units as one may say it in public: two significant digits, and to the ten at least."""
    step = max(10, int(10 ** (len(str(units)) - 2)))
    return max(step, (units + step // 2) // step * step)


def units_in(table: Table, unit: str | None) -> int:
    """How many units a table has. Rows that do not fit or cannot be taken apart count like all others."""
    if unit is None:
        return len(table) + len(table.broken)
    return len(grouped([unit_name(cell) for cell in table.column(unit)])) + len(table.broken)
