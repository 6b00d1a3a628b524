"""The fidelity section: headline figures, a panel per field, matrices, the map, validity and diversity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selpe.report.fields import field_panels
from selpe.report.planes import matrix, record_map
from selpe.report.words import NOTHING, count, figure, known, percent, plural

_MOST_FIELDS = 30  # of a matrix: more would be dust
_DISTANCES = {
    "marginals": "Spreads of fields, mean distance",
    "associations": "Associations, mean difference",
    "key_node_dependency": "Key-node dependency, difference",
    "attribute_match": "Attribute match, distance",
}
_CLOUDS = {
    "precision": "of synthetic records lie where real ones are (precision)",
    "recall": "of real records have synthetic ones around them (recall)",
}


def fidelity_section(evaluation: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, Any] | None:
    """What the template shows of fidelity; None where there is nothing. `titles` are field names as words."""
    found = evaluation["fidelity"] or evaluation["synthetic"]
    if not found:
        return None
    return {
        "compared": bool(evaluation["fidelity"]),
        "tiles": _tiles(found),
        "fields": field_panels(found, titles),
        "matrices": _matrices(found.get("associations"), titles),
        "map": _map(found),
        "validity": validity_rows(found.get("validity") or {}),
        "diversity": [*diversity_rows(found.get("diversity") or {}), *echo_rows(found)],
        "copies": _copies(found, titles),
        "alarms": found.get("alarms") or [],
        "notes": found.get("notes") or [],
    }


def _tiles(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """The headline figures, each beside what two halves of the real rows give."""
    summary, reference = found.get("summary") or {}, found.get("reference") or {}
    return [_tile(title, summary[key], reference.get(key), _two_digits) for key, title in _DISTANCES.items()
            if known(summary.get(key))]  # fmt: skip


def _tile(title: str, value: Any, beside: Any, form: Callable[[Any], str]) -> dict[str, str]:
    return {"name": title, "value": form(value), "beside": _known(beside, form)}


def _two_digits(value: Any) -> str:
    return figure(value, 2)


def _whole_percent(value: Any) -> str:
    return percent(value, 0)


def _known(value: Any, form: Callable[[Any], str]) -> str:
    return form(value) if known(value) else ""


def validity_rows(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """R-CFG and the levels of S-CFG, and what went wrong most often."""
    if not found:
        return None
    levels = (
        ("R-CFG", "every required field can be read", found.get("r_cfg")),
        ("S-CFG: syntax", "one JSON object, right keys and types", found.get("syntax")),
        ("S-CFG: domains", "ranges, categories, steps, lengths", found.get("domain")),
        ("S-CFG", "the rules between fields as well", found.get("s_cfg")),
    )
    faults = [
        (amount, str(name), str(level))
        for level, by_name in (found.get("violations") or {}).items()
        for name, amount in by_name.items()
    ]
    worst = sorted(faults, key=lambda fault: (-fault[0], fault[1]))[:6]
    return {
        "source": found.get("source", "records"),
        "total": count(found.get("total")),
        "levels": [
            {"name": name, "about": about, "rate": percent(rate / 100) if known(rate) else NOTHING}
            for name, about, rate in levels
        ],
        "worst": [{"name": name, "level": level, "count": count(amount)} for amount, name, level in worst],
    }


def diversity_rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """How varied the table is, beside as many real records."""
    ours, theirs = found.get("synthetic") or {}, found.get("real") or {}
    forms: dict[str, tuple[str, Callable[[Any], str]]] = {
        "exact_duplicates": ("Exact duplicates", percent),
        "repeated_texts": ("Records or long texts that come again", percent),
        "near_duplicates": ("Near duplicates", percent),
        "distinct_1": ("Distinct words", percent),
        "distinct_2": ("Distinct pairs of words", percent),
        "distinct_3": ("Distinct triples of words", percent),
        "self_similarity": ("Similarity between records", _two_digits),
        "nearest_similarity": ("Similarity to the nearest", _two_digits),
        "effective_records": ("Effectively different records", lambda value: figure(value, 1)),
    }
    return [
        {"name": title, "synthetic": form(ours[key]), "real": _known(theirs.get(key), form)}
        for key, (title, form) in forms.items()
        if known(ours.get(key))
    ]


def echo_rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """The shares of records that copy, or nearly copy, an example of the schema, as rows of the same table."""
    ours, theirs = ((found.get("echoes") or {}).get(side) or {} for side in ("synthetic", "real"))
    titles = {"share": "Copies of the schema's examples", "near_share": "Near copies of them"}
    return [
        {"name": title, "synthetic": percent(ours[key]), "real": _known(theirs.get(key), percent)}
        for key, title in titles.items()
        if known(ours.get(key))
    ]


def _copies(found: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Which fields copy examples, and how often."""
    fields = ((found.get("echoes") or {}).get("synthetic") or {}).get("fields") or {}
    return ", ".join(f"{titles.get(name, name)} {count(times)}" for name, times in fields.items())


def _matrices(found: Any, titles: Mapping[str, str]) -> list[dict[str, Any]]:
    if not found or len(found.get("fields") or ()) < 2:
        return []
    names = [titles.get(name, name) for name in found["fields"][:_MOST_FIELDS]]
    real, made = ([line[:_MOST_FIELDS] for line in found[key][:_MOST_FIELDS]] for key in ("real", "synthetic"))
    apart = [[_apart(*pair) for pair in zip(*lines, strict=True)] for lines in zip(real, made, strict=True)]
    shown = {"Real": real, "Synthetic": made, "Difference": apart}
    said = "Associations between fields"
    return [
        {"title": title, "chart": matrix(names, values, title=f"{said}: {title}", difference=title == "Difference")}
        for title, values in shown.items()
    ]


def _apart(real: float | None, made: float | None) -> float | None:
    return abs(real - made) if known(real) and known(made) else None


def _map(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The map, with the two figures that say how the clouds overlap."""
    places = found.get("map") or {}
    if not places.get("synthetic"):
        return None
    clouds = {kind: places.get(kind) or [] for kind in ("real", "synthetic")}
    shown = ", ".join(plural(len(points), f"{kind} record") for kind, points in clouds.items())
    summary, reference = found.get("summary") or {}, found.get("reference") or {}
    tiles = [_tile(title, summary[key], reference.get(key), _whole_percent) for key, title in _CLOUDS.items()
             if known(summary.get(key))]  # fmt: skip
    return {
        "chart": record_map(
            _placed(clouds), title="Map of records by meaning", description=f"{shown}; near means alike"
        ),
        "explained": percent(sum(places.get("explained") or [0.0]), 0),
        "tiles": tiles,
    }


def _placed(clouds: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, list[tuple[float, float]]]:
    """The points of all clouds moved into the unit square."""
    everything = [point for points in clouds.values() for point in points]
    (left, right), (low, high) = (_ends([point[axis] for point in everything]) for axis in (0, 1))
    return {
        kind: [((point[0] - left) / (right - left), (point[1] - low) / (high - low)) for point in points]
        for kind, points in clouds.items()
    }


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
