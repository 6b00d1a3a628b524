"""Rules that bind while stage II writes: a grammar for each stretch of a record, chosen by what stands before it.

A field that shares a rule with an earlier one begins a stretch of its own. Its grammar allows what the rules leave
once the fields before it are known; the class and the facts are known from the start, wherever they stand. A rule that
cannot be bound is checked as soon as its fields are there: the record then ends, and is written again from the last of
them on. This is a module of its own because the forms (`record_forms`) know nothing of rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from selpe.method.guides import Form
from selpe.method.record_forms import Fact, constraint, fields_of, fixed_value, layout, progress, stretch_rule
from selpe.models.base import Answer, Capabilities
from selpe.schema import Record, Schema, Span, Value
from selpe.schema.narrowing import Domain, Narrowing

_MOST_KEPT = 4096  # grammars of stretches


class RecordSteps:
    """The steps of one kind of request: a schema's record in a form, with these fields fixed.

    What is `settled` is known as well, and not written.
    """

    def __init__(
        self, narrowing: Narrowing, fixed: Mapping[str, Fact], form: Form, settled: Mapping[str, Value] | None = None
    ) -> None:
        self._narrowing = narrowing
        self._schema = narrowing.schema
        self._settled = dict(settled or {})
        self._fields = fields_of(self._schema, self._settled)
        self._fixed = {**fixed, **self._settled}
        self._form = form
        self._values = {name: fact for name, fact in self._fixed.items() if not isinstance(fact, Span)}
        self._layout = layout(self._fields, form)
        self._grammars: dict[tuple[int, tuple[Domain, ...]], str] = {}

    def __repr__(self) -> str:
        # What tells requests apart: the rest stands in the grammar of the whole record, which each of them has, too.
        return "; ".join(rule.text for rule in self._schema.rules)

    def __reduce__(self) -> tuple[object, ...]:
        # To another process goes the schema as text: there, requests of one schema share what is worked out for it.
        fixed = tuple((name, fact) for name, fact in self._fixed.items() if name not in self._settled)
        return _restored, (self._schema.to_yaml(), fixed, self._form, tuple(self._settled.items()))

    @property
    def needed(self) -> bool:
        """False where the rules are about fixed values alone: then one grammar for the whole record does the same.

        Where some fields are settled, each further one has a grammar of its own, which other records need as well.
        """
        return bool(self._settled) or bool(self._bound - self._values.keys())

    def after(self, text: str) -> str | None:
        """The grammar of the stretch behind this text; None where the record is whole, or can no longer be valid."""
        record, places = progress(self._schema, text, self._form, self._settled)
        number = len(record)
        if text and (number == len(places) or list(places.values())[number] != len(text)):
            return None
        domains = self._left(record)
        return None if domains is None else self._grammar(number, domains)

    def kept(self, text: str) -> str:
        """The longest beginning of a record that breaks rules with which it can still be valid."""
        record, places = progress(self._schema, text, self._form, self._settled)
        free = [name for name in record if name in self._bound and name not in self._values]
        for name in reversed(free):
            before = {other: value for other, value in record.items() if places[other] < places[name]}
            if self._left(before) is not None:
                return text[: places[name]]
        return ""

    def _left(self, record: Record) -> dict[str, Domain] | None:
        """What is left of every field behind this beginning of a record; None where that is nothing."""
        known = {**self._fixed, **{name: value for name, value in record.items() if name in self._bound}}
        written: dict[str, Value] = {**self._values, **record}
        for rule in self._schema.rules:
            if written.keys() >= set(rule.fields) and not rule.holds(written):
                return None
        domains = self._narrowing.domains(known)
        return None if any(domain.empty for domain in domains.values()) else domains

    @cached_property
    def _bound(self) -> frozenset[str]:
        return frozenset(name for rule in self._schema.rules for name in rule.fields)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The numbers of the fields at which a stretch begins."""
        if self._settled:
            return tuple(range(len(self._fields)))
        place = {name: number for number, name in enumerate(self._schema.names)}
        starts = {0}
        groups: list[set[int]] = []
        for rule in self._schema.rules:
            free = {place[name] for name in rule.fields if name not in self._values}
            # As soon as its last field is there, a rule is checked.
            starts |= {max(free) + 1} if free else set()
            linked = [group for group in groups if group & free]
            groups = [group for group in groups if not group & free] + [free.union(*linked)]
        for group in groups:
            for number in sorted(group)[1:]:
                starts |= {number, number + 1}
        return tuple(sorted(starts - {len(place)}))

    def _grammar(self, first: int, domains: Mapping[str, Domain]) -> str:
        """The values from one field up to the next stretch, each with what stands behind it."""
        last = next((start for start in self._starts if start > first), len(self._fields))
        key = (first, tuple(domains[field.name] for field in self._fields[first:last]))
        if key not in self._grammars:
            if len(self._grammars) >= _MOST_KEPT:
                self._grammars.clear()
            self._grammars[key] = self._written(first, last, domains)
        return self._grammars[key]

    def _written(self, first: int, last: int, domains: Mapping[str, Domain]) -> str:
        line = [] if first else [_quoted(self._layout[0])]
        rules = []
        for number in range(first, last):
            field = self._fields[number]
            if field.name in self._values:
                value = fixed_value(field, self._values[field.name], self._form)
            else:
                value = f"value_{self._schema.names.index(field.name)}"
                domain = domains[field.name]
                runs = self._narrowing.runs(field.name, domain) if domain.runs else ()
                rules.append(f"{value}: {stretch_rule(field, domain, runs, self._form)}")
            line += ['" "', value, _quoted(self._layout[number + 1])]
        return "\n".join([f"start: {' '.join(line)}", *rules, ""])


def limits(
    narrowing: Narrowing,
    fixed: Mapping[str, Fact],
    form: Form,
    capabilities: Capabilities,
    settled: Mapping[str, Value] | None = None,
) -> dict[str, Any]:
    """What a request carries so that its answer is a record in this form which obeys the rules as far as they bind.

    A constraint without steps goes by what is fixed alone: with it, rules between open fields are checked afterwards.
    Fields that are `settled` are not written.
    """
    steps = RecordSteps(narrowing, fixed, form, settled)
    whole = constraint(*narrowing.settled({**fixed, **(settled or {})}), form, without=settled or ())
    return {**whole, "steps": steps} if capabilities.steps and steps.needed else whole


def consistent(narrowing: Narrowing, fixed: Mapping[str, Fact], values: Record) -> Record:
    """Those of some valid values, in schema order, with which a record can obey the rules."""

    def possible(some: Record) -> bool:
        known = {**fixed, **some}
        exact = {name: fact for name, fact in known.items() if not isinstance(fact, Span)}
        whole = (rule for rule in narrowing.schema.rules if exact.keys() >= set(rule.fields))
        return all(rule.holds(exact) for rule in whole) and not any(
            domain.empty for domain in narrowing.domains(known).values()
        )

    if possible(values):
        return values
    found: Record = {}
    for name in narrowing.schema.names:
        if name in values and possible({**found, name: values[name]}):
            found[name] = values[name]
    return found


def kept(answer: Answer) -> str:
    """What can be kept of a record that breaks rules: a beginning that a follow-up goes on from; '' for nothing."""
    steps = answer.request.steps
    return steps.kept(answer.request.begun + answer.text) if isinstance(steps, RecordSteps) else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@lru_cache(maxsize=8)
def _narrowing_of(schema: str) -> Narrowing:
    return Narrowing(Schema.from_yaml(schema))


@lru_cache(maxsize=256)
def _restored(
    schema: str, fixed: tuple[tuple[str, Fact], ...], form: Form, settled: tuple[tuple[str, Value], ...]
) -> RecordSteps:
    return RecordSteps(_narrowing_of(schema), dict(fixed), form, dict(settled))
