"""Whether a run still fits the budget of its table, with everything counted that other accepted runs will spend.

The ledger lets no run overspend, whatever happens here. But a run that is stopped by it half-way has spent its ε for
nothing. So what an accepted run will cost is set aside until it is done, cancelled or failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from selpe.config import RunConfig
from selpe.errors import BudgetError
from selpe.privacy.charges import Budget, Charge, Composition
from selpe.privacy.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Commitment:
    """A run that was accepted and is not over, and what it will be charged in all."""

    run: str
    charges: tuple[Charge, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """The state of a table's budget. `cap` is None while there is none."""

    dataset: str
    cap: Budget | None
    charges: tuple[Charge, ...]
    open: tuple[Commitment, ...]

    @property
    def used(self) -> float:
        """ε that was spent, as the cap counts."""
        return self.cap.used(self.charges)[0] if self.cap else 0.0

    @property
    def left(self) -> float | None:
        """ε that may still be spent, what is set aside included."""
        return max(0.0, self.cap.epsilon - self.used) if self.cap else None

    @property
    def free(self) -> float | None:
        """ε that is neither spent nor set aside."""
        return max(0.0, self.cap.epsilon - self.cap.used(self.committed())[0]) if self.cap else None

    def committed(self, without: str = "") -> list[Charge]:
        """All charges there will be: those made, and for runs that are not over, their whole plans in place of theirs.

        A draw that was paid twice because a crash lost its result comes on top of a plan.
        """
        planned = {one.run for one in self.open if one.run != without}
        found = [charge for charge in self.charges if charge.run not in planned]
        for one in self.open:
            if one.run in planned:
                found += [*one.charges, *self._repeated(one.run)]
        return found

    def require_room(self, cap: Budget, charges: Sequence[Charge], *, run: str = "") -> None:
        """Raises BudgetError unless these charges fit beside everything that is committed to other runs."""
        before = [charge for charge in self.committed(without=run) if charge.run != run]
        try:
            for charge in [*self._repeated(run), *charges]:
                cap.check(before, charge, dataset=self.dataset)
                before.append(charge)
        except BudgetError as error:
            others = len([one for one in self.open if one.run != run])
            aside = f"; {others} other run(s) have theirs set aside" if others else ""
            message = error.message.replace("the next selection would cost", "this run would cost") + aside
            raise BudgetError(message, where=error.where, hint="ask for less, or see the table's budget") from None

    def _repeated(self, run: str) -> list[Charge]:
        seen: set[str] = set()
        again = []
        for charge in self.charges:
            if charge.run == run:
                if charge.selection in seen:
                    again.append(charge)
                seen.add(charge.selection)
        return again


def account_of(ledger: Ledger, commitments: Sequence[Commitment]) -> Account:
    """The state of a table's budget now. Commitments are given as they were before the ledger is read: a run that ends
    in between counts with its plan, and never not at all."""
    charges = tuple(ledger.charges()) if ledger.exists else ()
    return Account(ledger.dataset, ledger.budget if ledger.exists else None, charges, tuple(commitments))


def cap_of(config: RunConfig, composition: Composition) -> Budget:
    """The cap that a table gets from its first run."""
    return Budget(config.budget or config.epsilon, config.adjacency, config.delta, composition)
