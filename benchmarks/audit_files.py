"""The statistical audit from the bytes of a file on: two files that differ in one hostile row, and what a choice tells.

Each draw reads the file, parses its records, makes the private table and runs one selection with ε = 1. The event that
tells the two files apart best is taken from a first part of the outcomes; on the rest, Clopper–Pearson bounds give a
lower bound on the true ε, as in `audit.py`. It must not exceed the claim. The same audit runs with reading broken on
purpose, so that one row changes how all others are read, and must catch each fault.

    python benchmarks/audit_files.py [--draws 20000]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.audit import CONFIDENCE, EPSILON, Line, Outcome, Points, Pool, Purse, lower_bound, outcome

from selpe.intake import Table, cells, objects, parse_records, read_table, records, text
from selpe.privacy.mechanisms import NoisyMax
from selpe.privacy.table import PrivateTable
from selpe.privacy.votes import Approval
from selpe.schema import Record, Schema

SCHEMA = Schema.from_dict(
    {"name": "files", "fields": {"code": {"kind": "text", "max_length": 40, "optional": True}}},
)
ROWS = 4  # few, so that a sound selection on neighbours comes close to its claim


@dataclass(frozen=True)
class Case:
    """A file of equal rows, its neighbour with one hostile row in front, and how the others should be read."""

    name: str
    suffix: str
    header: bytes
    row: bytes
    hostile: bytes
    usual: str
    fault: str

    def content(self, side: int) -> bytes:
        """The bytes of one of the two files."""
        first = self.row if side == 0 else self.hostile
        return b"\n".join([*([self.header] if self.header else []), first, *[self.row] * (ROWS - 1), b""])


CASES = (
    Case("a key of other capitals", ".jsonl", b"", b'{"CODE": "a"}', b'{"code": "b"}', "a", "keys over all rows"),
    Case("an undefined byte", ".csv", b"code,n", b"5 \x80,1", b"\x9dx,1", "5 €", "one encoding guessed for all"),
    Case("an equal decimal", ".jsonl", b"", b'{"code": 2.5}', b'{"code": 2.50}', "2.5", "cells known by equality"),
    Case("a row that breaks the rules", ".csv", b"code,n", b"a,1", b'"x"y,1,2,3', "a", ""),
    Case("a record of another kind", ".jsonl", b"", b'{"code": "a"}', b'{"code": 1, "Code": [2]}', "a", ""),
)


class Known(Line):
    """Records on a line: what was expected stands at one end, everything else at the other."""

    def __init__(self, usual: str) -> None:
        self.usual = usual

    def represent(self, records: Sequence[Record]) -> Points:
        far = [0.0 if record["code"] == self.usual else 100.0 for record in records]
        return Points(np.array(far, dtype=np.float32))


# -- reading broken on purpose, as it once was -----------------------------------------------------------------------


def _keys_over_all_rows(numbered: Iterable[tuple[int, Any]], source: str, *, counting: Any) -> Table:
    """Each spelling is a column of its own, and one of them is the field's for all rows."""
    rows = list(numbered)
    names = list(dict.fromkeys(key for _, item in rows for key in item))
    data = tuple([item.get(key) for _, item in rows] for key in names)
    return Table(tuple(names), data, [number for number, _ in rows], source, counting)


def _one_encoding(raw: bytes, _source: str, _encoding: str | None = None) -> str:
    """Latin-1 for the whole file as soon as one byte means nothing in Windows-1252."""
    latin = any(byte in raw for byte in b"\x81\x8d\x8f\x90\x9d")
    return raw.decode("latin-1" if latin else "cp1252")


def _by_equality(field: Any, conventions: Any) -> Callable[[object], Any]:
    """The outcome of the first cell of several that are equal, however they are written."""
    seen: dict[Any, Any] = {}
    return lambda cell: seen.setdefault((type(cell), cell), cells.read_cell(field, cell, conventions))


FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "keys over all rows": (objects, "from_mappings", _keys_over_all_rows),
    "one encoding guessed for all": (text, "decode", _one_encoding),
    "cells known by equality": (records, "reader_of", _by_equality),
}


@contextmanager
def reading(fault: str) -> Iterator[None]:
    """Within it, files are read with this fault ('' for none)."""
    with ExitStack() as stack:
        if fault:
            module, name, broken = FAULTS[fault]
            stack.enter_context(mock.patch.object(module, name, broken))
        yield


# -- the audit -------------------------------------------------------------------------------------------------------


def draw(path: Path, case: Case) -> Outcome:
    """One outcome of the whole path: file, table, records, private table, selection."""
    found = parse_records(read_table(path), SCHEMA)
    rows: list[Record | None] = [*found.records, *[None] * found.dropped]  # what does not fit abstains
    table = PrivateTable(rows, SCHEMA, account=Purse())
    pool = Pool(np.array([0.0, 100.0], dtype=np.float32))
    return outcome(
        table.select(
            {"": pool}, kernel=Known(case.usual), mechanism=NoisyMax(EPSILON), selection="audit", vote=Approval(0.3)
        )
    )


def audit(case: Case, draws: int, fault: str = "", confidence: float = CONFIDENCE) -> float:
    """The lower bound on ε from this many draws, half of them on each file."""
    parts = (draws // 8, draws // 2 - draws // 8)
    with TemporaryDirectory() as folder, reading(fault):
        counts = []
        for part in parts:
            for side in (0, 1):
                path = Path(folder) / f"table{side}{case.suffix}"
                path.write_bytes(case.content(side))
                counts.append(Counter(draw(path, case) for _ in range(part)))
    return lower_bound(counts[:2], counts[2:], confidence)


def main() -> int:
    """0 where every sound case keeps to its claim and every fault is caught."""
    parser = argparse.ArgumentParser(description="Statistical privacy audit from a file's bytes on.")
    parser.add_argument("--draws", type=int, default=20_000, help="selections per case, half of them on each file")
    settings = parser.parse_args()
    began, failed = time.monotonic(), False
    print(f"claimed ε = {EPSILON}; lower bound at {CONFIDENCE:.0%} from {settings.draws:,} selections a case")
    for case in CASES:
        bound = audit(case, settings.draws)
        if bound > EPSILON:
            # A sound mechanism that uses all of its ε is over once in a hundred audits, twice in ten thousand.
            bound = min(bound, audit(case, settings.draws))
        failed |= bound > EPSILON
        print(f"  {bound:5.3f}  {'OVER' if bound > EPSILON else 'kept'}    {case.suffix}: {case.name}")
    print("reading as it once was; the audit must catch each")
    for case in CASES:
        if case.fault:
            bound = audit(case, settings.draws // 5, case.fault)
            failed |= bound <= EPSILON
            print(f"  {bound:5.3f}  {'caught' if bound > EPSILON else 'MISSED'}  {case.suffix}: {case.fault}")
    print(f"{'FAILED' if failed else 'passed'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
