"""A small table and its draft, for tests of the studio. Its rare and its largest values stand nowhere else."""

from __future__ import annotations

from pathlib import Path

from selpe.cli.init import draft_files

SECRET_VALUE, SECRET_YEAR, SECRET_LENGTH = "quarantined", "2031", 240
HEADER = "case_id,arrived,way,age,low,high,hurt,note,level"


def write_table(folder: Path, rows: int = 60) -> Path:
    """A table of invented visits."""
    ways = ("walked", "driven", SECRET_VALUE)
    lines = [
        f"{900 + i},{SECRET_YEAR}-03-{1 + i % 28:02d},{ways[i % 3]},{20 + i % 50},{60 + i % 20},{110 + i % 30},"
        f"{'yes' if i % 4 == 0 else 'no'},{'word ' * 40}number {i} is like no other,{1 + i % 3}"
        for i in range(rows)
    ]
    path = folder / "visits.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return path


def drafted(folder: Path) -> Path:
    """The settings of a fresh draft, for the fake model."""
    draft_files(str(write_table(folder)), folder)
    config = folder / "selpe.yaml"
    with config.open("a", encoding="utf-8") as file:
        file.write("llm: fake\nencoder: hash\n")
    return config


FORMS: dict[str, dict[str, object]] = {
    "arrived": {"kind": "date", "min": "2030-01-01", "max": "2031-12-31"},
    "way": {"kind": "category", "values": [{"value": "walked"}, {"value": "driven"}, {"value": "quarantined"}]},
    "age": {"kind": "integer", "min": "0", "max": "120", "unit": "years"},
    "low": {"kind": "integer", "min": "20", "max": "200"},
    "high": {"kind": "integer", "min": "40", "max": "300"},
    "hurt": {"kind": "boolean"},
    "note": {"kind": "text", "min_length": "1", "max_length": "300", "description": "What was said"},
    "level": {"kind": "category", "values": [{"value": "1"}, {"value": "2"}, {"value": "3"}]},
}
EXAMPLE = {
    "arrived": "2030-05-06", "way": "walked", "age": "33", "low": "70", "high": "120", "hurt": "no",
    "note": "feels well again", "level": "3",
}  # fmt: skip
