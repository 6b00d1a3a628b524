"""How a table is written: read once, for a draft. `selpe init` writes it down for a person to confirm.

A run never guesses any of this: one private row could then change how all others are read. Nothing here keeps a cell.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from selpe.intake.cells import cell_text
from selpe.intake.days import date_readings
from selpe.intake.numerals import DecimalMark, read_numeral
from selpe.intake.read import SUFFIXES
from selpe.intake.text import sniff_delimiter

if TYPE_CHECKING:
    from selpe.intake import Table
    from selpe.intake.draft.kinds import ColumnDraft

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it starts with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_DECIMALS: tuple[DecimalMark, DecimalMark] = (",", ".")
_POINTED = re.compile(r"[0-9]\.[0-9]")


@dataclass(frozen=True, slots=True)
class TextForm:
    """The encoding and the delimiter of a text file; None where there is none, or where it cannot be told."""

    encoding: str | None = None
    delimiter: str | None = None


@dataclass(frozen=True, slots=True)
class CellForm:
    """What dates and numbers show. `unclear` names the settings that matter here and cannot be told from the cells."""

    day_first: bool | None = None
    decimal: DecimalMark | None = None
    unclear: tuple[str, ...] = ()


def text_form(data: str, *, encoding: str | None = None, delimiter: str | None = None) -> TextForm:
    """How a text file is written; what is given is kept. Empty for other files, and for those that are not there."""
    form = None if "://" in data else SUFFIXES.get(Path(data).suffix.lower())
    if form not in ("csv", "tsv", "json", "jsonl") or not Path(data).is_file():
        return TextForm(encoding, delimiter)
    raw = Path(data).read_bytes()
    encoding = encoding or _encoding(raw)
    if form in ("csv", "tsv") and delimiter is None:
        delimiter = "\t" if form == "tsv" else _delimiter(raw, encoding)
    return TextForm(encoding, delimiter)


def cell_form(table: Table, columns: Iterable[ColumnDraft]) -> CellForm:
    """What the cells of date and number columns show about day order and decimal mark."""
    texts: dict[str, set[str]] = {"date": set(), "number": set()}
    for column in columns:
        kind = "number" if column.kind == "integer" else column.kind
        if kind in texts:
            texts[kind] |= {cell_text(cell) for cell in table.data[column.position] if isinstance(cell, str)}
    days = {_day_sign(text) for text in texts["date"]}
    marks = {_mark_sign(text) for text in texts["number"]}
    if marks & {"yes", "no", "either"} and "plain" in marks:
        marks.add("no")  # 2.5 beside 1,234: there the comma is no decimal mark
    day_first, comma = _told(days), _told(marks)
    found = {"day_first": (days, day_first), "decimal": (marks, comma)}
    unclear = tuple(name for name, (signs, said) in found.items() if said is None and signs - {"", "plain"})
    return CellForm(day_first, None if comma is None else "," if comma else ".", unclear)


def _told(signs: set[str]) -> bool | None:
    """What the cells agree on; None where they say nothing, or contradict each other."""
    return None if ("yes" in signs) == ("no" in signs) else "yes" in signs


def _day_sign(text: str) -> str:
    """'yes' where a text is a date only with the day first, 'no' where only with the month first."""
    return _sign(date_readings(text, day_first=True), date_readings(text, day_first=False))


def _mark_sign(text: str) -> str:
    """'yes' where a text is a number only with a decimal comma, 'no' where only with a point."""
    comma, point = (read_numeral(text, decimal=mark).readings for mark in _DECIMALS)
    return _sign(comma, point) or ("plain" if _POINTED.search(text) else "")


def _sign(one: tuple[object, ...], other: tuple[object, ...]) -> str:
    if one == other:
        return ""
    return "either" if one and other else "yes" if one else "no"


def _encoding(raw: bytes) -> str | None:
    """The encoding of all of a file; None where its lines disagree, and each is better read by itself."""
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return name
    if b"\0" in raw[:2]:
        return "utf-16-be" if raw[:1] == b"\0" else "utf-16-le"
    if _decodes(raw, "utf-8"):
        return "utf-8"
    return "cp1252" if not _MULTIBYTE.search(raw) and _decodes(raw, "cp1252") else None


def _decodes(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def _delimiter(raw: bytes, encoding: str | None) -> str:
    """The delimiter of the header line, or what a first line `sep=;` says, as Excel writes it."""
    text = raw.decode(encoding or "latin-1", errors="replace").removeprefix("\ufeff")
    said = re.match(r"sep=(.)[\r\n]", text, re.IGNORECASE)
    return said[1] if said else sniff_delimiter(text)
