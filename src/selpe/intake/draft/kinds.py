"""From one column to one drafted field, with notes for the person who decides."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from selpe.errors import DataError
from selpe.intake.core import listed
from selpe.intake.draft import names, ranges
from selpe.intake.draft.profile import Profile
from selpe.schema import BooleanField, CategoryField, DateField, Field, IntegerField, NumberField, TextField

Role = Literal["field", "identifier", "personal", "empty", "unusable"]
MOST_CATEGORIES = 60
MOST_LABELS = 50
_NUMERIC, _DATED = 0.8, 0.9  # a column is numbers (dates) when this share of its filled cells is


@dataclass(frozen=True, slots=True)
class ColumnDraft:
    """The draft of one column. Notes are for the terminal and may count rows; comments are for the file."""

    name: str
    position: int
    role: Role
    field: Field | None = None
    notes: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def kind(self) -> str:
        """The field's kind, or why there is none."""
        return self.field.kind if self.field is not None else self.role


@dataclass(frozen=True, slots=True)
class Habits:
    """What steers a draft: whether the table is public, and from how many rows a category counts as common."""

    public: bool = False
    rare: int = 5


def draft_column(column: Profile, habits: Habits, *, is_label: bool = False) -> ColumnDraft:
    """The draft of one column."""
    if not column.filled:
        return ColumnDraft(column.name, column.position, "empty", notes=("every cell is missing; left out",))
    if not column.name.isprintable() or "`" in column.name:
        return ColumnDraft(column.name, column.position, "unusable", notes=("rename this column to use it",))
    if is_label:
        return _with_missing(column, _label(column, habits), is_label=True)
    # A date of birth or a post code narrows a person down but does not name them: kept, and flagged.
    if (what := names.personal(column.name) or column.pattern) and what not in names.NARROWING:
        comments = (f"it looks like {what}",)
        return ColumnDraft(
            column.name, column.position, "personal", notes=(f"looks like {what}; left out",), comments=comments
        )
    if names.is_identifier(column.name) or column.coded:
        return _identifier(column)
    for attempt in (_boolean, _date, _number, _category):
        found = attempt(column, habits)
        if found is not None:
            return _with_missing(column, found)
    return _with_missing(column, _text(column, habits))


def _identifier(column: Profile) -> ColumnDraft:
    repeats = len(column.counts) < column.filled
    if repeats:
        note = "says whose record it is: left out, and offered as 'unit' in selpe.yaml"
        comment = "an identifier that repeats: name it as 'unit' in selpe.yaml to protect each person, not each record"
    else:
        note, comment = "an identifier; left out", "an identifier: it says nothing that can be synthesised"
    return ColumnDraft(column.name, column.position, "identifier", notes=(note,), comments=(comment,), repeats=repeats)


def _with_missing(column: Profile, found: ColumnDraft, *, is_label: bool = False) -> ColumnDraft:
    if not column.missing:
        return found
    share = 100 * column.missing / column.rows
    said = f"{column.missing:,} missing ({share:.0f} %)"
    said = f"{said}: rows without a label do not fit" if is_label else said
    return ColumnDraft(found.name, found.position, found.role, found.field, (said, *found.notes), found.comments)


def _made(column: Profile, field: Field, notes: list[str], *comments: str) -> ColumnDraft:
    flagged = names.personal(column.name)
    if flagged:
        notes.append(f"looks like {flagged}")
    return ColumnDraft(column.name, column.position, "field", field, tuple(notes), comments)


def _boolean(column: Profile, habits: Habits) -> ColumnDraft | None:
    if not column.truth:
        return None
    field = BooleanField(column.name, optional=bool(column.missing), confirmed=habits.public)
    return _made(column, field, [])


def _date(column: Profile, habits: Habits) -> ColumnDraft | None:
    if column.share(column.days) < _DATED:
        return None
    notes = _misfits(column.rows_without(column.days), "not dates")
    readings = [day for days in column.days.values() for day in days]
    if any(len(days) > 1 for days in column.days.values()):
        notes.append("day and month cannot be told apart in some rows: write dates as YYYY-MM-DD")
    low, high = ranges.round_days(min(readings), max(readings))
    field = DateField(column.name, min=low, max=high, optional=bool(column.missing), confirmed=habits.public)
    months = all(any(char.isalpha() for char in text) and len(text) <= 8 for text in column.days)
    comments = ("months are read as their first day",) if months else ()
    return _made(column, field, notes, *comments)


def _number(column: Profile, habits: Habits) -> ColumnDraft | None:
    if column.share(column.numbers) < _NUMERIC:
        return None
    values = list(column.numbers.values())
    digits = ranges.decimals(values)
    if digits == 0 and _is_class(column, values):
        return _category_of(column, habits)
    notes = _misfits(column.rows_without(column.numbers), "not numbers")
    low, high, unit, comment = _bounds(column)
    outside = tuple(
        row for row, text in column.cells if text in column.numbers and not low <= column.numbers[text] <= high
    )
    if outside:
        notes.append(_rows(outside, "far outside the drafted range"))
    unit = unit or ("%" if column.percent else "")
    optional, confirmed = bool(column.missing), habits.public
    field: Field
    if digits == 0:
        field = IntegerField(
            column.name, min=int(low), max=int(high), unit=unit, optional=optional, confirmed=confirmed
        )
    else:
        step = Decimal(1).scaleb(-digits)
        field = NumberField(
            column.name, min=low, max=high, step=step, unit=unit, optional=optional, confirmed=confirmed
        )
    return _made(column, field, notes, comment)


def _bounds(column: Profile) -> tuple[Decimal, Decimal, str, str]:
    for measure in names.measures(column.name):
        inside = {text: value for text, value in column.numbers.items() if measure.low <= value <= measure.high}
        if column.share(inside) >= 0.9 * column.share(column.numbers):
            return measure.low, measure.high, measure.unit, "a usual range for this measure, not taken from the table"
    every = [column.numbers[text] for _, text in column.cells if text in column.numbers]
    low, high = ranges.round_bounds(*ranges.bulk(every))
    return low, high, "", ""


def _is_class(column: Profile, values: list[Decimal]) -> bool:
    """Few whole numbers are classes when the name says so, or when they leave gaps (36 and 60 months)."""
    distinct = sorted(set(values))
    consecutive = len(distinct) > 1 and distinct[-1] - distinct[0] == len(distinct) - 1
    common = column.filled >= 20 * len(distinct)
    if names.is_scale(column.name) and len(distinct) <= 10 and distinct[0] >= 0 and distinct[-1] <= 100:
        return True
    return 1 < len(distinct) <= 4 and not consecutive and common and not names.measures(column.name)


def _category(column: Profile, habits: Habits) -> ColumnDraft | None:
    distinct = len(column.counts)
    few = distinct <= min(MOST_CATEGORIES, max(3, column.filled // 5))
    short = column.mean_words <= 6 and column.longest <= 80
    if not (few and short and max(column.counts.values()) >= 2):
        return None
    return _category_of(column, habits)


def _category_of(column: Profile, habits: Habits) -> ColumnDraft | None:
    threshold = 1 if habits.public else min(habits.rare, max(2, column.rows // 20))
    common = [text for text, count in column.counts.items() if count >= threshold]
    if not common:
        return None
    notes, comments = [], []
    rare = len(column.counts) - len(common)
    if rare:
        rows = sum(count for count in column.counts.values() if count < threshold)
        values = f"{rare} rare values" if rare > 1 else "1 rare value"
        notes.append(f"{values} ({rows} of the rows) left out: add what is publicly known")
        comments.append("rare values were left out: list every value that is publicly known")
    field = CategoryField(
        column.name, values=tuple(_sorted(common)), optional=bool(column.missing), confirmed=habits.public
    )
    return _made(column, field, notes, *comments)


def _sorted(texts: list[str]) -> list[str]:
    """Numbers by size, words by alphabet: an order by frequency would give counts away."""

    def key(text: str) -> tuple[bool, float, str]:
        return (not text.isdecimal(), float(text) if text.isdecimal() else 0.0, text)

    return sorted(texts, key=key)


def _text(column: Profile, habits: Habits) -> ColumnDraft:
    notes = ["holds e-mail addresses in some rows"] if column.mentions_addresses else []
    if column.filled > 1 and column.mean_words < 1.2 and len(column.counts) > 0.9 * column.filled:
        notes.append("nearly every value is different: is it a code that should be left out?")
    field = TextField(
        column.name,
        max_length=ranges.round_length(column.longest),
        optional=bool(column.missing),
        confirmed=habits.public,
    )
    return _made(column, field, notes)


def _label(column: Profile, habits: Habits) -> ColumnDraft:
    if column.truth:
        return _made(column, BooleanField(column.name, confirmed=habits.public), [])
    found = _category_of(column, habits) if len(column.counts) <= MOST_LABELS else None
    if found is None or not isinstance(found.field, CategoryField):
        raise DataError(
            f"column '{column.name}' has too many different values to be the label",
            hint=f"A label says a record's class: at most {MOST_LABELS} values, each in several rows.",
        )
    field = CategoryField(column.name, values=found.field.values, confirmed=habits.public)
    return ColumnDraft(column.name, column.position, "field", field, found.notes, found.comments)


def _misfits(rows: tuple[int, ...], what: str) -> list[str]:
    return [_rows(rows, what)] if rows else []


def _rows(rows: tuple[int, ...], what: str) -> str:
    if len(rows) == 1:
        return f"1 row is {what} (row {rows[0]})"
    return f"{len(rows):,} rows are {what} (rows {listed(rows)})"
