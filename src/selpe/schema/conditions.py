"""What a rule says while some of its fields are open: can it still hold, and at which numbers does it turn?

Conditions are read in three-valued logic: a condition can be true, can be false, or both. It is exact where every field
is known, and never says 'impossible' of what is possible. Comparisons of sums (fields times numbers) are followed;
what else the rule language knows (patterns, attributes, products of two open fields) can always be either.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any, TypeAlias

from rule_engine import ast

from selpe.schema.fields import Value
from selpe.schema.rules import Rule

Truth: TypeAlias = tuple[bool, bool]  # whether it can be true, and whether it can be false
Sum: TypeAlias = dict[str, Fraction]  # of fields times numbers; the number alone stands under ''

EITHER: Truth = (True, True)
_ORIGIN = datetime(1, 1, 1, tzinfo=timezone.utc)
_COMPARE: Any = {
    "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a field is open: a number between two ends, one of a list, or (neither) anything; perhaps missing."""

    ends: tuple[Fraction, Fraction] | None = None
    listed: tuple[Value, ...] | None = None
    missing: bool = False


class OpenRule:
    """A rule in the light of what its fields can be."""

    def __init__(self, rule: Rule, extents: Mapping[str, Extent]) -> None:
        self._tree = rule.tree
        self._names = rule.symbols
        self._extents = extents

    def can_hold(self) -> bool:
        """Whether some values of the extents could obey the rule; where all are single values, whether they do."""
        return self._truth(self._tree)[0]

    def turns(self, name: str) -> tuple[set[Fraction], bool]:
        """The numbers of a field at which a condition can change, and whether all conditions could be followed."""
        found: set[Fraction] = set()
        readable = True
        for node in _conditions(self._tree):
            if (among := self._among(node)) is not None:
                if among[0] == name:
                    found |= {value for value in among[1] if isinstance(value, Fraction)}
            elif (difference := self._difference(node)) is not None:
                if factor := difference.pop(name, None):
                    found |= {-end / factor for end in self._range(difference)}
            else:
                readable = readable and _bare(node)
        return found, readable

    def literals(self, name: str) -> set[str] | None:
        """The texts that a field is compared with; None where more is asked of it than to be one of them."""
        found: set[str] = set()
        for node in _conditions(self._tree):
            if (among := self._among(node)) is not None:
                found |= {value for value in among[1] if isinstance(value, str) and among[0] == name}
            elif self._difference(node) is None and not isinstance(node, (ast.SymbolExpression, ast.BooleanExpression)):
                return None
        return found

    # -- truth ---------------------------------------------------------------------------------------------------

    def _truth(self, node: Any) -> Truth:
        if isinstance(node, ast.LogicExpression):
            (left, not_left), (right, not_right) = self._truth(node.left), self._truth(node.right)
            both = node.type == "and"
            return (left and right, not_left or not_right) if both else (left or right, not_left and not_right)
        if isinstance(node, ast.UnaryExpression) and node.type == "not":
            true, false = self._truth(node.right)
            return false, true
        if isinstance(node, ast.TernaryExpression):
            (yes, no), (then, not_then), (other, not_other) = map(
                self._truth, (node.condition, node.case_true, node.case_false)
            )
            return (yes and then) or (no and other), (yes and not_then) or (no and not_other)
        if isinstance(node, ast.BooleanExpression):
            return bool(node.value), not node.value
        if isinstance(node, ast.SymbolExpression):
            listed = self._choices(node)
            return EITHER if listed is None else (any(listed), not all(listed))
        return self._compared(node)

    def _compared(self, node: Any) -> Truth:
        if (among := self._among(node)) is not None:
            true, false = self._is_among(*among[:2])
            return (true, false) if among[2] else (false, true)
        if (difference := self._difference(node)) is not None:
            low, high = self._range(difference)
            compare = _COMPARE[node.type]
            if node.type in ("eq", "ne"):
                equal = (low <= 0 <= high, not low == high == 0)
                return equal if node.type == "eq" else equal[::-1]
            return compare(low, 0) or compare(high, 0), not (compare(low, 0) and compare(high, 0))
        if isinstance(node, ast.ComparisonExpression) and node.type in ("eq", "ne"):
            left, right = self._choices(node.left), self._choices(node.right)
            if left is not None and right is not None:
                found = {_COMPARE[node.type](one, other) for one in left for other in right}
                return True in found, False in found
        return EITHER

    def _is_among(self, name: str, values: set[Any]) -> Truth:
        extent, listed = self._extents[name], self._of(name)
        if listed is not None:
            return any(one in values for one in listed), any(one not in values for one in listed)
        if values == {None}:
            return extent.missing, True
        if extent.ends is None or extent.missing:
            return EITHER
        return any(extent.ends[0] <= one <= extent.ends[1] for one in values if isinstance(one, Fraction)), True

    # -- conditions ----------------------------------------------------------------------------------------------

    def _among(self, node: Any) -> tuple[str, set[Any], bool] | None:
        """A field, the values it is compared with one by one, and whether it is to be one of them or none."""
        if isinstance(node, ast.ContainsExpression):
            return self._contained(node.member, node.container)
        if not isinstance(node, ast.ComparisonExpression) or node.type not in ("eq", "ne"):
            return None
        for field, other in ((node.left, node.right), (node.right, node.left)):
            literal = _literal(other)
            if isinstance(field, ast.SymbolExpression) and literal is not None:
                return self._names[field.name], {literal[0]}, node.type == "eq"
        return None

    def _contained(self, member: Any, container: Any) -> tuple[str, set[Any], bool] | None:
        if not isinstance(member, ast.SymbolExpression) or not isinstance(
            container, (ast.ArrayExpression, ast.SetExpression)
        ):
            return None
        values = [_literal(one) for one in container.value]
        listed = {value[0] for value in values if value is not None}
        return None if None in values else (self._names[member.name], listed, True)

    def _difference(self, node: Any) -> Sum | None:
        """What a comparison compares with zero: its left side less its right side."""
        if not isinstance(node, ast.ComparisonExpression) or node.type not in _COMPARE:
            return None
        return _added(self._sum(node.left), self._sum(node.right), -1)

    def _sum(self, node: Any) -> Sum | None:
        if isinstance(node, ast.SymbolExpression):
            name = self._names[node.name]
            extent = self._extents[name]
            if extent.ends is None or extent.missing:
                return None
            low, high = extent.ends
            return {"": low} if low == high else {name: Fraction(1)}
        if isinstance(node, ast.UnaryExpression) and node.type == "uminus":
            return _added({}, self._sum(node.right), -1)
        if isinstance(node, (ast.AddExpression, ast.SubtractExpression)):
            sign = 1 if isinstance(node, ast.AddExpression) else -1
            return _added(self._sum(node.left), self._sum(node.right), sign)
        if isinstance(node, ast.ArithmeticExpression) and node.type in ("mul", "tdiv"):
            return _scaled(self._sum(node.left), self._sum(node.right), node.type)
        literal = _literal(node)
        return {"": literal[0]} if literal is not None and isinstance(literal[0], Fraction) else None

    def _range(self, terms: Sum) -> tuple[Fraction, Fraction]:
        low = high = terms.get("", Fraction(0))
        for name, factor in terms.items():
            ends = self._extents[name].ends if name else None
            if ends is not None:
                low += factor * ends[factor < 0]
                high += factor * ends[factor > 0]
        return low, high

    def _choices(self, node: Any) -> tuple[Any, ...] | None:
        literal = _literal(node)
        if literal is not None:
            return literal
        return self._of(self._names[node.name]) if isinstance(node, ast.SymbolExpression) else None

    def _of(self, name: str) -> tuple[Any, ...] | None:
        """All that a field can be, where that can be listed."""
        extent = self._extents[name]
        listed: tuple[Any, ...] | None = extent.listed
        if extent.ends is not None and extent.ends[0] == extent.ends[1]:
            listed = extent.ends[:1]
        if listed is None:
            return None
        return (*listed, None) if extent.missing else listed


def _conditions(node: Any) -> Iterator[Any]:
    """The conditions that a rule's logic joins."""
    if isinstance(node, ast.LogicExpression):
        yield from _conditions(node.left)
        yield from _conditions(node.right)
    elif isinstance(node, ast.UnaryExpression) and node.type == "not":
        yield from _conditions(node.right)
    elif isinstance(node, ast.TernaryExpression):
        for part in (node.condition, node.case_true, node.case_false):
            yield from _conditions(part)
    else:
        yield node


def _bare(node: Any) -> bool:
    """Whether a condition is a field alone, or two fields that are to be the same."""
    if isinstance(node, ast.ComparisonExpression) and node.type in ("eq", "ne"):
        return isinstance(node.left, ast.SymbolExpression) and isinstance(node.right, ast.SymbolExpression)
    return isinstance(node, (ast.SymbolExpression, ast.BooleanExpression))


def _literal(node: Any) -> tuple[Any] | None:
    """The value of a literal, numbers and times as exact numbers; None where the node is none."""
    if isinstance(node, ast.NullExpression):
        return (None,)
    if isinstance(node, (ast.StringExpression, ast.BooleanExpression)):
        return (node.value,)
    if isinstance(node, ast.FloatExpression) and node.value.is_finite():
        return (Fraction(node.value),)
    if isinstance(node, ast.DatetimeExpression):
        return (days(node.value - _ORIGIN) + 1,)
    return (days(node.value),) if isinstance(node, ast.TimedeltaExpression) else None


def days(time: timedelta) -> Fraction:
    """A stretch of time in days. A day counts as the number of days since the year 1, as `date.toordinal` has it."""
    return Fraction(time // timedelta(microseconds=1), 86_400_000_000)


def day_number(day: date) -> Fraction:
    """A day as rules compare it with others."""
    return Fraction(day.toordinal())


def _added(left: Sum | None, right: Sum | None, sign: int) -> Sum | None:
    if left is None or right is None:
        return None
    terms = {name: left.get(name, Fraction(0)) + sign * right.get(name, Fraction(0)) for name in {**left, **right}}
    return {name: factor for name, factor in terms.items() if factor}


def _scaled(left: Sum | None, right: Sum | None, how: str) -> Sum | None:
    """A product with a number, or a quotient by one; None where both factors are open."""
    if left is None or right is None:
        return None
    if how == "mul" and not set(left) - {""}:
        left, right = right, left
    if set(right) - {""}:
        return None
    factor = right.get("", Fraction(0))
    if how == "tdiv":
        return None if not factor else {name: term / factor for name, term in left.items()}
    return {name: term * factor for name, term in left.items() if term * factor}
