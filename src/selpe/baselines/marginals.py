"""AIM and MST: what a statistician would take for the structured fields (McKenna et al. 2021 and 2022).

Numbers and dates have bins and categories their values, by the same public codebooks as measured tables (ours). A few
low marginals are measured with noise, a graphical model is fitted to them, and records are drawn from it by class in
public quotas. Such a method knows nothing of texts: they stay empty, or the run's model writes them around the fields.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from selpe.baselines.reading import released
from selpe.baselines.records import write_records
from selpe.baselines.writing import seed_of
from selpe.config import RunConfig
from selpe.config.methods import MarginalSettings
from selpe.errors import ConfigError
from selpe.events import Finished, Selected, StageStarted, Started
from selpe.method.codebooks import BinnedCodes, Codebook, ListedCodes
from selpe.method.facts import some_value
from selpe.method.generation import Proposal
from selpe.method.guides import default_guide
from selpe.method.measuring import ClassCodes
from selpe.method.quotas import class_quotas
from selpe.privacy.counts import Coder
from selpe.privacy.marginal_plan import STEP, MarginalPlan
from selpe.privacy.marginals import MarginalQuery
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate, estimate
from selpe.run.methods import Parts, RawOutput, Recipe, SpendingPlan, Synthesized, Synthesizer
from selpe.schema import BooleanField, CategoryField, Record, Schema, TextField, Value

TRIES = 50  # lines of codes for a record, until its values agree with the rules
WRITINGS = 4  # of texts around a record, each with fields of its own
NEUTRAL = "-"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a schema that have codes, and the way back from codes to a record."""

    schema: Schema
    books: tuple[Codebook, ...]

    @classmethod
    def of(cls, schema: Schema, bins: int) -> Columns:
        """A column for each field that is no text; numbers and dates have bins at quantiles of public examples."""
        found: list[Codebook] = []
        for one in schema.fields:
            if isinstance(one, TextField) or one.name == schema.label:
                continue
            if isinstance(one, CategoryField | BooleanField):
                found.append(ListedCodes(one))
            else:
                known = [record[one.name] for record in schema.examples if record.get(one.name) is not None]
                found.append(BinnedCodes(one, known, bins))  # type: ignore[arg-type]
        return cls(schema, tuple(found))

    @property
    def axes(self) -> tuple[Coder, ...]:
        """The class, if there is one, and all columns."""
        return (ClassCodes(self.schema), *self.books) if self.schema.labels else self.books

    @property
    def digest(self) -> str:
        """A hash of all codes, so that stored marginals are never taken for those of others."""
        return hashlib.sha256(repr([book.to_dict() for book in self.books]).encode()).hexdigest()

    def record(self, label: str, codes: Sequence[int], chance: random.Random) -> Record:
        """A record of these codes, with texts that say nothing."""
        record: dict[str, Value] = {
            one.name: neutral_text(one) for one in self.schema.fields if isinstance(one, TextField)
        }
        for book, code in zip(self.books, codes, strict=True):
            record[book.name] = some_value(book.field, book.fact(int(code), label or None, chance), chance)
        if self.schema.label is not None:
            record[self.schema.label] = self.schema.label_value(label)
        return {name: record[name] for name in self.schema.names}


def neutral_text(one: TextField) -> str | None:
    """The same text for every record: none, the empty one, or else the shortest row of dashes."""
    if one.optional:
        return None
    text = NEUTRAL * one.min_length
    if one.check(text) is not None:
        raise ConfigError(
            f"'{one.name}' must match a pattern, and there is no neutral text for it",
            where="texts",
            hint="make the field optional, or have texts written: 'texts: written'",
        )
    return text


@dataclass(slots=True)
class MarginalTables:
    """A Synthesizer that draws records from a graphical model of noisy marginals."""

    parts: Parts
    plan: MarginalPlan
    settings: MarginalSettings
    _columns: Columns = field(init=False)

    def __post_init__(self) -> None:
        self._columns = Columns.of(self.parts.schema, self.settings.bins)

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """Records drawn from the model, with texts around them if the settings ask for it."""
        from selpe.baselines.graphical import GraphicalModel

        parts, plan = self.parts, self.plan.at(budget)
        quotas = class_quotas(parts.config.records, schema.labels, parts.config.quotas)
        parts.emit(Started(1, sum(quotas.values()), self.plan.candidates))
        parts.emit(StageStarted("measure", 0, 0))
        query = query_of(plan, self._columns, self.settings)
        made = table.marginals(
            query,
            lambda tables: GraphicalModel.fitted(query.shape, tables),
            noise=plan.noise(test_seed=parts.test_seed),
            selection=STEP,
            context=self._columns.digest,
        )
        cost = made.guarantee
        parts.emit(Selected(STEP, made.mechanism, cost.add_remove, cost.replace_one, made.private, made.replayed))
        model = GraphicalModel.fitted(query.shape, made.tables)
        if self.settings.texts == "written":
            outputs = self._written(model, quotas)
        else:
            drawn = self._drawn(model, quotas, 0)
            outputs = [RawOutput(schema.dumps(record), label or None, record) for label, record in drawn]
        records = released(outputs)
        parts.emit(Finished(len(records)))
        names = [" × ".join(query.names[axis] for axis in one.axes) for one in made.tables]
        notes = {"marginals": list(dict.fromkeys(names)), "missing": sum(quotas.values()) - len(records)}
        return Synthesized(records, tuple(outputs), (made,), notes)

    def _drawn(self, model: Any, quotas: Mapping[str, int], attempt: int) -> list[tuple[str, Record]]:
        """Records by class that agree with the rules; fewer where none was found in some tries."""
        found = []
        for label, quota in quotas.items():
            seed = seed_of(self.parts.config.seed, "marginals", attempt, label)
            numbers, chance = np.random.default_rng(seed), random.Random(seed)
            first = self.parts.schema.labels.index(label) if label else None
            missing = quota
            for _ in range(TRIES):
                if not missing:
                    break
                lines = model.draw(missing, numbers, first)[:, 1 if label else 0 :]
                records = [self._columns.record(label, line, chance) for line in lines.tolist()]
                fitting = [record for record in records if not self.parts.schema.check(record)]
                found += [(label, record) for record in fitting]
                missing -= len(fitting)
        return found

    def _written(self, model: Any, quotas: Mapping[str, int]) -> list[RawOutput]:
        """Records whose texts the run's model writes around the fields, which bind while it writes."""
        parts, found = self.parts, list[RawOutput]()
        guide = default_guide(parts.model.name, parts.model.capabilities())
        missing = dict(quotas)
        for attempt in range(WRITINGS):
            drawn = self._drawn(model, missing, attempt)
            proposals = [
                Proposal(
                    guide,
                    seed_of(parts.config.seed, "texts", attempt, i),
                    label=label or None,
                    facts=tuple((book.name, record[book.name]) for book in self._columns.books),
                )
                for i, (label, record) in enumerate(drawn)
            ]
            taken = [output.record for output in found if output.record is not None]
            for made in write_records(parts, "measured", attempt + 1, proposals, taken=taken):
                if made is not None:
                    found.append(RawOutput(made.raw, made.proposal.label, made.record))
                    missing[made.proposal.label or ""] -= 1
            if not any(missing.values()):
                break
        return found


def require_marginals(method: str) -> None:
    """Raises ConfigError where the extra is not installed: asked before anything is charged."""
    if find_spec("mbi") is None:
        raise ConfigError(f"'{method}' needs mbi (Private-PGM)", hint="install selpe[marginals]", where="method")


def query_of(plan: MarginalPlan, columns: Columns, settings: MarginalSettings) -> MarginalQuery:
    """What the table is asked for."""
    if plan.algorithm is None:
        raise ConfigError("this plan measures no marginals")
    target = bool(columns.schema.labels) and settings.target
    return MarginalQuery(plan.algorithm, columns.axes, settings.degree, target)


def _settings(config: RunConfig) -> MarginalSettings:
    return config.aim if config.method == "aim" else config.mst


def _plan(config: RunConfig, schema: Schema, units: int) -> MarginalPlan:
    require_marginals(config.method)
    settings = _settings(config)
    columns = Columns.of(schema, settings.bins)
    if len(columns.axes) < 2:
        raise ConfigError(
            f"{config.method} measures fields that are no texts, and this schema has too few of them",
            where=schema.name,
            hint="take another method, or declare numbers, dates or categories",
        )
    if settings.texts == "empty":
        for one in schema.fields:
            if isinstance(one, TextField):
                neutral_text(one)
    plan = MarginalPlan(
        "aim" if config.method == "aim" else "mst", units, config.records, config.epsilon, config.delta,
        config.adjacency, config.epsilon, tuple(axis.name for axis in columns.axes),
        candidates=config.records if settings.texts == "written" else 0,
    )  # fmt: skip
    query_of(plan, columns, settings)
    plan.charges("plan")  # an ε too small for the δ is refused here
    return plan


def _estimate(config: RunConfig, schema: Schema, plan: SpendingPlan, runs: Sequence[Mapping[str, Any]]) -> Estimate:
    written = plan.candidates if isinstance(plan, MarginalPlan) else 0
    return estimate(config, schema, candidates=written, runs=runs, steered=False)


def _build(parts: Parts) -> Synthesizer:
    if not isinstance(parts.plan, MarginalPlan):
        raise ConfigError(f"{parts.config.method} needs a plan of marginals")
    return MarginalTables(parts, parts.plan, _settings(parts.config))


RECIPE = Recipe(_plan, _estimate, _build)
