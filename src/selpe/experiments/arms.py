"""The rows of a table: methods with their settings, and the controls they are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from selpe.config.presets import PAPER
from selpe.errors import ConfigError

Kind = Literal["run", "private rows", "real rows"]

TRAINED = frozenset({"ctcl", "dpgen", "dpds"})  # methods that train a model and need torch


@dataclass(frozen=True, slots=True)
class Arm:
    """A method as a row. `paper` is its name in the paper's tables, '' if it is not in them."""

    name: str
    title: str
    method: str
    paper: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False  # training, or texts that must be written again for every ε

    @property
    def trained(self) -> bool:
        """Whether it needs torch."""
        return self.method in TRAINED


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("selpe", "SelPE", "selpe"),
        Arm("selpe-paper", "SelPE, paper's configuration", "selpe", "selpe", PAPER, slow=True),
        Arm("augpe", "Aug-PE", "augpe", "augpe", slow=True),
        Arm("wasp", "WASP", "wasp", "wasp", slow=True),
        Arm("ctcl", "CTCL", "ctcl", "ctcl", slow=True),
        Arm("dpgen", "DP-Gen", "dpgen", "dpgen", slow=True),
        Arm("dpds", "DP-DS", "dpds", "dpds", slow=True),
        Arm("aim", "AIM", "aim"),
        Arm("mst", "MST", "mst"),
        Arm("aim-text", "AIM, texts by the model", "aim", settings={"aim": {"texts": "written"}}, slow=True),
        Arm("mst-text", "MST, texts by the model", "mst", settings={"mst": {"texts": "written"}}, slow=True),
        Arm("prior", "the model alone", "prior"),
    )
}
OURS = ("selpe", "selpe-paper")
NOTHING, EVERYTHING = "control: ε = 0", "control: ε = ∞"
PRIVATE_ROWS, REAL_ROWS = "control: private rows", "control: as many real rows"
CONTROLS = (NOTHING, EVERYTHING, PRIVATE_ROWS, REAL_ROWS)


def arm_of(name: str) -> Arm:
    """The arm of that name."""
    if name not in ARMS:
        raise ConfigError(f"there is no method '{name}'", where="--methods", hint=f"the methods are {', '.join(ARMS)}")
    return ARMS[name]


def title_of(name: str) -> str:
    """What a row is called in a table: an arm's title, or the name itself."""
    return ARMS[name].title if name in ARMS else name
