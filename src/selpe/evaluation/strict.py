"""S-CFG: is the output exactly one JSON record of the schema? Judged in three levels, each on top of the one before.

Syntax: the grammar (one JSON object, nothing around it), every required key once, no other key, the right JSON types.
Domain: enums, ranges and steps in exact decimals, patterns, lengths, calendar days. Rules: 𝓡.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from selpe.evaluation.grammar import strict_grammar
from selpe.evaluation.lexical import MAX_DIGITS
from selpe.schema import Field, Record, Schema, Violation

if TYPE_CHECKING:
    from lark import Lark

_OBJECT = Violation("", "syntax", "exactly one JSON object, with nothing before or after it")
_EXTRA = Violation("", "syntax", "a record with the schema's fields only")


@dataclass(frozen=True, slots=True)
class StrictVerdict:
    """What S-CFG says of one output: the levels it reaches, every violation found, and the record if it has one."""

    syntax: bool
    domain: bool
    rules: bool
    violations: tuple[Violation, ...] = ()
    record: Record | None = None

    @property
    def ok(self) -> bool:
        """True when all three levels hold."""
        return self.rules


class StrictParser:
    """The S-CFG validator of one schema."""

    def __init__(self, schema: Schema) -> None:
        from lark import Lark

        self._schema = schema
        self._lark: Lark = Lark(strict_grammar(schema), parser="lalr", lexer="contextual")

    def judge(self, raw: str) -> StrictVerdict:
        """The verdict on one raw output."""
        tokens = self._tokens(raw)
        if tokens is None or not set(self._schema.required) <= tokens.keys():
            return StrictVerdict(False, False, False, self._syntax_violations(raw))
        values = {name: _value(self._schema.field(name), text) for name, text in tokens.items()}
        found = [_levelled(violation) for violation in self._schema.check(values)]
        if any(violation.level == "domain" for violation in found):
            return StrictVerdict(True, False, False, tuple(found))
        return StrictVerdict(True, True, not found, tuple(found), _record(values))

    def _tokens(self, raw: str) -> dict[str, str] | None:
        """The text of each field's value, or None where the grammar refuses the output or a key comes twice."""
        from lark.exceptions import UnexpectedInput

        found: dict[str, str] = {}
        key = ""
        parser = self._lark.parse_interactive(raw)
        try:
            for token in parser.iter_parse():
                if token.type.startswith("KEY_"):
                    key = self._schema.names[int(token.type[4:])]
                    if key in found:
                        return None
                elif token.type in _VALUES:
                    found[key] = str(token)
            parser.feed_eof()  # type: ignore[no-untyped-call]
        except UnexpectedInput:
            return None
        return found

    def _syntax_violations(self, raw: str) -> tuple[Violation, ...]:
        """What keeps an output from being a record at all, field by field as far as it is JSON."""
        try:
            pairs = json.loads(
                raw, object_pairs_hook=_Pairs, parse_int=_Whole, parse_float=_Decimal, parse_constant=_refused
            )
        except (ValueError, RecursionError):
            return (_OBJECT,)
        if not isinstance(pairs, _Pairs):
            return (_OBJECT,)
        counts = Counter(name for name, _ in pairs)
        values = dict(pairs)
        found = [_EXTRA] if counts.keys() - set(self._schema.names) else []
        for field in self._schema.fields:
            if counts[field.name] > 1:
                found.append(Violation(field.name, "syntax", "given once"))
            elif not field.optional and values.get(field.name) is None:
                found.append(Violation(field.name, "syntax", f"present: {field.expected}"))
            elif values.get(field.name) is not None and not _typed(field, values[field.name]):
                found.append(Violation(field.name, "syntax", f"{_JSON_TYPES[field.kind]} in JSON"))
        return tuple(found) or (_OBJECT,)


_VALUES = frozenset({"STRING", "INTEGER", "NUMBER", "BOOLEAN", "NULL"})
_JSON_TYPES = {
    "text": "a string",
    "category": "a string",
    "date": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its keys in order, repeated ones included."""


class _Whole(str):
    """A JSON number without fraction and exponent, as written: converting a million digits can wait."""


class _Decimal(str):
    """Any other JSON number, as written."""


def _refused(_: str) -> object:
    raise ValueError("NaN and Infinity are not JSON")


def _typed(field: Field, value: object) -> bool:
    if field.kind == "integer":
        return isinstance(value, _Whole)
    if field.kind == "number":
        return isinstance(value, (_Whole, _Decimal))
    if field.kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, str) and not isinstance(value, (_Whole, _Decimal))


class _OutOfRange:
    """Stands for a number so large or so small that no field can hold it: every domain check refuses it."""


def _value(field: Field, text: str) -> object:
    """The value of a grammar's token: exact decimals for numbers, so that steps are checked on what was written."""
    if text == "null":
        return None
    return _READERS[field.kind](text)


def _whole(text: str) -> object:
    return int(text) if len(text) <= MAX_DIGITS else _OutOfRange()


def _decimal(text: str) -> object:
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return _OutOfRange()
    moderate = len(text) <= MAX_DIGITS and (exact.is_zero() or abs(exact.adjusted()) < MAX_DIGITS)
    return exact if moderate else _OutOfRange()


def _parsed(text: str) -> object:
    return json.loads(text)


_READERS: dict[str, Callable[[str], object]] = {
    "text": _parsed,
    "category": _parsed,
    "date": _parsed,
    "boolean": _parsed,
    "integer": _whole,
    "number": _decimal,
}


def _levelled(violation: Violation) -> Violation:
    """A violation at S-CFG's level: the grammar has settled the types, so what is not a rule is a domain."""
    return violation if violation.level == "rule" else replace(violation, level="domain")


def _record(values: dict[str, object]) -> Record:
    """Values as records hold them: decimals become floats."""
    return {
        name: float(value) if isinstance(value, Decimal) else value  # type: ignore[misc]
        for name, value in values.items()
    }
