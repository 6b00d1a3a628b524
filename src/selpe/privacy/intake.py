"""Rows on their way into the private table: what does not fit is named by row and field, never by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from selpe.errors import DataError
from selpe.schema import Record, Schema, Value

# The rows, checked, and the row positions of each unit in order of their first row.
Admitted: TypeAlias = tuple[tuple[Record, ...], tuple[tuple[int, ...], ...]]


def admit(rows: Sequence[Record], schema: Schema, unit: str | None) -> Admitted | DataError:
    """The rows, checked; or what is wrong with the first that does not fit, for the caller to raise.

    It is not raised here, so that no traceback leads through a frame that holds rows.
    """
    if unit is None:
        units: tuple[tuple[int, ...], ...] = tuple((position,) for position in range(len(rows)))
    else:
        names = [_unit_name(row.get(unit)) for row in rows]
        if "" in names:
            where = f"row {names.index('') + 1}, field '{unit}'"
            return DataError("must be present: it says whose record this is", where=where)
        units = _positions(names)
        if unit not in schema.names:
            rows = [{name: value for name, value in row.items() if name != unit} for row in rows]
    return _first_problem(rows, schema) or (tuple(rows), units)


def _first_problem(rows: Sequence[Record], schema: Schema) -> DataError | None:
    bad = [(number, found[0]) for number, row in enumerate(rows, 1) if (found := schema.check(row))]
    if not bad:
        return None
    number, first = bad[0]
    others = f"; {len(bad) - 1} more rows do not fit the schema" if len(bad) > 1 else ""
    return DataError(
        f"must be {first.expected}{f' ({first.rule})' if first.rule else ''}{others}",
        where=f"row {number}, field '{first.field}'",
        hint="correct the table, or widen the schema where the value may be publicly known",
    )


def _unit_name(value: Value) -> str:
    """Whose record it is. Spellings that may mean the same person count as one, which is the safe side."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip().casefold()


def _positions(names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    found: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    return tuple(tuple(rows) for rows in found.values())
