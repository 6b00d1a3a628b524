"""From a publisher's file to records, schema and splits; every step counted, nothing sent anywhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from selpe.errors import ConfigError, DataError
from selpe.experiments.loaders.base import Cells, Loader, Raw, RowTally
from selpe.experiments.loaders.enrich import AUTO, OFF, TEMPLATE, enriched_schema, rewritten, templated
from selpe.experiments.loaders.split import SIDES, Targets, apportioned, split
from selpe.intake.cells import CellOutcome, Conventions, reader_of
from selpe.schema import Record, Schema, TextField

if TYPE_CHECKING:
    from selpe.models.base import ChatModel

POOL = 5_000  # rows of a class that a split is drawn from; of more, a random draw
PRIVATE = 20  # rows a class, as in the paper


@dataclass(frozen=True, slots=True)
class Row:
    """A record, and the group that it belongs to."""

    record: Record
    group: str


@dataclass(frozen=True, slots=True, repr=False)
class LoadedDataset:
    """A data set, split. `dirt` says what happened on the way, by reason; `rows` is how many the file has."""

    name: str
    title: str
    schema: Schema
    sides: Mapping[str, list[Record]]
    rows: int
    dirt: Mapping[str, int]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sizes = {side: len(records) for side, records in self.sides.items()}
        return f"LoadedDataset({self.name!r}, {sizes})"

    def counts(self, side: str) -> dict[str, int]:
        """The records of each class on a side, in the schema's order; of none where there is no label."""
        found = Counter(self.schema.label_of(record) for record in self.sides[side])
        return {label: found[label] for label in self.schema.labels}


def load(
    loader: Loader,
    path: Path,
    *,
    seed: int = 0,
    private: int = PRIVATE,
    leaks: bool | None = None,
    enrich: str = AUTO,
    model: ChatModel | None = None,
) -> LoadedDataset:
    """A data set from its file (or folder), split with a seed.

    `leaks` keeps or drops fields that give the class away, None does what is usual for the set. `enrich` is 'auto',
    'off', 'template', or stands for `model`, which rewrites texts on this machine.
    """
    file = loader.locate(path)
    if file is None or not loader.knows(file):
        raise DataError(
            f"this is not a file of '{loader.name}'",
            where=str(path),
            hint=f"its usual names: {', '.join(loader.files)}",
        )
    tally = RowTally()
    longer = _longer(loader, file, enrich)
    schema = _schema(loader, file, leaks=loader.keeps_leaks if leaks is None else leaks, longer=longer)
    pool, total = _pool(loader, file, schema, tally, seed)
    rows = list(_read(pool, loader, schema, tally, longer=longer))
    if not rows:
        raise DataError(
            "no row of the file can be used", where=file.name, hint="; ".join(tally.counts) or "Is it whole?"
        )
    there = Counter(_label(schema, row) for row in rows)
    targets = Targets.of(
        there,
        private=apportioned(private, there, loader.shares),
        validation=loader.validation,
        test=loader.test,
    )
    sides = split(
        rows,
        label=lambda row: _label(schema, row),
        group=lambda row: row.group,
        targets=targets,
        seed=f"{loader.name}:{seed}",
    )
    records = {side: [row.record for row in sides[side]] for side in SIDES}
    notes = [_shortage(targets.short, schema)] if targets.short else []
    if longer:
        schema, records, said = _enriched(loader, schema, records, enrich, model)
        notes.append(said)
    return LoadedDataset(loader.name, loader.title, schema, records, total, dict(tally.counts), tuple(notes))


# -- the schema ------------------------------------------------------------------------------------------------------


def _longer(loader: Loader, file: Path, enrich: str) -> bool:
    """Whether texts are made longer."""
    if enrich == AUTO:
        return loader.enriched(file)
    if enrich != OFF and loader.enrichment is None:
        raise ConfigError(f"'{loader.name}' has no text to enrich", where="--enrich", hint="leave it out")
    return enrich != OFF


def _schema(loader: Loader, file: Path, *, leaks: bool, longer: bool) -> Schema:
    """The set's schema with the fields that this file can fill and that are wanted."""
    whole = Schema.load(loader.schema_file)
    keep = set(loader.fields(file))
    if not leaks:
        keep -= set(loader.leaks)
    if longer and loader.enrichment is not None:
        keep.add(loader.enrichment.field)
        if loader.enrichment.field not in loader.fields(file):
            keep.discard("desc")  # the borrower's own words, which the profile stands in for
    return narrowed(whole, keep)


def narrowed(schema: Schema, keep: set[str]) -> Schema:
    """The schema with some of its fields only; rules about others are left out, examples lose those fields."""
    fields = tuple(field for field in schema.fields if field.name in keep)
    names = {field.name for field in fields}
    return replace(
        schema,
        fields=fields,
        rules=tuple(rule for rule in schema.rules if names.issuperset(rule.fields)),
        examples=tuple(
            {name: record.get(name) for name in schema.names if name in names} for record in schema.examples
        ),
    )


def _enriched(
    loader: Loader, schema: Schema, sides: Mapping[str, list[Record]], enrich: str, model: ChatModel | None
) -> tuple[Schema, dict[str, list[Record]], str]:
    enrichment = loader.enrichment
    if enrichment is None:
        raise ConfigError(f"'{loader.name}' has no text to enrich")
    new = enriched_schema(schema, enrichment)
    if model is None or enrich in (AUTO, TEMPLATE):
        made = {side: templated(records, enrichment) for side, records in sides.items()}
        return new, made, f"'{enrichment.field}' was written by a public template from each record's own fields."
    together = [record for records in sides.values() for record in records]
    texts, kept = rewritten(together, enrichment, model)
    places = iter(texts)
    made = {side: [next(places) for _ in records] for side, records in sides.items()}
    said = f"'{enrichment.field}' was rewritten by {model.name} on this machine"
    return new, made, f"{said}; {kept} kept the template's text."


# -- the rows --------------------------------------------------------------------------------------------------------


def _pool(loader: Loader, file: Path, schema: Schema, tally: RowTally, seed: int) -> tuple[list[Cells], int]:
    """Rows to draw a split from: all, or an even draw of each class where a file has very many."""
    chance = random.Random(f"pool:{loader.name}:{seed}")
    kept: dict[str, list[Cells]] = {}
    seen: Counter[str] = Counter()
    total = 0
    for row in loader.rows(file):
        total += 1
        label = row.get(loader.label, "").removesuffix(".0")
        if loader.label and not label:
            tally.note("rows without a class, left out")
            continue
        if not loader.usable(row, schema):
            tally.note("rows without the text, left out")
            continue
        seen[label] += 1
        of_class = kept.setdefault(label, [])
        if len(of_class) < POOL:
            of_class.append(row)
        elif (place := chance.randrange(seen[label])) < POOL:
            of_class[place] = row
    return [row for label in sorted(kept) for row in kept[label]], total


def _read(
    pool: Sequence[Cells], loader: Loader, schema: Schema, tally: RowTally, *, longer: bool
) -> Iterator[Row]:  # fmt: skip
    """The rows as records. A cell that does not fit is blanked where its field is optional; else its row is out."""
    readers = {field.name: reader_of(field, Conventions()) for field in schema.fields}
    made = loader.enrichment.field if longer and loader.enrichment is not None else None
    for cells in pool:
        raw = loader.clean(cells, tally)
        if raw is None:
            continue
        if made is not None:
            raw.cells.setdefault(made, "unwritten")  # it is written later, from the other fields
        record = _record(raw, schema, readers, tally)
        if record is None:
            continue
        if any(not rule.holds(record) for rule in schema.rules):
            tally.note("rows that contradict a rule of the schema, left out")
            continue
        yield Row(record, raw.group or schema.dumps(record))


def _record(
    raw: Raw, schema: Schema, readers: Mapping[str, Callable[[object], CellOutcome]], tally: RowTally
) -> Record | None:
    record: Record = {}
    for field in schema.fields:
        cell: str | None = raw.cells.get(field.name) or None
        if cell is not None and isinstance(field, TextField) and len(cell) > field.max_length:
            cell = shortened(cell, field.max_length)
            tally.note(f"'{field.name}': texts cut to {field.max_length} letters")
        outcome = readers[field.name](cell)
        if outcome.problem and not field.optional:
            tally.note(f"'{field.name}': missing or out of range, row left out")
            return None
        if outcome.problem:
            tally.note(f"'{field.name}': not a value of the field, read as missing")
        record[field.name] = None if outcome.problem else outcome.value
    return record


def shortened(text: str, most: int) -> str:
    """A text cut after a whole word."""
    cut = text[:most]
    return cut if text[most : most + 1].isspace() else cut.rpartition(" ")[0] or cut


def _label(schema: Schema, row: Row) -> str:
    return schema.label_of(row.record) or ""


def _shortage(short: Sequence[str], schema: Schema) -> str:
    if schema.label is None:
        return (
            "There are fewer rows than the split asks for. At most half of them are private; the rest is shared by "
            "validation and test in the proportion that was asked for."
        )
    which = ", ".join(label for label in schema.labels if label in short)
    return (
        f"Class {which}: fewer rows than the split asks for. At most half of such a class is private; the rest "
        "is shared by validation and test in the proportion that was asked for."
    )
