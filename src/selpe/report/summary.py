"""The page that may be released: what was measured, statistics of the synthetic table alone, and the privacy card.

It is a function of the other files of a release (schema, records, card, measurements) and of nothing else. So it
reveals nothing more than they do, is the same every time, and can be written again and compared when a release is
packed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError

from selpe.errors import DataError, RunError
from selpe.evaluation.fidelity import synthetic_only
from selpe.intake.lines import RecordLines
from selpe.models.encoders.hashing import HashingEncoder
from selpe.privacy.card_text import reveals_no_number
from selpe.report.fields import field_panels
from selpe.report.render import page
from selpe.report.sections.fidelity import diversity_rows, echo_rows, validity_rows
from selpe.report.sections.measured import measured_section
from selpe.report.summarize import sampled
from selpe.report.words import count, epsilon, plural
from selpe.run.workspace import ReleaseFolder
from selpe.schema import Record, Schema

SUMMARY = "summary.html"
_MOST, _SAMPLES = 2_000, 6  # records that statistics are taken over, and that are shown
# Figures that depend on an encoder say little without one that knows meaning.
_BY_MEANING = ("self_similarity", "nearest_similarity", "effective_records")


def summary_page(
    schema: Schema, records: Sequence[Record], card: Mapping[str, Any], measured: Mapping[str, Any] | None = None
) -> str:
    """The releasable summary of a synthetic table; the same bytes for the same release.

    Of a large table it looks at a few records, and holds no others: `records` may lie in a file. `measured` is what
    measurements.json holds, where there is one.
    """
    looked = _spaced(records, _MOST)
    # An encoder without weights: nothing is fetched, and no figure that depends on it is shown.
    found = synthetic_only(schema, looked, encoder=HashingEncoder())
    variety = {key: value for key, value in found["diversity"]["synthetic"].items() if key not in _BY_MEANING}
    return page(
        "summary.html",
        title=f"Summary of {card['dataset']}, synthetic",
        card=card,
        stamp=card["stamp"],
        about=_about(schema, records, card),
        tiles=_tiles(schema, records, card),
        charges=[_charge(one) for one in card["charges"]],
        cumulative=_cumulative(card["cumulative"]),
        measured=measured_section(measured, schema),
        validity=validity_rows(found["validity"]),
        fields=field_panels(found, {field.name: field.title for field in schema.fields}),
        diversity=[*diversity_rows({"synthetic": variety}), *echo_rows(found)[:1]],
        looked=None if len(looked) == len(records) else count(len(looked)),
        samples=sampled(schema, records, _SAMPLES),
        settings=[(name, _plain(value)) for name, value in card["public"]["settings"].items() if value is not None],
        versions=", ".join(f"{name} {number}" for name, number in card["versions"].items()),
    )


def write_summary(release: Path, schema: Schema) -> Path:
    """Writes the summary of a release folder anew, from its own files."""
    place = ReleaseFolder(release)
    try:
        records = RecordLines(place.jsonl)
        card = json.loads(place.card.read_text(encoding="utf-8"))
        known = place.measurements.exists()
        measured = json.loads(place.measurements.read_text(encoding="utf-8")) if known else None
    except (OSError, ValueError):
        raise RunError("the release cannot be read", where=str(release)) from None
    try:
        text = summary_page(schema, records, card, measured)
    except DataError:
        raise RunError("the release cannot be read", where=str(release)) from None
    except (KeyError, TypeError, AttributeError, UndefinedError):
        raise RunError("is not a privacy card", where=str(place.card)) from None
    try:
        place.summary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"the summary cannot be written ({error.strerror})", where=str(release)) from None
    return place.summary


def _about(schema: Schema, records: Sequence[Record], card: Mapping[str, Any]) -> str:
    classes = f" in {len(schema.labels)} classes" if schema.labels else ""
    return f"{card['dataset']}: {len(records):,} synthetic records of {len(schema.fields)} fields{classes}"


def _tiles(schema: Schema, records: Sequence[Record], card: Mapping[str, Any]) -> list[dict[str, str]]:
    spent = card["guarantee"]["epsilon"]
    apart = "" if reveals_no_number(card) else ", their number apart"
    return [
        {"name": "ε, one record replaced", "value": epsilon(spent["replace_one"])},
        {"name": f"ε, one record added or removed{apart}", "value": epsilon(spent["add_remove"])},
        {"name": "δ", "value": f"{card['guarantee']['delta']:g}"},
        {"name": "records", "value": count(len(records))},
        {"name": "fields", "value": count(len(schema.fields))},
    ]


def _charge(one: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": str(one["selection"]).replace("-", " "),
        "mechanism": str(one["mechanism"]),
        "replaced": epsilon(one["epsilon_replace_one"]),
        "added": epsilon(one["epsilon_add_remove"]),
    }


def _cumulative(total: Mapping[str, Any]) -> str:
    spent, cap = total["epsilon"], total["cap"]
    limit = "no cap is set" if cap is None else f"the cap is ε = {cap['epsilon']:g} ({cap['adjacency']})"
    return (
        f"ε = {epsilon(spent['replace_one'])} (replaced) and {epsilon(spent['add_remove'])} (added or removed) in all, "
        f"over {plural(total['runs'], 'run')}; {limit}.{_elsewhere(total)}"
    )


def _elsewhere(total: Mapping[str, Any]) -> str:
    """A second sentence where the rows are known under other names; cards of earlier versions do not say it."""
    if not total.get("elsewhere"):
        return ""
    names = ", ".join(f"'{other['dataset']}'" for other in total["elsewhere"])
    spent = total["together"]["epsilon"]
    return (
        f" These rows are also known as {names}; with what was spent there they have paid "
        f"ε = {epsilon(spent['replace_one'])} (replaced) and {epsilon(spent['add_remove'])} (added or removed)."
    )


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _spaced(records: Sequence[Record], most: int) -> Sequence[Record]:
    if len(records) <= most:
        return list(records)
    return [records[place * len(records) // most] for place in range(most)]
