"""Reading the private table: from its source straight into `PrivateTable`, with nothing left behind on the way."""

from __future__ import annotations

from typing import Any

from selpe.config import RunConfig
from selpe.manifest import with_password
from selpe.privacy.ledger import Ledger
from selpe.privacy.private import PrivateTable
from selpe.schema import Schema
from selpe.table import read_table, to_records


def load_private(
    config: RunConfig, schema: Schema, ledger: Ledger, *, run: str, source: Any = None, insist: bool = False
) -> PrivateTable:
    """The private table of a run, and its ledger told which table this is.

    `source` is a frame that stands in for the file of the settings. `insist` is the owner's word that rows known
    under another name are to be counted anew.
    """
    schema.require_confirmed()
    table = PrivateTable(
        to_records(
            read_table(
                with_password(config.data) if source is None else source,
                sheet=config.sheet,
                query=config.query,
                encoding=config.encoding,
            ),
            schema,
            unit=config.unit,
            skip_bad_rows=config.skip_bad_rows,
            blank_bad_cells=config.blank_bad_cells,
            day_first=config.day_first,
            decimal=config.decimal,
        ),
        schema,
        account=ledger.account(run),
        unit=config.unit,
        allow_private_text_to=config.allow_private_text_to or (),
    )
    ledger.recognise(table.fingerprint(), insist=insist)
    return table


def count_units(config: RunConfig, *, source: Any = None) -> int:
    """How many units the private table has, and nothing else of it: what a plan needs to know."""
    place = with_password(config.data) if source is None else source
    table = read_table(place, sheet=config.sheet, query=config.query, encoding=config.encoding)
    if config.unit is None:
        return len(table)
    return len({str(cell).strip().casefold() for cell in table.column(config.unit)})
