"""The kinds of field and their domains 𝒱_j: what a value must be, and how it reads as text.

`Field.check` says what was expected, never what was found: its messages are safe for private rows.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

from selpe.errors import SchemaError
from selpe.schema.patterns import Matcher, PatternError, matcher

Value: TypeAlias = str | int | float | bool | None
Record: TypeAlias = dict[str, Value]
Level: TypeAlias = Literal["syntax", "domain", "rule"]
Kind: TypeAlias = Literal["text", "category", "integer", "number", "boolean", "date"]

# Zeros that may follow the last digit of the grid (1.50 on a grid of 0.1). Without a limit, 1e-999999999 underflows in
# the remainder and passes for 0.
MOST_ZEROS = 20

# NUL and friends break CSV files, terminals and C strings; lone surrogates cannot be written as UTF-8.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which a record breaks its schema: where, at which level, and what was expected."""

    field: str
    level: Level
    expected: str
    rule: str = ""

    @property
    def message(self) -> str:
        """The violation as a sentence that holds no value."""
        if self.rule:
            return f"rule '{self.rule}' must hold"
        what = f"field '{self.field}'" if self.field else "the output"
        return f"{what} must be {self.expected}"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the range of a number or a date, both ends included: from `low` to `high`."""

    low: int | Decimal | date
    high: int | Decimal | date

    def __str__(self) -> str:
        return f"{_bound(self.low)} to {_bound(self.high)}"


@dataclass(frozen=True)
class Field(ABC):
    """What all kinds of field share."""

    kind: ClassVar[Kind]
    name: str
    description: str = ""
    optional: bool = False
    examples: tuple[Value, ...] = ()
    confirmed: bool = True

    @property
    @abstractmethod
    def expected(self) -> str:
        """The domain in words, for messages and prompts."""

    @property
    def title(self) -> str:
        """The field's name as words."""
        return self.name.replace("_", " ").strip()

    @abstractmethod
    def check(self, value: object) -> Level | None:
        """None when the value is in the domain, else the level at which it fails. The schema checks missing values."""

    def lexicalise(self, value: Value) -> str:
        """ℓ(c, ξ): the field–value pair as text, the same text for the same pair always."""
        return f"{self.title}: {self.text_of(value)}"

    def text_of(self, value: Value) -> str:
        """The value alone as text."""
        return "unknown" if value is None else str(value)

    def within(self, span: Span) -> Field:
        """The same field, always present and with values of this span only."""
        if not isinstance(self, IntegerField | NumberField | DateField):
            raise SchemaError("only numbers and dates have spans", where=f"field '{self.name}'")
        narrowed: dict[str, Any] = {"min": span.low, "max": span.high, "optional": False, "examples": ()}
        return replace(self, **narrowed)


@dataclass(frozen=True)
class TextField(Field):
    """Free text, within a length and, where given, matching a pattern as a whole."""

    kind: ClassVar[Kind] = "text"
    min_length: int = 1
    max_length: int = 400
    pattern: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_length <= self.max_length:
            raise SchemaError("min_length must be at least 0 and at most max_length", where=f"field '{self.name}'")
        if self.pattern is not None:
            _compiled(self.pattern, self.name)

    @property
    def expected(self) -> str:
        """The domain in words."""
        matching = f" that match the pattern {self.pattern}" if self.pattern else ""
        return f"text of {self.min_length} to {self.max_length} characters{matching}"

    def check(self, value: object) -> Level | None:
        """The level at which a value fails, or None."""
        if not isinstance(value, str):
            return "syntax"
        if not self.min_length <= len(value) <= self.max_length or _UNWRITABLE.search(value):
            return "domain"
        if self.pattern is not None and not _compiled(self.pattern, self.name).matches(value):
            return "domain"
        return None


@dataclass(frozen=True)
class CategoryField(Field):
    """One of a few values, each of which may be described."""

    kind: ClassVar[Kind] = "category"
    values: tuple[str, ...] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.values:
            raise SchemaError("a category must have at least one value", where=f"field '{self.name}'")
        if len(set(self.values)) != len(self.values):
            raise SchemaError("the values of a category must be distinct", where=f"field '{self.name}'")
        if any(not value or _UNWRITABLE.search(value) for value in self.values):
            raise SchemaError("the values of a category must be plain, non-empty text", where=f"field '{self.name}'")

    @property
    def expected(self) -> str:
        """The domain in words."""
        shown = ", ".join(self.values[:12])
        return f"one of {shown}" + (f" and {len(self.values) - 12} more" if len(self.values) > 12 else "")

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.values)

    def check(self, value: object) -> Level | None:
        """The level at which a value fails, or None."""
        if not isinstance(value, str):
            return "syntax"
        return None if value in self._members else "domain"


@dataclass(frozen=True)
class IntegerField(Field):
    """A whole number between two bounds, a multiple of `step`."""

    kind: ClassVar[Kind] = "integer"
    min: int = 0
    max: int = 100
    step: int = 1
    unit: str = ""

    def __post_init__(self) -> None:
        _check_range(self.name, self.min, self.max, self.step)

    @property
    def expected(self) -> str:
        """The domain in words."""
        grid = f" in steps of {self.step}" if self.step != 1 else ""
        return f"an integer from {self.min} to {self.max}{grid}"

    def check(self, value: object) -> Level | None:
        """The level at which a value fails, or None."""
        if isinstance(value, bool) or not isinstance(value, int):
            return "syntax"
        return None if self.min <= value <= self.max and value % self.step == 0 else "domain"

    def text_of(self, value: Value) -> str:
        """The value with its unit."""
        return "unknown" if value is None else f"{value} {self.unit}".rstrip()


@dataclass(frozen=True)
class NumberField(Field):
    """A decimal number between two bounds, a multiple of `step` in exact decimal arithmetic."""

    kind: ClassVar[Kind] = "number"
    min: Decimal = Decimal(0)
    max: Decimal = Decimal(1)
    step: Decimal = Decimal("0.01")
    unit: str = ""

    def __post_init__(self) -> None:
        _check_range(self.name, self.min, self.max, self.step)

    @property
    def expected(self) -> str:
        """The domain in words."""
        return f"a number from {plain(self.min)} to {plain(self.max)} in steps of {plain(self.step)}"

    @property
    def decimals(self) -> int:
        """The number of digits after the decimal point."""
        exponent = self.step.normalize().as_tuple().exponent
        return max(0, -exponent) if isinstance(exponent, int) else 0

    def check(self, value: object) -> Level | None:
        """The level at which a value fails, or None. 4.18 is a multiple of 0.01 here, unlike in binary floats."""
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            return "syntax"
        exact = exact_decimal(value)
        if exact is None:
            return "domain"
        if not self.min <= exact <= self.max or _digits_behind(exact) > self.decimals + MOST_ZEROS:
            return "domain"
        try:
            return None if exact % self.step == 0 else "domain"
        except InvalidOperation:
            return "domain"

    def text_of(self, value: Value) -> str:
        """The value at the field's precision, with its unit."""
        if value is None:
            return "unknown"
        exact = exact_decimal(value)
        return f"{value if exact is None else f'{exact:.{self.decimals}f}'} {self.unit}".rstrip()


@dataclass(frozen=True)
class BooleanField(Field):
    """Yes or no."""

    kind: ClassVar[Kind] = "boolean"

    @property
    def expected(self) -> str:
        """The domain in words."""
        return "true or false"

    def check(self, value: object) -> Level | None:
        """The level at which a value fails, or None."""
        return None if isinstance(value, bool) else "syntax"

    def text_of(self, value: Value) -> str:
        """The value as yes or no."""
        return "unknown" if value is None else ("yes" if value else "no")


@dataclass(frozen=True)
class DateField(Field):
    """A calendar day between two bounds, written YYYY-MM-DD."""

    kind: ClassVar[Kind] = "date"
    min: date = date(1900, 1, 1)
    max: date = date(2099, 12, 31)

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise SchemaError("min must not be above max", where=f"field '{self.name}'")

    @property
    def expected(self) -> str:
        """The domain in words."""
        return f"a date from {self.min.isoformat()} to {self.max.isoformat()}, written YYYY-MM-DD"

    def check(self, value: object) -> Level | None:
        """The level at which a value fails, or None."""
        if not isinstance(value, str):
            return "syntax"
        day = parse_date(value)
        return None if day is not None and self.min <= day <= self.max else "domain"


def parse_date(text: str) -> date | None:
    """The day that a YYYY-MM-DD text names, or None. Stricter than `date.fromisoformat`, which also takes weeks."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def exact_decimal(value: object) -> Decimal | None:
    """A number as an exact decimal (floats by their shortest text), or None where it is not finite."""
    try:
        exact = value if isinstance(value, Decimal) else Decimal(str(value))
    except InvalidOperation:
        return None
    return exact if exact.is_finite() else None


def _digits_behind(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def first_multiple(low: int | Decimal, step: int | Decimal) -> Decimal:
    """The smallest multiple of `step` that is at least `low`. (`//` on decimals rounds towards zero, not down.)"""
    return (Decimal(low) / step).to_integral_value(ROUND_CEILING) * step


def _bound(value: int | Decimal | date) -> str:
    return value.isoformat() if isinstance(value, date) else plain(Decimal(value))


def plain(number: Decimal) -> str:
    """A decimal without exponent and trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _compiled(pattern: str, name: str) -> Matcher:
    try:
        return matcher(pattern)
    except PatternError as error:
        raise SchemaError(error.message, where=f"field '{name}'", hint=error.hint) from None


def _check_range(name: str, low: int | Decimal, high: int | Decimal, step: int | Decimal) -> None:
    where = f"field '{name}'"
    if any(isinstance(bound, Decimal) and not bound.is_finite() for bound in (low, high, step)):
        raise SchemaError("min, max and step must be finite numbers", where=where)
    if low > high:
        raise SchemaError("min must not be above max", where=where)
    if step <= 0:
        raise SchemaError("step must be above 0", where=where)
    # The first multiple of step at or above min must still be at or below max, else no value is valid.
    if first_multiple(low, step) > high:
        raise SchemaError("no multiple of step lies between min and max", where=where)
