"""Core and parts as one release, in its order, without ever holding all of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from selpe.intake.lines import RecordLines
from selpe.owner_only import open_text
from selpe.run.large.parts import Part, PartFolder


@dataclass(frozen=True, slots=True)
class WholeTable:
    """All records of a release as canonical JSON, as often as they are asked for.

    Every part gets its share of the core and is shuffled with it: a stretch of the release is like any other.
    """

    folder: PartFolder
    parts: tuple[Part, ...]
    core: tuple[str, ...]
    seed: int | str
    missing: dict[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> RecordLines:
        """Writes the table as JSON lines, and gives its records where they lie."""
        with open_text(path, newline="\n") as file:
            file.writelines(text + "\n" for text in self)
        return RecordLines(path)

    def __len__(self) -> int:
        return len(self.core) + sum(part.records for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        core = list(self.core)
        random.Random(f"order:{self.seed}").shuffle(core)
        if not self.parts:
            yield from core
        for part in self.parts:
            block = self.folder.texts(part.number) + core[part.number :: len(self.parts)]
            random.Random(f"order:{self.seed}:{part.number}").shuffle(block)
            yield from block
