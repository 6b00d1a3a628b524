"""A draft schema from a table.

What a draft learns from a private table (bounds, categories, which columns have gaps) is private too, so every
field is marked `confirmed: false` until a person has said that it is public knowledge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from selpe.errors import DataError, did_you_mean
from selpe.intake.cells import MISSING
from selpe.intake.core import COUNTED, Table, listed
from selpe.intake.days import date_readings
from selpe.intake.draft import names
from selpe.intake.draft.kinds import ColumnDraft, Habits, draft_column
from selpe.intake.draft.profile import profile
from selpe.intake.numerals import read_numeral
from selpe.intake.read import read_table
from selpe.schema import Schema

__all__ = ["ColumnDraft", "Draft", "draft_schema"]


@dataclass(frozen=True, slots=True, repr=False)
class Draft:
    """A drafted schema and what is to be said about each column.

    Its bounds and values were seen in rows that may be private: `repr` and notebooks do not show them. `to_yaml` does,
    for whoever is to look them over.
    """

    schema: Schema
    columns: tuple[ColumnDraft, ...]
    rows: int
    public: bool = False
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Draft of {self.schema!r}>"

    def _repr_html_(self) -> str:
        from selpe.intake.draft.view import draft_view

        return draft_view(self)

    @property
    def unit(self) -> str | None:
        """The column that says whose record it is, if one repeats and is named after people."""
        repeating = [column.name for column in self.columns if column.role == "identifier" and column.repeats]
        return next((name for name in repeating if names.names_a_person(name)), None)

    @property
    def likely_labels(self) -> tuple[str, ...]:
        """The fields that look like a record's class, the likeliest first."""
        usable = [column.name for column in self.columns if column.kind in ("category", "boolean")]
        return names.likely_labels(usable)

    def to_yaml(self) -> str:
        """The schema as a commented YAML file, ready to edit."""
        from selpe.intake.draft.render import schema_text

        return schema_text(self)


def draft_schema(
    data: object, *, name: str = "records", label: str | None = None, public: bool = False, rare: int = 5
) -> Draft:
    """A schema guessed from a table: a frame, records, a path, or what `read_table` gives. `selpe init` does the same.

    Values seen in fewer than `rare` rows are left out unless the table is public. Nothing runs on `.schema` until its
    fields are confirmed (`Schema.change`, `Schema.confirm`): what was guessed from private rows is private.

    >>> draft = draft_schema([{"stars": str(1 + i % 5), "review": f"pair number {i} fits"} for i in range(50)])
    >>> draft.schema
    <Schema 'records': 2 fields, 2 not confirmed>
    >>> draft.schema.change("stars", kind="integer", min=1, max=5).confirm("stars", "review").unconfirmed
    ()
    """
    table = read_table(data)
    _check_header(table)
    if label is not None and label not in table.columns:
        raise DataError(
            f"there is no column '{label}' to be the label",
            where=table.source,
            hint=did_you_mean(label, table.columns) + "Check --label.",
        )
    if not len(table):
        raise DataError("no row can be read", where=table.source, hint="Check the file's delimiter and quotes.")
    habits = Habits(public=public, rare=rare)
    columns = tuple(
        draft_column(profile(column, place, table.rows, table.data[place]), habits, is_label=column == label)
        for place, column in enumerate(table.columns)
    )
    fields = tuple(column.field for column in columns if column.field is not None)
    if not fields:
        raise DataError("no column can become a field", where=table.source, hint="Is this the right table?")
    notes = list(table.notes)
    if table.broken:
        rows = listed([row.row for row in table.broken])
        notes.append(f"{len(table.broken):,} rows cannot be split into cells and were not looked at (rows {rows})")
    if any("row" in note for column in columns for note in column.notes):
        notes.append(COUNTED[table.counting])
    schema = Schema(name=name, fields=fields, label=label)
    return Draft(schema=schema, columns=columns, rows=len(table), public=public, notes=tuple(notes))


def _check_header(table: Table) -> None:
    """Refuses names that look like data: a file without a header would put its first private row into the schema."""
    if table.repeated:
        places = " and ".join(listed([place + 1 for place in group]) for group in table.repeated)
        raise DataError(f"columns share a name (columns {places})", where=table.source, hint="Rename one of them.")
    suspicious = [place + 1 for place, name in enumerate(table.columns) if _looks_like_data(name)]
    # Free text can happen to be its column's name; that a third of the names are cells of their columns cannot.
    echoed = [
        place + 1
        for place, name in enumerate(table.columns)
        if any(isinstance(cell, str) and cell.strip() == name for cell in table.data[place])
    ]
    if 3 * len(echoed) >= len(table.columns):
        suspicious = sorted({*suspicious, *echoed})
    if suspicious:
        raise DataError(
            f"the names of columns {listed(suspicious)} look like data",
            where=table.source,
            hint="Does the table have a header row? Put the columns' names into the first row.",
        )


def _looks_like_data(name: str) -> bool:
    return (
        name.casefold() in MISSING
        or bool(read_numeral(name).readings)
        or bool(date_readings(name))
        or re.search(r"\S@\S+\.\w", name) is not None
        or len(name) > 120
    )
