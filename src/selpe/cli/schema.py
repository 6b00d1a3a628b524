"""`selpe schema`: show a schema, write it as JSON Schema or as a grammar, and check a file of records."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selpe.cli.console import emit, json_mode, out
from selpe.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from selpe.evaluation.validity import ValidityReport
    from selpe.schema import Field, Schema, Value, Violation

SchemaFile = Annotated[Path, typer.Argument(metavar="[SCHEMA]", help="The schema: YAML, or JSON Schema (.json).")]
_DEFAULT = Path("schema.yaml")


def register(app: typer.Typer) -> None:
    """Adds `selpe schema show|json|grammar|validate`."""
    topic = typer.Typer(no_args_is_help=True, help="Show a schema, turn it into other forms, and judge records by it.")
    topic.command("show")(show)
    topic.command("json")(write_json)
    topic.command("grammar")(grammar)
    topic.command("validate")(validate)
    app.add_typer(topic, name="schema")


def _load(path: Path) -> Schema:
    from selpe.schema import Schema

    return Schema.load(path)


# -- show ----------------------------------------------------------------------------------------------------------


def show(schema: SchemaFile = _DEFAULT) -> None:
    """Show the fields, their domains, the label, the rules, and what must still be confirmed."""
    loaded = _load(schema)
    if json_mode():
        emit(loaded.to_dict() | {"fingerprint": loaded.fingerprint(), "unconfirmed": list(loaded.unconfirmed)})
        return
    _line(f"{loaded.name}: {loaded.description}" if loaded.description else loaded.name, style="bold")
    rows = [_row(field, loaded) for field in loaded.fields]
    if out().is_terminal:
        _table(rows)
    else:
        for row in rows:
            _line("  ".join(cell for cell in row if cell))
    _line(f"label: {loaded.label} ({len(loaded.labels)} classes)" if loaded.label else "label: none")
    for rule in loaded.rules:
        _line(f"rule: {rule.text}")
    _line(f"made-up example records: {len(loaded.examples)}")
    if loaded.unconfirmed:
        _line(f"not confirmed as public yet: {', '.join(loaded.unconfirmed)}", style="yellow")
    else:
        _line("every field is confirmed as public", style="green")


def _row(field: Field, schema: Schema) -> tuple[str, ...]:
    notes = [
        "label" if field.name == schema.label else "",
        "optional" if field.optional else "",
        "" if field.confirmed else "not confirmed",
    ]
    unit = f" {unit}" if (unit := getattr(field, "unit", "")) else ""
    return field.name, field.kind, f"{field.expected}{unit}", ", ".join(filter(None, notes)), field.description


def _table(rows: list[tuple[str, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("field", "kind", "domain", "notes", "description", show_lines=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out().print(table)


def _line(text: str, style: str | None = None) -> None:
    # Names, patterns and rules may hold square brackets, which must not be read as markup.
    out().print(text, style=style, markup=False)


# -- other forms ---------------------------------------------------------------------------------------------------


def write_json(
    schema: SchemaFile = _DEFAULT,
    *,
    fixed: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=VALUE", help="Make a field a constant, e.g. the class.")
    ] = None,
) -> None:
    """Write the JSON Schema that constrained decoding obeys."""
    loaded = _load(schema)
    constants = dict(_constant(loaded, pair) for pair in fixed or [])
    content = loaded.to_json_schema(fixed=constants)
    typer.echo(json.dumps(content, ensure_ascii=False, indent=None if json_mode() else 2))


def _constant(schema: Schema, pair: str) -> tuple[str, Value]:
    """A field and the value it is fixed to, from 'field=value'."""
    from selpe.evaluation.lexical import literal_of

    name, separator, text = pair.partition("=")
    if not separator:
        raise ConfigError("--fixed must look like field=value", hint="For example --fixed acuity=2.")
    field = schema.field(name.strip())
    value = literal_of(field, text.strip())
    if field.check(value) is not None:
        raise ConfigError(f"the value of --fixed must be {field.expected}", where=f"field '{field.name}'")
    return field.name, value


def grammar(
    schema: SchemaFile = _DEFAULT,
    *,
    rough: Annotated[
        bool, typer.Option("--rough/--strict", help="R-CFG (fields in free text) or S-CFG (one JSON object).")
    ] = False,
) -> None:
    """Write the Lark grammar that checks raw model output."""
    from selpe.evaluation.grammar import rough_grammar, strict_grammar

    loaded = _load(schema)
    text = rough_grammar(loaded) if rough else strict_grammar(loaded)
    if json_mode():
        emit({"grammar": "rough" if rough else "strict", "text": text})
    else:
        typer.echo(text, nl=False)


# -- validate ------------------------------------------------------------------------------------------------------


def validate(
    records: Annotated[Path, typer.Argument(metavar="FILE", help="Records or raw outputs: jsonl, csv, parquet, …")],
    *,
    schema: Annotated[Path, typer.Option(help="The schema to judge by.")] = _DEFAULT,
    limit: Annotated[int, typer.Option(min=0, help="How many violations to list; 0 lists all.")] = 20,
) -> None:
    """Check every record of a file; exit code 0 when all are valid, 2 otherwise. No value is ever shown."""
    from selpe.evaluation.outputs import read_outputs
    from selpe.evaluation.validity import tally, validator

    loaded = _load(schema)
    judge = validator(loaded)
    outputs = read_outputs(records, loaded)
    verdicts = [(judge.rough(raw), judge.strict(raw)) for _, raw in outputs]
    report = tally(verdicts)
    found = [
        (row, violation)
        for (row, _), (_, verdict) in zip(outputs, verdicts, strict=True)
        for violation in verdict.violations
    ]
    if json_mode():
        emit(report.as_dict() | {"valid": not found, "found": [_plain(row, violation) for row, violation in found]})
    else:
        _render(records, report, found, limit)
    if found:
        sys.exit(ExitCode.BAD_INPUT)


_LEVELS = {
    "rough": "every required field readable (R-CFG)",
    "syntax": "one JSON object, right keys and types (S-CFG)",
    "domain": "… and values in their domains",
    "rules": "… and all rules hold",
}


def _render(records: Path, report: ValidityReport, found: list[tuple[int, Violation]], limit: int) -> None:
    _line(f"{records.name}: {report.total:,} records")
    for level, words in _LEVELS.items():
        _line(f"  {words:<48}{report.counts[level]:>8,}  {report.rate(level):7.1%}")
    shown = found[: limit or None]
    for row, violation in shown:
        _line(f"row {row}: {_said(violation)}")
    if len(found) > len(shown):
        _line(f"… and {len(found) - len(shown):,} more; --limit 0 lists all")


def _said(violation: Violation) -> str:
    whole = not violation.field and not violation.rule
    return f"the record must be {violation.expected}" if whole else violation.message


def _plain(row: int, violation: Violation) -> dict[str, Any]:
    return {
        "row": row,
        "field": violation.field,
        "level": violation.level,
        "expected": violation.expected,
        "rule": violation.rule,
    }
