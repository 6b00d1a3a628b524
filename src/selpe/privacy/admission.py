"""Rows on their way into the private table: what does not fit is named by row and field, never by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from selpe.errors import DataError
from selpe.privacy.units import OWN, grouped, unit_name
from selpe.schema import Record, Schema

ABSTAINS = -1  # stands in a unit for a row that has no record: it can be drawn like any other, and then says nothing

# The records, checked, and of each unit in order of its first row the positions of its records.
Admitted: TypeAlias = tuple[tuple[Record, ...], tuple[tuple[int, ...], ...]]


def admit(
    rows: Sequence[Record | None], whose: Sequence[object] | None, schema: Schema, unit: str | None
) -> Admitted | DataError:
    """The records, checked; or what is wrong with the first that does not fit, for the caller to raise.

    A row of None abstains. `whose` are the rows' cells of the unit column, if they are not in the records. An error is
    not raised here, so that no traceback leads through a frame that holds rows.
    """
    names = [OWN] * len(rows)
    if unit is not None:
        cells = [None if row is None else row.get(unit) for row in rows] if whose is None else whose
        names = [unit_name(cell) for cell in cells]
        nobody = [place for place, name in enumerate(names) if name == OWN and rows[place] is not None]
        if nobody:
            where = f"row {nobody[0] + 1}, field '{unit}'"
            return DataError("must be present: it says whose record this is", where=where)
        if unit not in schema.names:
            rows = [row and {name: value for name, value in row.items() if name != unit} for row in rows]
    problem = _first_problem(rows, schema)
    if problem is not None:
        return problem
    records = tuple(row for row in rows if row is not None)
    places = _places(rows)
    return records, tuple(tuple(places[row] for row in mine) for mine in grouped(names))


def _places(rows: Sequence[Record | None]) -> list[int]:
    """Where each row's record stands among the records; ABSTAINS for a row without one."""
    places, count = [], 0
    for row in rows:
        places.append(ABSTAINS if row is None else count)
        count += row is not None
    return places


def _first_problem(rows: Sequence[Record | None], schema: Schema) -> DataError | None:
    bad = [(number, found[0]) for number, row in enumerate(rows, 1) if row is not None and (found := schema.check(row))]
    if not bad:
        return None
    number, first = bad[0]
    others = f"; {len(bad) - 1} more rows do not fit the schema" if len(bad) > 1 else ""
    return DataError(
        f"must be {first.expected}{f' ({first.rule})' if first.rule else ''}{others}",
        where=f"row {number}, field '{first.field}'",
        hint="correct the table, or widen the schema where the value may be publicly known",
    )
