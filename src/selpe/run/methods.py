"""What every method meets: one protocol for SelPE and for the baselines it is compared with.

A method comes as a `Recipe`: from the settings it makes a public plan, and from the parts of a run a `Synthesizer`.
`fit` is the only thing that touches the private table. It is a function of settings, model answers and private results:
the run remembers the answers and the ledger stores the results, so that fitting again ends where it would have ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from selpe.config import Adjacency, RunConfig
from selpe.config.methods import METHODS
from selpe.errors import ConfigError
from selpe.events import Emit, silence
from selpe.models.base import ChatModel
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.privacy.card import Drawn
from selpe.privacy.ledger.charges import Charge
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.table import PrivateTable
from selpe.run.estimate import Estimate
from selpe.run.workspace import WorkFolder
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from selpe.method.algorithm import Evolved
    from selpe.run.large.whole import WholeTable


class SpendingPlan(Protocol):
    """What a run will spend, before it does: private steps by name, each with a price. All of it public.

    `Plan` (selections with pure ε) and `GaussianPlan` (looks with Gaussian noise) meet it.
    """

    @property
    def units(self) -> int:
        """The number of protected units."""

    @property
    def records(self) -> int:
        """The number of records to write."""

    @property
    def epsilon(self) -> float:
        """ε as asked for."""

    @property
    def adjacency(self) -> Adjacency:
        """The neighbour relation that ε is meant under."""

    @property
    def guarantee(self) -> Guarantee:
        """ε of the whole run under both relations."""

    @property
    def verdict(self) -> str:
        """What to expect, in a sentence; may be empty."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the owner should know before spending."""

    def prices(self) -> dict[str, float]:
        """The price of every private step by its name in the ledger, in the plan's own currency; prices add up."""

    def at(self, prices: Mapping[str, float]) -> SpendingPlan:
        """The same plan at other prices."""

    def charges(self, run: str, unit: str = "record") -> list[Charge]:
        """What the steps will be charged, in order."""

    def steps(self) -> list[str]:
        """The steps in words, for an outlook."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""


@dataclass(frozen=True, slots=True)
class RawOutput:
    """One output as the model wrote it: R-CFG and S-CFG are measured on these.

    `label` is the class that was asked for. `record` is what could be read of it, valid or not; `released` says that
    it fits the schema and is in the release.
    """

    raw: str
    label: str | None = None
    record: Record | None = None
    released: bool = True


@dataclass(frozen=True, slots=True)
class Synthesized:
    """What came of a fit: valid records, the outputs they were read from, and every private result.

    `notes` go into the manifest: public facts such as the guide chosen or the models' weights. `evolved` is what more
    records can be generated from, where the method knows how. `whole` is the release where it is too large to hold:
    then `records` and `raw` are of its core. `measurements` are noisy tables to be released beside the records
    (run/measurements.py).
    """

    records: tuple[Record, ...]
    raw: tuple[RawOutput, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    evolved: Evolved | None = None
    whole: WholeTable | None = None
    measurements: Mapping[str, Any] | None = None


class Synthesizer(Protocol):
    """A method that has its models and settings and lacks only the private table."""

    def fit(self, table: PrivateTable, schema: Schema, budget: Mapping[str, float]) -> Synthesized:
        """Synthetic records, at these prices: what the plan's `prices()` says, or less after a lost draw.

        Every private result is charged before a row takes part, and stored under its name before it is used. Emits the
        events of selpe.events; raises StoppedError once the owner has asked to stop.
        """


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run hands to a method. `models` begins with the run's own; `work` has a place for checkpoints.

    Nothing computed from private rows without noise may be written to `work`. `public_encoder` stands in for `encoder`
    where texts are public, and remembers them; private text goes through `encoder` alone. `test_seed` asks for seeded
    noise: for tests only, and the results say 'not private'.
    """

    config: RunConfig
    schema: Schema
    plan: SpendingPlan
    models: tuple[ChatModel, ...]
    encoder: Encoder
    work: WorkFolder
    emit: Emit = silence
    cancel: threading.Event | None = None
    test_seed: int | None = None
    public_encoder: PublicEncoder | None = None

    @property
    def model(self) -> ChatModel:
        """The run's own model."""
        return self.models[0]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a method is made from settings: its plan for a table of so many units, what it will take, and itself.

    The estimate is made before a model is opened, from the manifests of earlier runs or from typical figures.
    """

    plan: Callable[[RunConfig, Schema, int], SpendingPlan]
    estimate: Callable[[RunConfig, Schema, SpendingPlan, Sequence[Mapping[str, Any]]], Estimate]
    build: Callable[[Parts], Synthesizer]


def recipe_of(method: str) -> Recipe:
    """The recipe of a method by its name. It is loaded here by its name alone: the inside imports no baseline."""
    if method not in METHODS:
        raise ConfigError(f"there is no method '{method}'", hint=f"the methods are {', '.join(METHODS)}")
    try:
        recipe: Recipe = import_module(METHODS[method].module).RECIPE
    except ModuleNotFoundError as error:
        if extra := METHODS[method].extra:
            needs = f"{'trains a model and ' if METHODS[method].trains else ''}needs {error.name}"
            raise ConfigError(f"'{method}' {needs}", hint=f"install selpe[{extra}]", where="method") from None
        raise
    return recipe
