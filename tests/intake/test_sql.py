"""Queries on SQLite, and on a real PostgreSQL server that the test starts itself."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selpe.errors import DataError
from selpe.intake import parse_records, read_table, to_records
from selpe.schema import Schema

pytest.importorskip("sqlalchemy")

SCHEMA = Schema.from_dict(
    {
        "name": "desk",
        "fields": {
            "note": {"kind": "text"},
            "pain": {"kind": "integer", "min": 0, "max": 10, "optional": True},
            "weight": {"kind": "number", "min": 0, "max": 200, "step": 0.1},
            "seen": {"kind": "boolean"},
            "day": {"kind": "date", "min": "2020-01-01", "max": "2030-12-31"},
        },
    }
)
RECORDS = [
    {"note": "cut", "pain": 3, "weight": 71.5, "seen": True, "day": "2024-02-29"},
    {"note": "marker8141", "pain": None, "weight": 60.2, "seen": False, "day": "2024-03-01"},
]
TABLE = """
CREATE TABLE visits (note text, pain integer, weight numeric(5, 1), seen boolean, day date);
INSERT INTO visits VALUES ('cut', 3, 71.5, true, '2024-02-29'), ('marker8141', NULL, 60.2, false, '2024-03-01');
"""


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    connection = sqlite3.connect(tmp_path / "desk.db")
    connection.executescript(TABLE)
    connection.close()
    return f"sqlite:///{tmp_path / 'desk.db'}"


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A server on a socket in a folder of its own; PostgreSQL refuses to run as root, so another user runs it."""
    pytest.importorskip("psycopg")
    found = shutil.which("initdb") or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None
    )
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    bin_folder = Path(found).parent
    folder = Path(tempfile.mkdtemp(prefix="selpe-pg-"))
    other: dict[str, Any] = {}
    if os.geteuid() == 0:
        names = {entry.pw_name: entry for entry in pwd.getpwall()}
        owner = names.get("postgres") or names.get("nobody")
        if owner is None:
            pytest.skip("PostgreSQL does not run as root, and there is no user to run it")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        other = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder} | other
    data = folder / "data"
    subprocess.run([found, "-D", data, "-A", "trust", "-U", "desk", "-N", "-E", "UTF8"], check=True, **quiet)
    server = subprocess.Popen(
        [bin_folder / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"], **quiet
    )
    try:
        url = f"postgresql://desk@/postgres?host={folder}"
        _wait_and_fill(folder)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=300)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_and_fill(folder: Path) -> None:
    import psycopg

    for _ in range(200):
        try:
            with psycopg.connect(host=str(folder), user="desk", dbname="postgres", autocommit=True) as connection:
                connection.execute(TABLE.encode())
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    pytest.fail("PostgreSQL did not start")


def test_a_query_on_sqlite_is_read(sqlite_url: str) -> None:
    table = read_table(sqlite_url, query="SELECT * FROM visits ORDER BY day")
    assert to_records(table, SCHEMA) == RECORDS
    assert table.source.startswith("sqlite:")
    assert table.rows == (1, 2)


def test_a_query_on_postgresql_is_read(postgres_url: str) -> None:
    table = read_table(postgres_url, query="SELECT * FROM visits ORDER BY day")
    assert to_records(table, SCHEMA) == RECORDS
    assert table.source == "postgresql:postgres"


def test_a_day_that_python_has_not_is_its_own_rows_problem(postgres_url: str) -> None:
    values = "(1, date '2024-02-29', timestamptz '2024-02-29'), (2, 'infinity', 'infinity'), (3, '12024-1-1', null)"
    table = read_table(postgres_url, query=f"SELECT a, b, c FROM (VALUES {values}) AS t (a, b, c) ORDER BY a")
    schema = Schema.from_dict(
        {
            "name": "x",
            "fields": {"b": {"kind": "date", "min": "2020-01-01", "max": "2030-12-31"}, "a": {"kind": "text"}},
        }
    )
    assert parse_records(table, schema).kept == (0,)
    assert str(table.column("c")[0])[:10] == "2024-02-29"


def test_text_of_other_bytes_in_sqlite_is_its_own_rows_business(sqlite_url: str) -> None:
    texts = "SELECT 1 AS a, 'café' AS b UNION SELECT 2, CAST(x'636166e9' AS text) ORDER BY a"
    assert read_table(sqlite_url, query=texts).column("b") == ["café", "café"]


def test_a_query_cannot_write_to_postgresql(postgres_url: str) -> None:
    with pytest.raises(DataError, match="did not answer"):
        read_table(postgres_url, query="DELETE FROM visits RETURNING *")
    assert len(read_table(postgres_url, query="SELECT * FROM visits")) == 2


def test_a_query_leaves_sqlite_as_it_was(sqlite_url: str) -> None:
    with pytest.raises(DataError, match="returns no rows"):
        read_table(sqlite_url, query="DELETE FROM visits")
    assert len(read_table(sqlite_url, query="SELECT * FROM visits")) == 2


def test_the_servers_own_message_which_quotes_values_is_not_repeated(postgres_url: str) -> None:
    with pytest.raises(DataError) as caught:
        read_table(postgres_url, query="SELECT CAST(note AS integer) FROM visits WHERE pain IS NULL")
    assert "marker8141" not in repr((caught.value.args, caught.value.hint))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "query", "said"),
    [
        ("sqlite://", None, "needs a query"),
        ("sqlite://", "SELEKT", "did not answer"),
        ("nosuch://x/y", "SELECT 1", "did not answer"),
        ("postgresql://u:secretword@127.0.0.1:1/x", "SELECT 1", "did not answer"),
        ("sqlite:///absent/folder/x.db", "SELECT 1", "did not answer"),
    ],
)
def test_databases_that_cannot_answer_are_refused_without_their_password(
    url: str, query: str | None, said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read_table(url, query=query)
    assert "secretword" not in repr((str(caught.value), caught.value.args, caught.value.hint, caught.value.where))
    assert caught.value.hint
