"""Records in a file of JSON lines, read from the file: a sequence that holds 8 bytes for each of them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from selpe.errors import DataError
from selpe.schema import Record


class RecordLines(Sequence[Record]):
    """The records of a `.jsonl` file that stays as it is. Only one of them is in memory at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._offsets = array("Q")
        offset = 0
        with self.path.open("rb") as file:
            for raw in file:
                if raw != b"\n":
                    self._offsets.append(offset)
                offset += len(raw)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        offsets = self._offsets[place] if isinstance(place, slice) else (self._offsets[place],)
        found = []
        with self.path.open("rb") as file:
            here = -1
            for offset in offsets:
                if offset != here:
                    file.seek(offset)
                raw = file.readline()
                here = offset + len(raw)
                found.append(self._record(raw))
        return found if isinstance(place, slice) else found[0]

    def __iter__(self) -> Iterator[Record]:
        with self.path.open("rb") as file:
            for raw in file:
                if raw != b"\n":
                    yield self._record(raw)

    def _record(self, raw: bytes) -> Record:
        try:
            record = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise DataError("must be one JSON object a line", where=self.path.name)
        return record
