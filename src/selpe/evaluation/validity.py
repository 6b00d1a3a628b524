"""Validity of raw model output against a schema: R-CFG (rough), S-CFG (strict), and their rates over many outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

from selpe.evaluation.grammar import rough_grammar, strict_grammar
from selpe.evaluation.rough import RoughParser, RoughVerdict
from selpe.evaluation.strict import StrictParser, StrictVerdict
from selpe.schema import Record, Schema

__all__ = [
    "RoughVerdict",
    "StrictVerdict",
    "Validator",
    "ValidityReport",
    "extract",
    "rough",
    "rough_grammar",
    "score",
    "strict",
    "strict_grammar",
    "validator",
]


class Validator:
    """Both validators of one schema, each built when it is first asked for."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @cached_property
    def _rough(self) -> RoughParser:
        return RoughParser(self.schema)

    @cached_property
    def _strict(self) -> StrictParser:
        return StrictParser(self.schema)

    def rough(self, raw: str) -> RoughVerdict:
        """R-CFG's verdict on one raw output."""
        return self._rough.judge(raw)

    def strict(self, raw: str) -> StrictVerdict:
        """S-CFG's verdict on one raw output."""
        return self._strict.judge(raw)

    def extract(self, raw: str) -> Record:
        """The fields that can be read from free text, converted by kind; None for the rest. No domain check."""
        return self._rough.extract(raw)


_KEPT = 32
_validators: dict[str, Validator] = {}
_lock = Lock()


def validator(schema: Schema) -> Validator:
    """The validator of a schema; schemas that say the same share one."""
    fingerprint = schema.fingerprint()
    with _lock:
        known = _validators.pop(fingerprint, None) or Validator(schema)
        _validators[fingerprint] = known
        while len(_validators) > _KEPT:
            _validators.pop(next(iter(_validators)))
    return known


def rough(raw: str, schema: Schema) -> RoughVerdict:
    """R-CFG's verdict on one raw output: every required field found, and readable for its kind."""
    return validator(schema).rough(raw)


def strict(raw: str, schema: Schema) -> StrictVerdict:
    """S-CFG's verdict on one raw output: one JSON object, its domains, its rules."""
    return validator(schema).strict(raw)


def extract(raw: str, schema: Schema) -> Record:
    """The fields that can be read from free text, converted by kind; None for the rest. No domain check."""
    return validator(schema).extract(raw)


@dataclass(frozen=True, slots=True)
class ValidityReport:
    """How many outputs reach each level, and which fields fail where."""

    total: int = 0
    rough: int = 0
    syntax: int = 0
    domain: int = 0
    rules: int = 0
    # level ("rough", "syntax", "domain", "rule") -> field, or the rule's text -> number of outputs
    violations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def rate(self, level: str) -> float:
        """The share of outputs that reach a level: rough, syntax, domain or rules. Without outputs, 0."""
        return float(self.counts[level]) / self.total if self.total else 0.0

    @property
    def counts(self) -> dict[str, int]:
        """The number of outputs that reach each level."""
        return {"rough": self.rough, "syntax": self.syntax, "domain": self.domain, "rules": self.rules}

    @property
    def r_cfg(self) -> float:
        """The paper's R-CFG: the share of outputs with every required field present and readable."""
        return self.rate("rough")

    @property
    def s_cfg(self) -> float:
        """The paper's S-CFG: the share of outputs that are valid records, rules included."""
        return self.rate("rules")

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "total": self.total,
            "counts": self.counts,
            "rates": {level: self.rate(level) for level in self.counts},
            "violations": {level: dict(by_field) for level, by_field in self.violations.items()},
        }


def score(raws: Sequence[str], schema: Schema) -> ValidityReport:
    """The rates of R-CFG and of S-CFG's levels over raw outputs, with violations counted by level and field."""
    judge = validator(schema)
    return tally((judge.rough(raw), judge.strict(raw)) for raw in raws)


def tally(verdicts: Iterable[tuple[RoughVerdict, StrictVerdict]]) -> ValidityReport:
    """The report of verdicts that have been passed already."""
    reached: Counter[str] = Counter()
    violations: dict[str, Counter[str]] = {level: Counter() for level in ("rough", "syntax", "domain", "rule")}
    for loose, exact in verdicts:
        reached.update(total=1, rough=loose.ok, syntax=exact.syntax, domain=exact.domain, rules=exact.rules)
        violations["rough"].update((*loose.missing, *loose.unparsable))
        for level, name in {(each.level, each.rule or each.field) for each in exact.violations}:
            violations[level][name] += 1
    return ValidityReport(**reached, violations={level: dict(counts) for level, counts in violations.items()})
