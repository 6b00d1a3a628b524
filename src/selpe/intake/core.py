"""A table as it was read: column names, raw cells, and the row numbers its owner sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, TypeVar

from selpe.errors import DataError, SelPEError

Counting = Literal["sheet", "line", "record"]
COUNTED: dict[Counting, str] = {
    "sheet": "rows are counted as a spreadsheet shows them: the header is row 1",
    "line": "rows are lines of the file",
    "record": "rows are records, counted from 1",
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row that could not be taken apart into cells: where it is and what a row must look like."""

    row: int
    expected: str


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Raw cells by column. Its text form shows only sizes: without a header, even the names are a private row.

    `keyed` says that each row named its cells itself, so that there is no header. `typed` are the columns whose type
    was fixed for all rows at once before they came here, by a frame or a file.
    """

    columns: tuple[str, ...]
    data: tuple[Sequence[object], ...]
    rows: Sequence[int]
    source: str = "table"
    counting: Counting = "record"
    broken: tuple[BrokenRow, ...] = ()
    notes: tuple[str, ...] = ()
    keyed: bool = False
    typed: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Table({self.source!r}, {len(self.columns)} columns, {len(self.rows)} rows)"

    def positions(self, name: str) -> tuple[int, ...]:
        """The positions of columns of this name (0-based); more than one when the name is repeated."""
        return tuple(i for i, column in enumerate(self.columns) if column == name)

    def places(self, name: str) -> tuple[int, ...]:
        """Positions of a field's columns: those of its exact name, else those that differ in case or separators."""
        wanted = folded(name)
        return self.positions(plain_name(name)) or tuple(
            place for place, column in enumerate(self.columns) if folded(column) == wanted
        )

    def column(self, name: str) -> Sequence[object]:
        """The raw cells of one column."""
        found = self.places(name)
        if len(found) != 1:
            problem = "is missing" if not found else "occurs more than once"
            raise DataError(f"column '{name}' {problem}", where=self.source, hint="Check the header row.")
        return self.data[found[0]]

    @property
    def repeated(self) -> tuple[tuple[int, ...], ...]:
        """Groups of positions (0-based) whose columns share one name."""
        places: dict[str, list[int]] = {}
        for place, name in enumerate(self.columns):
            places.setdefault(name, []).append(place)
        return tuple(tuple(found) for found in places.values() if len(found) > 1)


@dataclass(slots=True)
class Allowance:
    """What a file may unpack to: in proportion to its size, so that a small one cannot fill the memory.

    A file that goes beyond is refused as a whole; what fits is read as if there were no limit.
    """

    size: int  # of the file, in bytes
    source: str
    cells: int = 0
    characters: int = 0

    def take(self, cells: int, characters: int = 0) -> None:
        """Counts what has been unpacked. Raises DataError where it is too much for the file."""
        self.cells += cells
        self.characters += characters
        if self.cells > max(FREE_CELLS, 2 * self.size) or self.characters > self.most_characters:
            raise DataError(
                "the file unpacks to far more than its size",
                where=self.source,
                hint="If this is what it should hold, save the table as csv.",
            )

    @property
    def most_characters(self) -> int:
        """How much text or XML the file may hold, unpacked."""
        return max(FREE_CHARACTERS, 30 * self.size)


FREE_CELLS = 2_000_000  # which a file of any size may hold
FREE_CHARACTERS = 10_000_000
MOST_COLUMNS = 16_384  # as many as a spreadsheet has


def few_enough(columns: int, source: str) -> None:
    """Raises DataError where a table has more columns than anybody can describe."""
    if columns > MOST_COLUMNS:
        raise DataError(
            f"the table must have at most {MOST_COLUMNS:,} columns; it has {columns:,}",
            where=source,
            hint="Leave out what the schema does not name.",
        )


def attempt(action: Callable[[], T], failure: Callable[[str], SelPEError]) -> T:
    """What `action` returns; where it fails, our own error, which keeps nothing of the original but its type.

    Errors of parsing libraries quote the cell they stumbled over. Raising after the handler has ended leaves
    no `__context__` behind, so not even a debugger's traceback of the chain can show a value.
    """
    try:
        return action()
    except SelPEError:
        raise
    except Exception as error:
        kind = type(error).__name__
    raise failure(kind)


UNREADABLE = b""  # stands for a cell that its library cannot hand out; no field takes bytes


def cells_of(part: Callable[[int, int], Sequence[object]], rows: int) -> Sequence[object]:
    """The cells of a column: all at once, or one by one if a cell cannot be converted (a day after the year 9999)."""
    try:
        return part(0, rows)
    except Exception:
        return [_cell_of(part, place) for place in range(rows)]


def _cell_of(part: Callable[[int, int], Sequence[object]], place: int) -> object:
    try:
        return part(place, place + 1)[0]
    except Exception:
        return UNREADABLE


def build_table(
    header: Sequence[object],
    rows: Iterable[tuple[int, Sequence[object]]],
    *,
    source: str,
    counting: Counting,
    broken: Iterable[BrokenRow] = (),
) -> Table:
    """A table from a header and numbered rows; rows of another width are set aside, unnamed columns left out."""
    names = [_name(cell) for cell in header]
    while names and not names[-1]:
        names.pop()
    width = len(names)
    few_enough(width, source)
    if not any(names):
        raise DataError("the header row has no column names", where=source, hint="Name the columns in row 1.")
    numbers: list[int] = []
    kept: list[Sequence[object]] = []
    bad = list(broken)
    for number, cells in rows:
        if cells[0] == header[0] and list(cells) == list(header) and width > 1:
            bad.append(BrokenRow(number, "must not repeat the header"))
            continue
        extra = cells[width:]
        if len(cells) < width or any(not _blank(cell) for cell in extra):
            expected = f"must have {width} cells, as the header has; it has {len(cells)}"
            bad.append(BrokenRow(number, expected))
            continue
        numbers.append(number)
        kept.append(cells[:width])
    columns = [list(column) for column in zip_longest(*kept)] if kept else [[] for _ in names]
    return _named(names, columns, numbers, source=source, counting=counting, broken=bad)


def _named(
    names: Sequence[str],
    columns: Sequence[Sequence[object]],
    numbers: Sequence[int],
    *,
    source: str,
    counting: Counting,
    broken: Sequence[BrokenRow],
) -> Table:
    unnamed = [i + 1 for i, name in enumerate(names) if not name]
    notes = (f"left out columns without a name: {listed(unnamed)}",) if unnamed else ()
    return Table(
        columns=tuple(name for name in names if name),
        data=tuple(column for name, column in zip(names, columns, strict=True) if name),
        rows=tuple(numbers),
        source=source,
        counting=counting,
        broken=tuple(sorted(broken, key=lambda row: row.row)),
        notes=notes,
    )


def listed(numbers: Sequence[int], limit: int = 5) -> str:
    """Row or column numbers for a message: the first few, then '…'."""
    shown = ", ".join(f"{number:d}" for number in numbers[:limit])
    return f"{shown}, …" if len(numbers) > limit else shown


def plain_name(name: str) -> str:
    """A column's name with single spaces between its words."""
    return " ".join(name.split())


def folded(name: str) -> str:
    """What a name has in common with its other spellings: letter case, spaces, '_' and '-' do not count."""
    return "_".join(name.replace("_", " ").replace("-", " ").split()).casefold() or name


def _name(cell: object) -> str:
    return "" if _blank(cell) else plain_name(str(cell))


def _blank(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
