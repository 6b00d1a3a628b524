"""MIMIC-IV-ED 2.2: triage records of one emergency department, acuity 1 to 5; and its open demo.

`triage.csv(.gz)` has the record; gender, arrival and disposition are in `edstays.csv(.gz)` beside it and are joined by
stay. Disposition is known only at the end of a stay and left out unless asked for. A person has several stays: all of
them stay on one side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from selpe.experiments.loaders.base import Cells, Loader, Raw, RowTally
from selpe.experiments.loaders.reading import header, rows
from selpe.experiments.loaders.vitals import COMPLAINT, checked_pressure, fahrenheit, plain_acuity, plain_pain

TRIAGE = ("chiefcomplaint", "temperature", "heartrate", "resprate", "o2sat", "sbp", "dbp", "pain", "acuity")
STAY = ("gender", "arrival_transport", "disposition")
IDS = ("subject_id", "stay_id")


def _locate(path: Path) -> Path | None:
    """The triage file: itself, or in the published folder."""
    if path.is_file():
        return path
    for folder in (path, path / "ed"):
        for name in ("triage.csv.gz", "triage.csv"):
            if (folder / name).is_file():
                return folder / name
    return None


def _stays(path: Path) -> Path | None:
    """The file of stays, where the triage file has not got their columns itself."""
    if "gender" in header(path):
        return None
    there = (path.with_name(name) for name in ("edstays.csv.gz", "edstays.csv"))
    return next((file for file in there if file.is_file()), None)


def _rows(path: Path) -> Iterator[Cells]:
    beside = _stays(path)
    stays = {} if beside is None else {row["stay_id"]: row for row in rows(beside, ("stay_id", *STAY))}
    for row in rows(path, (*IDS, *TRIAGE, *STAY)):
        yield {**stays.get(row.get("stay_id", ""), {}), **row}


def _fields(path: Path) -> tuple[str, ...]:
    known = "gender" in header(path) or _stays(path) is not None
    return (*TRIAGE, *STAY) if known else TRIAGE


def _clean(cells: Cells, tally: RowTally) -> Raw | None:
    made = {name: " ".join(cells.get(name, "").split()) for name in (*TRIAGE, *STAY)}
    if made["chiefcomplaint"] in ("", "___"):  # what de-identification left
        tally.note("'chiefcomplaint': missing, row left out")
        return None
    fahrenheit(made, tally)
    plain_pain(made)
    checked_pressure(made, tally)
    plain_acuity(made)
    return Raw(made, group=cells.get("subject_id", ""))


LOADER = Loader(
    name="mimic-ed",
    title="MIMIC-IV-ED triage",
    paper="Mimic",
    files=("mimic-iv-ed-2.2", "mimic-iv-ed-demo-2.2", "triage.csv.gz", "triage.csv", "mimic_ed_demo_triage.csv"),
    label="acuity",
    validation={"1": 88, "2": 93, "3": 94, "4": 120, "5": 105},
    test={"1": 201, "2": 209, "3": 201, "4": 195, "5": 194},
    marks=(frozenset({"subject_id", "stay_id", "chiefcomplaint", "acuity", "sbp"}),),
    rows=_rows,
    clean=_clean,
    fields=_fields,
    grouping="all stays of a person",
    leaks=("disposition",),
    about_leaks="It is known only at the end of a stay.",
    enrichment=COMPLAINT,
    locate=_locate,
)
