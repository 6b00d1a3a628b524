"""`release/measurements.json`: the noisy tables of a run for whoever wants to use them, with all that takes.

Everything in it follows from noisy counts and public things. It is written once, when a run is released, and says what
the privacy card says of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import RunError
from selpe.method.facts import MeasuredField, MeasuredLook, MeasuredPair, MeasuredTables
from selpe.method.posterior import Matrix
from selpe.privacy.card_measured import measured_part
from selpe.schema import Schema

FORMAT = "selpe-measurements/1"
MEASUREMENTS = "measurements.json"
_LAWS = {"laplace": "discrete Laplace", "gaussian": "Gaussian, rounded to whole numbers"}
_DIGITS = 4  # of shares


def measurements_of(
    tables: MeasuredTables | None, *, written: float, delta: float = 0.0, unit: str | None = None
) -> dict[str, Any] | None:
    """What was counted, as plain data; None where nothing was.

    `written` is the share of the release that was written by the counts, `delta` that of Gaussian noise.
    """
    looks = [] if tables is None else [look for look in tables.looks if math.isfinite(look.counts.scale)]
    if tables is None or not looks:
        return None
    return {
        "how_to_use": _how_to_use(unit),
        "counted": _counted(unit),
        "label": tables.schema.label,
        "classes": list(tables.schema.labels),
        "written_by_the_counts": round(written, _DIGITS),
        "rest_of_any_class": tables.apart and bool(written),
        "looks": [_look(look, tables, delta) for look in looks],
    }


def measurements_file(content: Mapping[str, Any], card: Mapping[str, Any]) -> dict[str, Any]:
    """The same as the file has it: under the name and the stamp of the run's card."""
    return {"format": FORMAT, **{name: card[name] for name in ("dataset", "run", "stamp")}, **content}


def require_fit(found: Any, card: Mapping[str, Any], schema: Schema) -> None:
    """Raises unless a file of measurements, or that there is none, is what the card says, on fields of the schema."""
    told = card.get("measurements")  # cards of earlier versions do not say it
    if found is None and told is None:
        return
    if found is None or told is None:
        raise RunError("the card and the release disagree on whether tables were measured", where=MEASUREMENTS)
    try:
        same = (found["format"], *(found[name] for name in ("dataset", "run", "stamp")))
        fits = same == (FORMAT, card["dataset"], card["run"], card["stamp"]) and measured_part(found) == told
        whole = all(_is_whole(table, schema) for look in found["looks"] for table in look["tables"])
    except (LookupError, TypeError, ValueError, AttributeError):
        raise RunError("is not a file of measurements", where=MEASUREMENTS) from None
    if not fits:
        raise RunError("is not what the privacy card says of it", where=MEASUREMENTS)
    if not whole:
        raise RunError("has a table whose counts are not those of its codes", where=MEASUREMENTS)


def _look(look: MeasuredLook, tables: MeasuredTables, delta: float) -> dict[str, Any]:
    counts, cost = look.counts, look.counts.guarantee
    return {
        "look": look.name,
        "mechanism": counts.mechanism,
        "noise": {
            "law": _LAWS[counts.law] if counts.scale else "none",
            "scale": counts.scale,
            "standard_deviation": round(counts.deviation, _DIGITS),
            "half_width_95": counts.half_width,
        },
        "epsilon": {"replace_one": _number(cost.replace_one), "add_remove": _number(cost.add_remove)},
        "delta": delta if counts.law == "gaussian" else 0.0,
        "tables": [_table(measured, tables.schema) for measured in look.fields.values()]
        + [_pair(pair, look) for pair in tables.pairs],
    }


def _table(measured: MeasuredField, schema: Schema) -> dict[str, Any]:
    axes = [measured.codebook.to_dict()]
    if schema.labels:
        axes.insert(0, {"field": schema.label, "kind": "class", "codes": list(schema.labels)})
    return {
        "table": " × ".join(str(axis["field"]) for axis in axes),
        "axes": axes,
        "counts": _nested(measured.counts, axes),
        "shares": _nested(_rounded(measured.shares), axes),
        "model_shares": _nested(_rounded(measured.prior), axes),
    }


def _pair(pair: MeasuredPair, look: MeasuredLook) -> dict[str, Any]:
    axes = [look.fields[name].codebook.to_dict() for name in pair.names]
    name = " × ".join(pair.names)
    return {"table": name, "axes": axes, "counts": look.counts.tables[name].tolist()}


def _nested(rows: NDArray[Any], axes: Sequence[object]) -> list[Any]:
    """A table as lists in lists; without classes it has one row, which stands alone."""
    found: list[Any] = rows.tolist()
    return found if len(axes) > 1 else found[0]


def _rounded(shares: Matrix) -> Matrix:
    return np.round(shares, _DIGITS)


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else "inf"


def _is_whole(table: Mapping[str, Any], schema: Schema) -> bool:
    """Whether every axis is a field of the schema and every part of a table has the shape of its codes."""
    shape = tuple(len(axis["codes"]) for axis in table["axes"])
    parts = [np.asarray(table[name]) for name in ("counts", "shares", "model_shares") if name in table]
    known = all(axis["field"] in schema.names for axis in table["axes"])
    return known and parts[0].dtype.kind == "i" and all(part.shape == shape for part in parts)


# -- words ------------------------------------------------------------------------------------------------------------


def _counted(unit: str | None) -> str:
    if unit is None:
        return "private records"
    return f"different values of '{unit}', each by one of its records, drawn at random"


def _how_to_use(unit: str | None) -> list[str]:
    things = "records" if unit is None else f"values of '{unit}'"
    return [
        f"A count is the number of private {things} in a cell, plus noise: a whole number of the stated law. Counts "
        "are unbiased: on average over the noise they are right. They may be negative. Add them up as they are: "
        "setting negative ones to 0 first would make every sum too large.",
        "A count plus or minus half_width_95 holds the true one in at least 95 of 100 cases. That is the noise alone: "
        "where the table is a sample of something larger, the error of sampling comes on top. The noise on the sum of "
        "k cells has √k times the standard deviation.",
        "'shares' are an estimate within each class: counts, drawn towards the shares in what the language model "
        "wrote by itself ('model_shares') as far as the noise hides them. They are biased on purpose; for statistics "
        "of your own use the counts.",
        "Codes of numbers and dates are ranges, both ends included. Codes of texts are clusters, shown by a few of "
        "their texts; a text counts for the cluster that is nearest in meaning. All texts in codes were written by "
        "the language model, none by a person.",
        "The looks have noise of their own each. Where there are two, the second has finer codes of texts, and less "
        "noise.",
        "Whatever is computed from this file costs no more privacy: the guarantee of privacy-card.json covers it.",
    ]
