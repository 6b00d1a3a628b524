"""What ε buys, before any of it is spent: rounds, batches, approval share, and the split of ε.

Everything here is computed from public numbers on a public simulation (simulate.py). A plan aims each selection's
winner at the 80th percentile of true closeness. Where that cannot be had it takes fewer rounds, then fewer batches,
and where even one round and one batch cannot reach it, it says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from selpe.config import Adjacency
from selpe.errors import ConfigError
from selpe.method.quotas import Shape, round_quotas
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.measure_plan import Measurable, MeasurePlan, plan_measurement, worth_a_vote
from selpe.privacy.measure_words import nothing_measured
from selpe.privacy.mechanisms import ADJACENCIES, LAWS, Guarantee, Influence, Law, NoisyMax
from selpe.privacy.plan_view import plan_view, plan_words
from selpe.privacy.plan_words import AIM, SMALLEST_POOL, verdict_of, warnings_of
from selpe.privacy.simulation import SHARES, Outlook, paper_outlook, record_outlook, set_outlook

__all__ = ["ChoicePlan", "Plan", "RoundPlan", "make_plan", "round_quotas", "split_epsilon"]

Schedule = Literal["uniform", "increasing"]
Vote = Literal["approval", "closeness", "prototype"]

MOST_ROUNDS = 5  # the paper's T
MOST_BATCHES = 4  # winners become exemplars, and a prompt holds few
DEFAULT_ALPHA = 0.25
GUIDE_SHARE, GUIDE_CAP = 0.15, 0.25
BUNDLE_SHARE, BUNDLE_CAP = 0.65, 3.0
# Where tables are measured they have most of ε. One vote then says whether to take the release with them or the one
# without, and whether to believe what the model says of classes: two or three options take little. Guides take turns,
# and records are steered only where the owner asks for rounds.
MEASURED_BUNDLE_SHARE, MEASURED_BUNDLE_CAP, MEASURED_RECORD_SHARE = 0.15, 0.5, 0.15


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """One round: quota and pool of each class, what it costs, and what to expect of a winner.

    `percentile` and `top_tenth` are means over the classes by their quotas; `by_class` has each class's percentile.
    """

    quota: Mapping[str, int]
    pool: Mapping[str, int]
    epsilon: float
    percentile: float
    top_tenth: float
    by_class: Mapping[str, float]
    paper_percentile: float
    paper_odds: float

    @property
    def weakest(self) -> float:
        """The lowest expected percentile of a class."""
        return min(self.by_class.values())


@dataclass(frozen=True, slots=True)
class ChoicePlan:
    """One choice among whole sets, by all rows at once: what it costs, and what to expect of the set chosen."""

    options: int
    epsilon: float
    percentile: float


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """What a run will do with its ε, and what that can be expected to find. All of it public."""

    units: int
    records: int
    epsilon: float
    adjacency: Adjacency
    rows: Mapping[str, float]
    rounds: tuple[RoundPlan, ...]
    batches: int
    alpha: float
    schedule: Schedule
    vote: Vote
    mechanism: Law
    guarantee: Guarantee
    guide: ChoicePlan | None
    bundle: ChoicePlan | None
    verdict: str
    warnings: tuple[str, ...]
    measure: MeasurePlan | None = None

    @property
    def guide_epsilon(self) -> float | None:
        """The ε of the choice among guides; None where there is none."""
        return None if self.guide is None else self.guide.epsilon

    @property
    def bundle_epsilon(self) -> float | None:
        """The ε of the choice among candidate releases; None where there is none."""
        return None if self.bundle is None else self.bundle.epsilon

    @property
    def record_epsilon(self) -> float:
        """The ε of all rounds together."""
        return math.fsum(part.epsilon for part in self.rounds)

    @property
    def percentile(self) -> float:
        """The expected percentile of a winner in the weakest round."""
        return min(part.percentile for part in self.rounds)

    def prices(self) -> dict[str, float]:
        """The ε of every selection by its name in the ledger."""
        named = {f"round-{t}": part.epsilon for t, part in enumerate(self.rounds, 1)}
        named |= {} if self.guide is None else {"guide": self.guide.epsilon}
        named |= {} if self.measure is None else self.measure.prices()
        return named | ({} if self.bundle is None else {"bundle": self.bundle.epsilon})

    def at(self, prices: Mapping[str, float]) -> Plan:
        """The same plan at other prices."""
        rounds = tuple(replace(part, epsilon=prices[f"round-{t}"]) for t, part in enumerate(self.rounds, 1))
        guide = None if self.guide is None else replace(self.guide, epsilon=prices["guide"])
        bundle = None if self.bundle is None else replace(self.bundle, epsilon=prices["bundle"])
        measure = None if self.measure is None else self.measure.at(prices).fitted(self.adjacency)
        plan = replace(self, rounds=rounds, guide=guide, bundle=bundle, measure=measure)
        return replace(plan, guarantee=_guarantee(plan))

    @property
    def classes_in_question(self) -> bool:
        """Whether the last vote also says if what the model says of classes is to be believed."""
        return self.measure is not None and self.bundle is not None and self.bundle.options > 2

    def measuring(self, measure: MeasurePlan, prices: Mapping[str, float]) -> Plan:
        """The same plan with a measurement that a run has kept, without a guide; the last vote as the prices say."""
        bundle = self.bundle if "bundle" in prices or not prices else None
        if bundle is None and "bundle" in prices:
            bundle = ChoicePlan(2, prices["bundle"], 0.5)  # of a version that let few rows vote, too
        plan = replace(self, measure=measure, guide=None, bundle=bundle)
        return replace(plan, guarantee=_guarantee(plan), verdict=verdict_of(plan))

    def charges(self, run: str, unit: str = "record") -> list[Charge]:
        """What the selections will be charged, each under its name in the ledger."""
        looks = {} if self.measure is None else self.measure.charges(self.adjacency, run, unit)
        return [
            looks.get(name) or Charge(run, name, self.mechanism, cost.add_remove, cost.replace_one, unit=unit)
            for name, cost in _costs(self).items()
        ]

    def steps(self) -> list[str]:
        """The private choices in words, for an outlook."""
        parts = [f"{len(self.rounds)} round{'s' if len(self.rounds) > 1 else ''} (ε {self.record_epsilon:.3g})"]
        if self.measure is not None:
            parts = [*(parts if self.record_epsilon else ()), *self.measure.steps()]
        if self.guide_epsilon is not None:
            parts.insert(0, f"a choice of guide (ε {self.guide_epsilon:.3g})")
        if self.bundle_epsilon is not None:
            parts.append(f"a final choice (ε {self.bundle_epsilon:.3g})")
        return parts

    def __repr__(self) -> str:
        return plan_words(self)

    def _repr_html_(self) -> str:
        return plan_view(self)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data; infinity is the word `inf`, since JSON has no number for it."""
        data = asdict(self) | {"measure": None if self.measure is None else self.measure.to_dict()}
        data |= {"guide_epsilon": self.guide_epsilon, "bundle_epsilon": self.bundle_epsilon}
        data |= {"record_epsilon": self.record_epsilon, "percentile": self.percentile}
        return {name: _plain(value) for name, value in data.items()}


def split_epsilon(epsilon: float, *, guides: bool, bundles: bool) -> tuple[float, float, float]:
    """The ε of guides, records and bundles. Where guides are not voted on, bundles have their part; else records.

    By measurement (docs/results.md): a choice among guides has nearly all it can get at ε = 0.5, one among candidate
    releases gains up to ε = 2, and steering by records gains least. So records have what the other two leave.
    """
    if epsilon == 0 or math.isinf(epsilon):
        return (epsilon if guides else 0.0), epsilon, (epsilon if bundles else 0.0)
    guide = min(GUIDE_CAP, GUIDE_SHARE * epsilon) if guides else 0.0
    share = BUNDLE_SHARE if guides else BUNDLE_SHARE + GUIDE_SHARE
    bundle = min(BUNDLE_CAP, share * epsilon) if bundles else 0.0
    record = epsilon - guide - bundle
    while math.fsum((guide, record, bundle)) > epsilon:  # by rounding
        record = math.nextafter(record, 0.0)
    return guide, record, bundle


def split_measured(epsilon: float, *, steered: bool, bundles: bool) -> tuple[float, float, float]:
    """The ε of measured tables, records and bundles."""
    if epsilon == 0 or math.isinf(epsilon):
        return epsilon, (epsilon if steered else 0.0), (epsilon if bundles else 0.0)
    record = MEASURED_RECORD_SHARE * epsilon if steered else 0.0
    bundle = min(MEASURED_BUNDLE_CAP, MEASURED_BUNDLE_SHARE * epsilon) if bundles else 0.0
    tables = epsilon - record - bundle
    while math.fsum((tables, record, bundle)) > epsilon:  # by rounding
        tables = math.nextafter(tables, 0.0)
    return tables, record, bundle


def make_plan(
    *,
    units: int,
    labels: Sequence[str],
    epsilon: float,
    adjacency: Adjacency = "replace-one",
    records: int,
    multiplicity: int = 3,
    rounds: int | None = None,
    batches: int | None = None,
    alpha: float | None = None,
    schedule: Schedule = "uniform",
    guides: int = 0,
    bundles: int = 0,
    class_sizes: Mapping[str, int] | None = None,
    quotas: Mapping[str, float] | None = None,
    shape: Shape = "progressive",
    vote: Vote = "approval",
    mechanism: Law = "permute-and-flip",
    measure: Measurable | None = None,
) -> Plan:
    """The plan for a table of `units` protected units. What is given by hand is kept, the rest is chosen.

    `guides` and `bundles` are the numbers of options to choose among, 0 where there is no such choice. Without public
    `class_sizes` every class is taken to have the same share of the rows.
    """
    _check(locals())
    names = tuple(labels) or ("",)
    measured, guide_epsilon, record_epsilon, bundle_epsilon = (
        None,
        *split_epsilon(epsilon, guides=guides > 1, bundles=bundles > 1),
    )
    unmeasured = ""
    if measure is not None:
        steered = bool(rounds and rounds > 1)
        tables, record, bundle = split_measured(epsilon, steered=steered, bundles=bundles > 1)
        if not worth_a_vote(units, bundle, adjacency):
            tables, record, bundle = split_measured(epsilon, steered=steered, bundles=False)
        measured = plan_measurement(
            measure, units=units, classes=len(names), epsilon=tables, adjacency=adjacency
        )  # fmt: skip
        unmeasured = nothing_measured(measure, units=units, epsilon=epsilon, tables=tables, adjacency=adjacency)
        if measured is not None:
            guides, rounds, record_epsilon, bundle_epsilon = 0, rounds or 1, record, bundle
            # Nobody chooses among candidates where no round is paid for: one a record will do.
            bundles = min(bundles, 3 if labels else 2) if bundle else 0
            multiplicity = multiplicity if record else 1
    table = _Setting(
        rows=_rows(units, names, class_sizes),
        records=records,
        shares=None if quotas is None else dict(quotas),
        shape=shape,
        multiplicity=multiplicity,
        schedule=schedule,
        vote=vote,
        mechanism=mechanism,
        adjacency=adjacency,
    )
    chosen = _choose(table, record_epsilon, rounds, batches, alpha)
    choices = [
        None if options < 2 else ChoicePlan(options, price, table.set_percentile(units, options, price))
        for options, price in ((guides, guide_epsilon), (bundles, bundle_epsilon))
    ]
    plan = Plan(
        units=units,
        records=records,
        epsilon=epsilon,
        adjacency=adjacency,
        rows=table.rows,
        rounds=table.rounds(chosen, record_epsilon),
        batches=chosen.batches,
        alpha=chosen.alpha,
        schedule=schedule,
        vote=vote,
        mechanism=mechanism,
        guarantee=Guarantee(0.0, 0.0),
        guide=choices[0],
        bundle=choices[1],
        verdict="",
        warnings=(),
        measure=measured,
    )
    plan = replace(plan, guarantee=_guarantee(plan))
    warnings = (*warnings_of(plan, sizes_stated=class_sizes is not None), *([unmeasured] if unmeasured else ()))
    return replace(plan, verdict=verdict_of(plan), warnings=warnings)


# -- the choice -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chosen:
    rounds: int
    batches: int
    alpha: float


@dataclass(frozen=True, slots=True)
class _Setting:
    """What is given: from it, what any choice of rounds, batches and α would lead to."""

    rows: Mapping[str, float]
    records: int
    shares: Mapping[str, float] | None
    shape: Shape
    multiplicity: int
    schedule: Schedule
    vote: Vote
    mechanism: Law
    adjacency: Adjacency

    def rate(self, epsilon: float) -> float:
        """λ, the exponent per vote: a replaced record takes one vote away and gives another."""
        return epsilon / 2 if self.adjacency == "replace-one" else epsilon

    def set_percentile(self, units: int, options: int, epsilon: float) -> float:
        return set_outlook(rows=units, options=options, rate=self.rate(epsilon), law=self.mechanism).percentile

    def outlook(self, label: str, candidates: int, epsilon: float, batches: int, alpha: float) -> Outlook:
        """What to expect of a winner of one class."""
        rows = self.rows[label]
        if self.vote == "prototype":
            return paper_outlook(rows=rows, candidates=_near(candidates), epsilon=epsilon)
        return record_outlook(
            rows=rows,
            candidates=_near(candidates),
            rate=self.rate(epsilon),
            alpha=alpha if self.vote == "approval" else None,
            batches=batches,
            law=self.mechanism,
        )

    def quotas(self, rounds: int) -> list[dict[str, int]]:
        return round_quotas(self.records, tuple(self.rows), rounds, self.shape, self.shares)

    def rounds(self, chosen: _Chosen, epsilon: float) -> tuple[RoundPlan, ...]:
        """Every round as it would be."""
        prices = self.prices(epsilon, chosen.rounds)
        return tuple(
            self._round(quota, price, chosen) for quota, price in zip(self.quotas(chosen.rounds), prices, strict=True)
        )

    def _round(self, quota: Mapping[str, int], epsilon: float, chosen: _Chosen) -> RoundPlan:
        pool = {label: self.multiplicity * size for label, size in quota.items()}
        live = [label for label in pool if pool[label]] or list(pool)
        views = {label: self.outlook(label, pool[label], epsilon, chosen.batches, chosen.alpha) for label in live}
        paper = [paper_outlook(rows=self.rows[x], candidates=_near(pool[x]), epsilon=epsilon).percentile for x in live]
        weights = [quota[label] for label in live] if any(quota.values()) else [1] * len(live)
        total = sum(weights)
        return RoundPlan(
            quota=quota,
            pool=pool,
            epsilon=epsilon,
            percentile=math.fsum(w * views[x].percentile for w, x in zip(weights, live, strict=True)) / total,
            by_class={label: view.percentile for label, view in views.items()},
            top_tenth=math.fsum(w * views[x].top_tenth for w, x in zip(weights, live, strict=True)) / total,
            paper_percentile=math.fsum(w * p for w, p in zip(weights, paper, strict=True)) / total,
            paper_odds=math.exp(epsilon / 2) if epsilon < 1000 else math.inf,
        )

    def weakest(self, chosen: _Chosen, epsilon: float, labels: Sequence[str]) -> float:
        """The lowest expected percentile of these classes in any round."""
        seen = {
            (self.rows[label], _near(self.multiplicity * quota[label]), price): label
            for quota, price in zip(self.quotas(chosen.rounds), self.prices(epsilon, chosen.rounds), strict=True)
            for label in labels
        }
        return min(
            self.outlook(label, candidates, price, chosen.batches, chosen.alpha).percentile
            for (_, candidates, price), label in seen.items()
        )

    def prices(self, epsilon: float, rounds: int) -> list[float]:
        """ε of each round, summing to ε: equal, or growing with the square root of the round's quota."""
        if epsilon == 0 or math.isinf(epsilon):
            return [epsilon] * rounds
        weights = [1.0 if self.schedule == "uniform" else math.sqrt(t) for t in range(1, rounds + 1)]
        total = math.fsum(weights)
        prices = [epsilon * weight / total for weight in weights]
        while math.fsum(prices) > epsilon:  # by rounding: the sum is to stay within what was asked for
            prices[-1] = math.nextafter(prices[-1], 0.0)
        return prices


def _choose(table: _Setting, epsilon: float, rounds: int | None, batches: int | None, alpha: float | None) -> _Chosen:
    """The first of the preferred settings with which every selection meets the aim; else the fewest of both."""
    if epsilon == 0 or math.isinf(epsilon) or table.vote == "prototype":
        # Nothing to weigh: without a price, or with a rule that does not answer to it, the paper's settings stand.
        return _Chosen(rounds or _most_rounds(table), batches or 1, alpha or DEFAULT_ALPHA)
    shares = (alpha,) if alpha is not None else SHARES if table.vote == "approval" else (DEFAULT_ALPHA,)
    every = [label for label, quota in table.quotas(1)[0].items() if quota]
    least = _best(table, epsilon, [_Chosen(rounds or 1, batches or 1, share) for share in shares], every)
    # A class that cannot reach the aim at all is named in a warning; it does not hold the others back.
    able = [x for x in every if table.weakest(least, epsilon, [x]) >= AIM]
    if not able:
        return least
    for t, b in _preferred(_most_rounds(table), rounds, batches):
        found = _best(table, epsilon, [_Chosen(t, b, share) for share in shares], able)
        if table.weakest(found, epsilon, able) >= AIM:
            return found
    return least


def _preferred(most: int, rounds: int | None, batches: int | None) -> list[tuple[int, int]]:
    """Rounds and batches, the most wanted first: fewer rounds before fewer batches, but a single round last.

    A winner steers what is generated after it. With one round nothing is, and it only guides which records are kept.
    """
    many = [batches] if batches else range(MOST_BATCHES, 0, -1)
    if rounds:
        return [(rounds, b) for b in many]
    return [(t, b) for b in many for t in range(most, 1, -1)] + [(1, b) for b in many]


def _best(table: _Setting, epsilon: float, options: Sequence[_Chosen], labels: Sequence[str]) -> _Chosen:
    """The one that serves the weakest of these classes best; they differ in the approval share."""
    return max(options, key=lambda option: table.weakest(option, epsilon, labels)) if len(options) > 1 else options[0]


def _most_rounds(table: _Setting) -> int:
    """The most rounds in which every class still has a pool worth choosing from."""
    for rounds in range(MOST_ROUNDS, 1, -1):
        total = table.quotas(1)[0]
        first = table.quotas(rounds)[0]
        if all(table.multiplicity * first[x] >= SMALLEST_POOL for x in first if total[x]):
            return rounds
    return 1


def _near(candidates: int) -> int:
    """A pool size on a coarse grid: percentiles hardly depend on it, and simulations are shared."""
    if candidates < 4:
        return candidates
    return round(2 ** (round(2 * math.log2(candidates)) / 2))


def _guarantee(plan: Plan) -> Guarantee:
    """The cost of the whole run under both relations."""
    costs = _costs(plan).values()
    return Guarantee(math.fsum(c.add_remove for c in costs), math.fsum(c.replace_one for c in costs))


def _costs(plan: Plan) -> dict[str, Guarantee]:
    """The cost of every selection under both relations, from the maps of the measurements that will run."""
    in_rounds, among_sets = Influence(1, plan.vote != "prototype", len(plan.rows)), Influence()
    measured = {} if plan.measure is None else plan.measure.costs(plan.adjacency, plan.mechanism)
    return {
        name: measured.get(name)
        or NoisyMax(price, plan.adjacency, plan.mechanism)
        .calibrate(in_rounds if name.startswith("round-") else among_sets)
        .guarantee
        for name, price in plan.prices().items()
    }


# -- what is given ----------------------------------------------------------------------------------------------------


def _rows(units: int, labels: Sequence[str], sizes: Mapping[str, int] | None) -> dict[str, float]:
    """The rows of each class: as stated to be public, else equal shares. The true sizes are private."""
    if sizes is None:
        return {label: units / len(labels) for label in labels}
    for label in sizes:
        if label not in labels:
            raise ConfigError(f"'{label}' is not a class of the schema", where="class_sizes")
    missing = [label for label in labels if label not in sizes]
    if missing:
        raise ConfigError(f"a size must be given for every class; '{missing[0]}' has none", where="class_sizes")
    if any(size < 0 for size in sizes.values()):
        raise ConfigError("a class cannot have fewer than 0 rows", where="class_sizes")
    return {label: float(sizes[label]) for label in labels}


def _check(settings: Mapping[str, Any]) -> None:
    for name in ("units", "records", "multiplicity", "rounds", "batches"):
        if settings[name] is not None and settings[name] < 1:
            raise ConfigError(f"{name} must be 1 or more")
    if settings["alpha"] is not None and not 0 < settings["alpha"] < 1:
        raise ConfigError("alpha must lie between 0 and 1")
    if settings["guides"] < 0 or settings["bundles"] < 0:
        raise ConfigError("guides and bundles must be 0 (off) or a number of options")
    known = {"schedule": get_args(Schedule), "vote": get_args(Vote), "adjacency": ADJACENCIES, "mechanism": LAWS}
    for name, values in known.items():
        if settings[name] not in values:
            raise ConfigError(f"{name} must be one of {', '.join(values)}")
    NoisyMax(settings["epsilon"], settings["adjacency"], settings["mechanism"])  # refuses an ε that no selection takes


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value
