"""Delimited text in: delimiters, quoted newlines, and rows that break the rules by themselves."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from selpe.errors import DataError
from selpe.intake.core import BrokenRow, Table, build_table
from selpe.intake.encodings import NOT_DECODED, UNDECODABLE, decode

DELIMITERS = ",;\t|"
CELL_LIMIT = 16 * 2**20  # characters in one cell
_NO_LIMIT = 2**31 - 1  # the csv module gives up in the middle of a row at its own limit
_QUOTES = "must have quotes around whole cells, and a quote inside doubled"
_EMPTY = "A table needs a header row and data rows."


@dataclass(frozen=True, slots=True)
class _Row:
    """One row as it was split, and what is wrong with it."""

    number: int
    cells: list[str]
    problem: str = ""


def sniff_delimiter(text: str) -> str:
    """The delimiter of the header line, which is public; rows of data are not looked at."""
    counts = dict.fromkeys(DELIMITERS, 0)
    quoted = False
    for char in text.lstrip("\r\n")[:1_000_000]:
        if char == '"':
            quoted = not quoted
        elif not quoted and char in "\r\n":
            break
        elif not quoted and char in counts:
            counts[char] += 1
    return max(DELIMITERS, key=lambda mark: counts[mark])


def read_delimited(raw: bytes, source: str, *, encoding: str | None, delimiter: str | None) -> Table:
    """A table from csv, tsv or other delimited text."""
    text = decode(raw, source, encoding)
    if "\0" in text.lstrip("\r\n").partition("\n")[0].partition("\r")[0]:
        raise DataError("this is not a text file", where=source, hint="Give a csv, tsv, jsonl or json file.")
    text, skipped = text.replace("\0", ""), 0
    if (
        text[:4].lower() == "sep=" and text[4:5] in DELIMITERS and text[5:6] in ("\r", "\n")
    ):  # a first line that Excel writes and reads
        delimiter, skipped = delimiter or text[4], 1
        text = text[5:].removeprefix("\r").removeprefix("\n")
    if not text.strip():
        raise DataError("the file is empty", where=source, hint=_EMPTY)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n\0'):
        raise DataError("a delimiter must be one character", where=source, hint="Try ',' or ';'.")
    rows = _split(text, delimiter or sniff_delimiter(text), source, skipped)
    header = next(rows, _Row(0, []))
    if header.problem:
        raise DataError(f"the header row {header.problem}", where=source, hint="Correct the first line of the file.")
    whole: list[tuple[int, list[str]]] = []
    broken: list[BrokenRow] = []
    for row in rows:
        if row.problem:
            broken.append(BrokenRow(row.number, row.problem))
        else:
            whole.append((row.number, row.cells))
    return build_table(header.cells, whole, source=source, counting="sheet", broken=broken)


def _split(text: str, delimiter: str, source: str, skipped: int) -> Iterator[_Row]:
    """The rows of a text, each judged by itself; a line of only white space is not a row.

    Only a quote that is never closed is an error of the file: nobody can say where its row ends.
    """
    lines: list[str] = []  # of the row that is being read
    ended = False

    def feed() -> Iterator[str]:
        nonlocal ended
        for line in io.StringIO(text, newline=""):
            lines.append(line)
            yield line
        ended = True
        yield ""  # a row of its own, unless a quote is still open

    csv.field_size_limit(_NO_LIMIT)
    for number, cells in enumerate(csv.reader(feed(), delimiter=delimiter), start=skipped + 1):
        if ended and not lines:
            return
        if ended:
            raise DataError(
                f"row {number} cannot be split into cells: a quote is not closed before the file ends",
                where=source,
                hint="Check its quotes: a cell with a quote or a newline in it stands in double quotes, "
                'and a quote inside is doubled ("").',
            )
        if len(cells) > 1 or "".join(lines).strip():
            yield _Row(number, cells, _problem(lines, cells, delimiter))
        lines.clear()


def _problem(lines: list[str], cells: list[str], delimiter: str) -> str:
    if any('"' in line for line in lines):
        try:
            list(csv.reader(lines, delimiter=delimiter, strict=True))
        except csv.Error:
            return _QUOTES
    if any(len(cell) > CELL_LIMIT for cell in cells):
        return f"must have no cell of more than {CELL_LIMIT:,} characters"
    return UNDECODABLE if any(NOT_DECODED.search(cell) for cell in cells) else ""
