"""pandas and polars frames in."""

from __future__ import annotations

from typing import Any

from selpe.errors import DataError
from selpe.table.core import Table, attempt


def frame_library(source: object) -> str:
    """'pandas' or 'polars' when `source` is a frame of theirs, else ''. Imports neither."""
    kind = type(source)
    library = kind.__module__.partition(".")[0]
    return library if library in ("pandas", "polars") and kind.__name__ in ("DataFrame", "LazyFrame") else ""


def from_frame(frame: Any, source: str) -> Table:
    """A table from a pandas or polars frame."""
    library = frame_library(frame)
    load = _from_pandas if library == "pandas" else _from_polars

    def failed(kind: str) -> DataError:
        return DataError(f"the {library} frame cannot be read ({kind})", where=source, hint="Check its columns.")

    return attempt(lambda: load(frame, source), failed)


def _from_pandas(frame: Any, source: str) -> Table:
    columns = []
    for position in range(frame.shape[1]):
        series = frame.iloc[:, position]
        cells = series.astype(object)
        columns.append(cells.where(series.notna(), None).tolist())
    return _table([str(name) for name in frame.columns], columns, len(frame), source)


def _from_polars(frame: Any, source: str) -> Table:
    frame = frame.collect() if hasattr(frame, "collect") else frame
    return _table(list(frame.columns), [series.to_list() for series in frame.get_columns()], len(frame), source)


def _table(names: list[str], columns: list[list[object]], rows: int, source: str) -> Table:
    return Table(
        columns=tuple(" ".join(name.split()) for name in names),
        data=tuple(columns),
        rows=tuple(range(1, rows + 1)),
        source=source,
    )
