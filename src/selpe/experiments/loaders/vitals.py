"""What triage records of different hospitals have in common: pressures, temperatures, acuity, and the complaint."""

from __future__ import annotations

import re

from selpe.experiments.loaders.base import Cells, Enrichment, RowTally
from selpe.schema import Record

_CELSIUS = (30.0, 45.0)  # degrees: no living person has so many Fahrenheit
_OF_TEN = re.compile(r"(\d{1,2})\s*/\s*10")


def _sentence(record: Record) -> str:
    complaint = str(record["chiefcomplaint"]).strip().rstrip(".")
    # Words in capitals alone are how a department writes; a sentence has them in small letters.
    spoken = complaint.lower() if complaint.isupper() and len(complaint) > 4 else complaint
    return f"The patient comes to the emergency department because of {spoken}."


COMPLAINT = Enrichment(
    field="chiefcomplaint",
    template=_sentence,
    longest=160,
    description="chief complaint as one sentence",
    instruction="Rewrite this chief complaint as one descriptive sentence. Add nothing that it does not say.",
)


def checked_pressure(cells: Cells, tally: RowTally) -> None:
    """Blanks both pressures where the lower one is not below the upper one."""
    high, low = (number(cells.get(name, "")) for name in ("sbp", "dbp"))
    if high is not None and low is not None and low >= high:
        # One of the two is wrong, and nobody can say which: where one is out of range, only that one goes.
        if low > 180:
            cells["dbp"] = ""
        else:
            cells["sbp"] = cells["dbp"] = ""
        tally.note("'dbp': not below 'sbp', read as missing")


def fahrenheit(cells: Cells, tally: RowTally, name: str = "temperature") -> None:
    """A temperature in Celsius among Fahrenheit is converted."""
    degrees = number(cells.get(name, ""))
    if degrees is not None and _CELSIUS[0] <= degrees <= _CELSIUS[1]:
        cells[name] = f"{degrees * 9 / 5 + 32:.1f}"
        tally.note(f"'{name}': Celsius, converted to Fahrenheit")


def plain_pain(cells: Cells) -> None:
    """'7/10' is 7; anything that is not a number from 0 to 10 is read as missing later."""
    if found := _OF_TEN.fullmatch(cells.get("pain", "")):
        cells["pain"] = found.group(1)


def plain_acuity(cells: Cells) -> None:
    """'2.0' is 2."""
    cells["acuity"] = cells.get("acuity", "").removesuffix(".0")


def number(text: str) -> float | None:
    """A text as a number, or None."""
    try:
        return float(text)
    except ValueError:
        return None
