"""What runs have set aside in a ledger and not drawn yet.

A run reserves its whole ε before its first look, so that runs at the same time cannot start on the same ε and burn it
together. A reservation is not spending: it shrinks with every charge of its run and ends when the run is settled. What
was charged stays charged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from selpe.privacy.ledger.charges import Charge

if TYPE_CHECKING:
    from selpe.privacy.ledger.journal import Entry

RESERVE, SETTLE = "reserve", "settle"


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one run may still draw: its charges to come, where the run lives, and since when they are set aside."""

    run: str
    charges: tuple[Charge, ...]
    folder: str = ""
    since: str = ""

    def after(self, charge: Charge) -> Reservation:
        """What is left of it once a charge of the run was made."""
        return replace(self, charges=tuple(one for one in self.charges if one.selection != charge.selection))

    def to_dict(self) -> dict[str, Any]:
        """The reservation as a ledger line holds it."""
        return {"run": self.run, "charges": [charge.to_dict() for charge in self.charges], "folder": self.folder}


def open_reservations(entries: Iterable[Entry]) -> dict[str, Reservation]:
    """The reservations in force, by run; the latest of a run stands for all before it."""
    held: dict[str, Reservation] = {}
    for entry in entries:
        run = str(entry.data.get("run"))
        if entry.kind == RESERVE:
            charges = tuple(Charge.from_dict(one) for one in entry.data["charges"])
            held[run] = Reservation(run, charges, str(entry.data["folder"]), entry.time)
        elif entry.kind == SETTLE:
            held.pop(run, None)
        elif entry.kind == "charge" and run in held:
            held[run] = held[run].after(Charge.from_dict(entry.data))
    return held
