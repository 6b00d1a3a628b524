"""The result of a SQL query in, through SQLAlchemy."""

from __future__ import annotations

from typing import Any

from selpe.errors import DataError
from selpe.intake.core import Table, attempt, build_table
from selpe.intake.encodings import own_text

_CHUNK = 10_000


def looks_like_url(source: str) -> bool:
    """True for a database URL such as `postgresql://host/db` or `sqlite:///file.db`."""
    scheme, mark, _ = source.partition("://")
    return bool(mark) and scheme.replace("+", "").replace("_", "").isalnum()


def read_sql(url: str, query: str, *, source: str | None = None) -> Table:
    """A table from one query. Nothing is written: the transaction is read-only where the server can, and undone."""
    try:
        import sqlalchemy
    except ImportError:
        sqlalchemy = None  # type: ignore[assignment]
    if sqlalchemy is None:
        raise DataError("reading a SQL query needs SQLAlchemy", hint="pip install 'selpe[sql]'")
    parsed = attempt(
        lambda: sqlalchemy.make_url(url),
        lambda _: DataError("the database URL cannot be understood", hint="Write it as dialect://user@host/database."),
    )
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    name = source or _public_name(parsed)

    def failed(kind: str) -> DataError:
        return DataError(
            f"the database did not answer the query ({kind})",
            where=name,
            hint="Try the query in the database's own shell; its messages are not repeated here because they "
            "can quote values.",
        )

    engine = attempt(lambda: sqlalchemy.create_engine(parsed, hide_parameters=True), failed)
    try:
        return attempt(lambda: _run(engine, sqlalchemy.text(query), name), failed)
    finally:
        engine.dispose()


def _run(engine: Any, statement: Any, source: str) -> Table:
    options = {"postgresql_readonly": True} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**options) as connection:
        _forgive(engine.dialect.driver, connection.connection.driver_connection)
        result = connection.execute(statement)
        if not result.returns_rows:
            raise DataError("the query returns no rows", where=source, hint="Give a SELECT.")
        rows: list[tuple[int, tuple[object, ...]]] = []
        while chunk := result.fetchmany(_CHUNK):
            rows += [(number, tuple(row)) for number, row in enumerate(chunk, start=len(rows) + 1)]
        names = list(result.keys())
        connection.rollback()
    return build_table(names, rows, source=source, counting="record")


def _forgive(driver: str, connection: Any) -> None:
    """Makes a driver convert each value by itself; otherwise one value that it cannot convert would end the query."""
    if driver == "pysqlite":
        connection.text_factory = own_text  # SQLite keeps any bytes as text
    elif driver == "psycopg":
        from psycopg.types import datetime as days

        for name, loader in {
            "date": days.DateLoader,
            "timestamp": days.TimestampLoader,
            "timestamptz": days.TimestamptzLoader,
        }.items():
            connection.adapters.register_loader(name, _forgiving(loader))


def _forgiving(loader: Any) -> Any:
    """A loader of days that gives the text of days that Python does not have: 'infinity', or after the year 9999."""

    def load(self: Any, data: Any) -> object:
        try:
            return loader.load(self, data)
        except Exception:
            return own_text(bytes(data))

    return type(loader.__name__, (loader,), {"load": load})


def _public_name(url: Any) -> str:
    place = f"{url.host}/" if url.host else ""
    return f"{url.get_backend_name()}:{place}{url.database or ''}"
