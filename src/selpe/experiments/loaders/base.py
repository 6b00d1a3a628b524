"""What a loader is: how a publisher's rows become records of ours, what leaks, and how the paper split them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from selpe.experiments.loaders.reading import header
from selpe.schema import Record, Schema

Cells: TypeAlias = dict[str, str]  # a row as it stands in the file, or by our field names before it is read

_SCHEMAS = Path(__file__).parent / "schemas"


@dataclass(slots=True)
class RowTally:
    """What happened to rows and cells on the way in, counted by reason. Holds no value."""

    counts: Counter[str] = field(default_factory=Counter)

    def note(self, what: str) -> None:
        """Counts one row or cell."""
        self.counts[what] += 1


@dataclass(frozen=True, slots=True)
class Raw:
    """A row by our field names, as text. Rows of one `group` stay on one side of a split; '' stands for itself."""

    cells: Cells
    group: str = ""


@dataclass(frozen=True, slots=True)
class Enrichment:
    """A longer text: written by a public template from the record's own fields, or by a model on this machine.

    `field` is replaced or added; `longest` is its limit then. `instruction` is what a model is told; it sees the
    template's text of one record and nothing else.
    """

    field: str
    template: Callable[[Record], str]
    longest: int
    description: str
    instruction: str


@dataclass(frozen=True, slots=True)
class Loader:
    """One data set.

    `rows` gives the rows of a file as they stand there, `clean` one of them by our field names (None where it cannot be
    used, which the tally says), `fields` the fields that a file with such columns can fill. `validation` and `test` are
    the class counts of the paper's table, or ours where `paper`, its name for the set, is ''. `shares` says how private
    rows spread over the classes where there are not to be as many of each.
    """

    name: str
    title: str
    paper: str
    files: tuple[str, ...]
    label: str  # the column that says the class; '' where none does
    validation: Mapping[str, int]
    test: Mapping[str, int]
    marks: tuple[frozenset[str], ...]  # columns by which a file is known: all of one of these sets
    rows: Callable[[Path], Iterator[Cells]]
    clean: Callable[[Cells, RowTally], Raw | None]
    fields: Callable[[Path], tuple[str, ...]]
    grouping: str  # in words
    shares: Mapping[str, float] = field(default_factory=dict)
    leaks: tuple[str, ...] = ()
    keeps_leaks: bool = False
    about_leaks: str = ""
    enrichment: Enrichment | None = None
    enriched: Callable[[Path], bool] = lambda path: False  # by default
    usable: Callable[[Cells, Schema], bool] = lambda cells, schema: True  # seen at once, before a pool is drawn
    locate: Callable[[Path], Path | None] = lambda path: path if path.is_file() else None

    @property
    def schema_file(self) -> Path:
        """The schema with every field that a file of this set can have."""
        return _SCHEMAS / f"{self.name}.yaml"

    def knows(self, path: Path) -> bool:
        """Whether a file has the columns of this set."""
        columns = frozenset(header(path))
        return any(mark <= columns for mark in self.marks)
