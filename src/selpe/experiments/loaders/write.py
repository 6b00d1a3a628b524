"""A data set on disk: private.csv, validation.csv, test.csv, reserve.csv, schema.yaml, settings, and what was done."""

from __future__ import annotations

from pathlib import Path

from selpe.errors import ConfigError
from selpe.experiments.loaders.base import Loader
from selpe.experiments.loaders.load import LoadedDataset
from selpe.experiments.loaders.split import SIDES
from selpe.intake import write_table
from selpe.owner_only import make_folder, write_text
from selpe.schema import Schema

_ROLE = {
    "private": "what a method may learn from, under its guarantee",
    "validation": "for choices of ours; final figures do not use it",
    "test": "final figures",
    "reserve": "real rows that no side needs: the control 'as many real rows'",
}
_UNLABELLED = 5  # classes that a table without a label counts as
_SETTINGS = """\
dataset: {name}
data: private.csv
test: test.csv
schema: schema.yaml
epsilon: 2
records: {records}
"""


def write(loaded: LoadedDataset, folder: Path, *, loader: Loader | None = None, seed: int = 0) -> None:
    """Writes a data set into a folder: a file per side that has rows, the schema last."""
    try:
        make_folder(folder)
        for side in SIDES:
            if loaded.sides[side]:
                write_table(loaded.sides[side], loaded.schema, folder / f"{side}.csv")
        settings = _SETTINGS.format(name=loaded.name, records=20 * (len(loaded.schema.labels) or _UNLABELLED))
        write_text(folder / "selpe.yaml", settings)
        write_text(folder / "README.md", readme(loaded, loader, seed))
        loaded.schema.save(folder / "schema.yaml")  # last: a folder with a schema is complete
    except OSError as error:
        raise ConfigError(f"the folder cannot be written ({error.strerror})", where=str(folder)) from None


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds a data set that was written here."""
    return (folder / "schema.yaml").is_file() and (folder / "private.csv").is_file()


def load_schema(folder: Path) -> Schema:
    """The schema of a folder that was written here."""
    return Schema.load(folder / "schema.yaml")


def readme(loaded: LoadedDataset, loader: Loader | None, seed: int) -> str:
    """What is in the folder, and what was done to get there, with counts."""
    schema = loaded.schema
    lines = [
        f"# {loaded.title}",
        "",
        f"Written by `selpe data {loaded.name}` with seed {seed} from {loaded.rows:,} rows. "
        f"{'There is no label' if schema.label is None else f'The class is `{schema.label}`'}.",
        "",
        f"| {' | '.join(('file', *schema.labels, 'all', 'what it is for'))} |",
        f"|---|{'---|' * len(schema.labels)}---|---|",
    ]
    for side in SIDES:
        counts = (*loaded.counts(side).values(), len(loaded.sides[side]))
        lines.append(f"| `{side}.csv` | {' | '.join(map(str, counts))} | {_ROLE[side]} |")
    lines += ["", f"Fields: {', '.join(schema.names)}."]
    if loader is not None:
        lines += ["", f"Rows that belong together stay on one side: {loader.grouping}."]
        if loader.leaks:
            there = [name for name in loader.leaks if name in schema.names]
            said = f"kept: {', '.join(there)}" if there else f"left out: {', '.join(loader.leaks)}"
            lines += ["", f"Fields that give the class away, {said}. {loader.about_leaks}"]
    for note in loaded.notes:
        lines += ["", note]
    if loaded.dirt:
        lines += ["", "What was not as it should be, among the rows that the splits were drawn from:", ""]
        lines += ["| what | how often |", "|---|---|"]
        lines += [f"| {what} | {count:,} |" for what, count in sorted(loaded.dirt.items())]
    lines += ["", "The examples in `schema.yaml` are made up. The tables are real records: mind their licence.", ""]
    return "\n".join(lines)
