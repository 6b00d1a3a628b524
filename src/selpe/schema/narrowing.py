"""What the rules leave of every field once some fields are known: smaller domains, found before a value is written.

No value is lost that some record allowed by domains and rules has. Where all other fields of a rule are known, a field
keeps exactly what obeys it, unless the rule asks more than can be followed (see `conditions`) of a domain too large to
try value by value; what is kept too much is found when the record is checked. Where further fields are open, a value is
dropped if each single rule is out of reach whatever they will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import TypeAlias

from selpe.schema.conditions import Extent, OpenRule, day_number
from selpe.schema.core import Schema
from selpe.schema.fields import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    Span,
    Value,
    exact_decimal,
    parse_date,
)
from selpe.schema.rules import Rule

TRIED = 500  # values of a domain that are tried one by one where a rule cannot be followed
_ROUNDS = 8  # of all rules: bounds that rules pass on to each other settle in a few
_MOST_KEPT = 20_000  # narrowings; a run has few different ones, a table of measured facts many
_OTHER_TEXT = "\N{REPLACEMENT CHARACTER}"

Known: TypeAlias = Mapping[str, Value | Span]
Run: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Domain:
    """What a field may be: listed values, places of its grid in runs (both ends included), any text, or missing."""

    values: tuple[Value, ...] = ()
    runs: tuple[Run, ...] = ()
    free: bool = False
    missing: bool = False

    @property
    def empty(self) -> bool:
        """True where nothing is left."""
        return not (self.values or self.runs or self.free or self.missing)

    @property
    def settled(self) -> bool:
        """True where one possibility is left."""
        single = len(self.runs) == 1 and self.runs[0][0] == self.runs[0][1]
        return not self.free and len(self.values) + 2 * len(self.runs) - single + self.missing == 1


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of a number or a date by their places: a multiple of a step, a day since the year 1."""

    field: IntegerField | NumberField | DateField

    @property
    def step(self) -> Fraction:
        """How far two neighbours lie apart."""
        return Fraction(1) if isinstance(self.field, DateField) else Fraction(self.field.step)

    def number(self, value: object) -> Fraction | None:
        """A value as rules compare it."""
        if isinstance(self.field, DateField):
            day = value if isinstance(value, date) else parse_date(str(value))
            return None if day is None else day_number(day)
        exact = exact_decimal(value)
        return None if exact is None else Fraction(exact)

    def run(self, low: object, high: object) -> tuple[Run, ...]:
        """The places from one value to another."""
        first, last = self.number(low), self.number(high)
        if first is None or last is None:
            return ()
        run = ceil(first / self.step), floor(last / self.step)
        return (run,) if run[0] <= run[1] else ()

    def value(self, place: int) -> Value:
        """The value at a place, as records hold it."""
        exact = self.exact(place)
        if isinstance(exact, date):
            return exact.isoformat()
        return int(exact) if isinstance(self.field, IntegerField) else float(exact)

    def exact(self, place: int) -> int | Decimal | date:
        """The value at a place, as a field's bounds are given."""
        return date.fromordinal(place) if isinstance(self.field, DateField) else place * self.field.step


class Narrowing:
    """The rules of a schema at work on its domains."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._grids = {
            one.name: Grid(one) for one in schema.fields if isinstance(one, (IntegerField, NumberField, DateField))
        }
        self._whole = {one.name: self._domain(one) for one in schema.fields}
        self._narrowed: dict[tuple[str, str, tuple[Domain, ...]], Domain] = {}

    def domains(self, known: Known) -> dict[str, Domain]:
        """What is left of every field, given values or spans of some. A contradiction leaves some field nothing."""
        found = dict(self._whole)
        for name, fact in known.items():
            found[name] = self._given(name, fact)
        for _ in range(_ROUNDS):
            changed = [self._apply(rule, found) for rule in self.schema.rules]
            if not any(changed):
                break
        return found

    def settled(self, fixed: Known) -> tuple[Schema, Known]:
        """The schema and the fixed values as the rules leave them, for a constraint that cannot follow the writing.

        Ranges are narrowed to one range each, and what has no choice left becomes a fixed value.
        """
        if not self.schema.rules:
            return self.schema, fixed
        left = self.domains(fixed)
        if any(domain.empty for domain in left.values()):
            return self.schema, fixed  # a contradiction: nothing that could be written would be valid
        values: dict[str, Value | Span] = {}
        fields = []
        for field in self.schema.fields:
            domain, fact = left[field.name], fixed.get(field.name)
            if field.name in fixed and not isinstance(fact, Span):
                values[field.name] = fact
            elif domain.settled:
                values[field.name] = self._first(field.name, domain)
            fields.append(self._narrow_field(field, domain))
        return replace(self.schema, fields=tuple(fields), examples=()), values

    def runs(self, name: str, domain: Domain) -> tuple[Field, ...]:
        """A field once for each run of a domain, always present and with the values of that run alone."""
        field, grid = self.schema.field(name), self._grids[name]
        return tuple(field.within(Span(grid.exact(low), grid.exact(high))) for low, high in domain.runs)

    def _narrow_field(self, field: Field, domain: Domain) -> Field:
        if domain.runs:
            grid = self._grids[field.name]
            hull = Span(grid.exact(domain.runs[0][0]), grid.exact(domain.runs[-1][1]))
            return replace(field.within(hull), optional=domain.missing)
        if isinstance(field, CategoryField) and domain.values:
            field = replace(field, values=tuple(map(str, domain.values)))
        return replace(field, optional=domain.missing, examples=())

    # -- from facts to domains -----------------------------------------------------------------------------------

    def _domain(self, field: Field) -> Domain:
        if isinstance(field, CategoryField):
            return Domain(values=field.values, missing=field.optional)
        if isinstance(field, BooleanField):
            return Domain(values=(True, False), missing=field.optional)
        if isinstance(field, (IntegerField, NumberField, DateField)):
            return Domain(runs=self._grids[field.name].run(field.min, field.max), missing=field.optional)
        return Domain(free=True, missing=field.optional)

    def _given(self, name: str, fact: Value | Span) -> Domain:
        if fact is None:
            return Domain(missing=True)
        if name not in self._grids:
            return Domain(values=(fact,)) if not isinstance(fact, Span) else Domain()
        ends = (fact.low, fact.high) if isinstance(fact, Span) else (fact, fact)
        return Domain(runs=self._grids[name].run(*ends))

    # -- one rule ------------------------------------------------------------------------------------------------

    def _apply(self, rule: Rule, domains: dict[str, Domain]) -> bool:
        """Narrows the fields of a rule by it; whether anything has changed."""
        before = [domains[name] for name in rule.fields]
        # Of what is settled, nothing can be taken but all; and then nothing is left of the others, either.
        for name in [one for one in rule.fields if not domains[one].settled] or rule.fields[:1]:
            others = [domains[other] for other in rule.fields if other != name]
            if any(other.empty for other in others) or (
                not rule.asks_for_null and any(other.missing for other in others)
            ):
                continue  # a rule holds where a field that it mentions is missing
            key = (rule.text, name, tuple(domains[one] for one in rule.fields))
            if key not in self._narrowed:
                if len(self._narrowed) >= _MOST_KEPT:
                    self._narrowed.clear()
                self._narrowed[key] = self._narrow(rule, name, domains)
            domains[name] = self._narrowed[key]
        return before != [domains[name] for name in rule.fields]

    def _narrow(self, rule: Rule, name: str, domains: Mapping[str, Domain]) -> Domain:
        """What a rule leaves of a field in the light of its other fields."""
        own = domains[name]
        others = {other: domains[other] for other in rule.fields if other != name}
        known = all(domain.settled for domain in others.values())
        record = {other: self._first(other, domain) for other, domain in others.items()}
        extents = {other: self._extent(other, domain) for other, domain in others.items()}

        def obeys(value: Value) -> bool:
            if known:
                return rule.holds({**record, name: value})
            return OpenRule(rule, {**extents, name: self._extent(name, self._given(name, value))}).can_hold()

        about = OpenRule(rule, {**extents, name: self._extent(name, replace(own, missing=False))})
        missing = own.missing and (not rule.asks_for_null or obeys(None))
        texts = about.literals(name) if own.free else None
        if texts is not None and not obeys(_OTHER_TEXT):
            field = self.schema.field(name)
            fitting = sorted(text for text in texts if field.check(text) is None and obeys(text))
            return Domain(values=tuple(fitting), missing=missing)
        values = tuple(value for value in own.values if obeys(value))
        runs = self._runs(name, own.runs, about.turns(name), known, obeys) if own.runs else ()
        return Domain(values, runs, own.free, missing)

    def _runs(
        self,
        name: str,
        runs: tuple[Run, ...],
        turns: tuple[set[Fraction], bool],
        known: bool,
        obeys: Callable[[Value], bool],
    ) -> tuple[Run, ...]:
        """The parts of runs where a rule holds. Between two numbers at which it can turn, one value speaks for all."""
        grid = self._grids[name]
        numbers, followed = turns
        if followed or not known:
            cells = (cell for run in runs for cell in _cells(run, sorted(number / grid.step for number in numbers)))
        elif sum(high - low + 1 for low, high in runs) <= TRIED:
            cells = ((place, place) for low, high in runs for place in range(low, high + 1))
        else:
            return runs
        return _joined(cell for cell in cells if obeys(grid.value(cell[0])))

    def _first(self, name: str, domain: Domain) -> Value:
        """The value of a settled domain."""
        if domain.runs:
            return self._grids[name].value(domain.runs[0][0])
        return domain.values[0] if domain.values else None

    def _extent(self, name: str, domain: Domain) -> Extent:
        if name in self._grids and domain.runs:
            step = self._grids[name].step
            return Extent(ends=(domain.runs[0][0] * step, domain.runs[-1][1] * step), missing=domain.missing)
        return Extent(listed=None if domain.free else domain.values, missing=domain.missing)


def _cells(run: Run, turns: Iterable[Fraction]) -> list[Run]:
    """A run cut at numbers: each place that is one of them alone, and the stretches between."""
    low, high = run
    cells = []
    for turn in turns:
        if turn < low or turn > high:
            continue
        if ceil(turn) > low:
            cells.append((low, ceil(turn) - 1))
        low = ceil(turn)
        if turn == low:
            cells.append((low, low))
            low += 1
    if low <= high:
        cells.append((low, high))
    return cells


def _joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Neighbouring runs made one."""
    found: list[Run] = []
    for low, high in runs:
        if found and found[-1][1] + 1 == low:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return tuple(found)
