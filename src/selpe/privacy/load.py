"""Reading the private table: from its source straight into `PrivateTable`, with nothing left behind on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from selpe.config import RunConfig
from selpe.errors import DataError
from selpe.intake import Reading, Table
from selpe.intake.addresses import with_password
from selpe.intake.options import ReadingOptions
from selpe.intake.records import problem_report
from selpe.privacy.ledger import Ledger
from selpe.privacy.table import PrivateTable
from selpe.privacy.units import OWN, unit_name, units_in
from selpe.schema import Record, Schema


class Loaded(NamedTuple):
    """The private table of a run, and what is public about how it was read.

    `inferred` names the fields whose column types came from all rows, by the program that made a frame. `remarks` is
    what its owner should know of other ledgers.
    """

    table: PrivateTable
    inferred: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class _Arriving(NamedTuple):
    """Rows on their way, each given out once: None for one that abstains, and the cell that says whose it is."""

    rows: Iterator[Record | None]
    whose: Iterator[object]
    inferred: tuple[str, ...]


def load_private(
    config: RunConfig, schema: Schema, ledger: Ledger, *, run: str, source: Any = None, insist: bool = False
) -> Loaded:
    """The private table of a run, and its ledger told which table this is.

    `source` is a frame that stands in for the file of the settings. `insist` is the owner's word that rows known
    under another name are to be counted anew; the setting `same_data_new_ledger` says the same.
    """
    schema.require_confirmed()
    arriving = _arriving(config, schema, source)
    table = PrivateTable(
        arriving.rows,
        schema,
        account=ledger.account(run),
        unit=config.unit,
        whose=None if config.unit is None else arriving.whose,
        allow_private_text_to=config.allow_private_text_to or (),
    )
    known = ledger.recognise(table.fingerprint(), insist=insist or config.same_data_new_ledger)
    return Loaded(table, arriving.inferred, known.remarks)


def count_units(config: RunConfig, *, source: Any = None) -> int:
    """How many units the private table has, and nothing else of it: what a plan needs to know."""
    return units_in(read_raw(config, source), config.unit)


def read_raw(config: RunConfig, source: Any = None) -> Table:
    """The table as it lies in its file or frame: read once, counted for a plan, and handed on to `load_private`."""
    return ReadingOptions.of(config).table(with_password(config.data) if source is None else source)


def _arriving(config: RunConfig, schema: Schema, source: Any) -> _Arriving:
    table = read_raw(config, source)
    reading = ReadingOptions.of(config).reading(table, schema)
    if reading.problems and not config.skip_bad_rows:
        raise problem_report(table, reading.problems)
    rows, whose = _in_order(table, reading, config)
    if all(row is None for row in rows):
        raise DataError("no row fits the schema", where=table.source, hint="`selpe check` lists what is wrong.")
    return _Arriving(iter(rows), iter(whose), tuple(getattr(reading, "inferred", ())))


def _in_order(table: Table, reading: Reading, config: RunConfig) -> tuple[list[Record | None], list[object]]:
    """Every row of the table in its place, rows that do not fit included: they abstain, and count."""
    fitting = dict(zip(reading.kept, reading.records, strict=True))
    cells = [None] * len(table) if config.unit is None else table.column(config.unit)
    found = [(table.rows[place], fitting.get(place), cell) for place, cell in enumerate(cells)]
    found += [(row.row, None, None) for row in table.broken]
    found.sort(key=lambda one: one[0])
    if config.unit is not None and config.skip_bad_rows:
        found = [(number, None if unit_name(cell) == OWN else row, cell) for number, row, cell in found]
    return [row for _, row, _ in found], [cell for _, _, cell in found]
