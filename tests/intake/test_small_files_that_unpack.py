"""A small file that unpacks to more than a machine holds is refused, in the command line and in Python, with few means.

Each attack runs in a process of its own that tells how much processor time and memory it took.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hostile_files import HOSTILE, hostile_file
from selpe.errors import DataError
from selpe.intake import read_table
from small_world import SCHEMA

MOST_SECONDS = (
    5  # of processor time above that of the same process on a good file, so that a busy machine does not count
)
MOST_MEMORY = 300  # MB
# The most memory that a process ever had; that of `getrusage` begins with what its parent had.
MEASURED = """
import atexit, os, sys, time
def told():
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("used", time.process_time(), int(peak) // 1024, file=sys.stderr)
atexit.register(told)
"""
READ = (
    MEASURED
    + """
import selpe
from selpe.errors import SelPEError
try:
    table = selpe.read_table(sys.argv[1])
    assert not len(table), "this was read"
except SelPEError as error:
    print(error)
    sys.exit(int(error.exit_code))
sys.exit(2)
"""
)
COMMAND = (
    MEASURED
    + """
from selpe.cli import main
main()
"""
)
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process used")


def ended(program: str, *arguments: str, folder: Path) -> tuple[int, str, float, int]:
    """Exit code, what was said, seconds and MB."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", cwd=folder, timeout=500, check=False
    )
    _, seconds, memory = done.stderr.strip().splitlines()[-1].split()
    return done.returncode, done.stdout + done.stderr, float(seconds), int(memory)


@only_linux
@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_in_python(name: str, tmp_path: Path) -> None:
    path = hostile_file(name, tmp_path)
    assert path.stat().st_size < 2_000_000
    code, said, seconds, memory = ended(READ, str(path), folder=tmp_path)
    assert code == 2, said
    assert "Traceback" not in said
    assert memory < MOST_MEMORY
    assert seconds < MOST_SECONDS + 3  # to import what reads tables


@only_linux
@pytest.mark.parametrize(
    ("command", "name"),
    [("init", "far-row.xlsx"), ("init", "nulls.parquet"), ("check", "keys.jsonl"), ("check", "bomb.xlsx"),
     ("run", "dictionary.parquet"), ("evaluate", "keys.json")],
)  # fmt: skip
def test_it_is_refused_by_the_commands(command: str, name: str, tmp_path: Path) -> None:
    path = hostile_file(name, tmp_path)
    SCHEMA.save(tmp_path / "schema.yaml")
    (tmp_path / "settings.yaml").write_text(f"data: {name}\nschema: schema.yaml\ndataset: t\nepsilon: 1\nllm: fake\n")
    arguments = {
        "init": ["init", path.name, "--out", "new"],
        "check": ["check", "--data", path.name, "--schema", "schema.yaml"],
        "run": ["run", "settings.yaml", "--yes"],
        "evaluate": ["evaluate", path.name, "--schema", "schema.yaml"],
    }[command]
    code, said, seconds, memory = ended(COMMAND, *arguments, folder=tmp_path)
    assert code == 2, said
    assert "Traceback" not in said
    assert "unpacks to far more" in said or "different fields" in said or "far outside" in said
    assert memory < MOST_MEMORY
    assert seconds < MOST_SECONDS + 5


# -- what is no attack ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["xlsx", "parquet", "jsonl", "json", "csv"])
def test_a_table_of_5000_rows_that_says_the_same_in_each_is_read(form: str, tmp_path: Path) -> None:
    import pandas as pd

    note = "The patient came by foot and feels well; nothing else was seen. " * 6
    frame = pd.DataFrame({f"c{i}": ["yes" if i % 3 else note] * 5000 for i in range(9)} | {"n": range(5000)})
    path = tmp_path / f"t.{form}"
    if form == "xlsx":
        frame = frame.head(1500)
        frame.to_excel(path, index=False)
    elif form == "parquet":
        frame.to_parquet(path)
    elif form == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=form == "jsonl")
    table = read_table(path)
    assert len(table) == len(frame)
    assert not table.broken
    assert list(table.column("c0")) == [note] * len(frame) or list(table.column("c0")) == list(frame["c0"])


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "binary", "dictionary"])
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY"])
def test_texts_of_a_parquet_file_are_read_however_they_are_kept(kind: str, encoding: str, tmp_path: Path) -> None:
    if (kind, encoding) == ("dictionary", "DELTA_BYTE_ARRAY"):
        pytest.skip("Arrow writes such a file and cannot read it")
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["one", "one more", None, "", "é"] * 50
    column = pa.array(texts).dictionary_encode() if kind == "dictionary" else pa.array(texts).cast(kind)
    named = encoding == "RLE_DICTIONARY"
    how = {} if named else {"column_encoding": {"a": encoding}}
    pq.write_table(pa.table({"a": column}), tmp_path / "t.parquet", use_dictionary=named, **how)
    found = [
        cell.decode() if isinstance(cell, bytes) else cell for cell in read_table(tmp_path / "t.parquet").column("a")
    ]
    assert found == texts


def test_a_sheet_with_an_empty_million_of_rows_is_read(tmp_path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.active.append(["1", "2"])
    book.active["A1048576"] = "3"
    book.active["B1048576"] = "4"
    book.save(tmp_path / "t.xlsx")
    assert list(read_table(tmp_path / "t.xlsx").rows) == [2, 1_048_576]


def test_a_refusal_names_no_cell(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        read_table(hostile_file("keys.jsonl", tmp_path))
    assert "k11999" not in str(refused.value)
    assert refused.value.hint
