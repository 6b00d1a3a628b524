"""What a ledger's lines mean: charges, caps, what was spent, and whether one more charge fits."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from selpe.config import Adjacency
from selpe.errors import BudgetError, ConfigError
from selpe.privacy.accounting import (
    Event,
    Gaussian,
    Pure,
    event_from_dict,
    event_to_dict,
    filter_order,
    pure_and_gaussian,
    rdp_epsilon,
)

Composition: TypeAlias = Literal["basic", "joint", "gaussian"]
COMPOSITIONS: tuple[Composition, ...] = ("basic", "joint", "gaussian")
# Shares of an ε do not add up to it in floating point (six times 5/6 is more than 5). One part in a billion is
# below anything a guarantee is stated to.
_SLACK = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Charge:
    """One private look at a table, priced under both neighbour relations.

    `epsilon = inf` is a control without noise: it is recorded, and marks the table for good. The events, one
    per relation, let a later report compose more tightly; without them an ε with δ = 0 counts as pure.
    """

    run: str
    selection: str
    mechanism: str
    epsilon_add_remove: float
    epsilon_replace_one: float
    delta: float = 0.0
    unit: str = "record"
    note: str = ""
    event_add_remove: Event | None = None
    event_replace_one: Event | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon_add_remove", "epsilon_replace_one"):
            if not getattr(self, name) >= 0:  # also refuses nan
                raise ConfigError(f"{name} of a charge must be 0 or more")
        if not 0 <= self.delta < 1:
            raise ConfigError("delta of a charge must be at least 0 and below 1")
        if not self.run or not self.selection:
            raise ConfigError("a charge must name its run and its selection")

    @property
    def private(self) -> bool:
        """False for a control without noise."""
        return math.isfinite(self.epsilon_add_remove) and math.isfinite(self.epsilon_replace_one)

    @property
    def free(self) -> bool:
        """True where the data is not read at all."""
        return self.epsilon_add_remove == self.epsilon_replace_one == self.delta == 0

    def epsilon(self, relation: Adjacency) -> float:
        """The charge's ε under one relation."""
        return self.epsilon_add_remove if relation == "add-remove" else self.epsilon_replace_one

    def event(self, relation: Adjacency) -> Event | None:
        """What happened, for joint accounting; None where only an (ε, δ) pair is known."""
        given = self.event_add_remove if relation == "add-remove" else self.event_replace_one
        return given or (Pure(self.epsilon(relation)) if self.delta == 0 else None)

    def to_dict(self) -> dict[str, Any]:
        """The charge as plain data; infinity is the word `inf`, since JSON has no number for it."""
        data: dict[str, Any] = {
            "run": self.run,
            "selection": self.selection,
            "mechanism": self.mechanism,
            "epsilon_add_remove": _number(self.epsilon_add_remove),
            "epsilon_replace_one": _number(self.epsilon_replace_one),
            "delta": float(self.delta),
            "unit": self.unit,
        }
        if self.note:
            data["note"] = self.note
        for name in ("event_add_remove", "event_replace_one"):
            if self.private and (event := getattr(self, name)) is not None:
                data[name] = event_to_dict(event)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Charge:
        """The charge that a ledger line describes."""
        fields = dict(data)
        for name in ("epsilon_add_remove", "epsilon_replace_one"):
            fields[name] = float(fields[name])
        for name in ("event_add_remove", "event_replace_one"):
            if name in fields:
                fields[name] = event_from_dict(fields[name])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of payment for one draw; it can be used to store one result."""

    dataset: str
    seq: int
    sum: str
    charge: Charge


@dataclass(frozen=True, slots=True)
class Budget:
    """The cap on a table: ε under one neighbour relation, and δ.

    `basic` adds up every ε and δ. `joint`, the choice where δ > 0, admits a charge while either all charges
    are pure and Σ ε stays below the cap, or the Rényi divergences of all events, at the one order that the cap
    fixes, stay below it. `gaussian`, for methods that add Gaussian noise, adds up what is pure and takes all Gaussian
    noise for the one Gaussian mechanism that it is, exactly. All are filters: they hold although later charges may
    depend on earlier results (PROOF.md, step 18). Which one counts is fixed with the cap, not chosen in hindsight.
    """

    epsilon: float
    adjacency: Adjacency = "replace-one"
    delta: float = 0.0
    composition: Composition = "basic"

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise ConfigError("epsilon of a budget must be a number, 0 or more")
        if not 0 <= self.delta < 1:
            raise ConfigError("delta of a budget must be at least 0 and below 1")
        if self.adjacency not in ("add-remove", "replace-one"):
            raise ConfigError("adjacency must be 'replace-one' or 'add-remove'")
        if self.composition not in COMPOSITIONS:
            raise ConfigError(f"composition must be one of {', '.join(COMPOSITIONS)}")
        if self.composition != "basic" and self.delta == 0:
            raise ConfigError(f"{self.composition} composition needs a delta above 0")

    def to_dict(self) -> dict[str, Any]:
        """The cap as plain data."""
        return {
            "epsilon": float(self.epsilon),
            "adjacency": self.adjacency,
            "delta": float(self.delta),
            "composition": self.composition,
        }

    def widens(self, before: Budget) -> bool:
        """Whether this cap could allow anything that the earlier one did not."""
        same = (self.adjacency, self.composition) == (before.adjacency, before.composition)
        return not same or self.epsilon > before.epsilon or self.delta > before.delta

    def used(self, charges: Sequence[Charge]) -> tuple[float, float]:
        """The (ε, δ) that these charges take up, as this cap counts."""
        counted = [c for c in charges if c.private]
        epsilon = math.fsum(c.epsilon(self.adjacency) for c in counted)
        delta = math.fsum(c.delta for c in counted)
        if self.composition == "basic":
            return epsilon, delta
        events = [c.event(self.adjacency) for c in counted]
        known = [e for e in events if e is not None]
        if self.composition == "gaussian":
            exact = pure_and_gaussian(known, self.delta) if len(known) == len(events) else math.inf
            return exact, self.delta if any(isinstance(e, Gaussian) for e in known) else 0.0
        joint = math.inf
        if len(known) == len(events):
            joint = rdp_epsilon(known, filter_order(self.epsilon, self.delta), self.delta)
        if all(c.delta == 0 for c in counted) and epsilon <= joint:
            return epsilon, 0.0
        return joint, self.delta

    def require_room(
        self,
        charges: Sequence[Charge],
        wanted: Sequence[Charge],
        *,
        dataset: str,
        what: str = "this run",
        outcome: str = "Nothing was spent on it",
        reserved: Sequence[Charge] = (),
    ) -> None:
        """Raises unless the wanted charges fit beside all earlier ones and what other runs have reserved.

        `what` says for the message what would cost that much, and `outcome` what became of it.
        """
        counted = [charge for charge in wanted if charge.private and not charge.free]
        if not counted:
            return
        if self.composition != "basic" and any(charge.event(self.adjacency) is None for charge in counted):
            raise BudgetError(
                "a charge with a delta above 0 must say what happened (its event), so that it can be composed",
                where=dataset,
            )
        epsilon, delta = self.used([*charges, *reserved, *counted])
        if epsilon <= self.epsilon * _SLACK and delta <= self.delta * _SLACK:
            return
        raise BudgetError(
            f"{what} would cost {self._price(counted)}, but only {self._room(charges, reserved, counted)}. {outcome}",
            where=dataset,
            hint=f"ask for less, or see `selpe budget show {shlex.quote(dataset)}` and `selpe budget set --raise`",
        )

    def _price(self, wanted: Sequence[Charge]) -> str:
        epsilon, delta = self.used(wanted)
        return f"ε {epsilon:g}" + (f", δ {delta:g}" if delta else "")

    def _room(self, charges: Sequence[Charge], reserved: Sequence[Charge], wanted: Sequence[Charge]) -> str:
        before, before_delta = self.used([*charges, *reserved])
        room = f"ε {max(0.0, self.epsilon - before):.4g} of {self.epsilon:g} is left ({self.adjacency})"
        if self.delta or any(charge.delta for charge in wanted):
            room += f", δ {max(0.0, self.delta - before_delta):.3g} of {self.delta:g}"
        runs = {charge.run for charge in reserved}
        held = before - self.used(charges)[0]
        return room + (f"; {len(runs)} other run(s) have ε {held:.4g} reserved" if runs else "")


@dataclass(frozen=True, slots=True)
class Spent:
    """Everything that was ever spent on a table, results lost in a crash included."""

    epsilon_add_remove: float = 0.0
    epsilon_replace_one: float = 0.0
    delta: float = 0.0
    charges: int = 0
    without_result: int = 0
    controls: int = 0
    runs: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    @property
    def not_private(self) -> bool:
        """True once a control without noise has looked at the table: its output is not a private release."""
        return self.controls > 0

    def epsilon(self, relation: Adjacency) -> float:
        """Σ ε under one relation, controls without noise left aside."""
        return self.epsilon_add_remove if relation == "add-remove" else self.epsilon_replace_one


def spent(charges: Iterable[Charge], *, results: int = 0) -> Spent:
    """What the charges come to: sums, but all Gaussian noise counts as one exact mechanism. Controls are apart."""
    everything = list(charges)
    counted = [c for c in everything if c.private]
    total = Spent(
        epsilon_add_remove=_together(counted, "add-remove"),
        epsilon_replace_one=_together(counted, "replace-one"),
        delta=_common_delta(counted) + math.fsum(c.delta for c in counted if not _is_gaussian(c)),
        charges=len(everything),
        controls=len(everything) - len(counted),
        runs=tuple(dict.fromkeys(c.run for c in everything)),
        units=tuple(dict.fromkeys(c.unit for c in everything)),
    )
    return replace(total, without_result=len(everything) - results)


def _together(charges: Sequence[Charge], relation: Adjacency) -> float:
    """ε of these charges under one relation. Adding up the ε of Gaussian looks would overstate it several times."""
    plain = math.fsum(c.epsilon(relation) for c in charges if not _is_gaussian(c))
    noise = [event for c in charges if _is_gaussian(c) and (event := c.event(relation)) is not None]
    return plain + (pure_and_gaussian(noise, _common_delta(charges)) if noise else 0.0)


def _common_delta(charges: Sequence[Charge]) -> float:
    """The δ at which Gaussian noise is stated together: the largest that one of its charges is stated at."""
    return max((c.delta for c in charges if _is_gaussian(c)), default=0.0)


def _is_gaussian(charge: Charge) -> bool:
    return isinstance(charge.event_add_remove, Gaussian) and isinstance(charge.event_replace_one, Gaussian)


def _number(epsilon: float) -> float | str:
    return float(epsilon) if math.isfinite(epsilon) else "inf"


def spent_by(charges: Iterable[Charge]) -> dict[str, dict[str, float]]:
    """What each run has spent, in the order in which they first charged."""
    groups: dict[str, list[Charge]] = {}
    for charge in charges:
        groups.setdefault(charge.run, []).append(charge)
    totals = {run: spent(group) for run, group in groups.items()}
    return {
        run: {
            "charges": total.charges,
            "epsilon_add_remove": total.epsilon_add_remove,
            "epsilon_replace_one": total.epsilon_replace_one,
        }
        for run, total in totals.items()
    }
