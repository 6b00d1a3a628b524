"""Delimited text in: encodings, delimiters, quoted newlines."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator

from selpe.errors import DataError
from selpe.table.core import Table, attempt, build_table

DELIMITERS = ",;\t|"
CELL_LIMIT = 16 * 2**20  # characters in one cell; the csv module's own limit (131,072) is too small for notes
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it starts with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_SAVE_AS = "Save the file as UTF-8, or name its encoding (encoding=…)."


def decode(raw: bytes, source: str, encoding: str | None = None) -> str:
    """The text of a file: its byte-order mark decides, then UTF-8, then Windows-1252.

    A file that mixes UTF-8 with another encoding is refused: guessing would let one row change how all others
    are read.
    """
    if encoding is not None:
        return _decode_as(raw, encoding, source)
    for mark, name in _BOMS:
        if raw.startswith(mark):
            return _decode_as(raw, name, source)
    wide = _wide(raw)
    if wide:
        return _decode_as(raw, wide, source)
    if b"\0" in raw:
        raise DataError("this is not a text file", where=source, hint="Give a csv, tsv, jsonl or json file.")
    bad = _first_bad_byte(raw)
    if bad < 0:
        return raw.decode("utf-8")
    if _MULTIBYTE.search(raw):
        line = raw.count(b"\n", 0, bad) + 1
        raise DataError(f"line {line} is not UTF-8, although other lines are", where=source, hint=_SAVE_AS)
    return raw.decode("cp1252", errors="ignore") if not _latin_only(raw) else raw.decode("latin-1")


def _decode_as(raw: bytes, encoding: str, source: str) -> str:
    def failed(kind: str) -> DataError:
        if kind == "LookupError":
            return DataError(f"unknown encoding '{encoding}'", where=source, hint="Try encoding='utf-8'.")
        return DataError(f"the file is not valid {encoding} text", where=source, hint=_SAVE_AS)

    return attempt(lambda: raw.decode(encoding), failed)


def _first_bad_byte(raw: bytes) -> int:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return -1


def _latin_only(raw: bytes) -> bool:
    # These five bytes mean nothing in Windows-1252; Latin-1 reads them as control characters.
    return any(byte in raw for byte in b"\x81\x8d\x8f\x90\x9d")


def _wide(raw: bytes) -> str | None:
    head = raw[:4096]
    if len(head) < 4 or len(raw) % 2:
        return None
    even, odd = head[::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    if odd > 0.6 * half and even < 0.1 * half:
        return "utf-16-le"
    if even > 0.6 * half and odd < 0.1 * half:
        return "utf-16-be"
    return None


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
    text = decode(raw, source, encoding).replace("\0", "")
    skipped = 0
    if (
        text[:4].lower() == "sep=" and text[4:5] in DELIMITERS and text[5:6] in ("\r", "\n")
    ):  # a first line that Excel writes and reads
        delimiter, skipped = delimiter or text[4], 1
        text = text[5:].removeprefix("\r").removeprefix("\n")
    if not text.strip():
        raise DataError("the file is empty", where=source, hint="A table needs a header row and data rows.")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise DataError("a delimiter must be one character", where=source, hint="Try ',' or ';'.")
    csv.field_size_limit(CELL_LIMIT)
    rows = _numbered(text, delimiter or sniff_delimiter(text), source, skipped)
    _, header = next(rows, (0, []))
    return build_table(header, rows, source=source, counting="sheet")


def _numbered(text: str, delimiter: str, source: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = skipped
    while True:
        number += 1

        def failed(_: str, number: int = number) -> DataError:
            return DataError(
                f"row {number} cannot be split into cells (it ends on line {reader.line_num} of the file)",
                where=source,
                hint="Check its quotes: a cell with a quote or a newline in it stands in double quotes, "
                'and a quote inside is doubled ("").',
            )

        cells = attempt(lambda: next(reader, None), failed)
        if cells is None:
            return
        if cells and (len(cells) > 1 or cells[0].strip()):
            yield number, cells
