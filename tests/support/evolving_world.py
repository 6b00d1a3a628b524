"""Everything an evolution needs, on the fake model, the hashing encoder and a ledger of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selpe.events import Event, Selected
from selpe.method.algorithm import Evolution, Evolved, Method
from selpe.method.generation import Generator
from selpe.method.guides import builtin_guides
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.ledger import Ledger
from selpe.privacy.plan import Plan, make_plan
from selpe.privacy.table import PrivateTable
from selpe.schema import Record, Schema
from small_world import SCHEMA, drawn

ENCODER = HashingEncoder(64)


class World:
    """A plan over a small table. What is given beside schema, model and rows goes into the plan."""

    def __init__(
        self,
        folder: Path,
        *,
        schema: Schema = SCHEMA,
        model: FakeModel | None = None,
        rows: Sequence[Record] | None = None,
        **plan: Any,
    ) -> None:
        self.schema = schema
        self.model = model or FakeModel()
        self.rows = drawn(40, offset=9000, schema=schema) if rows is None else rows
        self.events: list[Event] = []
        self.ledger = Ledger.open("desk", root=folder)
        self.ledger.set_budget(1e6)
        settings: dict[str, Any] = {
            "units": len(self.rows), "labels": schema.labels, "epsilon": 4.0, "records": 24, "rounds": 3, "batches": 2,
            "alpha": 0.25,
        }  # fmt: skip
        self.plan: Plan = make_plan(**{**settings, **plan})

    def evolve(
        self, method: Method | None = None, *, run: str = "r", guides: int = 1, stages: int = 2, **more: Any
    ) -> Evolved:
        """One evolution, seeded unless `test_seed` is None."""
        private = PrivateTable(self.rows, self.schema, account=self.ledger.account(run))
        known = builtin_guides(self.schema, self.model.name, self.model.capabilities())
        return Evolution(
            private=private,
            schema=self.schema,
            generator=more.pop("generator", None) or Generator(self.model, self.schema, stages=stages),
            kernel=MultiChannelKernel(self.schema, ENCODER, mode=more.pop("kernel", "fields")),
            encoder=ENCODER,
            plan=self.plan,
            guides=known[:guides],
            method=replace(method or Method(), test_seed=more.pop("test_seed", 3)),
            seed=more.pop("seed", 1),
            emit=self.events.append,
            **more,
        ).run()

    @property
    def selected(self) -> list[Selected]:
        """What was told of private steps, in order."""
        return [event for event in self.events if isinstance(event, Selected)]

    @property
    def charged(self) -> dict[str, float]:
        """What each private step was charged under replace-one."""
        charges = [entry.data for entry in self.ledger.entries() if entry.kind == "charge"]
        return {charge["selection"]: float(charge["epsilon_replace_one"]) for charge in charges}


def texts(evolved: Evolved, schema: Schema = SCHEMA) -> list[str]:
    """The records of an evolution as text."""
    return [schema.dumps(candidate.record) for candidate in evolved.candidates]
