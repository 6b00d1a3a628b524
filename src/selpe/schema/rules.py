"""Rules 𝓡 between fields, in the safe expression language of the `rule-engine` library.

A rule is a comparison ('dbp < sbp') or an implication ('if injury == "No" then pain <= 3'). Nothing here
evaluates Python: expressions are parsed by the library's own grammar, typed against the schema when the schema is
read, and can see the record's fields and nothing else. A rule that mentions a missing field holds, unless it asks
for `null` itself.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import rule_engine
from rule_engine.ast import FuzzyComparisonExpression
from rule_engine.errors import EngineError, SymbolResolutionError

from selpe.errors import SchemaError, did_you_mean
from selpe.schema.fields import Field, Value, exact_decimal, parse_date
from selpe.schema.patterns import PatternError, matcher

_TYPES: dict[str, Any] = {
    "text": rule_engine.DataType.STRING,
    "category": rule_engine.DataType.STRING,
    "integer": rule_engine.DataType.FLOAT,
    "number": rule_engine.DataType.FLOAT,
    "boolean": rule_engine.DataType.BOOLEAN,
    "date": rule_engine.DataType.DATETIME,
}
# What would make a short rule take hours: shifts, lists made from lists, and numbers of a million digits.
_ENDLESS = re.compile(r"<<|\bfor\b|(?<![\w.])(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]{3}")
_ARITHMETIC = decimal.Context(prec=28, Emax=999, Emin=-999)
MOST_CHARACTERS = 5_000
_HINT = (
    "rules look like 'dbp < sbp' or 'if injury == true then pain >= 1'; they know and, or, not, in, +, -, *, /; "
    'text stands in double quotes, dates as d"2024-01-31", and a name with spaces in back quotes'
)


@dataclass(frozen=True)
class Rule:
    """One rule of a schema, parsed and typed."""

    text: str
    fields: tuple[str, ...]
    symbols: Mapping[str, str]  # what the expression calls a field, and the field's name
    asks_for_null: bool
    _engine: rule_engine.Rule
    _kinds: Mapping[str, str]

    @classmethod
    def parse(cls, text: str, fields: Sequence[Field], *, where: str = "rules") -> Rule:
        """The rule that a text states about these fields. Raises SchemaError where it is not one."""
        if len(text) > MOST_CHARACTERS:
            raise SchemaError(f"a rule must not be longer than {MOST_CHARACTERS:,} characters", where=where, hint=_HINT)
        by_name = {field.name: field for field in fields}
        expression, symbols = _named(_implication(text), by_name, where)
        if "$" in _outside_strings(expression):
            # The library's built-ins ($now, $random …) would make validity depend on the day.
            raise SchemaError("a rule must not use built-in functions", where=where, hint=_HINT)
        if _ENDLESS.search(_outside_strings(expression)):
            said = "a rule must not shift bits, loop, or have numbers with an exponent of three digits"
            raise SchemaError(said, where=where, hint=_HINT)
        types = {symbol: _TYPES[by_name[name].kind] for symbol, name in symbols.items()}
        types |= {name: _TYPES[field.kind] for name, field in by_name.items() if name.isidentifier()}
        # In UTC, as the records' days are: what is valid must not depend on where the machine stands.
        context = _Context(
            type_resolver=rule_engine.type_resolver_from_dict(types),
            default_timezone="utc",
            decimal_context=_ARITHMETIC,
        )
        try:
            with decimal.localcontext(_ARITHMETIC):
                engine = rule_engine.Rule(expression, context=context)
        except PatternError as error:
            raise SchemaError(error.message, where=where, hint=_HINT) from None
        except SymbolResolutionError as error:
            raise SchemaError(
                f"the rule names an unknown field: {error.symbol_name}",
                where=where,
                hint=did_you_mean(error.symbol_name, by_name) + _HINT,
            ) from None
        except (EngineError, RecursionError, ArithmeticError, LookupError, ValueError, TypeError) as error:
            reason = str(getattr(error, "message", "")) or "syntax error"
            raise SchemaError(f"the rule cannot be read ({reason})", where=where, hint=_HINT) from None
        symbols |= {name: name for name in by_name if name in context.symbols}
        if not symbols:
            raise SchemaError("a rule must name at least one field", where=where, hint=_HINT)
        mentioned = tuple(name for name in by_name if name in symbols.values())
        asks = re.search(r"\bnull\b", _outside_strings(expression)) is not None
        return cls(text, mentioned, symbols, asks, engine, {name: by_name[name].kind for name in mentioned})

    @property
    def tree(self) -> Any:
        """The expression as the library has parsed it."""
        return self._engine.statement.expression

    def holds(self, record: Mapping[str, Value]) -> bool:
        """Whether a record obeys the rule. Values outside their domain do not raise: the rule just fails."""
        if not self.asks_for_null and any(record.get(name) is None for name in self.fields):
            return True
        things = {symbol: _thing(record.get(name), self._kinds[name]) for symbol, name in self.symbols.items()}
        try:
            return bool(self._engine.matches(things))
        except (EngineError, PatternError, ArithmeticError, ValueError, TypeError):
            return False


class _Context(rule_engine.Context):  # type: ignore[misc]
    """Marks our rules for `_compiled`."""


class _Pattern:
    """A pattern of a rule in the shape of a compiled one of `re`."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        matcher(pattern, "anywhere")  # says what is wrong with it

    def match(self, text: str) -> _Pattern | None:
        return self if matcher(self._pattern, "start").matches(text) else None

    def search(self, text: str) -> _Pattern | None:
        return self if matcher(self._pattern, "anywhere").matches(text) else None

    def groups(self) -> tuple[()]:
        return ()


_by_re = FuzzyComparisonExpression._compile_regex


def _compiled(self: Any, pattern: str) -> Any:
    """What matches a pattern: in our rules in linear time, in those of others who use the library as ever."""
    return _Pattern(pattern) if isinstance(self.context, _Context) else _by_re(self, pattern)


# The library has no setting for it. It compiles patterns in this one method, also those that it reads from a field.
FuzzyComparisonExpression._compile_regex = _compiled


def _implication(text: str) -> str:
    """'if A then B [else C]' as a plain boolean expression."""
    words = list(_words(text))
    if not words or words[0][0] != "if":
        return text
    then = next((word for word in words if word[0] == "then"), None)
    if then is None:
        raise SchemaError("a rule that starts with 'if' must have a 'then'", where="rules", hint=_HINT)
    otherwise = next((word for word in words if word[0] == "else" and word[1] > then[1]), None)
    condition = text[words[0][2] : then[1]]
    consequence = text[then[2] : otherwise[1] if otherwise else len(text)]
    if not condition.strip() or not consequence.strip():
        raise SchemaError(
            "a rule must have something between 'if' and 'then', and after 'then'", where="rules", hint=_HINT
        )
    if otherwise:
        return f"(({condition}) and ({consequence})) or (not ({condition}) and ({text[otherwise[2] :]}))"
    return f"(not ({condition})) or ({consequence})"


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')


def _words(text: str) -> list[tuple[str, int, int]]:
    """Bare words with their places, strings and quoted names left out."""
    blank = re.sub(r"`[^`]*`", lambda match: " " * len(match.group()), _outside_strings(text))
    return [(match.group(), match.start(), match.end()) for match in re.finditer(r"[A-Za-z_]\w*", blank)]


def _outside_strings(text: str) -> str:
    """The text with the contents of its strings blanked out, at the same length."""
    return _STRING.sub(lambda match: '"' + " " * (len(match.group()) - 2) + '"', text)


def _named(expression: str, by_name: Mapping[str, Field], where: str) -> tuple[str, dict[str, str]]:
    """The expression with `back-quoted names` replaced by symbols, and which symbol stands for which field."""
    symbols: dict[str, str] = {}

    def symbol(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return match.group()
        name = match.group(1)
        if name not in by_name:
            hint = did_you_mean(name, by_name) + _HINT
            raise SchemaError(f"the rule names an unknown field: {name}", where=where, hint=hint)
        key = f"quoted_{list(by_name).index(name)}"
        symbols[key] = name
        return key

    return re.sub(_STRING.pattern + r"|`([^`]*)`", symbol, expression), symbols


def _thing(value: Value, kind: str) -> object:
    """A value as the rule engine needs it: exact decimals, and days as moments in UTC."""
    if value is None or isinstance(value, bool):
        return value
    if kind in ("integer", "number"):
        return exact_decimal(value)
    if kind == "date":
        day = parse_date(str(value))
        return None if day is None else datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
    return value
