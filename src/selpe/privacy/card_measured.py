"""What a privacy card says about measured tables: which, with how much noise, and what may be done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selpe.privacy.ledger.charges import Charge

_NOISE = ("law", "scale", "half_width_95")
_STATEMENT = (
    "Besides votes, private rows were counted: every row adds 1 to one cell of each table, and every count has noise. "
    "The noisy counts are a part of this release and may be used, at no further cost in privacy: measurements.json has "
    "them with their codes and the noise. The codes are public; texts in them were written by the language model, none "
    "by a person."
)


def measured_part(content: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The part of a card that tells of measurements, from their plain data; None where nothing was measured."""
    if content is None:
        return None
    return {
        "file": "measurements.json",
        "statement": _STATEMENT,
        "written_by_the_counts": content["written_by_the_counts"],
        "rest_of_any_class": bool(content.get("rest_of_any_class")),
        "looks": [_look(look) for look in content["looks"]],
    }


def how_measured(votes: str, charges: Sequence[Charge]) -> str:
    """What private rows did in a run that measured tables, by what it was charged for; `votes` is how they vote."""
    charged = {charge.selection.partition("-")[0] for charge in charges}
    found = [
        votes if "round" in charged else "",
        "rows vote for the fields to be counted, one of which is chosen by noisy maximum" if "field" in charged else "",
        "rows are counted in small public tables, and every count gets noise",
        "all rows vote on candidate releases, one of which is chosen by noisy maximum" if "bundle" in charged else "",
    ]
    return "; ".join(part for part in found if part)


def _look(look: Mapping[str, Any]) -> dict[str, Any]:
    tables = [
        {"table": table["table"], "codes": [len(axis["codes"]) for axis in table["axes"]]} for table in look["tables"]
    ]
    return {"look": look["look"], **{name: look["noise"][name] for name in _NOISE}, "tables": tables}
