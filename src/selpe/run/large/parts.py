"""Finished chunks on disk: one Parquet file each, and a journal that says what is in them.

    parts.jsonl          a line for each finished part: how many records of which class, and what they took
    part-000001.parquet  `record`: the canonical JSON of each record; `hash`: its 64-bit hash

A part counts once its line is in the journal, which is written last. Resuming reads the journal, and of the parts the
hashes alone. Holds synthetic text only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selpe.errors import RunError
from selpe.lasting import put_for_good
from selpe.owner_only import claim, make_folder, open_bytes
from selpe.run.large.known import Hashes

if TYPE_CHECKING:
    import pyarrow as pa

JOURNAL = "parts.jsonl"


@dataclass(frozen=True, slots=True)
class Part:
    """What a finished part holds by class, and what it took: answers, prompt and written tokens by stage."""

    number: int
    asked: Mapping[str, int]
    found: Mapping[str, int]
    effort: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)
    given_up: Mapping[str, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(self.found.values())

    @property
    def short(self) -> frozenset[str]:
        """The classes of which there are fewer than were asked for."""
        return frozenset(label for label, count in self.asked.items() if self.found.get(label, 0) < count)


class PartFolder:
    """The parts of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_folder(folder)

    def finished(self) -> list[Part]:
        """The parts that are done, in order. What was cut off while it was written does not count."""
        path = self.folder / JOURNAL
        found: list[Part] = []
        end = 0
        if not path.exists():
            return found
        with path.open("rb+") as file:
            for raw in file:
                part = _part(raw)
                if part is None or part.number != len(found) or not self._path(part.number).is_file():
                    break
                found.append(part)
                end += len(raw)
            file.truncate(end)
        return found

    def keep(self, part: Part, texts: Sequence[str], hashes: Hashes) -> None:
        """Puts a part on disk: whole, or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._path(part.number)
        draft = path.with_suffix(".draft")
        columns = {"record": pa.array(texts, type=pa.string()), "hash": pa.array(hashes, type=pa.uint64())}
        claim(draft)
        pq.write_table(pa.table(columns), draft, compression="zstd")
        put_for_good(draft, path)  # a line in the journal must not outlive its part in a power cut
        with open_bytes(self.folder / JOURNAL, "ab") as journal:
            journal.write(json.dumps(asdict(part)).encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())

    def texts(self, number: int) -> list[str]:
        """The records of a part as canonical JSON."""
        texts: list[str] = self._column(number, "record").to_pylist()
        return texts

    def hashes(self, number: int) -> Hashes:
        """The hashes of a part's records."""
        return np.asarray(self._column(number, "hash").to_numpy(), dtype=np.uint64)

    def _column(self, number: int, name: str) -> pa.ChunkedArray:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._path(number)
        try:
            return pq.read_table(path, columns=[name], use_threads=False).column(name)
        except (OSError, KeyError, pa.ArrowException):
            raise RunError(
                "this part of the table cannot be read",
                where=str(path),
                hint=f"delete {path.parent.name}/ in the run's work/ and resume: further records are written anew",
            ) from None

    def answers(self, number: int) -> Path:
        """Where the answers of a part are kept while it is written."""
        return self.folder / f"answers-{number:06d}.jsonl"

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.parquet"


def _part(raw: bytes) -> Part | None:
    """The part that a line of the journal tells of; None where the line is torn."""
    if not raw.endswith(b"\n"):
        return None
    try:
        content = json.loads(raw)
        content["effort"] = {stage: tuple(counts) for stage, counts in content["effort"].items()}
        return Part(**content)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
