"""Will this model do? A grade for a small sample of candidates, before anything is spent.

The sample was written from the schema alone, so the grade depends on no private row. Every measure is a share from 0 to
1, and more is better. One rule grades them all: good from its first threshold on, fair from its second, else poor. The
sample is as good as its worst measure, so that a better measure never gives a worse grade.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from selpe.evaluation.echoes import echoes
from selpe.evaluation.words import grams, text_fields, unlabelled, words
from selpe.method.echoes import common_form, runs
from selpe.schema import CategoryField, Record, Schema, TextField

if TYPE_CHECKING:
    from selpe.models.encoders.base import Encoder

Grade = Literal["good", "fair", "poor"]
GRADES: tuple[Grade, ...] = ("poor", "fair", "good")
# The thresholds of each measure: good from the first on, fair from the second on. 'classes' alone makes nothing poor:
# so few records tell an AUC only to within ten points or so, and 32 real loans are often no better than chance by it.
RULE: Mapping[str, tuple[float, float]] = {
    "valid": (0.95, 0.8),
    "first try": (0.6, 0.3),
    "own words": (0.95, 0.8),
    "distinct": (0.9, 0.7),
    "classes": (0.4, 0.0),
    "readable": (0.9, 0.7),
}
_FOLDS, _LEAST = 8, 3  # of the cross-validation; records that a class needs to take part
_LETTERS = 0.5  # of a text's characters, at least, spaces included
_REPEATED = 0.25  # of its runs of three words, at most
_LENGTHS = 4  # times shorter or longer than the examples' texts are
_ROOMY = 20  # letters of room from which on a text that fills it was cut
_NO_TEXT = re.compile(r"[\W\d_]*(\d{4}-\d\d-\d\d|\d{1,2}[./-]\d{1,2}[./-]\d{2,4})?[\W\d_]*")


@dataclass(frozen=True, slots=True)
class CandidateSample:
    """Candidates that a model was asked for: those that came, with the tries they took, and the tries that copied."""

    records: Sequence[Record]
    asked: int
    tries: int
    copied: int = 0


@dataclass(frozen=True, slots=True)
class SampleMeasure:
    """One measure: its share, its grade, and what was seen, in words. Both are None where it could not be judged."""

    name: str
    share: float | None
    grade: Grade | None
    said: str


@dataclass(frozen=True, slots=True)
class SampleGrade:
    """The grade of a sample, the measures behind it, and what to do about those that are not good."""

    grade: Grade
    records: int
    measures: tuple[SampleMeasure, ...]
    steps: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The grade as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SampleGrade:
        """The grade that `as_dict` wrote down."""
        measures = tuple(SampleMeasure(**measure) for measure in data["measures"])
        return cls(data["grade"], int(data["records"]), measures, tuple(data["steps"]))

    @property
    def weak(self) -> tuple[SampleMeasure, ...]:
        """The measures that are not good, worst first."""
        found = [measure for measure in self.measures if measure.grade in ("poor", "fair")]
        return tuple(sorted(found, key=lambda measure: GRADES.index(measure.grade or "good")))


def grade_sample(schema: Schema, sample: CandidateSample, encoder: Encoder, *, larger: str = "") -> SampleGrade:
    """The grade of a sample; `larger` names a model to try instead."""
    measures = (
        _valid(sample),
        _first_try(sample),
        _own_words(schema, sample),
        _distinct(schema, sample.records),
        _classes(schema, sample.records, encoder),
        _readable(schema, sample.records),
    )
    graded = [GRADES.index(measure.grade) for measure in measures if measure.grade is not None]
    found = SampleGrade(GRADES[min(graded)], len(sample.records), measures)
    return SampleGrade(found.grade, found.records, measures, _steps(schema, found.weak, larger))


def graded(name: str, share: float | None, said: str) -> SampleMeasure:
    """A measure by the rule."""
    if share is None:
        return SampleMeasure(name, None, None, said)
    good, fair = RULE[name]
    return SampleMeasure(name, round(share, 3), "good" if share >= good else "fair" if share >= fair else "poor", said)


# -- measures --------------------------------------------------------------------------------------------------------


def _valid(sample: CandidateSample) -> SampleMeasure:
    found = len(sample.records)
    return graded("valid", found / max(1, sample.asked), f"{found} of {sample.asked} records came out valid")


def _first_try(sample: CandidateSample) -> SampleMeasure:
    each = sample.tries / max(1, len(sample.records))
    share = min(1.0, len(sample.records) / max(1, sample.tries))
    return graded("first try", share, f"a record took {each:.1f} tries on average")


def _own_words(schema: Schema, sample: CandidateSample) -> SampleMeasure:
    """Copies of the schema's examples: in the records, and in what was thrown away because it was one."""
    if not schema.examples or not text_fields(schema):
        return graded("own words", None, "there is no example with a text that could be copied")
    counted = echoes(schema, sample.records)
    copies = counted.echoed + counted.near + sample.copied
    share = copies / max(1, len(sample.records) + sample.copied)
    return graded("own words", 1.0 - share, f"{copies} tries copied an example of the schema, or nearly" if copies else
                  "no example of the schema was copied")  # fmt: skip


def _distinct(schema: Schema, records: Sequence[Record]) -> SampleMeasure:
    """Records with at least one text that says something new.

    A text says nothing new if there was the same one before, or if most of its runs of six words were there.
    """
    fields = text_fields(schema)
    if not fields:
        return graded("distinct", None, "there is no text field")
    form = common_form(schema)
    seen: dict[str, set[tuple[str, ...]]] = {field.name: set() for field in fields}
    repeated = 0
    for record in records:
        fresh = False
        for name, known in seen.items():
            text = str(record.get(name) or "")
            own, whole = runs(text) - form, tuple(words(text))
            fresh |= bool(whole) and whole not in known and 2 * len(own & known) <= len(own)
            known |= own | {whole}
        repeated += not fresh
    share = 1.0 - repeated / max(1, len(records))
    return graded("distinct", share, f"{repeated} of {len(records)} records say nothing new in any text field")


def _classes(schema: Schema, records: Sequence[Record], encoder: Encoder) -> SampleMeasure:
    """How well a classifier tells the classes of records that it was not trained on: 0 is chance, 1 is always right."""
    area = separation(schema, records, encoder)
    if area is None:
        why = "there is no label" if schema.label is None else f"a class has fewer than {_LEAST} records"
        return graded("classes", None, f"not judged: {why}")
    said = f"a classifier tells the classes of other records with an AUC of {100 * area:.0f} (50 is chance)"
    return graded("classes", max(0.0, 2 * area - 1), said)


def separation(schema: Schema, records: Sequence[Record], encoder: Encoder) -> float | None:
    """The cross-validated AUC of the report's text view on these records, one class against the rest, averaged."""
    import numpy as np

    from selpe.evaluation.roc import areas
    from selpe.evaluation.views.embedding import Embeddings
    from selpe.evaluation.views.text import TextView

    labels = [schema.label_of(record) or "" for record in records]
    sizes = Counter(label for label in labels if label)
    classes = sorted(label for label, size in sizes.items() if size >= _LEAST)
    if len(classes) < 2:
        return None
    embeddings = Embeddings(encoder)
    embeddings.of(unlabelled(schema, records), keep=True)
    view, turns = TextView(schema, embeddings), Counter[str]()
    folds: list[list[int]] = [[] for _ in range(min(_FOLDS, *(sizes[label] for label in classes)))]
    for number, label in enumerate(labels):
        if label in classes:
            folds[turns[label] % len(folds)].append(number)
            turns[label] += 1
    truth, chances = [], []
    for fold in folds:
        known = [number for other in folds if other is not fold for number in other]
        trained = (records[number] for number in known)
        asked = [records[number] for number in fold]
        told = view.chances(list(trained), [labels[number] for number in known], asked, seeds=(0,), tick=lambda _: None)
        chances.append(next(iter(told)))
        truth += [classes.index(labels[number]) for number in fold]
    return float(areas(np.array(truth, dtype=np.intp), np.vstack(chances)).mean())


def _readable(schema: Schema, records: Sequence[Record]) -> SampleMeasure:
    fields = text_fields(schema)
    if not fields:
        return graded("readable", None, "there is no text field")
    faults = Counter[str]()
    bad = 0
    for record in records:
        found = {fault for field in fields if (fault := flaw(schema, field, record.get(field.name)))}
        faults.update(found)
        bad += bool(found)
    most = "".join(f"; {count} × {fault}" for fault, count in faults.most_common(2))
    share = 1.0 - bad / max(1, len(records))
    return graded("readable", share, f"{len(records) - bad} of {len(records)} records read as text{most}")


def flaw(schema: Schema, field: TextField, text: object) -> str:
    """What is wrong with a text on its face; empty where nothing is."""
    if not isinstance(text, str) or not text.strip():
        return ""
    found = words(text)
    if _NO_TEXT.fullmatch(text):
        return "only a number or a date"
    if " ".join(words(text.replace("_", " "))) in _names(schema):
        return "only the name of a field or a value of another one"
    letters = sum(unicodedata.category(sign)[0] in "LMZ" for sign in text)
    if letters < _LETTERS * len(text):
        return "hardly any letters"
    triples = list(grams(found, 3))
    if len(triples) > 2 and 1 - len(set(triples)) / len(triples) > _REPEATED:
        return "the same words again and again"
    if len(text) >= field.max_length >= _ROOMY and text[-1].isalnum():
        return "cut off at its greatest length"
    return _off_length(schema, field, len(found))


def _off_length(schema: Schema, field: TextField, count: int) -> str:
    lengths = [len(words(text)) for one in schema.examples if isinstance(text := one.get(field.name), str)]
    if lengths and count < min(lengths) / _LENGTHS:
        return "far shorter than the examples"
    return "far longer than the examples" if lengths and count > _LENGTHS * max(lengths) else ""


def _names(schema: Schema) -> frozenset[str]:
    values = [value for field in schema.fields if isinstance(field, CategoryField) for value in field.values]
    return frozenset(" ".join(words(name.replace("_", " "))) for name in (*schema.names, *values))


# -- what to do ------------------------------------------------------------------------------------------------------


def _steps(schema: Schema, weak: Sequence[SampleMeasure], larger: str) -> tuple[str, ...]:
    """What helps most often, for the measures that are not good; each step once."""
    names = {measure.name for measure in weak}
    steps = []
    bare = [label for label in schema.labels if label not in {schema.label_of(one) for one in schema.examples}]
    if "classes" in names:
        missing = f" (there is none of {', '.join(bare[:5])})" if bare else ""
        steps.append(
            f"Say in the schema what tells the classes apart, and give one or two examples of each{missing}."
        )  # fmt: skip
    if names & {"own words", "distinct"}:
        steps.append(f"Write more examples that are unlike each other; the schema has {len(schema.examples)}.")
    if names & {"valid", "first try"}:
        steps.append("Loosen bounds and rules that records break, or show an example that obeys them all.")
    if "readable" in names:
        steps.append("Describe the text fields in a sentence each, and show in the examples how long they should be.")
    if weak and larger:
        steps.append(f"Or take a larger model: {larger}.")
    return tuple(steps)
