"""The state of a table's budget as a client is told it: what was spent, what is reserved, and what is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.charges import Budget, Charge
from selpe.privacy.ledger.reservations import Reservation


@dataclass(frozen=True, slots=True)
class TableBudget:
    """The state of a table's budget. `cap` is None while there is none."""

    dataset: str
    cap: Budget | None
    charges: tuple[Charge, ...]
    held: tuple[Reservation, ...]

    @property
    def used(self) -> float:
        """ε that was spent, as the cap counts."""
        return self.cap.used(self.charges)[0] if self.cap else 0.0

    @property
    def left(self) -> float | None:
        """ε that may still be spent, what is reserved included."""
        return max(0.0, self.cap.epsilon - self.used) if self.cap else None

    @property
    def free(self) -> float | None:
        """ε that is neither spent nor reserved."""
        return max(0.0, self.cap.epsilon - self.cap.used([*self.charges, *self.reserved])[0]) if self.cap else None

    @property
    def reserved(self) -> list[Charge]:
        """Everything that runs have reserved and not drawn yet."""
        return [charge for one in self.held for charge in one.charges]

    def require_room(self, cap: Budget, wanted: Sequence[Charge]) -> None:
        """Raises BudgetError unless these charges fit beside everything that is spent and reserved."""
        cap.require_room(self.charges, wanted, dataset=self.dataset, reserved=self.reserved)


def account_of(ledger: Ledger) -> TableBudget:
    """The state of a table's budget now."""
    if not ledger.exists:
        return TableBudget(ledger.dataset, None, (), ())
    held = tuple(ledger.reservations().values())
    return TableBudget(ledger.dataset, ledger.budget, tuple(ledger.charges()), held)
