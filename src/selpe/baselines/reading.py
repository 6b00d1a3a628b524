"""From free text to records: what the regular-expression parser of R-CFG reads, and what of it fits the schema.

The paper extracts the fields of methods that do not write valid JSON in this way. A text without a readable record
counts against its method: it is in `work/raw.jsonl`, where R-CFG and S-CFG see it, and not in the release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selpe.evaluation.validity import validator
from selpe.events import Emit, Finished
from selpe.privacy.card import Drawn
from selpe.run.methods import RawOutput, Synthesized
from selpe.schema import Record, Schema


@dataclass(frozen=True, slots=True)
class Sample:
    """A text that a model wrote for a class ('' where there are none), and which of the models it was."""

    label: str
    raw: str
    model: int = 0


def read(schema: Schema, sample: Sample) -> RawOutput:
    """What can be read of a sample. The class is the one that was asked for, whatever the text says.

    A value outside the domain of an optional field is taken for a missing one; a record that is still not valid after
    that is not released.
    """
    record = validator(schema).extract(sample.raw)
    if sample.label and schema.label is not None:
        record[schema.label] = schema.label_value(sample.label)
    loose: Record = dict(record)
    for violation in schema.check(record):
        if violation.level != "rule" and schema.field(violation.field).optional:
            record[violation.field] = None
    fits = not schema.check(record)
    return RawOutput(sample.raw, sample.label or None, record if fits else loose, released=fits)


def read_all(schema: Schema, samples: Iterable[Sample]) -> tuple[RawOutput, ...]:
    """All samples read, in order."""
    return tuple(read(schema, sample) for sample in samples)


def released(outputs: Iterable[RawOutput]) -> tuple[Record, ...]:
    """The records that fit the schema."""
    return tuple(output.record for output in outputs if output.released and output.record is not None)


def some_readable(schema: Schema, samples: Sequence[Sample]) -> tuple[Record, ...]:
    """A few of the samples as records, for those who look on."""
    return released(read_all(schema, samples[:: max(1, len(samples) // 4)][:4]))


def finished(
    emit: Emit, outputs: tuple[RawOutput, ...], drawn: Iterable[Drawn], notes: Mapping[str, Any]
) -> Synthesized:
    """What came of a fit whose outputs are these; tells so."""
    records = released(outputs)
    emit(Finished(len(records)))
    return Synthesized(records, outputs, tuple(drawn), {**notes, "unreadable": len(outputs) - len(records)})
