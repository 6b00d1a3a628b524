"""What a privacy card says about each method: what the private rows do, and how the costs add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from selpe.config import RunConfig
from selpe.config.methods import METHODS, is_gaussian

_VOTES = {
    "approval": "each private row approves a fixed share of the candidates of its class",
    "closeness": "each private row gives each candidate a vote between 0 and 1 by its closeness",
    "prototype": "candidates are scored by their distance to the centre of a batch of rows (sensitivity 1)",
}
_LOOKS = {
    "augpe": "each private row votes for the nearest text of its class, and every count gets noise",
    "wasp": "each private row spreads votes over the nearest and the furthest texts of its class, halved with every "
    "rank, and every count gets noise",
    "ctcl": "each private row counts for its nearest public topic, and every count gets noise; then a generator is "
    "trained on the rows, with clipped gradients and noise at every step",
    "dpgen": "a generator is trained on the private rows, with clipped gradients and noise at every step",
    "aim": "each private row counts in one cell of each of a few marginals, which are chosen and counted with noise",
    "mst": "each private row counts in one cell of each of a few marginals, which are chosen and counted with noise",
    "prior": "no private row is read: the model writes alone",
    "dpds": "a classifier is trained on the private rows, with clipped gradients and noise at every step",
}
# Settings that say how private choices were made. Paths, queries and hosts are left out: they are nobody's business.
_COMMON = (
    "method", "epsilon", "delta", "adjacency", "rows", "skip_bad_rows", "blank_bad_cells", "records", "quotas",
)  # fmt: skip
_OURS = (
    "rounds", "batches", "alpha", "multiplicity", "mechanism", "votes", "epsilon_schedule", "guides", "bundles",
    "measure",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MethodText:
    """The sentences of a card that depend on the method."""

    votes: str
    how: str
    composition: str
    library: str
    where: str


def method_text(config: RunConfig) -> MethodText:
    """What the card says of this run's method."""
    where = f"private rows are read in one local process, {_read(config.method)}"
    if is_gaussian(config.method):
        return MethodText(
            "none" if config.method in ("dpgen", "dpds") else "histogram",
            _LOOKS[config.method],
            "exact: all Gaussian noise of the run is one Gaussian mechanism, whose ε is stated at δ; the ε of single "
            "looks do not add up to it",
            "OpenDP draws noise on counts; ε follows from the exact formula for Gaussian noise",
            where,
        )
    if METHODS[config.method].free:
        return MethodText("none", _LOOKS[config.method], "nothing is spent", "none", "no private row takes part")
    if config.method in _LOOKS:
        return MethodText(
            "none",
            _LOOKS[config.method],
            "one measurement: choices and counts together cost what is stated",
            "OpenDP draws every choice and all noise; each step costs what the measurement's own privacy map states",
            where,
        )
    return MethodText(
        config.votes,
        f"{_VOTES[config.votes]}; one candidate per class and batch is chosen by noisy maximum",
        "sequential: the ε of all selections of the run are added up",
        "OpenDP; each charge is what the measurement's own privacy map states",
        where,
    )


def _read(method: str) -> str:
    """What private rows are read for."""
    if METHODS[method].trains:
        return "to vote and to train the model of this run"
    return "and only to be counted" if METHODS[method].extra == "marginals" else "and only to vote"


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The settings that a card tells: common ones, and the method's own."""
    if config.method == "selpe":
        core = ("core",) if config.records > config.core else ()
        return {name: getattr(config, name) for name in (*_COMMON, *core, *_OURS, "seed")}
    group = getattr(config, config.method, None)
    own = {} if group is None else group.model_dump(mode="json", exclude={"models"})
    told = {f"{config.method}.{name}": value for name, value in own.items()}
    return {name: getattr(config, name) for name in _COMMON} | told | {"seed": config.seed}
