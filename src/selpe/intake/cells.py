"""From one raw cell to one value of a field, or to what was expected there; never to what the cell holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Literal

from selpe.intake.days import date_readings
from selpe.intake.numerals import DecimalMark, Numeral, exact, read_numeral
from selpe.schema import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    TextField,
    Value,
)

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "—", "<na>", "nat"})
# In free text, 'na' or 'nan' can be a word, so only the spellings that software writes count.
MISSING_TEXT = frozenset({"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "-", "--", "—", "<NA>"})
TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0", "on"})
FALSE = frozenset({"false", "f", "no", "n", "0", "0.0", "off"})
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_BITS = 256
_FLOAT_NOISE = Decimal("1e-6")

Note = Literal["", "rounded", "respelt"]


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """A cell's value, or what the cell must be; and whether reading changed it."""

    value: Value = None
    problem: str = ""
    note: Note = ""


@dataclass(frozen=True, slots=True)
class Conventions:
    """Public knowledge about how a table is written; what is None is refused where it matters."""

    day_first: bool | None = None
    decimal: DecimalMark | None = None


def reader_of(field: Field, conventions: Conventions) -> Callable[[object], CellOutcome]:
    """A function from raw cells of a field to outcomes, which remembers the texts and integers it has seen.

    No others, because only these are written the same where they are equal: 2.5 and 2.50 are equal decimals, and the
    spelling that came first would decide for both. A cell that cannot be read is a problem of its own row only.
    """
    seen: dict[str | int, CellOutcome] = {}

    def read(cell: object) -> CellOutcome:
        if type(cell) is str or type(cell) is int:
            found = seen.get(cell)
            if found is None:
                found = seen[cell] = read_cell(field, cell, conventions)
            return found
        try:
            return read_cell(field, cell, conventions)
        except Exception:
            return CellOutcome(problem=_must(field))

    return read


def read_cell(field: Field, cell: object, conventions: Conventions) -> CellOutcome:
    """The outcome of one cell under one field."""
    if not is_scalar(cell):
        return CellOutcome(problem=_must(field))
    cell = _python(cell)
    if isinstance(cell, int) and cell.bit_length() > _MOST_BITS:
        return CellOutcome(problem=_must(field))
    if is_missing(field, cell):
        if field.optional:
            return CellOutcome()
        empty_is_fine = isinstance(field, TextField) and field.min_length == 0
        return CellOutcome("") if empty_is_fine else CellOutcome(problem=f"must not be missing: {expected(field)}")
    outcome = _read(field, cell, conventions)
    if outcome.problem or field.check(outcome.value) is None:
        return outcome
    return CellOutcome(problem=_must(field))


def expected(field: Field) -> str:
    """A field's domain in words; without values and bounds that may come from a private table."""
    if isinstance(field, CategoryField):
        return "one of the values that the schema lists"
    if field.confirmed or field.kind == "boolean":
        return field.expected
    if field.kind == "text":
        return "text within the schema's lengths"
    article = "an" if field.kind == "integer" else "a"
    return f"{article} {field.kind} within the schema's bounds"


def is_scalar(cell: object) -> bool:
    """False for what cannot be a cell: lists and objects within a record, and bytes."""
    return not isinstance(cell, (list, tuple, dict, set, frozenset, bytes, bytearray))


def is_missing(field: Field, cell: object) -> bool:
    """True for empty cells and the usual words for 'nothing', unless the field lists the word as a value."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return True
    if isinstance(cell, Decimal):
        return cell.is_nan()
    if not isinstance(cell, str):
        # pandas and polars have missing scalars of their own inside columns of objects
        return type(cell).__name__ in ("NAType", "NaTType")
    text = cell.strip()
    if isinstance(field, CategoryField) and text in field.values:
        return False
    return text in MISSING_TEXT if isinstance(field, TextField) else text.casefold() in MISSING


def clean_text(text: str) -> str:
    """Text with plain newlines and without control characters, lone surrogates or outer space."""
    if text.isprintable():
        return text.strip()
    plain = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _SURROGATE.sub("\ufffd", plain).strip()


def cell_text(cell: object) -> str:
    """A cell as text: whole floats without their '.0', truth values as true and false."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, (float, Decimal)):
        value = exact(cell)
        if value is not None and value == value.to_integral_value() and abs(value) < 10**15:
            return str(int(value))
        return str(cell)
    if isinstance(cell, int) and cell.bit_length() > _MOST_BITS:
        return f"{cell:x}"  # Python refuses to write thousands of decimal digits
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ")
    return clean_text(str(cell))


def _read(field: Field, cell: object, conventions: Conventions) -> CellOutcome:
    if isinstance(field, CategoryField):
        return _category(field, cell)
    if isinstance(field, BooleanField):
        return _boolean(field, cell)
    if isinstance(field, (IntegerField, NumberField)):
        return _number(field, cell, conventions.decimal)
    if isinstance(field, DateField):
        return _date(field, cell, conventions.day_first)
    return CellOutcome(cell_text(cell))


def _category(field: CategoryField, cell: object) -> CellOutcome:
    for text in (str(cell), cell_text(cell)):
        if text in field.values:
            return CellOutcome(text)
    folded = " ".join(cell_text(cell).split()).casefold()
    alike = [value for value in field.values if " ".join(value.split()).casefold() == folded]
    return CellOutcome(alike[0], note="respelt") if len(alike) == 1 else CellOutcome(problem=_must(field))


def _boolean(field: BooleanField, cell: object) -> CellOutcome:
    if isinstance(cell, bool):
        return CellOutcome(cell)
    word = cell_text(cell).casefold()
    if word in TRUE or word in FALSE:
        return CellOutcome(word in TRUE)
    return CellOutcome(problem="must be true or false (or yes and no, 1 and 0)")


def _number(field: IntegerField | NumberField, cell: object, decimal: DecimalMark | None) -> CellOutcome:
    if isinstance(cell, bool) or not isinstance(cell, (int, float, Decimal, str)):
        return CellOutcome(problem=_must(field))
    if isinstance(cell, str):
        numeral = read_numeral(cell, unit=field.unit, decimal=decimal)
    else:
        value = exact(cell)
        numeral = Numeral(() if value is None else (value,))
    share = numeral.percent and field.unit != "%" and field.max <= 1
    readings = [value / 100 if share else value for value in numeral.readings]
    placed = [(value, _on_grid(field, value)) for value in readings]
    fitting = [pair for pair in placed if pair[1] is not None]
    if not fitting:
        return CellOutcome(problem=_must(field))
    if len(fitting) > 1 and isinstance(field, NumberField) and field.decimals >= 3:
        return CellOutcome(problem="must be written without a thousands separator: its comma can be read in two ways")
    value, snapped = fitting[0]
    noise = _FLOAT_NOISE * max(Decimal(1), abs(value)) if isinstance(cell, float) else Decimal(0)
    note: Note = "rounded" if snapped is not None and abs(snapped - value) > noise else ""
    return CellOutcome(_plain(field, snapped), note=note)


def _on_grid(field: IntegerField | NumberField, value: Decimal) -> Decimal | None:
    """The multiple of the field's step nearest to a value, if it lies within the bounds."""
    if isinstance(field, IntegerField) and value != value.to_integral_value():
        return None
    step = Decimal(field.step)
    if not field.min - step <= value <= field.max + step:
        return None
    with localcontext() as context:
        context.prec = 120
        snapped = (value / step).to_integral_value(rounding=ROUND_HALF_EVEN) * step
    return snapped if field.min <= snapped <= field.max else None


def _plain(field: IntegerField | NumberField, value: Decimal | None) -> Value:
    if value is None:
        return None
    return int(value) if isinstance(field, IntegerField) else float(value)


def _date(field: DateField, cell: object, day_first: bool | None) -> CellOutcome:
    if isinstance(cell, datetime):
        return CellOutcome(cell.date().isoformat())
    if isinstance(cell, date):
        return CellOutcome(cell.isoformat())
    if isinstance(cell, bool):
        return CellOutcome(problem=_must(field))
    readings = date_readings(cell_text(cell), day_first=day_first)
    if len(readings) > 1:
        return CellOutcome(problem="must be written YYYY-MM-DD: its day and month cannot be told apart")
    return CellOutcome(readings[0].isoformat()) if readings else CellOutcome(problem=_must(field))


def _must(field: Field) -> str:
    return f"must be {expected(field)}"


def _python(cell: object) -> object:
    """A plain Python value for a scalar of numpy and similar libraries."""
    if isinstance(cell, (str, int, float, Decimal, date)) and type(cell).__module__ != "numpy":
        return cell
    item = getattr(cell, "item", None)
    return item() if callable(item) and type(cell).__module__ == "numpy" else cell
