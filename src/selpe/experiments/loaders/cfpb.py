"""CFPB: consumers' complaints about banks and lenders, told in 300 to 600 characters; two days, and no label.

Only complaints whose story was published and is long enough are taken; longer ones are cut after a word. The publisher
has masked names, days and amounts by 'XXXX'; a row of such masks becomes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from selpe.experiments.loaders.base import Cells, Loader, Raw, RowTally
from selpe.experiments.loaders.reading import rows
from selpe.schema import Schema, TextField

COLUMNS = {
    "received": "Date received", "sent": "Date sent to company", "product": "Product", "issue": "Issue",
    "narrative": "Consumer complaint narrative", "public_response": "Company public response", "state": "State",
    "submitted_via": "Submitted via", "company_response": "Company response to consumer", "timely": "Timely response?",
}  # fmt: skip
_MASKS = re.compile(r"X{2,}(?:[\s/,.-]*X{2,})+")


def _rows(path: Path) -> Iterator[Cells]:
    return rows(path, set(COLUMNS.values()))


def _told(cells: Cells) -> str:
    return " ".join(_MASKS.sub("XXXX", cells.get(COLUMNS["narrative"], "")).split())


def _usable(cells: Cells, schema: Schema) -> bool:
    field = schema.field("narrative")
    return isinstance(field, TextField) and len(_told(cells)) >= field.min_length


def _clean(cells: Cells, tally: RowTally) -> Raw | None:
    made = {field: " ".join(cells.get(column, "").split()) for field, column in COLUMNS.items()}
    made["narrative"] = _told(cells)
    return Raw(made, group=made["narrative"].casefold())


LOADER = Loader(
    name="cfpb",
    title="Consumers' complaints to the CFPB",
    paper="",
    files=("complaints.csv", "complaints.csv.gz", "rows.csv", "Consumer_Complaints.csv"),
    label="",
    validation={"": 500},
    test={"": 1000},
    marks=(frozenset({"Date received", "Product", "Issue", "Consumer complaint narrative", "Timely response?"}),),
    rows=_rows,
    clean=_clean,
    fields=lambda path: tuple(COLUMNS),
    grouping="complaints with the same words",
    usable=_usable,
)
