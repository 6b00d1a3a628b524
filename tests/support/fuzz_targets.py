"""What is fuzzed: every parser of bytes that others write. Each target takes any bytes, and fails by raising.

Our own errors are answers; any other one is a find. `tests/fuzz/test_fuzz.py` replays the corpus and simple mutations
of it; `tests/fuzz/guided.py` (`make fuzz`) mutates by the branches that are reached, with atheris.
"""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache

from selpe.errors import SelPEError
from selpe.evaluation.validity import Validator
from selpe.intake import parse_records
from selpe.intake.binary import read_parquet, read_xlsx
from selpe.intake.core import Table
from selpe.intake.draft import draft_schema
from selpe.intake.objects import read_json, read_jsonl
from selpe.intake.text import read_delimited
from selpe.method.guides import Form
from selpe.method.record_forms import line_grammar, parse, progress, stated
from selpe.method.record_steps import consistent
from selpe.schema import Record, Schema
from selpe.schema.narrowing import Narrowing
from selpe.schema.patterns import PatternError, matcher
from selpe.schema.rules import Rule

SCHEMA = Schema.from_dict(
    {
        "name": "fuzzed",
        "label": "c",
        "fields": {
            "a": {"kind": "integer", "min": 0, "max": 99},
            "b": {"kind": "text", "optional": True, "pattern": "(?:[a-z]+ ?)*"},
            "c": {"kind": "category", "values": ["yes", "no"]},
            "d": {"kind": "date", "min": "2020-01-01", "max": "2030-12-31", "optional": True},
            "e f": {"kind": "number", "min": 0, "max": 1, "optional": True},
            "g": {"kind": "boolean", "optional": True},
        },
        "rules": ["if g == true then a > 3"],
    }
)
RECORD: Record = {"a": 7, "b": "a text", "c": "yes", "d": "2024-01-31", "e f": 0.5, "g": True}
NARROWING = Narrowing(SCHEMA)
Target = Callable[[bytes], None]


def _used(table: Table) -> None:
    """What every table goes through: a reading under a schema, and a draft that can be read again."""
    _answered(lambda: parse_records(table, SCHEMA, blank_bad_cells=True))
    _answered(lambda: Schema.from_yaml(draft_schema(table).to_yaml()))


def _answered(act: Callable[[], object]) -> None:
    found: SelPEError | None = None
    try:
        act()
    except SelPEError as error:
        found = error
    # An error of a library, kept as context, would carry what it stumbled over.
    assert found is None or found.message


def _csv(data: bytes) -> None:
    _answered(lambda: _used(read_delimited(data, "t.csv", encoding=None, delimiter=None)))


def _jsonl(data: bytes) -> None:
    _answered(lambda: _used(read_jsonl(data, "t.jsonl", encoding=None)))


def _json(data: bytes) -> None:
    _answered(lambda: _used(read_json(data, "t.json", encoding=None)))


def _parquet(data: bytes) -> None:
    _answered(lambda: _used(read_parquet(data, "t.parquet")))


def _xlsx(data: bytes) -> None:
    _answered(lambda: _used(read_xlsx(data, "t.xlsx", sheet=None)))


def _sheet(data: bytes) -> None:
    """The XML of a sheet in a workbook that is whole: a mutated zip hardly ever lets any of it through."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for name, part in _workbook().items():
            target.writestr(name, data if name == "xl/worksheets/sheet1.xml" else part)
    _xlsx(made.getvalue())


@lru_cache(maxsize=1)
def _workbook() -> Mapping[str, bytes]:
    import openpyxl

    made = io.BytesIO()
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.save(made)
    with zipfile.ZipFile(made) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _schema_yaml(data: bytes) -> None:
    """A schema, which must mean the same when it is written and read again."""

    def act() -> None:
        schema = Schema.from_yaml(data.decode("utf-8", "replace"))
        assert Schema.from_yaml(schema.to_yaml()).fingerprint() == schema.fingerprint()
        schema.check(RECORD)

    _answered(act)


def _schema_json(data: bytes) -> None:
    def act() -> None:
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(content, dict):
            Schema.from_json_schema(content).check(RECORD)

    _answered(act)


def _rule(data: bytes) -> None:
    """A rule about the fields, read and asked of a record."""
    _answered(lambda: Rule.parse(data.decode("utf-8", "replace"), SCHEMA.fields).holds(RECORD))


def _pattern(data: bytes) -> None:
    """A pattern, a line feed and a text. Where neither repeats anything, `re` must say the same of it."""
    pattern, _, text = data.decode("utf-8", "replace").partition("\n")
    try:
        found = matcher(pattern).matches(text)
    except PatternError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(re.findall(r"[*+{]", pattern)) < 2 and len(text) < 100:
            assert found == (re.fullmatch(pattern, text) is not None)


@lru_cache(maxsize=1)
def _validator() -> Validator:
    return Validator(SCHEMA)


def _answer(data: bytes) -> None:
    """An answer of a model, judged by both grammars. What the strict one accepts, the rough one reads too."""
    text = data.decode("utf-8", "replace")
    strict, rough = _validator().strict(text), _validator().rough(text)
    assert not strict.ok or (strict.record is not None and not SCHEMA.check(strict.record) and rough.ok)
    _validator().extract(text)


def _form(data: bytes) -> None:
    """A record that is being written, as JSON or as lines."""
    text = data.decode("utf-8", "replace")
    forms: tuple[Form, ...] = ("json", "lines")
    for form in forms:
        found = parse(SCHEMA, text, form)
        if found is not None:
            SCHEMA.check(found)
        progress(SCHEMA, text, form)


def _notes(data: bytes) -> None:
    """Notes of stage I: what they state is valid, and what of it goes together obeys the rules."""
    text = " ".join(data.decode("utf-8", "replace").split())
    for whole in (True, False):
        found = stated(SCHEMA, text, whole=whole)
        for name, value in found.items():
            one = SCHEMA.field(name)
            assert one.optional if value is None else one.check(value) is None
        kept = consistent(NARROWING, {"c": "yes"}, {name: value for name, value in found.items() if name != "c"})
        assert all(rule.holds(kept) for rule in SCHEMA.rules if kept.keys() >= set(rule.fields))


def _grammar(data: bytes) -> None:
    """The grammar that a model writes under, from any schema; what its values would break in Lark would stop a run."""

    def act() -> None:
        from lark import Lark

        from selpe.evaluation.grammar import rough_grammar, strict_grammar

        schema = Schema.from_yaml(data.decode("utf-8", "replace"))
        if len(schema.fields) < 20:
            Lark(strict_grammar(schema), parser="lalr", lexer="contextual")
            Lark(rough_grammar(schema), parser="lalr", lexer="contextual")
            line_grammar(schema.fields, {})

    _answered(act)


TARGETS: Mapping[str, Target] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "json": _json,
    "parquet": _parquet,
    "xlsx": _xlsx,
    "sheet": _sheet,
    "schema_yaml": _schema_yaml,
    "schema_json": _schema_json,
    "rule": _rule,
    "pattern": _pattern,
    "answer": _answer,
    "form": _form,
    "notes": _notes,
    "grammar": _grammar,
}
# Targets that have no corpus of their own start from another's.
SAME_CORPUS: Mapping[str, str] = {"grammar": "schema_yaml", "form": "answer"}
