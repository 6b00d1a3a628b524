"""An evaluation as one plain dict: what was looked at, what was found, the verdict. Written as evaluation.json.

    format, selpe, created, notice
    subject      name, run, records, fields, label, classes, private, epsilon, adjacency, unit
    tables       how many synthetic, test, private, held-out and control records took part
    tested_on    a fingerprint of the test records: runs can be compared where it is the same
    verdict      grade, headline, steps, findings (three): question, grade, answer, sentence, steps, parts
                 (name, title, figure, shown, grade, rule: the figures that were graded)
    validity     rate, total, invalid, distinct: of the table's own rows
    utility      as evaluation/utility.py gives it, or None
    fidelity     as evaluation/fidelity gives it, or None
    synthetic    what can be said without real rows, where there are none to compare with
    attack       as evaluation/attack gives it, or None
    making       how the run was made (making.py), or None
    winners      where the winners of each round stand, or None
    samples      synthetic, real (None unless asked for): lists of {label, texts, facts}
    notes        what a reader must know

It is computed from real rows without noise: it belongs to `internal/`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from selpe.report.verdict import judge
from selpe.schema import Record, Schema
from selpe.version import __version__

FORMAT = "selpe-evaluation/1"
NOTICE = "These figures look at private data without noise: INTERNAL, NOT FOR RELEASE."
_SAMPLES, _SHORT = 12, 24  # records shown; letters of a text that can stand among the facts


@dataclass(frozen=True, slots=True)
class Subject:
    """The table that is judged: of a run of ours, or of any origin. `private` is None where there is no guarantee."""

    name: str
    records: int
    fields: int
    label: str | None = None
    classes: tuple[str, ...] = ()
    run: str | None = None
    private: bool | None = None
    epsilon: float | str | None = None
    adjacency: str | None = None
    unit: str | None = None


def summarize(
    subject: Subject,
    *,
    tables: Mapping[str, int],
    validity: Mapping[str, Any],
    utility: Mapping[str, Any] | None = None,
    fidelity: Mapping[str, Any] | None = None,
    synthetic: Mapping[str, Any] | None = None,
    attack: Mapping[str, Any] | None = None,
    making: Mapping[str, Any] | None = None,
    winners: Sequence[Mapping[str, Any]] | None = None,
    samples: Mapping[str, Any] | None = None,
    tested_on: str | None = None,
    encoder: str = "",
    seconds: float | None = None,
    notes: Sequence[str] = (),
    created: datetime | None = None,
) -> dict[str, Any]:
    """The whole evaluation as plain data, verdict included."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "notice": NOTICE,
        "selpe": __version__,
        "created": (created or datetime.now(timezone.utc)).isoformat(timespec="seconds"),
        "seconds": seconds,
        "encoder": encoder,
        "subject": asdict(subject) | {"classes": list(subject.classes)},
        "tables": dict(tables),
        "tested_on": tested_on,
        "validity": dict(validity),
        "utility": utility,
        "fidelity": fidelity,
        "synthetic": synthetic,
        "synthetic_alarms": list((synthetic or {}).get("alarms") or ()),
        "attack": attack,
        "making": making,
        "winners": None if winners is None else list(winners),
        "samples": dict(samples or {"synthetic": [], "real": None}),
        "notes": list(notes),
    }
    content["verdict"] = judge(content).as_dict()
    return content


def sampled(schema: Schema, records: Sequence[Record], count: int = _SAMPLES) -> list[dict[str, Any]]:
    """A few records for people to read, the classes in turn, always the same ones."""
    groups = {label: array("Q") for label in schema.labels or ("",)}  # places: the records may not fit into memory
    for place, record in enumerate(records):
        groups.setdefault(schema.label_of(record) or "", array("Q")).append(place)
    share = max(1, count // max(1, sum(bool(group) for group in groups.values())))
    taken = [_spaced(group, share) for group in groups.values()]
    mixed = [group[turn] for turn in range(share) for group in taken if turn < len(group)]
    return [_readable(schema, records[place]) for place in mixed[:count]]


def _spaced(group: Sequence[int], count: int) -> list[int]:
    """Evenly spaced over the group, so that the sample represents all of it."""
    if len(group) <= count:
        return list(group)
    return [group[place * len(group) // count] for place in range(count)]


def _readable(schema: Schema, record: Record) -> dict[str, Any]:
    """The label, the long texts, and the rest as short facts."""
    texts, facts = [], []
    for field in schema.fields:
        value = record.get(field.name)
        if value is None or field.name == schema.label:
            continue
        text = field.text_of(value)
        if field.kind == "text" and len(text) > _SHORT:
            texts.append({"title": field.title, "text": text})
        else:
            facts.append({"title": field.title, "text": text})
    label = schema.label_field
    shown = None if label is None else label.text_of(record.get(label.name))
    return {"label": shown, "label_title": "" if label is None else label.title, "texts": texts, "facts": facts}
