"""Measured tables as something to draw from (ours): facts for new records, at no cost and as often as wanted.

A record that the model wrote is changed only as far as the measured shares demand: it keeps its own code with
probability min(1, posterior / prior), and else gets one of those that the model writes too rarely (a maximal coupling
of the two distributions). So what the model has right stays as it wrote it. Nothing here has seen a private row.

A model also says things of a class that are not so: on loan files four fifths of what tells its classes apart was made
up, and drowned what was measured. How much of what it says the noisy counts bear out is known where it was measured,
and as much is believed of the rest: so often the rest of a record is what the model wrote for the class, and else what
it wrote for any class. Where rows are enough for a last vote, they may also ask there for no belief at all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.method.codebooks import Codebook, is_short
from selpe.method.posterior import Matrix, NoiseLaw
from selpe.method.record_forms import Fact, agrees
from selpe.privacy.counts import Counts
from selpe.schema import Field, NumberField, Record, Schema, Span, TextField, Value

SHOWN = 2  # synthetic exemplars of a drawn cluster of long texts
_TRIES = 20  # at facts that agree with the rules

Facts: TypeAlias = tuple[tuple[str, Fact], ...]


@dataclass(frozen=True, slots=True)
class MeasuredField:
    """One field as it was measured: its codes, the model's own shares of them, and those by the noisy counts.

    Rows of both are classes, one row alone without a label. `counts` are the noisy counts of the last look. Of what the
    model says of classes in this field the counts bear out the part `believed`; the model itself would say the part
    `steady` of it again.
    """

    codebook: Codebook
    prior: Matrix
    shares: Matrix
    counts: NDArray[np.int64]
    prior_kept: float
    believed: float = 1.0
    steady: float = 1.0


@dataclass(frozen=True, slots=True)
class MeasuredLook:
    """One look at the private table: what it released, and each field as it stood after it, with its codes then."""

    name: str
    counts: Counts
    fields: Mapping[str, MeasuredField]


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Two fields counted together: how much likelier each pair is than its parts within the classes alone say.

    `tilt` is that by the noisy counts, `model_tilt` by the model's own records.
    """

    names: tuple[str, str]
    tilt: Matrix
    counts: NDArray[np.int64]
    model_tilt: Matrix


@dataclass(frozen=True, slots=True)
class DrawnFacts:
    """What a new record is to have: facts that bind, and synthetic exemplars where a long text cannot be bound.

    `beside` is a record of the model's from which the facts that were not measured come, where they come from one of
    any class; the record is then written without a word on its class.
    """

    facts: Facts
    exemplars: tuple[Record, ...] = ()
    beside: Record | None = None


@dataclass(frozen=True)
class MeasuredTables:
    """The distributions that new records are drawn from. All of it follows from noisy counts and public things.

    `fields` are as the last of the `looks` left them. What of it is released is put together in run/measurements.py.
    `apart`: what was not measured comes from records of any class always, whatever is to be believed.
    """

    schema: Schema
    fields: Mapping[str, MeasuredField]
    pairs: tuple[MeasuredPair, ...]
    noise: NoiseLaw
    looks: tuple[MeasuredLook, ...]
    pool: Mapping[str, tuple[Record, ...]] = field(repr=False)
    apart: bool = False

    @property
    def name(self) -> str:
        """What a release that is written by them is called."""
        return "measured, the rest of any class" if self.apart else "measured"

    def kept_apart(self) -> MeasuredTables:
        """The same tables, where what was not measured comes from records of any class."""
        return replace(self, apart=True)

    @cached_property
    def believed(self) -> float:
        """How much of what the model says of classes in what was not measured is taken for true, 0 to 1.

        Texts are judged by the texts that were measured and other fields by others; where none of a kind was, the model
        is believed. What a record says of its class it says in all of these fields, so their mean counts.
        """
        if self.apart:
            return 0.0
        rest = [one for one in self.schema.fields if one.name not in self.fields and one.name != self.schema.label]
        texts = sum(isinstance(one, TextField) for one in rest)
        told = texts * self._borne_out(texts=True) + (len(rest) - texts) * self._borne_out(texts=False)
        return told / len(rest) if rest else 1.0

    def _borne_out(self, *, texts: bool) -> float:
        """How much counts bear out of what the model says of classes and would say again, in texts or elsewhere."""
        found = [one for one in self.fields.values() if isinstance(one.codebook.field, TextField) == texts]
        steady = sum(one.steady for one in found)
        return min(1.0, sum(one.believed for one in found) / steady) if steady else 1.0

    def draft(self, label: str, own: Record, chance: random.Random) -> Record:
        """A record with facts put into it that is not written around them yet: enough to vote on."""
        drawn = self.draw(label, own, chance)
        if drawn is None:
            return own
        record = dict(own if drawn.beside is None else drawn.beside)
        if self.schema.label is not None:
            record[self.schema.label] = own[self.schema.label]
        for name, fact in drawn.facts:
            one = self.schema.field(name)
            if not isinstance(fact, Span) or not agrees(one, record.get(name), fact):
                record[name] = some_value(one, fact, chance)
        for name in self._by_code:
            if drawn.exemplars:  # a long text cannot be bound; the vote sees one of those that the model will be shown
                record[name] = drawn.exemplars[-1].get(name)
        return record

    def draw(
        self, label: str, own: Record | None, chance: random.Random, given: Mapping[str, Fact] | None = None
    ) -> DrawnFacts | None:
        """Facts for a record of a class; None where `own`, a record of the model's, may stay as it is.

        Fields in `given` have what is given there.
        """
        drawn = self._draw(label, own, chance, given or {})
        for _ in range(_TRIES):
            if drawn is None or self._possible(label, drawn.facts):
                return drawn
            drawn = self._draw(label, own, chance, given or {})
        if drawn is None:
            return None
        spoiled = {name for rule in self.schema.rules for name in rule.fields} - set(given or {})
        return replace(drawn, facts=tuple(fact for fact in drawn.facts if fact[0] not in spoiled))

    def _draw(
        self, label: str, own: Record | None, chance: random.Random, given: Mapping[str, Fact]
    ) -> DrawnFacts | None:
        row = self.schema.labels.index(label) if label else 0
        beside = None if chance.random() < self.believed else chance.choice(self._everything)
        own = None if beside is not None else own
        facts: dict[str, Fact] = {} if beside is None else self._taken(beside)
        facts |= {name: fact for name, fact in given.items() if name not in self.fields}
        codes: dict[str, int] = {}
        had: dict[str, int] = {}
        exemplars: list[Record] = []
        changed = bool(given)
        for name, measured in self.fields.items():
            if name in given:
                facts[name] = given[name]
                continue
            shares = self._tilted(name, measured.shares[row], codes)
            # What the model writes here goes with what it has written there: the coupling is of these two.
            prior = self._tilted(name, measured.prior[row], had, of_model=True)
            had[name] = known = -1 if own is None else measured.codebook.code_of_public(own)
            if own is not None and known >= 0 and chance.random() * prior[known] < shares[known]:
                codes[name] = known
                facts[name] = own.get(name)
                continue
            changed = True
            codes[name] = code = _pick(np.maximum(shares - prior, 0.0) if own is not None else shares, chance)
            if self._binds(measured.codebook) or measured.codebook.is_missing(code):
                facts[name] = measured.codebook.fact(code, label or None, chance)
            else:
                exemplars += self._exemplars(name, code, label, chance)
        if own is not None and not changed:
            return None
        names = [
            name for name in self.schema.names if name in facts and (name in given or self._told(name, facts[name]))
        ]
        return DrawnFacts(tuple((name, facts[name]) for name in names), tuple(exemplars[-SHOWN:]), beside)

    def _taken(self, beside: Record) -> dict[str, Fact]:
        """What a record of any class gives to another: all that is not measured, but long texts are written anew."""
        others = (one for one in self.schema.fields if one.name not in self.fields and one.name != self.schema.label)
        short = (one.name for one in others if not isinstance(one, TextField) or is_short(one, self.schema))
        return {name: beside.get(name) for name in short}

    @cached_property
    def _everything(self) -> list[Record]:
        return [record for records in self.pool.values() for record in records]

    def _binds(self, codebook: Codebook) -> bool:
        one = codebook.field
        return not isinstance(one, TextField) or is_short(one, self.schema)

    def _told(self, name: str, fact: Fact) -> bool:
        """Whether a fact binds. A long text that was kept is written anew: it may contradict what has changed."""
        return fact is None or name not in self.fields or self._binds(self.fields[name].codebook)

    def _tilted(
        self, name: str, shares: NDArray[np.float64], codes: Mapping[str, int], *, of_model: bool = False
    ) -> NDArray[np.float64]:
        """Shares in the light of the codes that a record has already, where the fields were counted together."""
        for pair in self.pairs:
            if name in pair.names:
                other = pair.names[1 - pair.names.index(name)]
                if codes.get(other, -1) >= 0:
                    tilt = pair.model_tilt if of_model else pair.tilt
                    shares = shares * (tilt[codes[other]] if pair.names[1] == name else tilt[:, codes[other]])
        return np.asarray(shares / shares.sum())

    def _exemplars(self, name: str, code: int, label: str, chance: random.Random) -> list[Record]:
        """Records of the pool with a text of this code, of the same class if there are any."""
        alike = self._by_code[name].get((label, code)) or self._by_code[name].get(("", code), [])
        return chance.sample(alike, min(SHOWN, len(alike)))

    @cached_property
    def _by_code(self) -> dict[str, dict[tuple[str, int], list[Record]]]:
        """The pool's records by class and code, and under '' by code alone, for long texts."""
        found: dict[str, dict[tuple[str, int], list[Record]]] = {}
        for name, measured in self.fields.items():
            if self._binds(measured.codebook):
                continue
            found[name] = {}
            for label, records in self.pool.items():
                for record in records:
                    code = measured.codebook.code_of_public(record)
                    for key in {(label, code), ("", code)}:
                        found[name].setdefault(key, []).append(record)
        return found

    def _possible(self, label: str, facts: Facts) -> bool:
        """Whether some values of these facts agree with the rules among them and the class."""
        known = dict(facts)
        if label and self.schema.label is not None:
            known[self.schema.label] = self.schema.label_value(label)
        rules = [rule for rule in self.schema.rules if known.keys() >= set(rule.fields)]
        chance = random.Random(0)
        return not rules or any(
            all(rule.holds(values) for rule in rules)
            for values in ({name: _some_value(fact, chance) for name, fact in known.items()} for _ in range(_TRIES))
        )


def some_value(one: Field, fact: Fact, chance: random.Random) -> Value:
    """A value of a field that a fact allows; in a span each is as likely."""
    return _on_grid(one, _some_value(fact, chance))


def _some_value(fact: Fact, chance: random.Random) -> Any:
    if not isinstance(fact, Span):
        return fact
    low, high = fact.low, fact.high
    if isinstance(low, int) and isinstance(high, int):
        return chance.randint(low, high)
    if isinstance(low, date) or isinstance(high, date):  # then both are
        first, last = (date.fromisoformat(str(end)).toordinal() for end in (low, high))
        return date.fromordinal(chance.randint(first, last)).isoformat()
    return float(low) + chance.random() * (float(high) - float(low))


def _on_grid(one: Field, value: Value) -> Value:
    """A value as the field has it: numbers in whole steps."""
    if not isinstance(one, NumberField) or not isinstance(value, float):
        return value
    return float(round(value / float(one.step)) * one.step)


def _pick(weights: NDArray[np.float64], chance: random.Random) -> int:
    if not weights.sum() > 0:
        weights = np.ones(len(weights))
    return chance.choices(range(len(weights)), weights.tolist())[0]
