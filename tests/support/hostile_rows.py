"""Pairs of tables that differ in one hostile row, for every reader; and what else differs once they are read.

A pair is made from a seed alone. Used by `test_one_row_one_reading.py` and `benchmarks/one_row_one_reading.py`.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import sqlite3
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from hostile_cells import COLUMNS, SCHEMA, UNIT, hostile_texts, hostile_values, ordinary_texts, ordinary_values
from selpe.intake import Table, parse_records, read_table
from selpe.schema import Schema


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tables that should differ in the row of this number alone."""

    tables: Sequence[Table]
    row: int


def differences(pair: Pair) -> list[str]:
    """What differs apart from the hostile row. Fields that a reading named as inferred may, and are left out."""
    if len({len(table) + len(table.broken) for table in pair.tables}) > 1:
        return ["the number of rows"]
    readings = [parse_records(table, SCHEMA, unit=UNIT) for table in pair.tables]
    inferred = {name for reading in readings for name in reading.inferred}
    kept = {entry.name: entry for entry in SCHEMA.fields if entry.name not in inferred}
    rules = () if inferred else SCHEMA.rules
    schema = Schema(name="rest", fields=tuple(kept.values()), rules=rules)
    unit = None if UNIT in inferred else UNIT
    first, second = (by_row(table, schema, unit) for table in pair.tables)
    if first.keys() != second.keys():
        return ["the numbers of rows"]
    return [f"row {row}" for row in first if row != pair.row and first[row] != second[row]]


def by_row(table: Table, schema: Schema, unit: str | None) -> dict[int, str]:
    """Each row's record in full, types included, or '' where it does not fit."""
    if not schema.fields:
        return dict.fromkeys(table.rows, "")
    reading = parse_records(table, schema, unit=unit)
    found = dict.fromkeys([*table.rows, *(row.row for row in table.broken)], "")
    return found | {table.rows[at]: repr(record) for at, record in zip(reading.kept, reading.records, strict=True)}


def _rows(chance: Random, make: Callable[[Random], Any]) -> list[Any]:
    return [make(chance) for _ in range(chance.randint(3, 7))]


# -- csv and tsv -----------------------------------------------------------------------------------------------------

ENCODINGS = (None, None, None, "utf-8", "cp1252", "shift_jis", "gb18030", "utf-16")


def delimited(form: str) -> Callable[[Random, Path], Pair]:
    """Pairs of csv or tsv files, at the level of bytes."""

    def make(chance: Random, folder: Path) -> Pair:
        mark = "\t" if form == "tsv" else chance.choice(",;|")
        stated, end = chance.choice(ENCODINGS), chance.choice(["\n", "\r\n", "\r"])
        of_rows = stated or chance.choice(["utf-8", "cp1252"])
        bom = b"\xef\xbb\xbf" if of_rows == "utf-8" and chance.random() < 0.2 else b""

        def line(cells: Sequence[str], encoding: str = of_rows) -> bytes:
            out = io.StringIO(newline="")
            broken = "\n" in "".join(cells) or "\r" in "".join(cells)
            csv.writer(
                out, delimiter=mark, lineterminator=end, quoting=csv.QUOTE_ALL if broken else csv.QUOTE_MINIMAL
            ).writerow(cells)
            errors = "surrogatepass" if encoding.startswith("utf") else "replace"
            return out.getvalue().encode("utf-16-le" if encoding == "utf-16" else encoding, errors)

        texts = _rows(chance, ordinary_texts)
        lines = [line([row[name] for name in COLUMNS]) for row in texts]
        place = chance.randrange(len(lines))
        hostile = _hostile_line(chance, line, mark, end, wide=of_rows == "utf-16")
        start = bom + (b"\xff\xfe" if of_rows == "utf-16" else b"") + line(COLUMNS)
        changed = [*lines[:place], hostile, *lines[place + 1 :]]
        path, settings = folder / f"t.{form}", {"encoding": stated, "delimiter": None}
        return Pair(_read_both(path, start + b"".join(lines), start + b"".join(changed), settings), place + 2)

    return make


def _hostile_line(chance: Random, line: Callable[..., bytes], mark: str, end: str, *, wide: bool) -> bytes:
    while True:
        cells = list(hostile_texts(chance).values())
        kind = chance.randrange(7)
        if kind == 0:
            cells = chance.choice([cells[:3], [*cells, "more"], [*cells, ""], list(COLUMNS), ["x"]])
        elif kind == 1:
            cells = ["x" * 200_000, *cells[1:]]
        found = line(cells) if wide else line(cells, chance.choice(["utf-8", "cp1252", "shift_jis", "gb18030"]))
        if kind == 2 and not wide:
            found = line(cells, "utf-16-le")
        if kind in (3, 4) and not wide:
            pieces = [b'"x"y', b'a"b"', b"\x81\x8d", b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b"\xed\xa0\x80", b"\xc3",
                      b"ab", b"\x85", b"\xa0", b"\x1b$B", b"+AGE-", mark.encode(), mark.encode()]  # fmt: skip
            found = b"".join(chance.choices(pieces, k=chance.randint(1, 12))) + end.encode()
        if wide or _is_one_row(found, mark):
            return found


def _is_one_row(raw: bytes, mark: str) -> bool:
    """Whether bytes are one row of the grammar: quotes closed, one end, and not blank."""
    text = raw.replace(b"\0", b"").decode("latin-1")
    rows = list(csv.reader(io.StringIO(text + "end\n", newline=""), delimiter=mark))
    blank = len(rows[0]) < 2 and not raw.decode("cp1252", "ignore").replace("\0", "").strip()
    return len(rows) == 2 and rows[1] == ["end"] and not blank and bool(raw.strip(b"\0\xa0\x85 \t\r\n"))


def _read_both(path: Path, first: bytes, second: bytes, settings: Mapping[str, Any]) -> list[Table]:
    tables = []
    for raw in (first, second):
        path.write_bytes(raw)
        tables.append(read_table(path, **settings))
    return tables


# -- JSON ------------------------------------------------------------------------------------------------------------


def respelt(chance: Random, name: str) -> str:
    """Another spelling of a key: of the same field, or of none."""
    return chance.choice(
        [name.upper(), name.title(), f" {name}", f"{name}_", f"-{name}", f"{name}\u200b", "", name * 2]
    )


def _pairs(chance: Random) -> list[tuple[str, str]]:
    """The keys and literal values of a hostile JSON object."""
    literals = ("NaN", "Infinity", "-Infinity", "9" * 400, "9" * 5000, "-" + "9" * 9000, "1e999999999999999999999",
                "2.50", "2.5", "[1]", '{"a": 1, "a": 2}', "[" * 20 + "]" * 20, "null", "true", "1E400")  # fmt: skip
    pairs = []
    for name, text in hostile_texts(chance).items():
        key = respelt(chance, name) if chance.random() < 0.3 else name
        value = (
            chance.choice(literals) if chance.random() < 0.3 else json.dumps(text, ensure_ascii=chance.random() < 0.5)
        )
        pairs += [(key, value)] * (2 if chance.random() < 0.1 else 1)
        if chance.random() < 0.1:
            pairs.append((name.upper(), '"again"'))
    return [pair for pair in pairs if chance.random() < 0.9]


def _hostile_object(chance: Random) -> str:
    kind = chance.randrange(10)
    if kind == 0:
        return chance.choice(
            ["1", '"text"', "null", "[]", "{}", "[{}]", "true", "NaN", '{"x": tru}', "{'a': 1}", "{1: 2}"]
        )
    if kind == 1:
        deep = chance.choice([900, 100_000])
        return f'{{"note": {"[" * deep}{"]" * deep}}}'
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in _pairs(chance)) + "}"


def _hostile_json(chance: Random) -> bytes:
    encoding = chance.choice(["utf-8", "utf-8", "cp1252", "latin-1"])
    raw = _hostile_object(chance).encode(encoding, "surrogatepass" if encoding == "utf-8" else "ignore")
    return raw.replace(b"naive", chance.choice([b"\x81", b"\xff", b"\xed\xa0\x80", b"\xc3", b"naive"]))


def _ordinary_json(chance: Random, encoding: str) -> bytes:
    row: dict[str, object] = dict(ordinary_texts(chance))
    row["level"] = chance.choice(["low", 7, 2.5, True, "007"])
    keys = {name: name.upper() if chance.random() < 0.1 else name for name in row}
    made = json.dumps({keys[name]: cell for name, cell in row.items()}, ensure_ascii=False)
    return made.replace("2.5}", "2.50}").encode(encoding, "replace")


def json_lines(chance: Random, folder: Path) -> Pair:
    """Pairs of JSON lines; a hostile line may be any bytes but a line feed."""
    stated = chance.choice([None, None, "utf-8", "cp1252", "gb18030"])
    lines = [_ordinary_json(chance, stated or chance.choice(["utf-8", "cp1252"])) for _ in range(chance.randint(3, 7))]
    place, hostile = chance.randrange(len(lines)), _hostile_json(chance)
    if chance.random() < 0.3:
        marks = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b'{\0"\0', b"\0", b"\x1b$B", b"+AGE-", b"\x81"]
        hostile = chance.choice(marks) + hostile
    changed = [*lines[:place], hostile.replace(b"\n", b" "), *lines[place + 1 :]]
    tables = _read_both(folder / "t.jsonl", b"\n".join(lines), b"\n".join(changed), {"encoding": stated})
    return Pair(tables, place + 1)


def json_document(chance: Random, folder: Path) -> Pair:
    """Pairs of JSON documents; a hostile element keeps its brackets and quotes closed."""
    stated = chance.choice([None, None, "utf-8", "cp1252"])
    lines = [_ordinary_json(chance, stated or chance.choice(["utf-8", "cp1252"])) for _ in range(chance.randint(3, 7))]
    place = chance.randrange(len(lines))
    changed = [*lines[:place], _hostile_json(chance), *lines[place + 1 :]]
    before, after = chance.choice(
        [(b"[", b"]"), (b'{"data": [', b"]}"), (b'{"n": [1], "rows": [', b'], "x": {"y": []}}')]
    )
    joint = chance.choice([b",", b",\n"])
    documents = [before + joint.join(items) + after for items in (lines, changed)]
    tables = _read_both(folder / "t.json", documents[0], documents[1], {"encoding": stated})
    return Pair(tables, place + 1)


# -- Python values ---------------------------------------------------------------------------------------------------


def _swapped(chance: Random, ordinary: Callable[[Random], Any], hostile: Callable[[Random], Any]) -> tuple[Any, ...]:
    """Rows, the same rows with one replaced, and the number of that row."""
    rows = _rows(chance, ordinary)
    place = chance.randrange(len(rows))
    return rows, [*rows[:place], hostile(chance), *rows[place + 1 :]], place + 1


def mappings(chance: Random, folder: Path) -> Pair:
    """Pairs of lists of dicts."""

    def hostile(chance: Random) -> object:
        if chance.random() < 0.1:
            return chance.choice([None, 5, "text", [1], {}, {1: 2}, {"": 1, " ": 2}])
        row = hostile_values(chance)
        return {respelt(chance, name) if chance.random() < 0.3 else name: cell for name, cell in row.items()}

    first, second, row = _swapped(chance, ordinary_values, hostile)
    return Pair([read_table(first), read_table(second)], row)


def _column_lists(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in COLUMNS}


def csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows([[row[name] for name in COLUMNS] for row in rows])
    return out.getvalue()


def _tame_texts(chance: Random) -> dict[str, str]:
    """A hostile row of texts that pandas and polars can take from a csv file."""
    return {
        name: cell.replace("\0", "").encode("utf-8", "ignore").decode() for name, cell in hostile_texts(chance).items()
    }


def _typed_values(chance: Random) -> dict[str, object]:
    """A row of which a library makes columns of one type each."""
    return {
        "note": f"note {chance.randrange(9)}", "level": chance.choice([7, 7, 2]), "pain": chance.choice([3, 7]),
        "weight": chance.choice([71.5, 2.5]), "seen": chance.random() < 0.5, "day": dt.datetime(2024, 2, 29),
        UNIT: 7,
    }  # fmt: skip


def _typed_hostile(chance: Random) -> dict[str, object]:
    """Another row of types; some cells make a whole column another type, or are missing."""
    row = _typed_values(chance)
    for name in COLUMNS:
        if chance.random() < 0.3:
            row[name] = chance.choice([None, "x", "007", 2**60 + 1, 0.5, float("nan"), True, dt.datetime(2024, 3, 1)])
    return row


def pandas_frame(chance: Random, folder: Path) -> Pair:
    """Pairs of pandas frames: of objects, of strings, and with types inferred from all rows."""
    import pandas as pd

    kind = chance.choice(["objects", "strings", "read", "typed", "nullable", "category"])
    if kind == "objects":
        first, second, row = _swapped(chance, ordinary_values, hostile_values)
        frames = [
            pd.DataFrame({n: pd.Series(c, dtype=object) for n, c in _column_lists(rows).items()})
            for rows in (first, second)
        ]
    elif kind in ("strings", "read"):
        first, second, row = _swapped(chance, ordinary_texts, _tame_texts)
        how: dict[str, Any] = {"dtype": str} if kind == "strings" else {}
        frames = [
            pd.read_csv(io.StringIO(csv_text(rows), newline=""), skip_blank_lines=False, **how)
            for rows in (first, second)
        ]
    else:
        first, second, row = _swapped(chance, _typed_values, _typed_hostile)
        frames = [pd.DataFrame(_column_lists(rows)) for rows in (first, second)]
        if kind == "nullable":
            frames = [frame.convert_dtypes() for frame in frames]
        elif kind == "category":
            frames = [frame.astype({"level": "category", UNIT: "category"}) for frame in frames]
    return Pair([read_table(frame) for frame in frames], row)


def polars_frame(chance: Random, folder: Path) -> Pair:
    """Pairs of polars frames: of strings, of objects, and with types inferred from all rows."""
    import polars as pl

    kind = chance.choice(["strings", "objects", "read", "typed", "category"])
    if kind in ("strings", "read", "category"):
        first, second, row = _swapped(chance, ordinary_texts, _tame_texts)
        if kind == "read":
            files = [io.BytesIO(csv_text(rows).encode()) for rows in (first, second)]
            try:
                frames = [pl.read_csv(file, infer_schema_length=None) for file in files]
            except pl.exceptions.PolarsError:  # no frame, no pair
                return polars_frame(chance, folder)
        else:
            dtype = pl.Categorical if kind == "category" else pl.String
            frames = [
                pl.DataFrame(_column_lists(rows), schema=dict.fromkeys(COLUMNS, dtype)) for rows in (first, second)
            ]
    elif kind == "objects":
        first, second, row = _swapped(chance, ordinary_values, hostile_values)
        frames = [
            pl.DataFrame([pl.Series(n, c, dtype=pl.Object) for n, c in _column_lists(rows).items()])
            for rows in (first, second)
        ]
    else:
        first, second, row = _swapped(chance, _typed_values, _typed_hostile)
        try:
            frames = [pl.DataFrame(_column_lists(rows), strict=False) for rows in (first, second)]
        except (pl.exceptions.PolarsError, TypeError, OverflowError):  # no frame, no pair
            return polars_frame(chance, folder)
    return Pair([read_table(frame) for frame in frames], row)


def parquet(chance: Random, folder: Path) -> Pair:
    """Pairs of Parquet files: of strings, valid or not, and with types that pandas inferred."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "t.parquet"
    tables = []
    if chance.random() < 0.6:
        first, second, row = _swapped(chance, ordinary_texts, hostile_texts)
        for rows in (first, second):
            raw = {n: [text.encode("utf-8", "surrogatepass") for text in c] for n, c in _column_lists(rows).items()}
            columns = {name: pa.array(cells, pa.binary()).view(pa.string()) for name, cells in raw.items()}
            pq.write_table(pa.table(columns), path)
            tables.append(read_table(path))
    else:
        first, second, row = _swapped(chance, _typed_values, _typed_hostile)
        for rows in (first, second):
            cells = {name: _even(column) for name, column in _column_lists(rows).items()}
            pd.DataFrame(cells).to_parquet(path)
            tables.append(read_table(path))
    return Pair(tables, row)


def _even(column: list[Any]) -> list[Any]:
    """A column that Arrow takes: where its types are mixed, all of it as text, as a person would save it."""
    kinds = {type(cell) for cell in column if cell is not None and str(cell) != "nan"}
    mixed = len(kinds) > 1 and not kinds <= {int, float}
    return [None if cell is None else str(cell) for cell in column] if mixed else column


def xlsx(chance: Random, folder: Path) -> Pair:
    """Pairs of Excel sheets."""
    import openpyxl

    first, second, row = _swapped(chance, ordinary_texts, hostile_values)
    tables = []
    for rows in (first, second):
        book = openpyxl.Workbook()
        book.active.append(list(COLUMNS))
        for number, cells in enumerate(rows, start=2):
            for place, name in enumerate(COLUMNS, start=1):
                book.active.cell(number, place).value = _for_excel(cells[name])
            if rows is second and number == row + 1:
                # a row of nothing, or of formulas without results, is no record
                book.active.cell(number, chance.randint(1, len(COLUMNS))).value = "x"
                for _ in range(chance.randrange(3)):
                    book.active.cell(number, len(COLUMNS) + chance.randint(1, 9)).value = chance.choice(["", "x", 5])
        book.save(folder / "t.xlsx")
        tables.append(read_table(folder / "t.xlsx"))
    return Pair(tables, row + 1)


def _for_excel(cell: object) -> Any:
    """The cell, or a formula without a result where no sheet can hold it."""
    if isinstance(cell, str):
        held = all(char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff") for char in cell)
        return cell[:30_000] if held else "=1/0"
    if isinstance(cell, (bool, type(None))) or (isinstance(cell, (int, float)) and abs(cell) < 10**300):
        return cell
    naive = isinstance(cell, dt.date) and cell.year > 1900 and getattr(cell, "tzinfo", None) is None
    return cell if naive or isinstance(cell, dt.time) else "=1/0"


def sql(chance: Random, folder: Path) -> Pair:
    """Pairs of SQLite tables, whose cells may be of any type, and texts of any bytes."""
    first, second, row = _swapped(chance, ordinary_texts, hostile_values)
    tables = []
    for number, rows in enumerate((first, second)):
        path = folder / f"t{number}.db"
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        kinds = ("text", "text", "integer", "real", "boolean", "date", "text")
        names = ", ".join(f"{name} {kind}" for name, kind in zip(COLUMNS, kinds, strict=True))
        connection.execute(f"CREATE TABLE t ({names})")
        for cells in rows:
            slots = ", ".join("CAST(? AS TEXT)" if isinstance(cells[name], str) else "?" for name in COLUMNS)
            connection.execute(f"INSERT INTO t VALUES ({slots})", [_for_sqlite(cells[name]) for name in COLUMNS])
        connection.commit()
        connection.close()
        tables.append(read_table(f"sqlite:///{path}", query="SELECT * FROM t"))
    return Pair(tables, row)


def _for_sqlite(cell: object) -> object:
    if cell is None or isinstance(cell, (float, bytes)) or (isinstance(cell, int) and abs(cell) < 2**63):
        return cell
    return cell.encode("utf-8", "surrogatepass") if isinstance(cell, str) else b"\xff\x81"


READERS: dict[str, Callable[[Random, Path], Pair]] = {
    "csv": delimited("csv"),
    "tsv": delimited("tsv"),
    "json": json_document,
    "jsonl": json_lines,
    "parquet": parquet,
    "xlsx": xlsx,
    "sql": sql,
    "pandas": pandas_frame,
    "polars": polars_frame,
    "mappings": mappings,
}


def make_pair(reader: str, seed: int, folder: Path) -> Pair:
    """The pair of a reader and a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas and openpyxl speak of hostile cells
        return READERS[reader](Random(f"{reader}:{seed}"), folder)
