"""Bytes to text, piece by piece: how a line is read depends on its own bytes and on what is said about the file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass

from selpe.errors import DataError
from selpe.intake.core import attempt

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it starts with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Five bytes mean nothing in Windows-1252: they become control characters, which the cleaning of cells removes.
_WINDOWS = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
# Where an encoding reads this as it stands, a line or a string can be cut out before it is decoded: no state is
# carried over (UTF-7, ISO-2022, HZ, escapes), and quotes and newlines are the bytes of ASCII (no EBCDIC, nothing wide).
_PROBE = b'az09,;:|[]{}" \t\r\n\\u0041\\\n+-~{\x1b$B'
NOT_DECODED = re.compile("[\udc80-\udcff]")  # bytes that are nothing in the stated encoding; no decoder gives these
UNDECODABLE = "must be text in the encoding of the file"
_SAVE_AS = "Save the file as UTF-8, or name its encoding (encoding=…)."


@dataclass(frozen=True, slots=True)
class Cut:
    """How a file is cut into pieces that are decoded each by itself."""

    pieces: Callable[[bytes], list[bytes]]
    joint: str


LINES = Cut(lambda raw: raw.splitlines(keepends=True), "")
STRINGS = Cut(lambda raw: raw.split(b'"'), '"')  # of a JSON document, whose records may all stand in one line


def own_text(piece: bytes) -> str:
    """Bytes as text by themselves: UTF-8 where they are that, else Windows-1252."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return codecs.charmap_decode(piece, "strict", _WINDOWS)[0]


def decode(raw: bytes, source: str, encoding: str | None = None, *, cut: Cut = LINES, marked: bool = True) -> str:
    """The text of a file: by its byte-order mark, else as stated, else every piece by itself.

    Pieces that are not valid in the encoding of the file hold characters of `NOT_DECODED`. With `marked` False, the
    first bytes belong to a record and say nothing about the others.
    """
    if marked:
        mark, of_mark = next(((mark, name) for mark, name in _MARKS if raw.startswith(mark)), (b"", None))
        raw, encoding = raw[len(mark) :], of_mark or encoding or _wide(raw)
    if encoding is None:
        return _joined(raw, "utf-8", cut, own_text)
    return _as_stated(raw, encoding, source, cut)


def _as_stated(raw: bytes, encoding: str, source: str, cut: Cut) -> str:
    def unknown(_: str) -> DataError:
        return DataError(f"unknown encoding '{encoding}'", where=source, hint="Try encoding='utf-8'.")

    def invalid(_: str) -> DataError:
        return DataError(f"the file is not valid {encoding} text", where=source, hint=_SAVE_AS)

    name = attempt(lambda: codecs.lookup(encoding).name, unknown).removesuffix("-sig")
    if name.startswith(("utf-16", "utf-32")):
        return raw.decode(name, "replace")  # each character has its place, so that a bad one harms no other
    if not attempt(lambda: _cuts(name), unknown):
        return attempt(lambda: raw.decode(name), invalid)

    def stated(piece: bytes) -> str:
        try:
            return piece.decode(name)
        except UnicodeDecodeError:
            return piece.decode("ascii", "surrogateescape")

    return _joined(raw, name, cut, stated)


def _joined(raw: bytes, encoding: str, cut: Cut, read: Callable[[bytes], str]) -> str:
    try:
        return raw.decode(encoding)  # the same, and faster, where every piece is valid
    except UnicodeDecodeError:
        return cut.joint.join(map(read, cut.pieces(raw)))


def _cuts(encoding: str) -> bool:
    try:
        return _PROBE.decode(encoding) == _PROBE.decode("ascii")
    except UnicodeError:
        return False


def _wide(raw: bytes) -> str | None:
    """UTF-16 without a mark, told by the first two characters of the file: by those of its header."""
    zeros = [byte == 0 for byte in raw[:4]]
    if zeros == [False, True, False, True]:
        return "utf-16-le"
    return "utf-16-be" if zeros == [True, False, True, False] else None
