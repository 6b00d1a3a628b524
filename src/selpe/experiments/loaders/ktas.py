"""KTAS: triage in two Korean emergency departments, acuity 1 to 5; an open stand-in for MIMIC-IV-ED.

Diagnosis, disposition and the nurse's own acuity are known only after triage: they are left out unless asked for.
Oxygen saturation is left out for another reason: one of the two hospitals did not record it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from selpe.experiments.loaders.base import Cells, Loader, Raw, RowTally
from selpe.experiments.loaders.reading import rows
from selpe.experiments.loaders.vitals import COMPLAINT, checked_pressure, plain_acuity

LEAKS = ("ed_diagnosis", "disposition", "acuity_nurse")
FIELDS = (
    "chiefcomplaint", "sex", "age", "arrival_mode", "injury", "mental_state", "pain", "sbp", "dbp", "heartrate",
    "resprate", "temperature_c", *LEAKS, "acuity",
)  # fmt: skip


def _rows(path: Path) -> Iterator[Cells]:
    return rows(path, FIELDS)


def _clean(cells: Cells, tally: RowTally) -> Raw | None:
    made = {name: " ".join(cells.get(name, "").split()) for name in FIELDS}
    if not made["chiefcomplaint"]:
        tally.note("'chiefcomplaint': missing, row left out")
        return None
    checked_pressure(made, tally)
    plain_acuity(made)
    return Raw(made)


LOADER = Loader(
    name="ktas",
    title="Emergency triage by the Korean scale (KTAS)",
    paper="Mimic",
    files=("ktas_triage.csv",),
    label="acuity",
    validation={"1": 88, "2": 93, "3": 94, "4": 120, "5": 105},
    test={"1": 201, "2": 209, "3": 201, "4": 195, "5": 194},
    marks=(frozenset({"chiefcomplaint", "arrival_mode", "mental_state", "acuity", "temperature_c"}),),
    rows=_rows,
    clean=_clean,
    fields=lambda path: FIELDS,
    grouping="rows that are the same in every field",
    leaks=LEAKS,
    about_leaks="They are known only after triage.",
    enrichment=COMPLAINT,
)
