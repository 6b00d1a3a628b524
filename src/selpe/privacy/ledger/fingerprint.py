"""A keyed fingerprint of a table: tells whether it is the same as another, and nothing else.

Every row goes through HMAC-SHA256 under a subkey of the owner's key. From those values two things are kept:

- `whole`: the HMAC of the sorted row values, equal only for the same rows (in any order);
- `sketch`: for each of 128 derived orders of the rows, 32 bits of the row that comes first (MinHash). Two
  tables agree in about as large a share of the 128 places as they have rows in common.

Why it tells nothing without the key: HMAC under an unknown key cannot be told from random numbers, so nobody
can try out a suspected row. The kept bits are not the ones that decided which row comes first, so they do not
shrink as a table grows, and the fixed size does not show how many rows there are. Two fingerprints made with
one key tell how much the two tables overlap; that is their purpose. Whoever has the key *and* a fingerprint
can try out rows: the key belongs where the table belongs.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any

from selpe.errors import LedgerError
from selpe.privacy.ledger.journal import canonical
from selpe.privacy.ledger.key import Key, make_key

if TYPE_CHECKING:
    from selpe.schema import Record

PLACES = 128
_LANES = Struct(f">{PLACES}Q")
_KEPT = Struct(f">{PLACES}I")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What is remembered of a table: comparable under one key, meaningless without it."""

    key: str
    whole: str = field(repr=False)
    sketch: bytes = field(repr=False)

    def overlap(self, other: Fingerprint) -> float:
        """The estimated share of the two tables' distinct rows that are in both (0 to 1)."""
        if self.key != other.key:
            raise LedgerError(
                "two fingerprints made with different keys cannot be compared",
                hint="restore the key that the older ledger was made with",
            )
        if self.whole == other.whole:
            return 1.0
        pairs = zip(_KEPT.unpack(self.sketch), _KEPT.unpack(other.sketch), strict=True)
        alike: int = sum(a == b for a, b in pairs)
        return alike / PLACES

    def to_dict(self) -> dict[str, str]:
        """The fingerprint as plain data, for a ledger line."""
        return {"key": self.key, "whole": self.whole, "sketch": self.sketch.hex()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fingerprint:
        """The fingerprint that a ledger line holds."""
        return cls(data["key"], data["whole"], bytes.fromhex(data["sketch"]))


def fingerprint(rows: Iterable[Record], *, key: Key | None = None) -> Fingerprint:
    """The keyed fingerprint of these rows, whatever their order."""
    key = key or make_key()
    secret = key.derive("row fingerprint")
    values = sorted(hmac.digest(secret, _text(row), "sha256") for row in rows)
    first = (2**64 - 1,) * PLACES
    for value in dict.fromkeys(values):
        # Stretching one keyed value into many lanes keeps them all keyed, and costs one call a row.
        first = tuple(map(min, first, _LANES.unpack(hashlib.shake_256(value).digest(_LANES.size))))
    kept = _KEPT.pack(*(lane & 0xFFFFFFFF for lane in first))
    return Fingerprint(key.id, hmac.digest(secret, b"whole" + b"".join(values), "sha256").hex(), kept)


def _text(row: Record) -> bytes:
    """A row as text that does not depend on field order, number format, Unicode form or outer spaces."""
    cells = {name: _cell(value) for name, value in row.items() if value is not None}
    return canonical(cells).encode()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return unicodedata.normalize("NFC", str(value)).strip()
