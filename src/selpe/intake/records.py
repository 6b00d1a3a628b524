"""A raw table under a schema: records, and every problem by row and field, never by value.

Each row is read on its own, so that adding, removing or changing one private row changes one record and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat

from selpe.errors import DataError
from selpe.intake.cells import MISSING, CellOutcome, Conventions, cell_text, is_scalar, reader_of
from selpe.intake.core import COUNTED, Table, listed
from selpe.intake.numerals import DecimalMark
from selpe.schema import DateField, Field, IntegerField, NumberField, Record, Schema

MOST_SHOWN = 12
_EXACT_IN_A_FLOAT = 2**53


@dataclass(frozen=True, slots=True)
class RowProblem:
    """One way in which rows fail: the field ('' for the whole row), what was expected, and which rows."""

    field: str
    expected: str
    rows: tuple[int, ...]

    @property
    def message(self) -> str:
        """The problem as one line."""
        count = f"{len(self.rows):,} rows" if len(self.rows) > 1 else "1 row"
        place = f"field '{self.field}' " if self.field else ""
        label = "rows" if len(self.rows) > 1 else "row"
        return f"{count}: {place}{self.expected} ({label} {listed(self.rows)})"


@dataclass(frozen=True, slots=True)
class Reading:
    """What came out of a table: records of the good rows, which rows those are, and what happened to the others.

    `inferred` are fields that another program may have read by looking at all rows: see `inferred_fields`.
    """

    records: list[Record] = field(repr=False)
    kept: tuple[int, ...] = field(repr=False)  # positions in the table, 0-based, in order
    problems: tuple[RowProblem, ...] = ()
    dropped: int = 0
    blanked: int = 0
    notes: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()


def to_records(
    table: Table,
    schema: Schema,
    *,
    skip_bad_rows: bool = False,
    blank_bad_cells: bool = False,
    unit: str | None = None,
    day_first: bool | None = None,
    decimal: DecimalMark | None = None,
) -> list[Record]:
    """The records of a table, in order. Raises one DataError that lists all problems, unless bad rows are skipped."""
    reading = parse_records(
        table, schema, blank_bad_cells=blank_bad_cells, unit=unit, day_first=day_first, decimal=decimal
    )
    if reading.problems and not skip_bad_rows:
        raise problem_report(table, reading.problems)
    if not reading.records:
        raise DataError("no row fits the schema", where=table.source, hint="`selpe check` lists what is wrong.")
    return reading.records


def parse_records(
    table: Table,
    schema: Schema,
    *,
    blank_bad_cells: bool = False,
    unit: str | None = None,
    day_first: bool | None = None,
    decimal: DecimalMark | None = None,
) -> Reading:
    """Everything a table says under a schema. Raises only where its header lacks or repeats columns.

    With `blank_bad_cells`, a cell that does not fit becomes missing where its field is optional. `unit` names the
    column that says whose record it is; its text is kept in each record, beside the schema's fields.
    """
    columns, notes = _columns(table, schema, unit)
    tally = _Tally(table, blank_bad_cells)
    cells: dict[str, Sequence[CellOutcome]] = {}
    for entry in schema.fields:
        read = reader_of(entry, Conventions(day_first, decimal))
        column = columns.get(entry.name)
        raw = repeat(None, len(table)) if column is None else table.data[column]
        cells[entry.name] = tally.judged(entry.name, entry.optional, raw, read)
    if unit is not None and unit not in schema.names:
        cells[unit] = tally.judged(unit, False, _unit_cells(table, unit), _whose)
    for row in table.broken:
        tally.add("", row.expected, row.row)
    records, kept = _assemble(table, schema, cells, tally)
    inferred = inferred_fields(table, schema, unit=unit, decimal=decimal)
    if inferred:
        notes.append(f"columns of one type for all rows, by the program that made them: {', '.join(inferred)}")
    return Reading(
        records=records,
        kept=tuple(kept),
        problems=tally.problems(),
        dropped=len(table) - len(kept) + len(table.broken),
        blanked=tally.blanked,
        notes=(*table.notes, *notes, *tally.notes()),
        inferred=inferred,
    )


def inferred_fields(
    table: Table, schema: Schema, *, unit: str | None = None, decimal: DecimalMark | None = None
) -> tuple[str, ...]:
    """The fields (and unit column) whose cells may say less than was written, by a type that all rows had a part in.

    '007' is 7 in a column of numbers, and '007' again as soon as one row says 'A7'. Numbers and truth values are read
    the same from a text as from a typed cell, unless the text says more than a float can hold.
    """
    names = {*table.typed}
    typed = {place for place, name in enumerate(table.columns) if name in names}
    found = [field.name for field in schema.fields if typed & {*table.places(field.name)} and _spelt(field, decimal)]
    if unit is not None and unit not in schema.names and typed & {*table.places(unit)}:
        found.append(unit)
    return tuple(found)


def _spelt(field: Field, decimal: DecimalMark | None) -> bool:
    """Whether a field's value can depend on how it is written, or on the program that read a day from it."""
    if isinstance(field, (IntegerField, NumberField)):
        largest = max(abs(Decimal(field.min)), abs(Decimal(field.max)))
        return decimal == "," or largest / min(Decimal(1), Decimal(field.step)) > _EXACT_IN_A_FLOAT
    return isinstance(field, DateField) or field.kind in ("text", "category")


def problem_report(table: Table, problems: Sequence[RowProblem]) -> DataError:
    """One error for all problems of a table."""
    rows = {row for problem in problems for row in problem.rows}
    lines = [f"  {problem.message}" for problem in problems[:MOST_SHOWN]]
    if len(problems) > MOST_SHOWN:
        lines.append(f"  … and {len(problems) - MOST_SHOWN} more kinds of problem")
    head = f"{len(rows):,} of {len(table) + len(table.broken):,} rows do not fit the schema"
    return DataError(
        "\n".join([head, *lines]),
        where=table.source,
        hint=f"Correct the rows or the schema, or leave bad rows out ({COUNTED[table.counting]}).",
    )


class _Tally:
    """Counts problems and changes while columns are read."""

    def __init__(self, table: Table, blank_bad_cells: bool) -> None:
        self._table = table
        self._blank = blank_bad_cells
        self._rows: dict[tuple[str, str], list[int]] = {}
        self._changed: dict[tuple[str, str], int] = {}
        self.bad: set[int] = set()
        self.blanked = 0

    def judged(
        self, name: str, optional: bool, raw: Sequence[object] | repeat[None], read: Callable[[object], CellOutcome]
    ) -> list[CellOutcome]:
        outcomes = [read(cell) for cell in raw]
        for position, outcome in enumerate(outcomes):
            if outcome.problem:
                if self._blank and optional:
                    outcomes[position] = CellOutcome()
                    self.blanked += 1
                else:
                    self.fault(name, outcome.problem, position)
            elif outcome.note:
                self._changed[name, outcome.note] = self._changed.get((name, outcome.note), 0) + 1
        return outcomes

    def fault(self, name: str, expected: str, position: int) -> None:
        self.bad.add(position)
        self.add(name, expected, self._table.rows[position])

    def add(self, name: str, expected: str, row: int) -> None:
        self._rows.setdefault((name, expected), []).append(row)

    def problems(self) -> tuple[RowProblem, ...]:
        return tuple(RowProblem(name, expected, tuple(rows)) for (name, expected), rows in self._rows.items())

    def notes(self) -> list[str]:
        said = {"rounded": "rounded to the field's step", "respelt": "matched to a listed value by letter case"}
        lines = [f"field '{name}': {count:,} cells {said[note]}" for (name, note), count in self._changed.items()]
        if self.blanked:
            lines.append(f"{self.blanked:,} cells that do not fit were read as missing")
        return lines


def _assemble(
    table: Table, schema: Schema, cells: Mapping[str, Sequence[CellOutcome]], tally: _Tally
) -> tuple[list[Record], list[int]]:
    records: list[Record] = []
    kept: list[int] = []
    for position in range(len(table)):
        if position in tally.bad:
            continue
        record: Record = {name: column[position].value for name, column in cells.items()}
        broken = [rule for rule in schema.rules if not rule.holds(record)]
        for rule in broken:
            tally.fault("", f"must obey the rule '{rule.text}'", position)
        if not broken:
            records.append(record)
            kept.append(position)
    return records, kept


def _columns(table: Table, schema: Schema, unit: str | None) -> tuple[dict[str, int], list[str]]:
    """Which column holds which field, and what to say about the rest."""
    found: dict[str, int] = {}
    for name in schema.names:
        places = table.places(name)
        if len(places) > 1:
            raise DataError(
                f"field '{name}' has more than one column ({listed([p + 1 for p in places])})",
                where=table.source,
                hint="Rename or remove the others.",
            )
        if places:
            found[name] = places[0]
    _require(table, schema, found)
    used = {*found.values(), *(table.places(unit) if unit is not None else ())}
    return found, _column_notes(table, [name for name in schema.names if name not in found], used)


def _require(table: Table, schema: Schema, found: Mapping[str, int]) -> None:
    # Where rows name their own cells, a row that lacks one is wrong by itself.
    absent = [] if table.keyed else [name for name in schema.required if name not in found]
    if found and not absent:
        return
    # The table's own header is not shown: in a file without one, it is the first private row.
    names = ", ".join(f"'{name}'" for name in absent or schema.names)
    what = f"no column for {names}" if len(absent or schema.names) > 1 else f"no column {names}"
    hint = (
        f"{len(found)} of the schema's {len(schema.names)} fields have a column. Rename the columns or the fields."
        if found
        else "None of the schema's fields has a column. Is the first row a header, and is this the right file?"
    )
    raise DataError(f"the table has {what}", where=table.source, hint=hint)


def _column_notes(table: Table, absent: Sequence[str], used: set[int]) -> list[str]:
    notes = []
    if absent:
        notes.append(f"no column for the optional fields {', '.join(absent)}: read as missing")
    extra = [place for place in range(len(table.columns)) if place not in used]
    if extra:
        places = listed([place + 1 for place in extra])
        notes.append(f"{len(extra)} columns that the schema does not name are not read (columns {places})")
    return notes


def _unit_cells(table: Table, unit: str) -> Sequence[object] | repeat[None]:
    return repeat(None, len(table)) if table.keyed and not table.places(unit) else table.column(unit)


def _whose(cell: object) -> CellOutcome:
    """Whose record it is, as text."""
    try:
        text = cell_text(cell) if cell is not None and is_scalar(cell) else ""
    except Exception:  # whatever the cell is, it is its own row's problem
        text = ""
    missing = text.casefold() in MISSING
    return CellOutcome(problem="must not be missing: it says whose record it is") if missing else CellOutcome(text)
