"""How a table is read: every setting that decides what a record is, in one place, for all who read the table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from selpe.intake import Reading, Table, parse_records, read_table

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.intake.numerals import DecimalMark
    from selpe.schema import Schema


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """The settings of the same names (docs/configuration.md). All of them are public."""

    query: str | None = None
    sheet: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    unit: str | None = None
    day_first: bool | None = None
    decimal: DecimalMark | None = None
    skip_bad_rows: bool = False
    blank_bad_cells: bool = False

    @classmethod
    def of(cls, config: RunConfig) -> ReadingOptions:
        """The options of a run."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def table(self, source: object) -> Table:
        """The raw cells of a table."""
        return read_table(
            source, query=self.query, sheet=self.sheet, encoding=self.encoding, delimiter=self.delimiter
        )  # fmt: skip

    def reading(self, table: Table, schema: Schema) -> Reading:
        """What the table says under a schema."""
        return parse_records(
            table,
            schema,
            blank_bad_cells=self.blank_bad_cells,
            unit=self.unit,
            day_first=self.day_first,
            decimal=self.decimal,
        )
