"""What an evaluation looks at: the synthetic table, real tables, and how the run was made, where there is a run.

Private rows are read here as plain records, for attacks and references on their owner's machine. Nothing of them goes
anywhere but into results for `internal/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.config import IN_MEMORY
from selpe.errors import ConfigError, DataError
from selpe.intake import Reading, read_table
from selpe.intake.addresses import with_password
from selpe.intake.options import ReadingOptions
from selpe.report.summarize import Subject
from selpe.report.words import plural
from selpe.run.workspace import Workspace
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.run.lifecycle import Run

_MOST_FIELDS = 5  # kinds of misfit that a note tells
MOST_OUTPUTS = 5_000  # raw outputs whose validity is judged; of more, every so many-th


@dataclass(frozen=True, slots=True, repr=False)
class Material:
    """Everything that is evaluated. Its text form shows only sizes."""

    subject: Subject
    schema: Schema
    synthetic: list[Record]
    invalid: int = 0  # rows of the synthetic table that are not records of the schema
    test: list[Record] | None = None
    private: list[Record] | None = None
    holdout: list[Record] | None = None
    control: list[Record] | None = None
    outputs: list[str] | None = None  # as the model wrote them
    candidates: list[Record] = field(default_factory=list)  # everything the model wrote that is a record
    making: dict[str, Any] | None = None
    folder: Path | None = None  # of the run
    allowed: str | None = None  # the host that private text may be sent to
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Material({self.subject.name!r}, {self.sizes})"

    @property
    def sizes(self) -> dict[str, int]:
        """How many records of each kind take part."""
        tables = {"synthetic": self.synthetic, "test": self.test, "private": self.private, "held-out": self.holdout,
                  "control": self.control}  # fmt: skip
        return {name: len(records) for name, records in tables.items() if records}


def gather(
    synthetic: Any,
    *,
    schema: Schema | None = None,
    test: Any = None,
    private: Any = None,
    holdout: Any = None,
    control: Any = None,
    reading: ReadingOptions | None = None,
) -> Material:
    """The material behind what a caller names: a run (its folder) or a table, and real tables as far as there are any.

    Of a run, schema, test and private table are taken from its settings where they are not given. `private=False`
    leaves the private table alone. `reading` says how all tables are read; of a run, its settings do.
    """
    run = _run_at(synthetic)
    notes: list[str] = []
    if run is None:
        if schema is None:
            raise ConfigError("a table needs its schema", hint="give --schema schema.yaml")
        made, invalid = _readable(synthetic, schema, reading, notes)
        material: dict[str, Any] = {"subject": _stranger(synthetic, schema, len(made) + invalid), "invalid": invalid}
        config: RunConfig | None = None
    else:
        schema, made, material = _of_run(run)
        config = run.config
        test = config.test if test is None else test
        private = _private_of(run, notes) if private is None else private
    if not made:
        raise DataError("no row fits the schema", where=_name(synthetic), hint="Check that this is the right schema.")
    rest = {"test": test, "private": None if private is False else private, "holdout": holdout}
    how = reading or (ReadingOptions() if config is None else replace(ReadingOptions.of(config), unit=None))
    read: dict[str, Any] = {
        what: _real(source, schema, what, config=config, notes=notes, how=how) for what, source in rest.items()
    }
    read["control"] = None if control is None else _control(control, schema)
    _warn_of_overlap(schema, read, notes)
    return Material(schema=schema, synthetic=made, notes=tuple(notes), **material, **read)


# -- runs ------------------------------------------------------------------------------------------------------------


def _run_at(source: Any) -> Run | None:
    """The run behind a folder; None for anything else. Raises ConfigError for a folder that is not a run."""
    from selpe.run.lifecycle import Run

    if isinstance(source, Run):
        return source
    if not isinstance(source, str | Path) or not Path(source).is_dir():
        return None
    if not Workspace(Path(source)).is_run:
        raise ConfigError("this folder is not a run", where=str(source), hint="`selpe runs` lists them")
    return Run.open(Path(source))


def _of_run(run: Run) -> tuple[Schema, list[Record], dict[str, Any]]:
    from selpe.report.making import making

    schema = run.schema
    if run.manifest.get("state") != "done":
        raise ConfigError("this run is not done yet", where=run.name, hint=f"selpe resume {run.folder}")
    made = _released(run, schema)
    try:
        story = making(run.folder, run.manifest)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ConfigError("the run's manifest or log is not as it was written", where=run.name) from None
    config = run.config
    subject = Subject(
        run.name, len(made), len(schema.fields), schema.label, schema.labels, str(run.folder),
        run.manifest.get("private") is True, _spent(run), config.adjacency, config.unit,
    )  # fmt: skip
    more = {
        "making": story, "outputs": _outputs(run.folder), "candidates": _candidates(run.folder, schema),
        "folder": run.folder, "allowed": config.allow_private_text_to,
    }  # fmt: skip
    return schema, made, {"subject": subject, **more}


def _released(run: Run, schema: Schema) -> list[Record]:
    """The records of a release that is as the run has sealed it."""
    from selpe.privacy.sealing import require_whole

    require_whole(run.release, run.manifest)
    path = run.workspace.release.jsonl
    try:
        # Not by splitlines(): a text may hold separators of lines and paragraphs that JSON leaves as they are.
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, ValueError, RecursionError):
        raise ConfigError("the run's release cannot be read", where=str(path)) from None
    if any(not isinstance(record, dict) or schema.check(record) for record in records):
        raise ConfigError("the run's release is not as it was written", where=str(path))
    return records


def _spent(run: Run) -> float | str | None:
    """ε of the run as its card states it, under the neighbour relation that was asked for."""
    try:
        card = json.loads(run.workspace.release.card.read_text(encoding="utf-8"))
        epsilon: float | str = card["guarantee"]["epsilon"][run.config.adjacency.replace("-", "_")]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return epsilon


def _outputs(folder: Path) -> list[str] | None:
    """The raw outputs behind the release; None where a run kept none."""
    found = [text for text in _lines(Workspace(folder).work.raw) if isinstance(text, str)]
    found = found or list(_answers(folder))
    return _spaced(found, MOST_OUTPUTS) or None


def _answers(folder: Path) -> Iterator[str]:
    """Every answer of stage II, as the model wrote it."""
    for line in _lines(Workspace(folder).work.answers):
        if isinstance(line, Mapping) and line.get("stage", "II") == "II" and isinstance(line.get("text"), str):
            yield line["text"]


def _candidates(folder: Path, schema: Schema) -> list[Record]:
    """Everything the model wrote that is a record of the schema."""
    found = []
    for text in _spaced(list(_answers(folder)), MOST_OUTPUTS):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and not schema.check(record):
            found.append(record)
    return found


def _lines(path: Path) -> Iterator[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for line in text.split("\n"):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _private_of(run: Run, notes: list[str]) -> Any:
    """Where the run's private table is; None if it never had a file, or the file is gone."""
    source = run.config.data
    if source == IN_MEMORY or ("://" not in source and not Path(source).is_file()):
        notes.append("The private table has no file or has moved, so no attack was tried: give it as `private`.")
        return None
    return source


# -- tables ----------------------------------------------------------------------------------------------------------


def _readable(
    source: Any, schema: Schema, how: ReadingOptions | None = None, notes: list[str] | None = None
) -> tuple[list[Record], int]:
    """The records of a synthetic table, and how many of its rows are none."""
    how = how or ReadingOptions()
    reading = how.reading(how.table(source), schema)
    if reading.dropped and notes is not None:
        notes.append(_left_out(reading, "synthetic"))
    return reading.records, reading.dropped


def _left_out(reading: Reading, what: str) -> str:
    """How many rows of a table do not fit, and the fields that they fail in, the commonest first. No value is told."""
    worst = sorted(reading.problems, key=lambda problem: len(problem.rows), reverse=True)
    told = [
        f"{len(one.rows):,} in {one.field or 'the row as a whole'} ({one.expected})" for one in worst[:_MOST_FIELDS]
    ]
    more = f"; and {len(worst) - len(told)} other kinds" if len(worst) > len(told) else ""
    said = f"{plural(reading.dropped, 'row')} of the {what} table do not fit the schema and are left out"
    return f"{said}: {'; '.join(told)}{more}." if told else f"{said}."


def _real(
    source: Any, schema: Schema, what: str, *, config: RunConfig | None, notes: list[str], how: ReadingOptions
) -> list[Record] | None:
    """The records of a real table, read as the run reads its own; rows that do not fit are left out and counted."""
    if source is None:
        return None
    own = config is not None and isinstance(source, str) and source == config.data
    if own:
        source = with_password(source)
    # How a file is laid out is told of the run's own table alone, or by a caller for tables that have no run.
    table = how.table(source) if own or config is None else read_table(source)
    reading = how.reading(table, schema)
    if not reading.records:
        raise DataError("no row fits the schema", where=_name(source), hint="`selpe check` lists what is wrong.")
    if reading.dropped:
        notes.append(_left_out(reading, what))
    return [{name: record.get(name) for name in schema.names} for record in reading.records]


def _control(source: Any, schema: Schema) -> list[Record]:
    """The records of a control: a run with ε = 0, or its table."""
    run = _run_at(source)
    if run is None:
        return _readable(source, schema)[0]
    if run.config.epsilon != 0:
        raise ConfigError(
            "a control must be a run with ε = 0",
            where=run.name,
            hint=f"`selpe run --control {run.name}` makes one and spends nothing",
        )
    if run.schema.fingerprint() != schema.fingerprint():
        raise ConfigError("the control has another schema", where=run.name, hint="run it with the same schema file")
    return _released(run, schema)


def _warn_of_overlap(schema: Schema, tables: Mapping[str, Sequence[Record] | None], notes: list[str]) -> None:
    """Rows that were used to make the table must not be used to test it."""
    private = {schema.dumps(record) for record in tables["private"] or ()}
    for what in ("test", "holdout"):
        both = sum(schema.dumps(record) in private for record in tables[what] or ())
        if both:
            said = f"{both:,} of the {len(tables[what] or ()):,} {what} records stand in the private table too"
            notes.append(f"{said}: utility is flattered, and attacks see less than there is.")


def _stranger(source: Any, schema: Schema, rows: int) -> Subject:
    return Subject(_name(source), rows, len(schema.fields), schema.label, schema.labels)


def _name(source: Any) -> str:
    return Path(source).name if isinstance(source, str | Path) else "table"


def _spaced(items: list[Any], most: int) -> list[Any]:
    return items if len(items) <= most else [items[place * len(items) // most] for place in range(most)]
