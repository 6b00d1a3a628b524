"""pandas and polars frames in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selpe.errors import DataError
from selpe.intake.core import Table, attempt, cells_of, plain_name


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
    columns = [frame.iloc[:, position] for position in range(frame.shape[1])]
    return Table(
        columns=tuple(plain_name(str(name)) for name in frame.columns),
        data=tuple(_pandas_cells(series) for series in columns),
        rows=tuple(range(1, len(frame) + 1)),
        source=source,
        typed=tuple(
            plain_name(str(name))
            for name, series in zip(frame.columns, columns, strict=True)
            if not _as_written(series.dtype)
        ),
    )


def _pandas_cells(series: Any) -> Sequence[object]:
    def part(start: int, stop: int) -> Sequence[object]:
        cells = series.iloc[start:stop]
        found: list[object] = cells.astype(object).where(cells.notna(), None).tolist()
        return found

    return cells_of(part, len(series))


def _as_written(dtype: Any) -> bool:
    """True where each cell of a pandas column is of its own kind, or a text, so no other row can change it."""
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):  # equal categories are one: 2.5 and 2.50, 1 and True
        return all(isinstance(category, str) for category in dtype.categories)
    return bool(pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype))


def _from_polars(frame: Any, source: str) -> Table:
    import polars as pl

    frame = frame.collect() if hasattr(frame, "collect") else frame
    written = (pl.String, pl.Categorical, pl.Enum, pl.Object, pl.Null)
    columns = frame.get_columns()
    return Table(
        columns=tuple(plain_name(name) for name in frame.columns),
        data=tuple(_polars_cells(series) for series in columns),
        rows=tuple(range(1, len(frame) + 1)),
        source=source,
        typed=tuple(plain_name(series.name) for series in columns if series.dtype not in written),
    )


def _polars_cells(series: Any) -> Sequence[object]:
    def part(start: int, stop: int) -> Sequence[object]:
        found: list[object] = series[start:stop].to_list()
        return found

    return cells_of(part, len(series))
