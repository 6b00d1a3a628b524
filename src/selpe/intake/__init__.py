"""Tables in and out: csv, tsv, jsonl, json, parquet, xlsx, pandas and polars frames, SQL queries.

`read_table` gives raw cells, `to_records` reads them under a schema, `write_table`, `to_frame` and
`to_polars` write records.
"""

from selpe.intake.core import Table
from selpe.intake.read import read_table
from selpe.intake.records import Reading, RowProblem, inferred_fields, parse_records, to_records
from selpe.intake.write import to_frame, to_polars, write_table

__all__ = [
    "Reading",
    "RowProblem",
    "Table",
    "inferred_fields",
    "parse_records",
    "read_table",
    "to_frame",
    "to_polars",
    "to_records",
    "write_table",
]
