"""Where the data of an experiment comes from: a publisher's file, a folder that `selpe data` wrote, or one's own table.

Every source gives splits by seed, as files in the experiment's folder; a cell's run reads its private file from there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from selpe.errors import ConfigError, DataError
from selpe.experiments.grid import ALL_ROWS
from selpe.experiments.loaders import NAMES, find, loader_of, recognise
from selpe.experiments.loaders.load import LoadedDataset, load
from selpe.experiments.loaders.split import SIDES, Targets, apportioned, split
from selpe.experiments.loaders.write import is_prepared, load_schema, write
from selpe.intake import parse_records, read_table, write_table
from selpe.schema import Record, Schema


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that can be split. `make` writes the split of a seed into a folder; None: `folder` is the split."""

    name: str
    paper: str  # its name in the paper's tables, or ''
    identity: str
    make: Callable[[int, int, Path], None] | None = None
    folder: Path | None = None
    shares: Mapping[str, float] = field(default_factory=dict)  # of classes among private rows; equal where empty
    classes: int = 0
    own: bool = False  # a user's table
    whole: bool = False  # of which every row is private: none was held back for tests

    def split(self, root: Path, seed: int, private: int) -> Split:
        """The split of a seed with up to so many private rows a class, made at first use."""
        if self.make is None:
            return Split(self.name, self.paper, self.folder or root, self.shares)
        place = root / f"{self.name}-{self.identity}" / f"private-{private}-seed-{seed}"
        if not is_prepared(place):
            self.make(seed, private, place)
        return Split(self.name, self.paper, place, self.shares)

    def most_private(self, root: Path, seed: int, private: int) -> int:
        """How many private rows a class there are, on average, where so many are asked for."""
        split = self.split(root, seed, private)
        return len(split.private(private)) // max(1, len(split.schema.labels))


@dataclass(frozen=True)
class Split:
    """One split on disk: its records by side, and a digest that stands for all of it."""

    name: str
    paper: str
    folder: Path
    shares: Mapping[str, float] = field(default_factory=dict)
    _sides: dict[str, list[Record]] = field(default_factory=dict, repr=False)

    @cached_property
    def schema(self) -> Schema:
        """The schema of the data set."""
        return load_schema(self.folder)

    def side(self, name: str) -> list[Record]:
        """The records of a side; none where it has no file."""
        if name not in self._sides:
            path = self.folder / f"{name}.csv"
            there = path.is_file()
            self._sides[name] = parse_records(read_table(path), self.schema).records if there else []
        return self._sides[name]

    @cached_property
    def digest(self) -> str:
        """A hash of schema and tables."""
        found = hashlib.sha256(self.schema.fingerprint().encode())
        for side in SIDES:
            path = self.folder / f"{side}.csv"
            found.update(path.read_bytes() if path.is_file() else b"")
        return found.hexdigest()

    def private(self, per_class: int) -> list[Record]:
        """Up to so many private rows of each class, the first ones: fewer are always among more.

        Where classes have shares, there are as many rows in all, and a rare class stays rare.
        """
        return capped(self.schema, self.side("private"), apportioned(per_class, self.schema.labels, self.shares))

    def private_file(self, per_class: int) -> Path:
        """The file of those rows."""
        rows = self.private(per_class)
        if len(rows) == len(self.side("private")):
            return self.folder / "private.csv"
        path = self.folder / f"private-{per_class}.csv"
        if not path.is_file():
            write_table(rows, self.schema, path)
        return path

    def judged_on(self, side: str, most: int | None) -> list[Record]:
        """The rows that figures are measured on, at most so many of each class."""
        rows = self.side(side)
        if not rows:
            raise DataError(f"there are no {side} rows", where=str(self.folder), hint="give --test, or another --on")
        return rows if most is None else capped(self.schema, rows, dict.fromkeys(self.schema.labels, most))

    def real(self, per_class: int, private: int, *, on: str) -> list[Record]:
        """Real rows to train on: as many of each class as there are synthetic ones, or as many as there are."""
        spare = self.side("reserve") + ([] if on == "validation" else self.side("validation"))
        return capped(self.schema, self.private(private) + spare, dict.fromkeys(self.schema.labels, per_class))

    def strangers(self) -> list[Record]:
        """Real rows that no method has seen, as a comparison for attacks."""
        return [record for side in ("validation", "reserve", "test") for record in self.side(side)]


def capped(schema: Schema, rows: Sequence[Record], most: Mapping[str, int]) -> list[Record]:
    """The first rows of each class, in their order."""
    seen: Counter[str] = Counter()
    kept = []
    for row in rows:
        label = schema.label_of(row) or ""
        seen[label] += 1
        if seen[label] <= most.get(label, 0):
            kept.append(row)
    return kept


def open_source(
    word: str,
    *,
    folder: Path,
    leaks: bool | None = None,
    schema: Path | None = None,
    test: Path | None = None,
) -> Source:
    """The source that a word names: a loader (its files lie in `folder`), name=path, a file, or a prepared folder."""
    name, equals, path = word.partition("=")
    if word in NAMES or (equals and name in NAMES):
        return _loaded(name, Path(path) if equals else find(name, folder), leaks)
    place = Path(word)
    if not place.exists():
        known = ", ".join(NAMES)
        raise ConfigError("there is no such data", where=word, hint=f"give a file, a folder, or one of {known}")
    if place.is_dir() and is_prepared(place):
        digest, there = Split(place.name, "", place).digest[:8], load_schema(place)
        _require_label(there)
        loader = loader_of(there.name) if there.name in NAMES else None
        paper, shares = (loader.paper, loader.shares) if loader else ("", {})
        return Source(
            _slug(place.resolve().name), paper, digest, folder=place, shares=shares, classes=len(there.labels)
        )
    if schema is None and (loader := recognise(place)) is not None:
        return _loaded(loader.name, place, leaks)
    if schema is None:
        raise ConfigError(
            "this table is of no known data set", where=word, hint="give its --schema; `selpe init` drafts one"
        )
    return _own(place, Schema.load(schema), test)


def _loaded(name: str, path: Path, leaks: bool | None) -> Source:
    loader = loader_of(name)
    schema = Schema.load(loader.schema_file)
    _require_label(schema)
    if not path.exists():
        raise ConfigError("there is no such file", where=str(path))

    def make(seed: int, private: int, folder: Path) -> None:
        loaded = load(loader, path, seed=seed, private=private, leaks=leaks)
        write(loaded, folder, loader=loader, seed=seed)

    file = loader.locate(path) or path
    return Source(
        name,
        loader.paper,
        _identity(str(file.resolve()), *_stamp(file), leaks),
        make,
        shares=loader.shares,
        classes=len(schema.labels),
    )


def _own(path: Path, schema: Schema, test: Path | None) -> Source:
    """A user's own table: split as the loaders do, or all of it private where test rows are given."""
    _require_label(schema)
    schema.require_confirmed()

    def make(seed: int, private: int, folder: Path) -> None:
        rows = _records(path, schema)
        if test is None:
            sides = _parted(rows, schema, seed, private)
        else:
            sides = {"private": rows, "validation": [], "test": _records(test, schema), "reserve": []}
        write(LoadedDataset(path.stem, path.name, schema, sides, len(rows), {}), folder, seed=seed)

    stamp = [*_stamp(path), schema.fingerprint(), *(_stamp(test) if test else ())]
    name, whole = _slug(path.stem), test is not None
    identity = _identity(str(path.resolve()), *stamp)
    return Source(name, "", identity, make, classes=len(schema.labels), own=True, whole=whole)


def _require_label(schema: Schema) -> None:
    if schema.label is None:
        raise ConfigError(
            "an experiment needs a schema with a label",
            where=schema.name,
            hint="run the method itself: `selpe run`, then `selpe evaluate`",
        )


def _records(path: Path, schema: Schema) -> list[Record]:
    reading = parse_records(read_table(path), schema, blank_bad_cells=True)
    if not reading.records:
        raise DataError("no row fits the schema", where=path.name, hint="`selpe check` lists what is wrong.")
    return reading.records


def _parted(rows: list[Record], schema: Schema, seed: int, private: int) -> dict[str, list[Record]]:
    """Private rows per class; of the rest, a third for validation and two thirds for the test."""
    there = Counter(schema.label_of(row) or "" for row in rows)
    targets = Targets.of(
        there,
        private=dict.fromkeys(there, private),
        validation=dict.fromkeys(there, ALL_ROWS),
        test=dict.fromkeys(there, 2 * ALL_ROWS),
    )
    return split(
        rows,
        label=lambda row: schema.label_of(row) or "",
        group=schema.dumps,
        targets=targets,
        seed=f"own:{seed}",
    )


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _identity(*parts: object) -> str:
    return hashlib.sha256(":".join(map(str, parts)).encode()).hexdigest()[:8]


def _slug(name: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name).strip("-_")
    return kept[:40] or "table"


Sources = Mapping[str, Source]
